package validate

import (
	"cmp"
	"math"
	"slices"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/stat"

	"wattmark/analysis/stats"
	"wattmark/measure"
)

// Summary is many subjects together.
type Summary struct {
	Subjects int
	// Lines are by method over all subjects first (GPU and Driver empty), then by
	// GPU, driver and method where there is more than one GPU or driver.
	Lines []SummaryLine
}

// SummaryLine is one method over several subjects.
type SummaryLine struct {
	GPU, Driver, Method string
	N                   int // subjects of which the method said something
	Judged, Agreeing    int // of these, with a meter that can judge, and within the uncertainty
	// MeanErrorPct is the mean of the subjects' errors, [Lo, Hi] its interval over the
	// subjects, NaN for fewer than three of them.
	MeanErrorPct, Lo, Hi float64
	// MAPEPct is the mean of their absolute values; RMSEPct and RMSE are the roots of
	// the mean squares of the errors in per cent and in joules.
	MAPEPct, RMSEPct float64
	RMSE             measure.Joule
	WorstPct         float64 // the largest error by size, with its sign
	WorstName        string  // and whose it is
}

// Summarise gathers reports.
func Summarise(reports []*Report, o Options) Summary {
	out := Summary{Subjects: len(reports)}
	type key struct{ gpu, driver, method string }
	var order []key
	by := map[key][]pair{}
	add := func(k key, p pair) {
		if _, ok := by[k]; !ok {
			order = append(order, k)
		}
		by[k] = append(by[k], p)
	}
	cards := map[[2]string]bool{}
	for _, r := range reports {
		cards[[2]string{r.GPU, r.Driver}] = true
	}
	for _, all := range []bool{true, false} {
		if !all && len(cards) < 2 {
			break
		}
		for _, r := range reports {
			for i := range r.Methods {
				k := key{r.GPU, r.Driver, r.Methods[i].Name}
				if all {
					k.gpu, k.driver = "", ""
				}
				add(k, pair{r, &r.Methods[i]})
			}
		}
	}
	for _, k := range order {
		if l, ok := summaryLine(by[k], o.defaults()); ok {
			l.GPU, l.Driver, l.Method = k.gpu, k.driver, k.method
			out.Lines = append(out.Lines, l)
		}
	}
	slices.SortStableFunc(out.Lines, func(a, b SummaryLine) int {
		return cmp.Or(cmp.Compare(a.GPU, b.GPU), cmp.Compare(a.Driver, b.Driver))
	})
	return out
}

// pair is a method within its report.
type pair struct {
	report *Report
	method *MethodReport
}

func summaryLine(list []pair, o Options) (l SummaryLine, ok bool) {
	var errs, truth, said []float64
	for _, p := range list {
		m := p.method
		if !m.told() {
			continue
		}
		l.Judged += b2i(m.Agreement != Unknown)
		l.Agreeing += b2i(m.Agreement == Agrees)
		if math.Abs(m.ErrorPct) > math.Abs(l.WorstPct) || l.WorstName == "" {
			l.WorstPct, l.WorstName = m.ErrorPct, p.report.Name
		}
		errs, truth, said = append(errs, m.ErrorPct), append(truth, float64(p.report.Truth.Energy)), append(said, float64(m.Energy))
	}
	if len(errs) == 0 {
		return l, false
	}
	mean := func(x []float64) float64 { return stat.Mean(x, nil) }
	b := stats.Bootstrap{Resamples: o.Resamples, Level: o.Level, Seed: o.Seed}.BCa(errs, mean)
	d := stats.Deviations(said, truth, nil)
	l.N, l.MeanErrorPct, l.Lo, l.Hi = len(errs), b.Point, b.Lo, b.Hi
	l.MAPEPct, l.RMSE = d.MAPE, measure.Joule(d.RMSE)
	l.RMSEPct = floats.Norm(errs, 2) / math.Sqrt(float64(len(errs)))
	return l, true
}

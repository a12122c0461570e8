package validate

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/wattmark/wattmark/analysis/stats"
	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/stat"
)

// judgeLoad sets the swing of the truth and its share within the sensor's updates.
func (r *run) judgeLoad() {
	mean := float64(r.rep.Truth.Energy) / float64(len(r.power))
	spread := stats.Deviations(r.power, constant(mean, len(r.power)), nil).RMSE
	r.rep.Swing = measure.Number(spread / mean)
	// The slowest sensor sets the scale: changes within its update are the ones it misses.
	var slow float64
	for _, m := range r.rep.Methods {
		if u := float64(m.Update); u > slow && u < (r.to-r.from)/2 {
			slow = u
		}
	}
	r.rep.Alternation = measure.Number(r.within(slow))
	// A method is blind where the power changes faster than it has new values, or while it
	// shows none.
	for i := range r.rep.Methods {
		m := &r.rep.Methods[i]
		u := float64(m.Update)
		m.blind = r.rep.Swing >= 0.1 && m.Compared >= 2 && (math.IsNaN(u) || r.within(u) > 0.5)
	}
}

// within is the share of the truth's variance that lies within stretches of a length.
func (r *run) within(length float64) float64 {
	// Analysis of variance: the sum of squares about the means of stretches, of all squares.
	size := max(1, int(math.Round(length/(r.to-r.from)*float64(len(r.power)))))
	mean := float64(r.rep.Truth.Energy) / float64(len(r.power))
	var all, inside float64
	for i := 0; i < len(r.power); i += size {
		part := r.power[i:min(i+size, len(r.power))]
		about := stat.Mean(part, nil)
		for _, e := range part {
			inside += (e - about) * (e - about)
			all += (e - mean) * (e - mean)
		}
	}
	if all == 0 {
		return 0
	}
	return inside / all
}

// Unseen bounds the power of rails that a meter does not measure, each and all
// together: NaN where a rail has no bound, zero where no rail is missing. The bounds are the
// limits of a slot in the PCI Express Card Electromechanical Specification, table 4-1 (a card
// of 75 W): 3 A of 3.3 V within 9 %, 5.5 A of 12 V within 8 %.
func Unseen(rails []string) (list []MissingRail, most measure.Watt) {
	for _, name := range rails {
		m := MissingRail{Name: name, Most: measure.Watt(math.NaN()), Reason: "nothing bounds it"}
		has := func(word string) bool { return strings.Contains(strings.ToLower(name), word) }
		switch {
		case has("3.3"), has("3v3"):
			m.Most, m.Reason = 10.8, "3 A at 3.6 V is the most that the slot's 3.3 V may carry"
		case has("aux"):
			m.Reason = "a plug may carry anything up to its rating"
		case has("slot") && has("12"), has("pcie_12"):
			m.Most, m.Reason = 71.3, "5.5 A at 12.96 V is the most that the slot's 12 V may carry"
		}
		list = append(list, m)
		most += m.Most
	}
	return list, most
}

// conclude writes the verdict on the worst and the best method: the error of the energy
// over the work, and where that agrees, the errors by kernel and of single readings.
func (rep *Report) conclude() {
	var told []*MethodReport
	for i := range rep.Methods {
		if m := &rep.Methods[i]; m.judged() {
			told = append(told, m)
		}
	}
	if len(told) == 0 {
		rep.Verdict = "no method says what this work took"
		return
	}
	// Worst: a certain disagreement first, then an interval without zero, then the size of
	// the error.
	worst := slices.MaxFunc(told, func(a, b *MethodReport) int {
		sure := func(m *MethodReport) int { return 2*b2i(m.Agreement == Reads) + b2i(m.everOff()) }
		return cmp.Or(sure(a)-sure(b), cmp.Compare(size(a.ErrorPct), size(b.ErrorPct)))
	})
	// Best: error plus half interval, single readings last.
	best := slices.MinFunc(told, func(a, b *MethodReport) int {
		// The error of a single reading is chance, however small.
		one := func(m *MethodReport) int { return b2i(m.Compared < 2) }
		return cmp.Or(one(a)-one(b), cmp.Compare(size(a.ErrorPct)+half(a), size(b.ErrorPct)+half(b)))
	})
	parts := []string{rep.sentence(worst)}
	if best != worst {
		nearest := fmt.Sprintf("the nearest, %s, is off by %s", best.Name, errorText(best))
		if best.Agreement == Agrees {
			nearest = rep.agreeing(best)
		}
		parts = append(parts, nearest)
	}
	widest := slices.MaxFunc(told, func(a, b *MethodReport) int { return cmp.Compare(half(a), half(b)) })
	if half(widest) > wild && widest != worst && widest != best {
		parts = append(parts, fmt.Sprintf("of work like this %s may say anything from %+.0f to %+.0f %%", widest.Name,
			widest.Interval.Lo, widest.Interval.Hi))
	}
	if len(rep.Missing) > 0 {
		parts = append(parts, rep.lacking())
	}
	rep.Verdict = strings.Join(parts, "; ")
}

// everOff reports whether other work like this would come out off as well: zero does
// not lie in the interval.
func (m *MethodReport) everOff() bool { return m.Interval.Lo > 0 || m.Interval.Hi < 0 }

// LateEnds reports whether the error over this work lies outside of the interval for longer
// work, because the readings show its begin and its end late.
func (m *MethodReport) LateEnds() bool {
	return measure.Known(m.EndsPct) && m.EndsPct != 0 && measure.Known(m.Lag) &&
		(m.ErrorPct < m.Interval.Lo || m.ErrorPct > m.Interval.Hi)
}

// sentence describes a method's error.
func (rep *Report) sentence(m *MethodReport) string {
	if m.Agreement == Agrees {
		return rep.agreeing(m)
	}
	if !m.everOff() { // off this time, while the interval for other work holds zero
		against := "outside of the uncertainty"
		if m.Agreement == Unknown {
			against = "which the meter does not see enough to judge"
		}
		d := decimals(half(m))
		rest := "of work like this it may say anything from"
		if m.LateEnds() {
			rest = fmt.Sprintf("it shows begin and end %v late, without which it is off by", m.Lag)
		}
		return fmt.Sprintf("%s read %.*f %% %s this time, %s; %s %+.*f to %+.*f %%", m.Name, d, size(m.ErrorPct),
			way(m), against, rest, d, m.Interval.Lo, d, m.Interval.Hi)
	}
	out := fmt.Sprintf("%s reads %s %s over this work", m.Name, sized(m), way(m))
	switch why := rep.advice(m); {
	case m.Agreement == Unknown:
		out += ", and the meter does not see enough to say how far off that is"
	case why != "":
		out += ": " + why
	}
	return out
}

// way names the sign of an error.
func way(m *MethodReport) string {
	if m.ErrorPct < 0 {
		return "low"
	}
	return "high"
}

// agreeing describes a method whose energy over the work agrees, and errors that this
// hides: by kernel, and of single readings.
func (rep *Report) agreeing(m *MethodReport) string {
	out := fmt.Sprintf("%s is within the uncertainty over this work (%s)", m.Name, errorText(m))
	var but []string
	if m.everOff() {
		but = append(but, fmt.Sprintf("longer work like this would be off by %+.1f to %+.1f %%", m.Interval.Lo,
			m.Interval.Hi))
	}
	if name, off := rep.worstKernel(m.Name); name != "" {
		but = append(but, fmt.Sprintf("by kernel it is off by up to %+.1f %% (%s)", off, name))
	}
	if share := 100 * float64(rep.Truth.U/rep.Truth.Energy); m.Compared > 1 && float64(m.MAPEPct) > share {
		but = append(but, fmt.Sprintf("single readings are off by %.2g %% on the average", m.MAPEPct))
	}
	if len(but) > 0 {
		out += ", but " + strings.Join(but, " and ")
	}
	return out
}

// worstKernel is the kernel whose energy a method's readings miss by most, of those
// that they do not agree on; empty where there is none.
func (rep *Report) worstKernel(method string) (name string, off float64) {
	for _, l := range rep.ByKernel(len(rep.Kernels)) {
		if l.Kind == AllKernels {
			continue
		}
		for _, k := range l.Methods {
			if k.Name == method && k.Agreement == Reads && size(k.ErrorPct) > math.Abs(off) {
				name, off = l.Name, float64(k.ErrorPct)
				if l.Kind == WithoutKernel {
					name = "while no kernel ran"
				}
			}
		}
	}
	return name, off
}

// advice names the cause of a method's error and the use to avoid.
func (rep *Report) advice(m *MethodReport) string {
	length := float64(rep.Work.Length())
	// In order of certainty: what the readings themselves show comes before what the length
	// of the work suggests.
	switch update := float64(m.Update); {
	case size(m.ErrorPct) < 3:
		return ""
	case m.blind:
		return "do not use it for kernels that alternate"
	case m.Compared == 1:
		return "one reading does not stand for the work"
	case update > 0 && length < 10*update:
		return fmt.Sprintf("do not use it for work as short as %v", measure.Seconds(length))
	case m.Lag > 0 && float64(m.Lag) > length/20:
		return fmt.Sprintf("it trails the power by %v, too much for work of %v", m.Lag, measure.Seconds(length))
	case math.Abs(m.late) < size(m.ErrorPct)/3:
		return fmt.Sprintf("it settles too slowly for work of %v", measure.Seconds(length))
	}
	return "calibrate it against the meter before use"
}

// lacking describes the effect of missing rails on the errors.
func (rep *Report) lacking() string {
	names := lists.Map(rep.Missing, func(m MissingRail) string { return m.Name })
	list := strings.Join(names, ", ")
	if p := float64(rep.MissingPower); !math.IsNaN(p) {
		return fmt.Sprintf("the meter does not see %s, so that true errors lie up to %.1f %% lower", list,
			100*p/float64(rep.Mean))
	}
	return fmt.Sprintf("the meter does not see %s: the card draws more than it says, by what nothing bounds", list)
}

// b2i returns 1 for true.
func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// half is the larger half of a method's interval, in per cent.
func half(m *MethodReport) float64 {
	return float64(max(m.ErrorPct-m.Interval.Lo, m.Interval.Hi-m.ErrorPct))
}

// size returns a figure without its sign.
func size(v measure.Number) float64 { return math.Abs(float64(v)) }

// lopsided reports an interval that ± does not describe.
func lopsided(m *MethodReport) bool {
	// Also where the symmetric form would hold zero, which the interval does not.
	a, b := float64(m.ErrorPct-m.Interval.Lo), float64(m.Interval.Hi-m.ErrorPct)
	return max(a, b) > 1.3*min(a, b) || m.everOff() && half(m) >= size(m.ErrorPct)
}

// errorText is an error with its interval.
func errorText(m *MethodReport) string {
	d := decimals(half(m))
	if lopsided(m) {
		return fmt.Sprintf("%+.*f %%, %+.*f to %+.*f", d, m.ErrorPct, d, m.Interval.Lo, d, m.Interval.Hi)
	}
	return fmt.Sprintf("%+.*f ± %.*f %%", d, m.ErrorPct, d, half(m))
}

// sized is the size of an error whose interval does not hold zero.
func sized(m *MethodReport) string {
	d, near, far := decimals(half(m)), size(m.Interval.Lo), size(m.Interval.Hi)
	if lopsided(m) {
		return fmt.Sprintf("%.*f %% (%.*f to %.*f %%)", d, size(m.ErrorPct), d, min(near, far), d, max(near, far))
	}
	return fmt.Sprintf("%.*f ± %.*f %%", d, size(m.ErrorPct), d, half(m))
}

// wild is how wide half of an interval has to be to be warned of, in per cent.
const wild = 15

// decimals is how many places after the point an uncertainty deserves: to two
// significant digits below one, one place above.
func decimals(u float64) int { return max(1, min(3, measure.Decimals(u))) }

// Summary is many subjects together.
type Summary struct {
	Subjects int
	// Lines are by method over all subjects first (GPU and Driver empty), then by
	// GPU, driver and method where there is more than one GPU or driver.
	Lines []SummaryLine
}

// SummaryLine is one method over several subjects.
type SummaryLine struct {
	GPU      string `json:"gpu,omitempty"`
	Driver   string `json:"driver,omitempty"`
	Method   string `json:"method"`
	N        int    `json:"subjects"` // with an energy by the method
	Judged   int    `json:"judged"`   // of these, with a meter that can judge
	Agreeing int    `json:"agreeing"` // of these, within the uncertainty
	// MeanErrorPct is the mean of the subjects' errors, Interval its confidence interval
	// over the subjects, NaN for fewer than three of them.
	MeanErrorPct measure.Number `json:"mean_error_pct"`
	Interval     Interval       `json:"interval"`
	// MAPEPct is the mean of their absolute values; RMSEPct and RMSE are the roots of
	// the mean squares of the errors in per cent and in joules.
	MAPEPct   measure.Number `json:"mape_pct"`
	RMSEPct   measure.Number `json:"rmse_pct"`
	RMSE      measure.Joule  `json:"rmse_j"`
	WorstPct  measure.Number `json:"worst_pct"` // the largest error by size, with its sign
	WorstName string         `json:"worst"`     // its subject
}

// Summarise gathers reports.
func Summarise(reports []*Report, o Options) Summary {
	out := Summary{Subjects: len(reports), Lines: []SummaryLine{}}
	type key struct{ gpu, driver, method string }
	var by lists.Groups[key, pair]
	// Lines by card would repeat the lines over all where there is one card and one driver.
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
				by.Add(k, pair{r, &r.Methods[i]})
			}
		}
	}
	for _, k := range by.Keys {
		if l, ok := summaryLine(by.Of[k], o.defaults()); ok {
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

// summaryLine combines one method over subjects; false where it has no energy in any.
func summaryLine(list []pair, o Options) (l SummaryLine, ok bool) {
	var errs, truth, said []float64
	for _, p := range list {
		m := p.method
		if !m.judged() {
			continue
		}
		l.Judged += b2i(m.Agreement != Unknown)
		l.Agreeing += b2i(m.Agreement == Agrees)
		if size(m.ErrorPct) > size(l.WorstPct) || l.WorstName == "" {
			l.WorstPct, l.WorstName = m.ErrorPct, p.report.Name
		}
		errs = append(errs, float64(m.ErrorPct))
		truth, said = append(truth, float64(p.report.Truth.Energy)), append(said, float64(m.Energy))
	}
	if len(errs) == 0 {
		return l, false
	}
	mean := func(x []float64) float64 { return stat.Mean(x, nil) }
	b := stats.Bootstrap{Resamples: o.Resamples, Level: o.Level, Seed: o.Seed}.BCa(errs, mean)
	d := stats.Deviations(said, truth, nil)
	l.N, l.MeanErrorPct = len(errs), measure.Number(b.Point)
	l.Interval = Interval{measure.Number(b.Lo), measure.Number(b.Hi)}
	l.MAPEPct, l.RMSE = measure.Number(d.MAPE), measure.Joule(d.RMSE)
	l.RMSEPct = measure.Number(floats.Norm(errs, 2) / math.Sqrt(float64(len(errs))))
	return l, true
}

package sensor

import (
	"fmt"
	"math"

	"gonum.org/v1/gonum/stat/distuv"

	"wattmark/measure"
)

// vuong is Vuong's statistic (1989) for models that do not contain each other, with
// the variance of neighbours' sums: how many standard deviations the first is
// better by.
func vuong(better, worse []float64) float64 {
	n := float64(len(better))
	var sb, sw float64
	for i := range better {
		sb, sw = sb+better[i]*better[i], sw+worse[i]*worse[i]
	}
	sb, sw = max(sb/n, 1e-12), max(sw/n, 1e-12)
	d, mean := make([]float64, len(better)), 0.0
	for i := range d {
		d[i] = 0.5 * (math.Log(sw/sb) + worse[i]*worse[i]/sw - better[i]*better[i]/sb)
		mean += d[i] / n
	}
	band := int(4 * math.Pow(n/100, 2.0/9))
	var v float64
	for lag := 0; lag <= band; lag++ {
		var c float64
		for i := lag; i < len(d); i++ {
			c += (d[i] - mean) * (d[i-lag] - mean)
		}
		if w := 1 - float64(lag)/float64(band+1); lag > 0 {
			c *= 2 * w
		}
		v += c
	}
	if v <= 0 {
		return 0
	}
	return mean * n / math.Sqrt(v)
}

// judge adds what the reader should know.
func (x *Identified) judge(b bounds, box, lag *fitted, k *Known, left int) {
	p := &x.Profile
	note := func(format string, args ...any) { x.Notes = append(x.Notes, fmt.Sprintf(format, args...)) }
	if p.Undecided {
		note("boxcar and first-order fit about equally well (%.3g W and %.3g W rms): both are told, %s is used", float64(box.fit.Residual), float64(lag.fit.Residual), p.Model)
	}
	best := box
	if p.Model == FirstOrder {
		best = lag
	}
	lo, hi := float64(best.fit.ConstantLow), float64(best.fit.ConstantHigh)
	if p.Weak = lo == 0 && hi > float64(p.Period)/4 || hi > 0.97*b.most || hi-lo > float64(best.fit.Constant); p.Weak {
		note("the load hardly tells the %s (%v to %v): alternate it in several periods, some short, and for longer", name(p.Model), measure.Seconds(lo), measure.Seconds(hi))
	}
	if d := float64(best.fit.Delay); d < b.early*0.9 || d > b.late*0.98 {
		note("the delay lies at the bound of what was searched (%v): do the clocks fit?", best.fit.Delay)
	}
	if left > 0 {
		note("%d of %d renewals, which neither model explains, were left out: there the load was not what it was said to be", left, len(x.Updates))
	}
	if !k.metered() {
		note("no meter: gain and offset are not known, and the levels are in the sensor's own watts")
	}
	if distuv.UnitNormal.Survival(math.Abs(best.fit.Correlation)*math.Sqrt(float64(len(best.scaled)))) < 0.005 {
		note("residuals follow each other (correlation %.2f): the uncertainties are widened for it", best.fit.Correlation)
	}
}

func name(m Model) string {
	if m == FirstOrder {
		return "time constant"
	}
	return "window"
}

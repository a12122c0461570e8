package marker

import (
	"math"

	"wattmark/measure"
)

const (
	// plainGuard is the least number of guard chips of a plain pattern: nothing
	// but silence around it tells it from a square wave.
	plainGuard = 3
	// plainHeight is how far the mean of any chip, guards included, may lie from
	// its level, relative to the step and beyond noise.
	plainHeight = 0.08
	// plainTiming is how far any edge may lie from its place, in chips, and as far
	// again where its own uncertainty is that large.
	plainTiming = 0.02
	// plainAlike is how far steps and low levels of two patterns of a host may
	// differ, relative to the step.
	plainAlike = 0.1
	beyond     = 4 // standard uncertainties that count as noise
	// plainRho is the least correlation that is looked at: so few chips of mere
	// noise exceed a lower one all the time.
	plainRho = 0.93
)

// plain looks for the papers' up-down pattern in the place of a code, as hosts
// play it that know no codes: four times up and down, silence on both sides,
// equal heights, every edge in its place. It shares points and chip means with
// the finder of the code, and keeps the first and the last pattern only.
//
// It is weak: four like pulses are no code, and a workload may well make them.
// So it is used only where the code was not found; and where neither marker
// was, only two patterns of the same height count.
type plain struct {
	view        sampled // the finder's own, but for the code
	lags        *lags
	corr        correlator
	first, last *pattern
}

// pattern is a plain pattern found, and the level of its low chips.
type pattern struct {
	Found
	low float64
}

// newPlain returns the fallback of a finder; nil where guards are too short.
func newPlain(s *sampled) *plain {
	if s.spec.Code == UpDown || s.spec.Guard < plainGuard {
		return nil
	}
	p := &plain{view: *s}
	p.view.spec.Code, p.view.spec.TagBits, p.view.spec.Tag = UpDown, 0, 0
	p.view.plain = nil
	p.lags = newLags(p.view.spec, s.corr.bins, p.view.spec.CodeLen()+min(s.spec.Guard, guardUsed), 0, func(_ Kind, at peak) { p.judge(s, at) })
	p.lags.least = plainRho
	p.corr = newCorrelator(p.view.spec, s.corr.bins, s.corr.width, p.lags)
	p.corr.prefix = s.corr.prefix
	return p
}

// judge keeps a candidate that is a plain pattern.
func (p *plain) judge(s *sampled, at peak) {
	p.view.last = s.last
	var low float64
	f := p.view.fitWith(Start, s.corr.time(at.at), func(f *fitted, edges []Edge, chips []bool) bool {
		low = f.par[parLow]
		return p.view.regular(f, edges, chips)
	})
	if f == nil {
		return
	}
	f.PSLR, f.TagOK, f.Fallback = at.pslr, false, true
	found := &pattern{*f, low}
	if p.first == nil {
		p.first = found
	}
	p.last = found
}

// regular reports whether every chip has its level and every edge its place.
func (s *sampled) regular(f *fitted, edges []Edge, chips []bool) bool {
	chip, step := float64(s.spec.Chip), f.par[parStep]
	rise, fall := f.tau(&f.par)
	if max(rise, fall) > chip/4 || math.Abs(f.par[parDrift])*s.whole > plainHeight*step {
		return false
	}
	t0 := f.origin + f.par[parT0]
	for _, e := range edges {
		off := math.Abs(float64(e.T) - t0 - float64(e.Chip)*chip)
		if off > plainTiming*chip+min(plainTiming*chip, beyond*float64(e.U)) {
			return false
		}
	}
	w := &s.work
	w.residuals = w.residuals[:0]
	f.each(&f.par, func(_ int, _, r float64, _ *vector, _ int, _ bool) { w.residuals = append(w.residuals, r) })
	begin := t0 - float64(s.spec.CodeStart())*chip
	for i, k := 0, 0; k < len(chips) && i < len(f.pts); k++ {
		var r, n float64
		for ; i < len(f.pts) && f.pts[i].t < begin+float64(k+1)*chip; i++ {
			r, n = r+w.residuals[i], n+1
		}
		if n > 0 && math.Abs(r/n) > plainHeight*step+beyond*math.Sqrt(f.variance/n) {
			return false
		}
	}
	return true
}

// alike reports whether two patterns may come from one host.
func (p *pattern) alike(q *pattern) bool {
	step := float64(max(p.Step, q.Step))
	return math.Abs(float64(p.Step-q.Step)) <= plainAlike*step && math.Abs(p.low-q.low) <= plainAlike*step
}

// bound returns the patterns that stand for the markers that were not found:
// the first one for the start, the last one for the stop.
func (p *plain) bound(found []Found) (out []Found) {
	if p == nil || p.first == nil {
		return nil
	}
	start, stop := p.first.Found, p.last.Found
	start.Kind, stop.Kind = Start, Stop
	var coded [2]*Found // the first start, the last stop
	for i := range found {
		f := &found[i]
		if f.Kind == Start && coded[0] == nil || f.Kind == Stop {
			coded[f.Kind-1] = f
		}
	}
	near := func(f *Found, step measure.Watt) bool {
		return math.Abs(float64(f.Step-step)) <= plainAlike*float64(max(f.Step, step))
	}
	switch {
	case coded[0] == nil && coded[1] == nil:
		if p.last.Begin >= p.first.End && p.first.alike(p.last) {
			return []Found{start, stop}
		}
	case coded[0] == nil:
		if start.End <= coded[1].Begin && near(&start, coded[1].Step) {
			return []Found{start}
		}
	case coded[1] == nil:
		if stop.Begin >= coded[0].End && near(&stop, coded[0].Step) {
			return []Found{stop}
		}
	}
	return nil
}

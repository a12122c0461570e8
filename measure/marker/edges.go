package marker

import (
	"math"

	"github.com/wattmark/wattmark/measure"
)

// place locates every edge by itself, given the fitted levels and time
// constants; none where edges are sharper than the points are dense, or where
// noise leaves a single edge worse than a tenth of a chip.
func (s *sampled) place(f *fitted) []Edge {
	f.birge = 1
	chip := float64(s.spec.Chip)
	if rise, _ := f.tau(&f.par); rise+f.box/2 < s.space/4 {
		return nil
	}
	s.rest(f)
	out := make([]Edge, 0, len(f.edges))
	t0, scale := f.origin+f.par[parT0], 1+f.par[parStretch]
	var chi2, mean float64
	for _, e := range f.edges {
		shift, u := s.placeOne(f, &e, t0+e.at*scale)
		if !(u < chip/4) || math.Abs(shift) > chip/4 {
			continue
		}
		out = append(out, Edge{Chip: e.chip, T: measure.Seconds(t0 + e.at*scale + shift), U: measure.Seconds(u)})
		chi2 += shift * shift / (u * u)
		mean += u
	}
	n := float64(len(out))
	if n < 2 || mean/n > chip/10 {
		return nil
	}
	// Where the edges scatter more than the noise explains, as a GPU that
	// schedules its chips late makes them, every one is that much less certain
	// (Birge's ratio).
	f.birge = max(1, math.Sqrt(chi2/(n-1)))
	for i := range out {
		out[i].U *= measure.Seconds(f.birge)
	}
	return out
}

// placeOne finds by Gauss and Newton's method how far an edge lies behind the
// place that the fit gives it, and the standard uncertainty of that.
func (s *sampled) placeOne(f *fitted, e *edge, at float64) (shift, u float64) {
	chip := float64(s.spec.Chip)
	rise, fall := f.tau(&f.par)
	tau := rise
	if e.sign < 0 {
		tau = fall
	}
	a := f.par[parStep] * e.sign
	from := search(f.pts, at-f.box/2-chip/4)
	to := from + search(f.pts[from:], at+chip)
	// Where points separate high from low, an edge that none of them shows still lies
	// between two of them.
	between := 0.0
	if f.par[parStep] > 6*math.Sqrt(f.variance) {
		between = f.variance * 12 / (s.space * s.space)
	}
	info := 0.0
	for range 6 {
		g := 0.0
		info = 0
		for i := from; i < to; i++ {
			t := f.pts[i].t - at
			there, _, _ := stepAt(t, f.box, tau)
			here, dt, _ := stepAt(t-shift, f.box, tau)
			d := -a * dt
			g += d * (s.work.residuals[i] + a*(there-here))
			info += d * d
		}
		if info += between; info == 0 {
			return 0, math.Inf(1)
		}
		step := max(-chip/16, min(chip/16, g/info))
		shift += step
		if math.Abs(step) < 1e-3*math.Sqrt(f.variance/info) {
			break
		}
	}
	return shift, math.Sqrt(f.variance / info)
}

// blurClipped adds to the uncertainties of a marker whose readings are clipped. Of an
// edge that is cut off only the part nearer to the other level is seen: where the high
// level is clipped, a rise seems to be over too early and a fall to begin too late, by an
// unknown part of the time that the card takes. A chip begins before either is seen, and
// the fit's begin lies between them: so how far rises and falls lie apart, beside their
// places, bounds its error to either side. Where both levels are clipped nothing does, but
// that edges are over within half a chip. All edges share that error, so that their mean
// must not average it away.
func (s *sampled) blurClipped(f *fitted, edges []Edge) {
	half := float64(s.spec.Chip) / 2
	var sum, n [2]float64 // of rises and falls
	var both float64
	for i := range f.edges {
		e := &f.edges[i]
		at, before, behind := s.crossing(f, e)
		switch {
		case before && behind:
			both++
		case (before || behind) && math.Abs(at) <= half:
			k := 0
			if e.sign < 0 {
				k = 1
			}
			sum[k], n[k] = sum[k]+at, n[k]+1
		}
	}
	if both+n[0]+n[1] == 0 {
		return
	}
	apart := half
	if n[0] > 0 && n[1] > 0 {
		apart = min(half, math.Abs(sum[1]/n[1]-sum[0]/n[0]))
	}
	u := (apart*(n[0]+n[1]) + half*both) / float64(len(f.edges)) / math.Sqrt(3)
	f.uT0 = math.Hypot(f.uT0, u)
	for i := range edges {
		edges[i].U = measure.Seconds(math.Hypot(float64(edges[i].U), u*math.Sqrt(float64(len(edges)))))
	}
}

// crossing returns how far behind an edge's place the trace crosses the middle between
// the levels, +Inf where it does not within half a chip, and whether readings are clipped
// before the crossing and behind it.
func (s *sampled) crossing(f *fitted, e *edge) (at float64, before, behind bool) {
	half := float64(s.spec.Chip) / 2
	place := f.origin + f.par[parT0] + e.at*(1+f.par[parStretch])
	from := search(f.pts, place-half)
	pts := f.pts[from : from+search(f.pts[from:], place+half)]
	level := func(p *point) float64 {
		return e.sign * ((p.p-f.par[parLow]-f.par[parDrift]*(p.t-f.middle))/f.par[parStep] - 0.5)
	}
	at = math.Inf(1)
	for i := 1; i < len(pts); i++ {
		a, b := level(&pts[i-1]), level(&pts[i])
		if a >= 0 || b < 0 {
			continue
		}
		if t := pts[i-1].t + (pts[i].t-pts[i-1].t)*a/(a-b) - place; math.Abs(t) < math.Abs(at) {
			at = t
		}
	}
	for i := range pts {
		if pts[i].clipped {
			before, behind = before || pts[i].t-place < at, behind || pts[i].t-place >= at
		}
	}
	return at, before, behind
}

const (
	// plainGuard is the least number of guard chips of a plain pattern: nothing
	// but silence around it distinguishes it from a square wave.
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
	p.lags = newLags(p.view.spec, s.corr.bins, p.view.spec.CodeLen()+min(s.spec.Guard, guardUsed), 0,
		func(_ Kind, at peak) { p.judge(s, at) })
	p.lags.least = plainRho
	p.corr = newCorrelator(p.view.spec, s.corr.bins, s.corr.width, p.lags)
	p.corr.prefix = s.corr.prefix
	return p
}

// judge keeps a candidate that is a plain pattern.
func (p *plain) judge(s *sampled, at peak) {
	p.view.last = s.last
	var low float64
	f := p.view.fit(Start, s.corr.time(at.at), func(f *fitted, edges []Edge, chips []bool) bool {
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
	s.rest(f)
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
		lows := math.Abs(p.first.low - p.last.low)
		if stop.Begin >= start.End && near(&start, stop.Step) && lows <= plainAlike*float64(max(start.Step, stop.Step)) {
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

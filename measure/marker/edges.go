package marker

import (
	"math"

	"wattmark/measure"
)

// place locates every edge by itself, given the fitted levels and time
// constants; none where edges are sharper than the points are dense, or where
// noise leaves a single edge worse than a tenth of a chip.
func (s *sampled) place(f *fitted) []Edge {
	w, chip := &s.work, float64(s.spec.Chip)
	if rise, _ := f.tau(&f.par); rise+f.box/2 < s.space/4 {
		return nil
	}
	w.residuals = w.residuals[:0]
	f.each(&f.par, func(_ int, _, r float64, _ *vector, _ int, _ bool) {
		w.residuals = append(w.residuals, r)
	})
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
	if birge := math.Sqrt(chi2 / (n - 1)); birge > 1 {
		for i := range out {
			out[i].U *= measure.Seconds(birge)
		}
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
	// Where points tell high from low, an edge that none of them shows still lies
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

// stretch is the weighted slope of the edges' places over those that they
// should have, less 1, and its standard uncertainty.
func stretch(edges []Edge, f *fitted) (slope, u float64) {
	var sw, sx, sy, sxx, sxy float64
	nominal := make(map[int]float64, len(f.edges))
	for _, e := range f.edges {
		nominal[e.chip] = e.at
	}
	for _, e := range edges {
		x := nominal[e.Chip]
		y := float64(e.T) - f.origin - x
		w := 1 / float64(e.U*e.U)
		sw, sx, sy, sxx, sxy = sw+w, sx+w*x, sy+w*y, sxx+w*x*x, sxy+w*x*y
	}
	if len(edges) < 4 {
		return 0, math.Inf(1)
	}
	det := sw*sxx - sx*sx
	return (sw*sxy - sx*sy) / det, math.Sqrt(sw / det)
}

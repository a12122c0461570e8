package marker

import (
	"math"
	"slices"
	"sort"

	"github.com/wattmark/wattmark/measure"
)

const (
	// misfit is the largest rms of chip means beside the model, relative to the
	// step, that noise does not explain: boost clocks and droop make a tenth, one
	// wrong chip in sixteen a quarter.
	misfit = 0.25
	// outstanding is how many standard deviations a refinement of the model must
	// stand out before it is believed.
	outstanding = 4
	// hostClock is the relative standard uncertainty of the clock by which a host
	// plays chips, once a time service has disciplined it.
	hostClock = 10e-6
)

// fitWork is the memory of a fit, kept from one candidate to the next.
type fitWork struct {
	pts       []point
	edges     []edge
	residuals []float64
	levels    []float64
}

// fitted is the result of the least-squares fit of a candidate.
type fitted struct {
	model
	inverse  [params]vector
	variance float64 // of a point about the model
	white    float64 // of a point, by its neighbours
	uT0      float64
	// birge is the factor by which single edges scatter more than noise explains, at least 1.
	birge float64
}

// fit refines a candidate whose code begins near t0; nil where the trace there is not a
// marker, or does not pass.
func (s *sampled) fit(kind Kind, t0 float64, pass func(*fitted, []Edge, []bool) bool) *Found {
	chip := float64(s.spec.Chip)
	if !s.gather(t0) {
		return nil
	}
	spec := s.spec
	spec.Tag = s.decode(t0, 0)
	f := s.solve(spec.Chips(kind), t0)
	if f == nil {
		return nil
	}
	rise, _ := f.tau(&f.par)
	if tag := s.decode(t0+f.par[parT0], rise); tag != spec.Tag {
		spec.Tag = tag
		if f = s.solve(spec.Chips(kind), t0); f == nil {
			return nil
		}
	}
	rho, good := s.quality(f, spec.Chips(kind))
	if !good {
		return nil
	}
	edges := s.refine(f)
	if !(f.uT0 < chip/4) || !s.plausible(f) || !pass(f, edges, spec.Chips(kind)) {
		return nil
	}
	s.findBegin(f, edges)
	s.blurClipped(f, edges)
	rise, _ = f.tau(&f.par)
	begin := measure.Seconds(t0 + f.par[parT0])
	lead := measure.Seconds(spec.CodeStart()) * spec.Chip
	return &Found{
		Kind: kind, T: begin, U: measure.Seconds(math.Hypot(f.uT0, s.uSkew)),
		Begin: begin - lead, End: begin - lead + spec.Duration(),
		Correlation: rho, Step: measure.Watt(f.par[parStep]), Tau: measure.Seconds(rise),
		Tag: spec.Tag, TagOK: spec.Tag == s.spec.Tag, Fallback: spec.Code == UpDown, Edges: edges,
	}
}

// plausible reports whether the parameters are those of a marker: near where
// the correlation saw it, with edges that end within their chip and no drift
// that outgrows the step.
func (s *sampled) plausible(f *fitted) bool {
	chip := float64(s.spec.Chip)
	rise, fall := f.tau(&f.par)
	return math.Abs(f.par[parT0]) <= 0.7*chip && max(rise, fall) <= 0.7*chip &&
		math.Abs(f.par[parDrift])*s.whole <= f.par[parStep]
}

// gather copies the points of the candidate's marker. The outermost part of
// the guards is left out: the work beside it fades in and out there. It fails
// where the trace ends before the trailing guard or has too many holes.
func (s *sampled) gather(t0 float64) bool {
	chip, w := float64(s.spec.Chip), &s.work
	trim := 0.25
	if s.spec.Guard > 2 {
		trim = 1
	}
	from := t0 - (float64(s.spec.Guard)-trim)*chip
	to := t0 + (float64(s.spec.Len()-s.spec.Guard)-0.25)*chip
	if s.spec.ambiguous() && s.spec.Guard > 1 {
		to -= chip // it may be a stop, whose guard ends a chip earlier
	}
	w.pts = w.pts[:0]
	for i := s.points.first(); i < s.points.n; i++ {
		if p := s.points.at(i); p.t >= from && p.t < to {
			w.pts = append(w.pts, *p)
		}
	}
	ended := t0 + float64(s.spec.CodeLen()+2*s.spec.TagBits+1)*chip
	if s.last < ended || len(w.pts) < 8 {
		return false
	}
	return float64(len(w.pts)) > 0.85*(min(to, s.last)-from)/s.space
}

// decode reads the tag from the means of its half bits, tau behind the chips.
func (s *sampled) decode(t0, tau float64) (tag uint32) {
	chip := float64(s.spec.Chip)
	at := t0 + float64(s.spec.CodeLen())*chip + min(tau, chip/2)
	for range s.spec.TagBits {
		tag <<= 1
		if s.mean(at, at+chip) > s.mean(at+chip, at+2*chip) {
			tag |= 1
		}
		at += 2 * chip
	}
	return tag
}

// mean averages the gathered points in [from, to).
func (s *sampled) mean(from, to float64) float64 {
	pts := s.work.pts
	lo := search(pts, from)
	hi := lo + search(pts[lo:], to)
	var sum float64
	for _, p := range pts[lo:hi] {
		sum += p.p
	}
	return sum / float64(max(hi-lo, 1))
}

// search returns the index of the first point not before t.
func search(pts []point, t float64) int {
	return sort.Search(len(pts), func(i int) bool { return pts[i].t >= t })
}

// solve fits the model of the given chips, nil where that fails.
func (s *sampled) solve(chips []bool, t0 float64) *fitted {
	chip, w := float64(s.spec.Chip), &s.work
	w.edges = edgesOf(chips, s.spec.CodeStart(), chip, w.edges)
	f := &fitted{model: model{pts: w.pts, origin: t0, box: s.box, edges: w.edges}}
	f.middle = (w.pts[0].t + w.pts[len(w.pts)-1].t) / 2
	tau := float64(s.resp.Tau)
	if tau <= 0 {
		tau = max(0.3*s.space, 0.02*chip)
	}
	low, high := s.levels(f.edges, t0)
	f.par = vector{parTau: math.Log(tau), parFall: math.Log(tau), parStep: high - low, parLow: low}
	f.guess = f.par[parTau]
	white := whiteNoise(len(w.pts), func(i int) float64 { return w.pts[i].p })
	f.white = white
	f.prior, f.clocks = white/(1.5*1.5), white/(s.uClock*s.uClock)
	if !s.minimise(f) {
		return nil
	}
	if f.variance > white { // edges that no exponential describes must not stretch the chips
		stretched := *f
		if f.clocks = f.variance / (s.uClock * s.uClock); !s.minimise(f) {
			*f = stretched
		}
	}
	if !(f.par[parStep] > 0) {
		return nil
	}
	return f
}

// minimise solves the model and works out its variances.
func (s *sampled) minimise(f *fitted) bool {
	chip := float64(s.spec.Chip)
	cost, inverse, ok := f.solve(math.Log(sharpest*s.space), math.Log(chip), chip)
	if !ok {
		return false
	}
	f.inverse = inverse
	f.variance = cost / float64(max(len(f.pts)-params, 1))
	return true
}

// levels guesses the levels from the second halves of the chips.
func (s *sampled) levels(edges []edge, t0 float64) (low, high float64) {
	chip := float64(s.spec.Chip)
	var sum, n [2]float64
	at, k, state := t0-chip, 0, 0
	for i := -1; i < s.spec.Len()-2*s.spec.Guard; i++ {
		for k < len(edges) && edges[k].chip <= i {
			state, k = 1-state, k+1
		}
		sum[state] += s.mean(at+0.4*chip, at+chip)
		n[state]++
		at += chip
	}
	return sum[0] / n[0], sum[1] / max(n[1], 1)
}

// whiteNoise is the variance of a point as the median difference of n
// neighbours shows it, which edges do not disturb, nor work that comes and goes.
// For normal noise the median of the squares is 0.455 of their mean.
func whiteNoise(n int, at func(int) float64) float64 {
	d := make([]float64, 0, n)
	for i := 1; i < n; i++ {
		x := at(i) - at(i-1)
		d = append(d, x*x)
	}
	slices.Sort(d)
	return d[len(d)/2] / (2 * 0.455)
}

const (
	// enough is the relative gain of the sum of squares that a step is not taken
	// for: of a thousand points it moves t0 by a thirtieth of its uncertainty.
	enough = 1e-6
	// leastDamp is the damping after a step that failed: points that change sides
	// of an edge make it do so, and less would not help.
	leastDamp = 0.05
)

// solve minimises the model's sum of squares by Levenberg and Marquardt's
// method from the parameters at hand, within the bounds of ln tau and of t0,
// and returns the inverse of JᵀJ there. ok is false where no minimum is found.
func (m *model) solve(lowTau, highTau, reach float64) (cost float64, inverse [params]vector, ok bool) {
	var h, trialH [params]vector
	var g, trialG vector
	cost = m.normal(&m.par, &h, &g)
	damp := 1e-3
	for range 40 {
		damped := h
		for a := range params {
			damped[a][a] *= 1 + damp
		}
		step, good := cholesky(&damped, &g)
		if !good {
			return cost, inverse, false
		}
		trial, promise := m.par, 0.0
		for a := range params {
			trial[a] += step[a]
			promise += step[a] * g[a]
		}
		if promise < enough*cost {
			break
		}
		trial[parTau] = min(max(trial[parTau], lowTau), highTau)
		trial[parFall] = min(max(trial[parFall], lowTau), highTau)
		trial[parT0] = min(max(trial[parT0], -reach), reach)
		next := m.normal(&trial, &trialH, &trialG)
		if !(next < cost) {
			if damp = max(8*damp, leastDamp); damp > 1e9 || math.IsNaN(next) {
				break
			}
			continue
		}
		gain := cost - next
		m.par, h, g, cost = trial, trialH, trialG, next
		damp = max(damp/6, 1e-9)
		if gain < 1e-7*cost {
			break
		}
	}
	inverse, ok = invert(&h)
	return cost, inverse, ok
}

// cholesky solves h·x = g for a symmetric positive definite h, after scaling
// its diagonal to 1: seconds and watts differ by many powers of ten.
func cholesky(h *[params]vector, g *vector) (x vector, ok bool) {
	var l [params]vector
	var scale vector
	for a := range params {
		if !(h[a][a] > 0) {
			return x, false
		}
		scale[a] = 1 / math.Sqrt(h[a][a])
	}
	for a := range params {
		for b := 0; b <= a; b++ {
			s := h[a][b] * scale[a] * scale[b]
			for k := range b {
				s -= l[a][k] * l[b][k]
			}
			if a != b {
				l[a][b] = s / l[b][b]
				continue
			}
			if !(s > 1e-13) {
				return x, false
			}
			l[a][a] = math.Sqrt(s)
		}
	}
	for a := range params {
		s := g[a] * scale[a]
		for k := range a {
			s -= l[a][k] * x[k]
		}
		x[a] = s / l[a][a]
	}
	for a := params - 1; a >= 0; a-- {
		s := x[a]
		for k := a + 1; k < params; k++ {
			s -= l[k][a] * x[k]
		}
		x[a] = s / l[a][a]
	}
	for a := range params {
		x[a] *= scale[a]
	}
	return x, true
}

// invert returns the inverse of a symmetric positive definite matrix.
func invert(h *[params]vector) (inv [params]vector, ok bool) {
	for a := range params {
		var unit vector
		unit[a] = 1
		col, good := cholesky(h, &unit)
		if !good {
			return inv, false
		}
		inv[a] = col
	}
	return inv, true
}

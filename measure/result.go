package measure

import (
	"fmt"
	"math"
	"slices"
)

// EnergyOf returns the energy of the named rail; ok is false when there is none.
func (r *Result) EnergyOf(rail string) (e Estimate, ok bool) {
	for i := range r.Rails {
		if r.Rails[i].Name == rail {
			return r.Rails[i].Energy, true
		}
	}
	return Estimate{}, false
}

// Duration returns the window's length.
func (r *Result) Duration() Seconds { return r.To - r.From }

// Result returns the energies with their budgets, given the uncertainty of the
// window's ends. It may be called again with other edges, and between blocks
// once the window is covered. Data that does not reach over the window is
// ErrNoData; edges that cannot be are ErrWindow.
func (g *Integrator) Result(e Edges) (Result, error) {
	if err := e.validate(); err != nil {
		return Result{}, fmt.Errorf("integrate: %w", err)
	}
	g, err := g.flushed()
	if err == nil {
		err = g.covers()
	}
	if err != nil {
		return Result{}, fmt.Errorf("integrate: %w", err)
	}
	out := Result{
		From: g.from, To: g.to, Samples: g.samples, FirstScan: g.firstSample,
		Gaps: g.gaps, Lost: g.lost, Peak: g.peak(-1),
	}
	var total sum
	var terms []term
	for r := range g.setup.Rails {
		rail, own := g.rail(r, e)
		total.add(float64(rail.Energy.Energy))
		out.Rails = append(out.Rails, rail)
		terms = append(terms, own...)
	}
	out.Total.Energy = Joule(total.value())
	out.Mean = Watt(float64(out.Total.Energy) / float64(g.to-g.from))
	terms = append(terms, g.common(-1, &g.total, float64(out.Total.Energy), e)...)
	out.Total.U, out.Budget = expand(terms)
	return out, nil
}

func (e Edges) validate() error {
	for _, u := range []float64{float64(e.UFrom), float64(e.UTo), float64(e.Gaps)} {
		if !(u >= 0) || math.IsInf(u, 0) {
			return fmt.Errorf("uncertainty of an end, or of the gaps' length, is %v s: %w: must be zero or positive and finite", u, ErrWindow)
		}
	}
	if !(math.Abs(e.Correlation) <= 1) {
		return fmt.Errorf("correlation of the ends is %v: %w: must lie in [−1, 1]", e.Correlation, ErrWindow)
	}
	return nil
}

// covers reports data that does not reach over the window. A millionth of a
// scan is forgiven: it is what seconds lose on their way to ticks.
func (g *Integrator) covers() error {
	first, last, ok := g.Covered()
	if !ok {
		return fmt.Errorf("no samples at all: %w", ErrNoData)
	}
	eps := 1e-6 * g.setup.Timebase.TicksPerScan
	if g.firstTick > g.lo+eps || g.lastTick < g.hi-eps || !(g.one.value() > 0) {
		return fmt.Errorf("samples from %v to %v, window from %v to %v: %w: choose a window within the samples",
			first, last, g.from, g.to, ErrNoData)
	}
	return nil
}

// stats returns what the budget of rail r is made from.
func (g *Integrator) stats(r int) railStats {
	rail := g.setup.Rails[r]
	st := railStats{
		rail: rail, x: g.setup.Channels[rail.X], nx: g.scatter(rail.X),
		m: g.Moments(r), spacing: g.spacing(), gainY: g.setup.noiseGain(rail),
	}
	st.rail.X, st.rail.Y = 0, -1 // the statistics carry their channels along
	if rail.Y >= 0 {
		st.rail.Y, st.y, st.ny = 1, g.setup.Channels[rail.Y], g.scatter(rail.Y)
	}
	return st
}

// SharedGain returns the standard uncertainty that a relative standard
// uncertainty u of all gains together makes in the total, as that of a voltage
// reference does that stands behind every channel. It adds linearly within a
// rail and over the rails, with the signs that the wirings have: twice u of a
// rail of two channels, of a shunt's as of a clamp's. The budget takes the
// channels' own UGain as independent; who knows a common part takes it out of
// UGain and adds this line by the root of squares.
func (g *Integrator) SharedGain(u float64) (Joule, error) {
	g, err := g.flushed()
	if err == nil {
		err = g.covers()
	}
	if err != nil {
		return 0, fmt.Errorf("integrate: %w", err)
	}
	var e float64
	for r := range g.setup.Rails {
		st := g.stats(r)
		e += st.byGains()
	}
	return Joule(math.Abs(u * e)), nil
}

// rail returns the result of one rail and the lines of its budget that are its own.
func (g *Integrator) rail(r int, e Edges) (RailResult, []term) {
	rail, st := g.setup.Rails[r], g.stats(r)
	own := st.budget()
	if u := g.skew(r, &st); u > 0 {
		own = append(own, term{Contribution: Contribution{Source: "skew " + rail.Name, U: u, Systematic: true}})
	}
	energy := st.m.Energy(g.meter.rails[r].lin)
	out := RailResult{
		Name: rail.Name, Role: rail.Role, Energy: Estimate{Energy: energy},
		Mean: Watt(float64(energy) / float64(g.to-g.from)), Peak: g.peak(r),
	}
	out.Energy.U, out.Budget = expand(slices.Concat(own, g.common(r, &g.rails[r], float64(energy), e)))
	return out, own
}

// common lists the contributions that act on all rails at once, for rail r, or
// for the total for r = −1.
func (g *Integrator) common(r int, s *railSums, energy float64, e Edges) []term {
	var out []term
	add := func(source string, u float64, systematic bool) {
		if u > 0 {
			out = append(out, term{Contribution: Contribution{Source: source, U: Joule(u), Systematic: systematic}})
		}
	}
	tb, tick := g.setup.Timebase, 1/float64(g.setup.Timebase.TickHz)
	add("tick rate", tb.UTickHz*math.Abs(energy), true)
	add("window edges", tick*math.Sqrt(edgeVariance(&g.ends[0], &g.ends[1], r, tb.Ticks(e.UFrom), tb.Ticks(e.UTo), e.Correlation)), true)
	add("window sampling", g.sampled(r, e), true)
	add("sampling", g.between(r, &s.jumps, e), false)
	one := g.one.value()
	gaps := math.Sqrt(s.gapVariance(one, energy/(one*tick), g.gap2, tick))
	if g.gap1 > 0 {
		gaps = math.Hypot(gaps, float64(e.Gaps)*s.bridged/g.gap1)
	}
	add("gaps", gaps, false)
	return out
}

// sampled returns what sampling may hide at the window's ends, in joules. The
// trapezoid rule turns a step of ΔP between two readings Δt apart into a ramp.
// Where the step lies within the window, at a share x of the interval, the rule
// is wrong by ΔP·Δt·(x − 1/2): ΔP·Δt/√12 rms, as x may be anything. Where it is
// the window's end itself, the ramp is cut there and lacks ΔP·Δt·(1 − x)²/2:
// ΔP·Δt/√20 rms, but at a rise and a fall of like sign (mean ΔP·Δt/6 each), so
// that two ends come to 0.394·ΔP·Δt against the 0.408 of two independent
// ΔP·Δt/√12. So that is taken, with the step that the readings around the end
// show for ΔP; a ramp over several readings hides far less (for a kink of slope s
// the rule's error is within s·Δt²/8) and is not counted. Δt is the instrument's
// update where it shows each value several times.
func (g *Integrator) sampled(r int, e Edges) float64 {
	tb := g.setup.Timebase
	dt := max(tb.Seconds(tb.TicksPerScan), g.setup.Response.Update)
	end := func(i int, u Seconds) float64 {
		return g.ends[i].jump(r, tb.Ticks(max(u, dt))) * float64(dt)
	}
	return math.Hypot(end(0, e.UFrom), end(1, e.UTo)) / math.Sqrt(12)
}

// between returns what sampling may hide at the steps within the window, in
// joules (see jumps): each is as unknown as any other, so they add by squares.
// Those next to an end are in sampled. The mean distance of the scans in the window,
// by time, stands for each.
func (g *Integrator) between(r int, j *jumps, e Edges) float64 {
	squares := j.sum()
	if squares == 0 {
		return 0
	}
	tb := g.setup.Timebase
	ticks := max(g.one2.value()-g.gap2, 0) / (g.one.value() - g.gap1)
	dt := float64(max(tb.Seconds(ticks), g.setup.Response.Update))
	for i, u := range []Seconds{e.UFrom, e.UTo} {
		squares -= g.ends[i].inner(r, tb.Ticks(max(u, Seconds(dt))), g.lo, g.hi)
	}
	return dt * math.Sqrt(max(squares, 0)/12)
}

// skew returns what is not known of a rail's skews, in joules. An error of the
// first channel's moves the rail's window, both ends alike. One of the second
// channel's behind it, δ, changes the power by f·y'·δ, f being the derivative of
// power by the second reading y: within δ·√(∫(f − f̄)²·∫y'²) by the inequality
// of Cauchy and Schwarz, reached where f and y ripple in quadrature. Where the
// readings were not aligned δ is the whole of the lag, taken as rectangular
// (GUM, 4.3.7).
func (g *Integrator) skew(r int, st *railStats) Joule {
	s := &g.setup
	rail := s.Rails[r]
	u := uSkew * math.Abs(g.ends[0].shift[r])
	moved := edgeVariance(&g.ends[0], &g.ends[1], r, u, u, 1) / float64(s.Timebase.TickHz*s.Timebase.TickHz)
	lag := math.Abs(float64(s.lag(rail)))
	if lag == 0 {
		return Joule(math.Sqrt(moved))
	}
	if s.aligns(rail) {
		lag *= uSkew
	} else {
		lag /= math.Sqrt(3)
	}
	f := st.sensitivities().dy
	mean := st.m.integral(f)
	spread := max(st.m.product(f, f)-mean*mean/float64(st.m.One), 0)
	slope := g.rails[r].slope.value() * float64(s.Timebase.TickHz) * st.y.Gain * st.y.Gain
	return Joule(math.Sqrt(moved + lag*lag*spread*slope))
}

// scatter returns the standard deviation of one reading of a channel: as stated
// with the channel, else as seen.
func (g *Integrator) scatter(channel int) scatter {
	if c := g.setup.Channels[channel]; c.Noise > 0 {
		return scatter{sigma: c.Noise / math.Abs(c.Gain)}
	}
	m := &g.noise[channel]
	return scatter{m.sigma(), m.dof()}
}

// spacing returns the mean distance of independent readings in seconds: that of
// the scans, or the instrument's own where it shows each value several times.
func (g *Integrator) spacing() float64 {
	mean := g.one2.value() / g.one.value() / float64(g.setup.Timebase.TickHz)
	return max(mean, float64(g.setup.Response.Update))
}

// peak returns the largest power of a scan within the window, of rail r or of
// the sum for r = −1. A window between two scans has the larger of its ends.
func (g *Integrator) peak(r int) Watt {
	p := g.total.peak
	if r >= 0 {
		p = g.rails[r].peak
	}
	if math.IsInf(p, -1) {
		before, _ := g.ends[0].beside(r)
		_, after := g.ends[1].beside(r)
		p = max(before, after)
	}
	return Watt(p)
}

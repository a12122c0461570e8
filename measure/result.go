package measure

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// Estimate is an energy with its expanded uncertainty (GUM, 6.2): k = 2, or more
// where the noise was seen in few readings (CoverageFactor).
type Estimate struct {
	Energy Joule `json:"energy_j"`
	U      Joule `json:"energy_u_j"`
}

// Share is a part of a measured energy. Own is the part of U that is independent of other parts', as of the meter's
// noise; the rest is of causes that all have in common, as a gain.
type Share struct {
	Estimate
	Own Joule `json:"energy_u_own_j,omitempty"`
}

// Add adds another part of the same measurement: the common parts of U add up, its own ones in squares.
func (p *Share) Add(q *Share) {
	if *p == (Share{}) {
		*p = *q
		return
	}
	common := p.common() + q.common()
	p.Energy += q.Energy
	p.Own = Joule(math.Hypot(float64(p.Own), float64(q.Own)))
	p.U = Joule(math.Hypot(common, float64(p.Own)))
}

func (p *Share) common() float64 { return math.Sqrt(float64(max(p.U*p.U-p.Own*p.Own, 0))) }

// Agreement is whether two energies of the same window agree within their stated
// uncertainties. It defines *within* and *outside* wherever a software method, or
// another reading of the same work, is held against the meter.
type Agreement string

// The agreements.
const (
	Agrees  Agreement = "agrees"  // within
	Differs Agreement = "differs" // outside
	Unknown Agreement = "unknown" // an energy is missing, or the meter cannot judge
)

// Word returns the word of tables: within, outside, or nothing.
func (a Agreement) Word() string {
	return map[Agreement]string{Agrees: "within", Differs: "outside"}[a]
}

// Against holds an energy against the meter's over the same window: it agrees where
// they differ by no more than the root of the squares of both expanded uncertainties.
// A U of zero, or NaN, of e states none; of the meter NaN means that it cannot judge.
// unseen is the most that the meter may have missed, +Inf or NaN for any amount: the
// answer is Unknown where it depends on how much that was.
func (e Estimate) Against(meter Estimate, unseen Joule) Agreement {
	own := float64(e.U)
	if math.IsNaN(own) {
		own = 0
	}
	d, u := float64(e.Energy-meter.Energy), math.Hypot(own, float64(meter.U))
	if math.IsNaN(d) || math.IsInf(d, 0) || math.IsNaN(u) {
		return Unknown
	}
	most, least := d, d-float64(unseen) // the meter may have missed all or nothing of it
	if math.IsNaN(least) {
		least = math.Inf(-1)
	}
	switch {
	case most <= u && least >= -u:
		return Agrees
	case most < -u || least > u:
		return Differs
	}
	return Unknown
}

// Contribution is one line of an uncertainty budget (GUM, 8.1): a source, its
// standard uncertainty in joules of the result, and whether it is correlated
// between samples (systematic) or averages out.
type Contribution struct {
	Source     string `json:"source"` // "gain aux_12v_1.current", "quantisation", "window edges" …
	U          Joule  `json:"u_j"`    // standard uncertainty (k = 1)
	Systematic bool   `json:"systematic"`
}

// RailResult is one rail over a window.
type RailResult struct {
	Name       string
	Role       Role
	Energy     Estimate
	Mean, Peak Watt
	Budget     []Contribution
}

// Result is all rails over a window of device time.
type Result struct {
	From, To   Seconds
	Samples    uint64 // scans within the window
	FirstScan  uint64 // first scan within the window
	Gaps       uint64 // gaps within the window
	Lost       uint64 // scans lost in them
	Rails      []RailResult
	Total      Estimate
	Mean, Peak Watt
	Budget     []Contribution // of the total
}

// Edges is the standard uncertainty (k = 1) of a window's ends, with their
// correlation coefficient: an offset of the clock moves both ends alike.
type Edges struct {
	UFrom, UTo  Seconds
	Correlation float64
	// Gaps is that of the length of all gaps within the window together, where it
	// was estimated.
	Gaps Seconds
	// Aliasing is the standard uncertainty of the total by readings that keep step with the load, where that
	// is known.
	Aliasing Joule
	// Beats has the readings searched for a load that beats with the scans, where its times are not known.
	Beats           bool
	aliasing, beats float64 // relative
	// Rate is the relative standard uncertainty of the meter's seconds where another clock shows it; 0 for the stated.
	Rate float64
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
	g, err := g.ready()
	if err != nil {
		return Result{}, fmt.Errorf("integrate: %w", err)
	}
	out := Result{
		From: g.from, To: g.to, Samples: g.samples, FirstScan: g.firstSample,
		Gaps: g.gaps, Lost: g.lost, Peak: g.peak(-1),
	}
	var total Sum
	var lines terms
	var all float64
	for r := range g.setup.Rails {
		all += math.Abs(float64(g.Moments(r).Energy(g.meter.rails[r].lin)))
	}
	e.aliasing = float64(e.Aliasing) / max(all, 1e-30)
	if tb := g.setup.Timebase; e.Beats && g.folds {
		e.beats = float64(g.beats.find(tb.Seconds(tb.TicksPerScan))) / max(all, 1e-30)
	}
	for r := range g.setup.Rails {
		rail, own := g.rail(r, e)
		total.Add(float64(rail.Energy.Energy))
		out.Rails = append(out.Rails, rail)
		lines = append(lines, own...)
	}
	out.Total.Energy = Joule(total.Value())
	out.Mean = Watt(float64(out.Total.Energy) / float64(g.to-g.from))
	lines = append(lines, g.common(-1, &g.total, float64(out.Total.Energy), e)...)
	out.Total.U, out.Budget = expand(lines)
	return out, nil
}

func (e Edges) validate() error {
	for _, u := range []float64{float64(e.UFrom), float64(e.UTo), float64(e.Gaps), float64(e.Aliasing), e.Rate} {
		if !(u >= 0) || math.IsInf(u, 0) {
			return fmt.Errorf("uncertainty of an end, of the gaps' length, by aliasing or of the clock's rate is %v: %w: "+
				"must be zero or positive and finite", u, ErrWindow)
		}
	}
	if !(math.Abs(e.Correlation) <= 1) {
		return fmt.Errorf("correlation of the ends is %v: %w: must lie in [−1, 1]", e.Correlation, ErrWindow)
	}
	return nil
}

// ready returns the integrator of all readings so far, or the error of a window that they
// do not cover. A millionth of a scan is forgiven: the rounding of seconds to ticks.
func (g *Integrator) ready() (*Integrator, error) {
	g, err := g.flushed()
	if err != nil {
		return nil, err
	}
	first, last, ok := g.Covered()
	if !ok {
		return nil, fmt.Errorf("no samples at all: %w", ErrNoData)
	}
	eps := 1e-6 * g.setup.Timebase.TicksPerScan
	if g.firstTick > g.lo+eps || g.lastTick < g.hi-eps || !(g.one.Value() > 0) {
		return nil, fmt.Errorf("samples from %v to %v, window from %v to %v: %w: choose a window within the samples",
			first, last, g.from, g.to, ErrNoData)
	}
	return g, nil
}

// stats returns the terms of the budget of rail r.
func (g *Integrator) stats(r int) railStats {
	rail := g.setup.Rails[r]
	// The mean distance of independent readings: that of the scans, or the instrument's own where it shows each value
	// several times.
	spacing := max(g.one2.Value()/g.one.Value()/float64(g.setup.Timebase.TickHz), float64(g.setup.Response.Update))
	st := railStats{
		rail: rail, lin: g.meter.rails[r].lin, x: g.setup.Channels[rail.X], nx: g.scatter(rail.X),
		m: g.Moments(r), spacing: spacing, gainY: g.setup.noiseGain(rail),
	}
	whole := g.smooth(r).whole
	st.ox = g.others(rail.X, st.nx, st.spacing, whole)
	if rail.Y >= 0 {
		st.y, st.ny = g.setup.Channels[rail.Y], g.scatter(rail.Y)
		st.oy = g.others(rail.Y, st.ny, st.spacing, whole)
	}
	return st
}

// others returns what is in a channel's readings beside white, normal noise.
func (g *Integrator) others(channel int, n scatter, spacing, whole float64) disturbance {
	return disturbance{
		slow: g.slow(channel, n, spacing), lone: g.alone(channel, max(n.sigma, g.noise[channel].sigma(0)), whole),
	}
}

// rail returns the result of one rail and the lines of its budget that are its own.
func (g *Integrator) rail(r int, e Edges) (RailResult, terms) {
	rail, st := g.setup.Rails[r], g.stats(r)
	own := st.budget()
	own.add("skew "+rail.Name, float64(g.skew(r, &st)), true)
	energy := st.m.Energy(g.meter.rails[r].lin)
	out := RailResult{
		Name: rail.Name, Role: rail.Role, Energy: Estimate{Energy: energy},
		Mean: Watt(float64(energy) / float64(g.to-g.from)), Peak: g.peak(r),
	}
	out.Energy.U, out.Budget = expand(slices.Concat(own, g.common(r, &g.rails[r], float64(energy), e)))
	return out, own
}

// The budget's lines of a load that keeps step with the scans: as launch times show it, and as the readings may.
const (
	Aliasing = "aliasing"
	Beats    = "beats"
)

// inStep is π/√6. The errors of steps that lie at one phase of the scans add up by harmonics of the scan rate. The
// first harmonic has 6/π² of the square of a sudden step's error, and a response damps the higher ones more. So a
// response reduces the sum to no more than π/√6 times the factor by which it reduces the rms error of single steps.
const inStep = 1.2825498301618641

// common lists the contributions that act on all rails at once, for rail r, or
// for the total for r = −1.
func (g *Integrator) common(r int, s *railSums, energy float64, e Edges) (out terms) {
	tb, tick := g.setup.Timebase, 1/float64(g.setup.Timebase.TickHz)
	out.add("tick rate", cmp.Or(e.Rate, tb.UTickHz)*math.Abs(energy), true)
	ends := edgeVariance(&g.ends[0], &g.ends[1], r, tb.Ticks(e.UFrom), tb.Ticks(e.UTo), e.Correlation)
	out.add("window edges", tick*math.Sqrt(ends), true)
	smooth := g.smooth(r)
	out.add("window sampling", math.Hypot(g.sampled(r, e, smooth), g.averaged(r)), true)
	steps := smooth.jumps * g.between(r, &s.jumps, e)
	keeps := min(inStep*smooth.whole, 1) * e.aliasing * math.Abs(energy)
	out.add("sampling", steps, false)
	out.add(Aliasing, math.Sqrt(max(keeps*keeps-steps*steps, 0)), true) // sampling is the part that does not keep step
	out.add(Beats, e.beats*math.Abs(energy), true)
	one := g.one.Value()
	gaps := math.Sqrt(s.gapVariance(one, energy/(one*tick), g.gap2, tick))
	if g.gap1 > 0 {
		gaps = math.Hypot(gaps, float64(e.Gaps)*s.bridged/g.gap1)
	}
	out.add("gaps", gaps, false)
	return out
}

// sampled returns the energy that sampling may hide at the window's ends, in joules. The
// trapezoid rule turns a step of ΔP between two readings Δt apart into a ramp.
// Where the step lies within the window, at a share x of the interval, the rule
// is wrong by ΔP·Δt·(x − 1/2): ΔP·Δt/√12 rms, as x may be anything. Where it is
// the window's end itself, the ramp is cut there and lacks ΔP·Δt·(1 − x)²/2:
// ΔP·Δt/√20 rms, but at a rise and a fall of like sign (mean ΔP·Δt/6 each), so
// that two ends come to 0.394·ΔP·Δt against the 0.408 of two independent
// ΔP·Δt/√12. So that is taken, with the step that the readings around the end
// show for ΔP; a ramp over several readings hides far less (for a kink of slope s
// the rule's error is within s·Δt²/8) and is not counted unless markers show a smooth card. Δt is the instrument's
// update where it shows each value several times.
//
// A smooth response that begins at the end is cut at its foot, of which less averages out than of a whole step. A
// kink of slope s lacks s·Δt²·x·(1 − x)²/2: of the most that readings change by, s·Δt, a mean of 1/24 and a scatter of
// 0.025. Between a kink (κ = 0 of whole steps) and a sudden step both follow κ; a tenth more holds exponentials, ramps,
// two steps and two poles to 15 %.
func (g *Integrator) sampled(r int, e Edges, smooth smoothness) float64 {
	tb := g.setup.Timebase
	dt := max(tb.Seconds(tb.TicksPerScan), g.setup.Response.Update)
	var step, change [2]float64
	for i, u := range []Seconds{e.UFrom, e.UTo} {
		step[i], change[i] = g.ends[i].jump(r, tb.Ticks(max(u, dt)))
	}
	u := smooth.jumps * math.Hypot(step[0], step[1]) / math.Sqrt(12)
	if k := smooth.whole; k < 1 {
		mean, scatter := 0.046+(1./6-0.046)*k, 0.028+(0.149-0.028)*k
		u = max(u, math.Hypot(mean*(change[0]+change[1]), scatter*math.Hypot(change[0], change[1])))
	}
	return u * float64(dt)
}

// averaged returns the energy that the instrument's average may carry over the window's ends, in joules. A step ΔP at
// an end is a ramp of the average's length W about it, and an eighth of ΔP·W is read on the other side; of a step
// further off, or a slower one, less. A rise and a fall lose alike, so that the ends' bounds add up (GUM, 4.3.7).
func (g *Integrator) averaged(r int) float64 {
	w := g.setup.Response.Window
	half := g.setup.Timebase.Ticks(w) / 2
	return float64(w) / 8 / math.Sqrt(3) * (g.ends[0].change(r, half) + g.ends[1].change(r, half))
}

// between returns the energy that sampling may hide at the steps within the window, in
// joules (see jumps): each is as unknown as any other, so they add by squares.
// Those next to an end are in sampled. The mean distance of the scans in the window,
// by time, stands for each.
func (g *Integrator) between(r int, j *jumps, e Edges) float64 {
	squares := j.sum()
	if squares == 0 {
		return 0
	}
	tb := g.setup.Timebase
	ticks := max(g.one2.Value()-g.gap2, 0) / (g.one.Value() - g.gap1)
	dt := float64(max(tb.Seconds(ticks), g.setup.Response.Update))
	for i, u := range []Seconds{e.UFrom, e.UTo} {
		squares -= g.ends[i].inner(r, tb.Ticks(max(u, Seconds(dt))), g.lo, g.hi)
	}
	return dt * math.Sqrt(max(squares, 0)/12)
}

// skew returns the uncertainty by a rail's skews, in joules. An error of the
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
	slope := g.rails[r].slope.Value() * float64(s.Timebase.TickHz) * st.y.Gain * st.y.Gain
	return Joule(math.Sqrt(moved + lag*lag*spread*slope))
}

// scatter returns the standard deviation of one reading of a channel: as stated
// with the channel, else as seen.
func (g *Integrator) scatter(channel int) scatter {
	if c := g.setup.Channels[channel]; c.Noise > 0 {
		return scatter{sigma: c.Noise / math.Abs(c.Gain)}
	}
	return g.noise[channel].scatter()
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

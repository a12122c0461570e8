// Package attribute shares the energy of a window among the kernels that ran in
// it.
//
// The rule: at each instant the power belongs in equal shares to the kernels that
// run then. Where none runs it is active idle between the first kernel's begin
// and the last one's end, and idle outside of those. Nothing is left over: the
// shares come to the window's energy.
//
// The power is the trapezoid rule's straight line between two scans, as in
// measure.Integrator. Memory grows with the number of distinct names, with the
// kernels that run at once and with the scans that one edge's uncertainty spans,
// never with the number of kernels or of scans.
package attribute

import (
	"errors"
	"math"
	"slices"
	"sort"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/clock"
)

// Sentinel errors, wrapped with the figures.
var (
	// ErrWindow: the window's ends are not finite, or it is empty or reversed.
	ErrWindow = errors.New("not a window")
	// ErrOrder: a kernel began before its predecessor, or a scan came before its.
	ErrOrder = errors.New("out of order")
	// ErrKernel: a kernel that ends before it begins, or of a name without number.
	ErrKernel = errors.New("not a kernel")
	// ErrNoData: the scans do not reach over the window.
	ErrNoData = errors.New("window outside the data")
)

// Kernel is one execution. Name counts distinct names from 0 on.
type Kernel struct {
	Name       int
	Start, End measure.Seconds // host's time, counted from the clock fit's origin
}

// Config is the meter, the clock and the window that kernels are attributed with.
type Config struct {
	// Window is the span of device time whose energy is shared.
	Window measure.Window
	// Clock carries the kernels' host times to device time.
	Clock clock.Fit
	// Delay is how much later the power is read than its scan's time (a channel's
	// skew): window and kernels are moved by it.
	Delay measure.Seconds
	// Resolution is the span that the meter cannot look into: its scan, or the
	// update or average of a slower instrument. A kernel that is shorter is counted
	// in Use.Short.
	Resolution measure.Seconds
	// Brief is the length below which a pause between kernels counts in Result.Brief.
	Brief measure.Seconds
	// Spill is how long a step of power leaks over an edge on the average: a sixth
	// of a scan by the trapezoid rule, more with a lag or an average.
	Spill measure.Seconds
}

// Use is the total of one kernel name, or of the time without kernels.
type Use struct {
	Launches uint64
	// Short counts the launches that are shorter than the meter resolves. Their
	// energy is the meter's around them; U does not cover that.
	Short uint64
	// Busy is the sum of the launches' durations within the window; of idle and
	// active idle the time itself.
	Busy measure.Seconds
	// Share is the time by the rule of equal shares; all shares come to the window.
	Share  measure.Seconds
	Energy measure.Joule
	// UEdges and USampling are standard uncertainties (k = 1): of when the kernels
	// ran on the meter's clock, all edges moving together by the clock fit's uncertainty, and
	// of the energy that the meter's sampling spills over the edges.
	UEdges, USampling measure.Joule
}

// plus adds the uses of the same kernels on two groups of rails: energies add up,
// and so do uncertainties of one cause.
func (u Use) plus(v Use) Use {
	u.Energy += v.Energy
	u.UEdges += v.UEdges
	u.USampling += v.USampling
	return u
}

// Result is a window's energy by kernel name.
type Result struct {
	Kernels []Use // by name
	// ActiveIdle is the time between kernels, Idle that before the first and after
	// the last one.
	ActiveIdle, Idle Use
	Pauses, Brief    uint64 // stretches of active idle, and those that are brief
	Total            measure.Joule
}

// Merge adds the results, one or more, of the engines of several groups of rails over the same
// kernels.
func Merge(parts ...Result) Result {
	out := parts[0]
	out.Kernels = append([]Use(nil), out.Kernels...)
	for _, p := range parts[1:] {
		for i := range p.Kernels {
			out.Kernels[i] = out.Kernels[i].plus(p.Kernels[i])
		}
		out.ActiveIdle, out.Idle = out.ActiveIdle.plus(p.ActiveIdle), out.Idle.plus(p.Idle)
		out.Total += p.Total
	}
	return out
}

// trace is the power over time around the edge that is being booked.
type trace struct {
	t, p []float64
	head int // scans before it are dropped once there are many
}

func (r *trace) push(t, p float64) {
	if r.head > 1024 && r.head > len(r.t)/2 {
		n := copy(r.t, r.t[r.head:])
		copy(r.p, r.p[r.head:])
		r.t, r.p, r.head = r.t[:n], r.p[:n], 0
	}
	r.t, r.p = append(r.t, t), append(r.p, p)
}

// at is the power at an instant: on the straight line between two scans, and
// that of the first or last one beyond them.
func (r *trace) at(t float64) float64 {
	ts, ps := r.t[r.head:], r.p[r.head:]
	i := sort.SearchFloat64s(ts, t)
	switch {
	case i == 0:
		return ps[0]
	case i == len(ts):
		return ps[i-1]
	}
	return ps[i-1] + (ps[i]-ps[i-1])*(t-ts[i-1])/(ts[i]-ts[i-1])
}

func (r *trace) last() float64 { return r.t[len(r.t)-1] }

// slope is the derivative of an energy by the clock fit's A, by its B and by the errors of its knots, where
// the power beside each edge is taken from one side.
type slope struct {
	a, b  measure.Sum
	first int // of knots, the number of its error
	knots []float64
}

func (s *slope) add(p, host float64, f *clock.Fit) {
	s.a.Add(p)
	s.b.Add(p * host)
	if first, w := f.Errors(measure.Seconds(host)); first >= 0 {
		for i := range w {
			s.knot(first+i, p*w[i])
		}
	}
}

func (s *slope) knot(n int, by float64) {
	if len(s.knots) == 0 {
		s.first = n
	}
	for ; n < s.first; s.first-- {
		s.knots = slices.Insert(s.knots, 0, 0)
	}
	for n >= s.first+len(s.knots) {
		s.knots = append(s.knots, 0)
	}
	s.knots[n-s.first] += by
}

func (s *slope) take(o *slope) {
	s.a.Take(&o.a, 1)
	s.b.Take(&o.b, 1)
	for i, by := range o.knots {
		s.knot(o.first+i, by)
	}
}

// u is the standard uncertainty that the clock fit makes in the energy.
func (s *slope) u(f *clock.Fit) float64 {
	a, b := s.a.Value(), s.b.Value()
	v := max(a*a*f.VarA+2*a*b*f.CovAB+b*b*f.VarB, 0)
	for i, by := range s.knots {
		v += by * by * f.ErrorVar(s.first+i)
	}
	return math.Sqrt(v)
}

// account holds the sums booked for one name.
type account struct {
	launches, short uint64
	busy            measure.Sum
	share, energy   measure.Sum
	// An edge often lies on a step of power: the energy that a shift of it gains or loses
	// depends on the side. So the power is taken on either side.
	before, after slope
	// The share's change times the step of power, over the edges, in watts: the energy that a
	// kernel that is hotter than those beside it loses to them has one sign.
	spill   measure.Sum
	scatter measure.Sum // of its square
	running int
}

// edge books that the account's share of the power changes by d at an edge with
// these powers beside it.
func (a *account) edge(d, before, after, host float64, f *clock.Fit) {
	if d == 0 {
		return
	}
	a.before.add(-d*before, host, f)
	a.after.add(-d*after, host, f)
	step := d * (after - before)
	a.spill.Add(step)
	a.scatter.Add(step * step)
}

// take moves all of another account here.
func (a *account) take(o *account) {
	a.busy.Take(&o.busy, 1)
	a.share.Take(&o.share, 1)
	a.energy.Take(&o.energy, 1)
	a.spill.Take(&o.spill, 1)
	a.scatter.Take(&o.scatter, 1)
	a.before.take(&o.before)
	a.after.take(&o.after)
}

// scatterShare is the standard deviation of the energy that one step of 1 W spills over an
// edge, by its place within a scan of 1 s: √(1/20 − 1/36), see
// docs/run.md.
const scatterShare = 0.14907

func (a *account) use(c *Config) Use {
	return Use{
		Launches: a.launches, Short: a.short,
		Busy: measure.Seconds(a.busy.Value()), Share: measure.Seconds(a.share.Value()),
		Energy: measure.Joule(a.energy.Value()), UEdges: measure.Joule(max(a.before.u(&c.Clock), a.after.u(&c.Clock))),
		USampling: measure.Joule(math.Hypot(float64(c.Spill)*a.spill.Value(),
			scatterShare*float64(c.Resolution)*math.Sqrt(max(a.scatter.Value(), 0)))),
	}
}

package attribute

import (
	"errors"

	"wattmark/measure"
	"wattmark/measure/clock"
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

// Config is what kernels are held against.
type Config struct {
	// Window is the span of device time whose energy is shared.
	Window measure.Window
	// Clock carries the kernels' host times to device time.
	Clock clock.Fit
	// Delay is how much later the power is read than its scan says (a channel's
	// skew): window and kernels are moved by it.
	Delay measure.Seconds
	// Resolution is the span that the meter cannot look into: its scan, or the
	// update or average of a slower instrument. A kernel that is shorter is counted
	// in Use.Short.
	Resolution measure.Seconds
	// Spill is how long a step of power leaks over an edge on the average: a sixth
	// of a scan by the trapezoid rule, more with a lag or an average.
	Spill measure.Seconds
}

// Use is what one name, or the time without kernels, came to.
type Use struct {
	Launches uint64
	// Short counts the launches that are shorter than the meter resolves. Their
	// energy is what the meter saw around them; U does not hold that.
	Short uint64
	// Busy is the sum of the launches' durations within the window; of idle and
	// active idle the time itself.
	Busy measure.Seconds
	// Share is the time by the rule of equal shares; all shares come to the window.
	Share  measure.Seconds
	Energy measure.Joule
	// UEdges and USampling are standard uncertainties (k = 1): of when the kernels
	// ran on the meter's clock, all edges moving together as the clock fit says, and
	// of what the meter's sampling spills over the edges.
	UEdges, USampling measure.Joule
}

// plus adds what two groups of rails saw of the same kernels: energies add up,
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
	Total            measure.Joule
	// Outside counts the kernels that lie outside of the window as a whole, Cut
	// those that reach over its ends.
	Outside, Cut uint64
}

// Merge adds what the engines of several groups of rails came to over the same
// kernels.
func Merge(parts ...Result) Result {
	if len(parts) == 0 {
		return Result{}
	}
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

package sensor

import (
	"math"

	"wattmark/measure"
)

// Trace gathers a meter's samples into a Load of even pieces, by trapezoids, so that
// the energy stays what it was. The zero value is ready.
type Trace struct {
	// Step is the least length of a piece; 1 ms when zero. A sensor's window is
	// many times that.
	Step measure.Seconds

	at    []measure.Seconds
	watts []measure.Watt

	begun  bool
	last   measure.Seconds
	power  measure.Watt
	joules float64 // since the last of at
}

// Add adds a sample. Samples ascend in time; one that does not, or is no number,
// is left out.
func (t *Trace) Add(at measure.Seconds, p measure.Watt) {
	if math.IsNaN(float64(p)) || math.IsInf(float64(p), 0) || t.begun && at <= t.last {
		return
	}
	if t.Step == 0 {
		t.Step = 1e-3
	}
	if !t.begun {
		t.begun, t.last, t.power, t.at = true, at, p, append(t.at, at)
		return
	}
	t.joules += float64(t.power+p) / 2 * float64(at-t.last)
	t.last, t.power = at, p
	if d := at - t.at[len(t.at)-1]; d >= t.Step {
		t.watts = append(t.watts, measure.Watt(t.joules/float64(d)))
		t.at, t.joules = append(t.at, at), 0
	}
}

// Load is what was gathered.
func (t *Trace) Load() (*Load, error) {
	if n := len(t.at); n > 0 && t.last > t.at[n-1] { // what is left is a piece too
		t.watts = append(t.watts, measure.Watt(t.joules/float64(t.last-t.at[n-1])))
		t.at, t.joules = append(t.at, t.last), 0
	}
	return NewLoad(t.at[:len(t.watts)+min(1, len(t.at))], t.watts)
}

package sensor

import (
	"errors"
	"fmt"
	"math"
	"sort"

	"wattmark/measure"
)

// Load is a power over time that stays the same from one change to the next: a
// sequence of kernels, or a meter's samples. It is not changed once made, and safe
// for concurrent use.
type Load struct {
	at    []measure.Seconds // changes, then the end: one more than watts
	watts []measure.Watt
	sum   []float64 // joules before each of at
}

// ErrLoad is wrapped by errors about loads that are none.
var ErrLoad = errors.New("no usable load")

// NewLoad makes a load that draws watts[i] from at[i] to at[i+1]: n powers and n+1
// instants in ascending order, all finite. The slices are kept.
func NewLoad(at []measure.Seconds, watts []measure.Watt) (*Load, error) {
	if len(watts) == 0 || len(at) != len(watts)+1 {
		return nil, fmt.Errorf("sensor: %w: %d instants for %d powers: want one more", ErrLoad, len(at), len(watts))
	}
	l := &Load{at: at, watts: watts, sum: make([]float64, len(at))}
	for i, w := range watts {
		d := float64(at[i+1] - at[i])
		if !(d >= 0) || math.IsInf(d, 0) || math.IsNaN(float64(w)) || math.IsInf(float64(w), 0) {
			return nil, fmt.Errorf("sensor: %w: piece %d draws %v from %v to %v", ErrLoad, i, w, at[i], at[i+1])
		}
		l.sum[i+1] = l.sum[i] + d*float64(w)
	}
	return l, nil
}

// Begin and End bound what is known of the load.
func (l *Load) Begin() measure.Seconds { return l.at[0] }

// End is where the last piece ends.
func (l *Load) End() measure.Seconds { return l.at[len(l.at)-1] }

// Energy is the load's energy between two instants; from is not after to. Outside
// of what is known the power is that of the nearest piece.
func (l *Load) Energy(from, to measure.Seconds) measure.Joule {
	return measure.Joule(l.until(to, l.piece(to)) - l.until(from, l.piece(from)))
}

// Mean is the mean power between two instants, the power itself where they are one.
func (l *Load) Mean(from, to measure.Seconds) measure.Watt {
	if to <= from {
		return l.watts[l.piece(to)]
	}
	return measure.Watt(float64(l.Energy(from, to)) / float64(to-from))
}

// piece returns the piece that an instant lies in, the nearest where in none.
func (l *Load) piece(t measure.Seconds) int {
	i := sort.Search(len(l.at), func(i int) bool { return l.at[i] > t }) - 1
	return max(0, min(i, len(l.watts)-1))
}

// until is the energy up to an instant in a piece, in joules.
func (l *Load) until(t measure.Seconds, piece int) float64 {
	return l.sum[piece] + float64(t-l.at[piece])*float64(l.watts[piece])
}

// response is a model with its constants.
type response struct {
	model    Model
	constant measure.Seconds // window or τ
	delay    measure.Seconds
}

// at is what a sensor of gain one says at instants in ascending order.
func (r response) at(l *Load, at []measure.Seconds) []measure.Watt {
	out := make([]measure.Watt, len(at))
	if r.model == FirstOrder && r.constant > 0 {
		r.lag(l, at, out)
		return out
	}
	for i, t := range at {
		out[i] = l.Mean(t-r.delay-r.constant, t-r.delay)
	}
	return out
}

// lag follows the load exactly: between two changes the value nears the power
// exponentially. At the load's beginning it has settled.
func (r response) lag(l *Load, at []measure.Seconds, out []measure.Watt) {
	y, piece := float64(l.watts[0]), 0
	tau := float64(r.constant)
	for i, t := range at {
		t -= r.delay
		for piece+1 < len(l.watts) && l.at[piece+1] <= t {
			p := float64(l.watts[piece])
			y = p + (y-p)*math.Exp(-float64(l.at[piece+1]-l.at[piece])/tau)
			piece++
		}
		p := float64(l.watts[piece])
		out[i] = measure.Watt(p + (y-p)*math.Exp(-max(float64(t-l.at[piece]), 0)/tau))
	}
}

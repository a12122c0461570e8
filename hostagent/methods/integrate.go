package methods

import (
	"errors"
	"fmt"
	"sort"
	"time"

	"wattmark/measure"
)

// reach is how far a window's end may lie from the nearest reading.
const reach = 250 * time.Millisecond

// ErrReadings: there are too few readings, or none near an end of the window.
var ErrReadings = errors.New("the readings do not cover the window")

// Integrate integrates watts over a window by trapezoids between the readings'
// time stamps, with the ends interpolated, as a user of the sensor would do.
// Readings must be in order of time. Where the window reaches past the first or
// the last reading, by at most a quarter of a second, that reading is held.
func Integrate(r []Point, from, to time.Time) (measure.Joule, error) {
	if len(r) < 2 || !from.Before(to) {
		return 0, fmt.Errorf("%w: %d readings from %v to %v: too few", ErrReadings, len(r), from, to)
	}
	if d := max(r[0].At.Sub(from), to.Sub(r[len(r)-1].At)); d > reach {
		return 0, fmt.Errorf("%w: the readings miss %v of the window", ErrReadings, d)
	}
	sum, at, v := 0.0, from, valueAt(r, from)
	first := sort.Search(len(r), func(i int) bool { return r[i].At.After(from) })
	for _, x := range r[first:] {
		if !x.At.Before(to) {
			break
		}
		sum += (v + x.Value) / 2 * x.At.Sub(at).Seconds()
		at, v = x.At, x.Value
	}
	sum += (v + valueAt(r, to)) / 2 * to.Sub(at).Seconds()
	return measure.Joule(sum), nil
}

// valueAt interpolates sorted readings at an instant and holds their ends.
func valueAt(r []Point, t time.Time) float64 {
	i := sort.Search(len(r), func(i int) bool { return r[i].At.After(t) })
	switch {
	case i == 0:
		return r[0].Value
	case i == len(r):
		return r[len(r)-1].Value
	}
	a, b := r[i-1], r[i]
	f := t.Sub(a.At).Seconds() / b.At.Sub(a.At).Seconds()
	return a.Value + f*(b.Value-a.Value)
}

package measurement

import (
	"fmt"
	"sort"
	"time"

	"wattmark/hostagent/sampler"
	"wattmark/measure"
	"wattmark/store"
)

// reach is how far a window's end may lie from the nearest reading.
const reach = 250 * time.Millisecond

// SensorEnergy integrates one method's readings in watts over a window of the
// host's wall clock: the trapezoid rule, with the ends interpolated, as a user
// of the sensor would do. Readings need not be sorted. Where the window reaches
// past the first or the last reading, by at most a quarter of a second, that
// reading is held.
func SensorEnergy(readings []store.Reading, method string, from, to time.Time) (measure.Joule, error) {
	var r []store.Reading
	for _, x := range readings {
		if x.Method == method {
			r = append(r, x)
		}
	}
	if len(r) < 2 || !from.Before(to) {
		return 0, fmt.Errorf("%s: %d readings from %v to %v: too few", method, len(r), from, to)
	}
	sort.Slice(r, func(i, j int) bool { return r[i].At.Before(r[j].At) })
	if d := max(r[0].At.Sub(from), to.Sub(r[len(r)-1].At)); d > reach {
		return 0, fmt.Errorf("%s: the readings miss %v of the window", method, d)
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
func valueAt(r []store.Reading, t time.Time) float64 {
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

// sensorEnergy takes the instant power where the GPU has it, else its usage;
// nil when neither was read over the window.
func sensorEnergy(readings []store.Reading, from, to time.Time) *measure.Joule {
	for _, method := range []string{sampler.Instant, sampler.Usage} {
		if e, err := SensorEnergy(readings, method, from, to); err == nil {
			return &e
		}
	}
	return nil
}

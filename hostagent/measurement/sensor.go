package measurement

import (
	"fmt"
	"slices"
	"time"

	"wattmark/hostagent/methods"
	"wattmark/hostagent/sampler"
	"wattmark/measure"
	"wattmark/store"
)

// SensorEnergy integrates one method's readings in watts over a window of the
// host's wall clock, by methods.Integrate. Readings need not be sorted.
func SensorEnergy(readings []store.Reading, method string, from, to time.Time) (measure.Joule, error) {
	var r []methods.Point
	for _, x := range readings {
		if x.Method == method {
			r = append(r, methods.Point{At: x.At, Value: x.Value})
		}
	}
	slices.SortFunc(r, func(a, b methods.Point) int { return a.At.Compare(b.At) })
	e, err := methods.Integrate(r, from, to)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", method, err)
	}
	return e, nil
}

// sensed is the energy by the GPU's own sensor, and the method whose readings it
// integrates; nil and empty where there is none.
type sensed struct {
	energy *measure.Joule
	method string
}

// sensorEnergy takes the instant power where the GPU has it, else its usage;
// none when neither was read over the window.
func sensorEnergy(readings []store.Reading, from, to time.Time) sensed {
	for _, method := range []string{sampler.Instant, sampler.Usage} {
		if e, err := SensorEnergy(readings, method, from, to); err == nil {
			return sensed{&e, method}
		}
	}
	return sensed{}
}

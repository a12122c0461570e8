package measurement

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/wattmark/wattmark/hostagent/gpu"
	"github.com/wattmark/wattmark/hostagent/sensor"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/store"
)

// SensorEnergy integrates one method's readings in watts over a window of the
// host's wall clock, by sensor.Integrate. Readings need not be sorted.
func SensorEnergy(readings []store.Reading, method string, from, to time.Time) (measure.Joule, error) {
	var r []sensor.Point
	for _, x := range readings {
		if x.Method == method {
			r = append(r, sensor.Point{At: x.At, Value: x.Value})
		}
	}
	slices.SortFunc(r, func(a, b sensor.Point) int { return a.At.Compare(b.At) })
	e, err := sensor.Integrate(r, from, to)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", method, err)
	}
	return e, nil
}

// sensed is the energy by the GPU's own sensor, and the method of its readings; nil and
// empty where there is none.
type sensed struct {
	energy *measure.Joule
	method string
}

// sensorEnergy takes the instant power where the GPU has it, else its usage;
// none when neither was read over the window.
func sensorEnergy(readings []store.Reading, from, to time.Time) sensed {
	for _, method := range []string{sensor.InstantPower, sensor.UsagePower} {
		if e, err := SensorEnergy(readings, method, from, to); err == nil {
			return sensed{&e, method}
		}
	}
	return sensed{}
}

// MethodPrefix stands before the method in the names of the readings that the
// software methods made by themselves; the fields are in the sensor's own.
const MethodPrefix = "method."

// watch reads the GPU's sensor by the software methods until stop is called, which stores
// their results over the work.
func (s *attempt) watch(ctx context.Context) (stop func() error) {
	if s.cfg.Sensor == nil || s.cfg.NoMethods {
		return func() error { return nil }
	}
	o := s.cfg.Methods
	o.Line = s.line.at
	s.watcher = sensor.NewWatcher(s.cfg.Sensor, o)
	end := s.watcher.Start(ctx)
	return func() error {
		end()
		return s.storeMethods(context.WithoutCancel(ctx))
	}
}

// watched does the work with the methods that follow it.
func (s *attempt) watched(ctx context.Context, work Work) ([]gpu.Kernel, error) {
	if s.watcher != nil {
		s.watcher.Begin()
		defer s.watcher.End()
	}
	return work(ctx)
}

// storeMethods stores the results, and the readings that the sampler has not stored.
// Without work there is no span, and nothing to store.
func (s *attempt) storeMethods(ctx context.Context) error {
	if s.worked.Start.IsZero() {
		return nil
	}
	var readings []store.Reading
	for _, t := range s.watcher.Traces() {
		if t.Method == sensor.InstantField || t.Method == sensor.AverageField {
			continue
		}
		for _, p := range t.Points {
			readings = append(readings, store.Reading{
				Method: MethodPrefix + string(t.Method), At: p.At, Value: p.Value,
			})
		}
	}
	return errors.Join(
		s.cfg.DB.PutMethods(ctx, s.id, s.watcher.Results(s.worked)),
		s.cfg.DB.PutReadings(ctx, s.id, readings),
	)
}

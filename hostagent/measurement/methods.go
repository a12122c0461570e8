package measurement

import (
	"context"
	"errors"

	"wattmark/hostagent"
	"wattmark/hostagent/methods"
	"wattmark/store"
)

// MethodPrefix stands before the method in the names of the readings that the
// software methods made by themselves; the fields are in the sensor's own.
const MethodPrefix = "method."

// watch reads the GPU's sensor by the software methods until the returned
// function is called, which stores what they said of the work.
func (s *session) watch(ctx context.Context) (stop func() error) {
	if s.cfg.Sensor == nil || s.cfg.NoMethods {
		return func() error { return nil }
	}
	o := s.cfg.Methods
	o.Line = s.line.at
	s.watcher = methods.New(s.cfg.Sensor, o)
	side, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.watcher.Run(side)
	}()
	return func() error {
		cancel()
		<-done
		return s.storeMethods(context.WithoutCancel(ctx))
	}
}

// watched does the work with the methods that follow it.
func (s *session) watched(ctx context.Context, work Work) ([]hostagent.Kernel, error) {
	if s.watcher != nil {
		s.watcher.Begin()
		defer s.watcher.End()
	}
	return work(ctx)
}

// storeMethods stores the results, and the readings that no other has stored.
// Without a piece of work there is nothing to be said of it.
func (s *session) storeMethods(ctx context.Context) error {
	if s.worked.Start.IsZero() {
		return nil
	}
	var readings []store.Reading
	for _, t := range s.watcher.Traces() {
		if t.Method == methods.Instant || t.Method == methods.Average {
			continue
		}
		for _, p := range t.Points {
			readings = append(readings, store.Reading{Method: MethodPrefix + string(t.Method), At: p.At, Value: p.Value})
		}
	}
	return errors.Join(
		s.cfg.DB.PutMethods(ctx, s.id, s.watcher.Results(s.worked)),
		s.cfg.DB.PutReadings(ctx, s.id, readings),
	)
}

package main

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"sync"
	"time"

	"wattmark/analysis/sensor"
	"wattmark/hostagent"
	"wattmark/hostagent/measurement"
	"wattmark/measure"
)

// sensorReadings are polls of all power registers.
type sensorReadings struct {
	at                      []time.Time
	instant, average, usage []measure.Watt
	failed                  int
	err                     error
}

// readDuring reads a sensor from a while before some work until a while after it.
func readDuring(ctx context.Context, s hostagent.PowerSensor, every time.Duration, work measurement.Work) (*sensorReadings, []hostagent.Kernel, error) {
	const before, after = 1200 * time.Millisecond, 1500 * time.Millisecond
	var r sensorReadings
	side, cancel := context.WithCancel(ctx)
	var reader sync.WaitGroup
	reader.Go(func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		r.poll(side, s, every)
	})
	kernels, err := func() ([]hostagent.Kernel, error) {
		if err := pauseUntil(ctx, time.Now().Add(before)); err != nil {
			return nil, err
		}
		k, err := work(ctx)
		if err != nil {
			return nil, err
		}
		return k, pauseUntil(ctx, time.Now().Add(after))
	}()
	cancel()
	reader.Wait()
	if err == nil && len(r.at) == 0 {
		err = fmt.Errorf("the GPU's sensor gave no reading: %w", r.err)
	}
	return &r, kernels, err
}

// poll reads until ctx ends.
func (r *sensorReadings) poll(ctx context.Context, s hostagent.PowerSensor, every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		x, err := s.Read()
		if err != nil {
			r.failed, r.err = r.failed+1, err
			continue
		}
		if n := len(r.at); n > 0 && x.At.Before(r.at[n-1]) {
			continue // the clock was set
		}
		r.at = append(r.at, x.At)
		r.instant, r.average, r.usage = append(r.instant, x.Instant), append(r.average, x.Average), append(r.usage, x.Usage)
	}
}

// polls are the readings of one field, those that the GPU has.
func (r *sensorReadings) polls(w []measure.Watt, origin time.Time) (out []sensor.Poll) {
	for i, v := range w {
		if !math.IsNaN(float64(v)) {
			out = append(out, sensor.Poll{At: measure.SecondsOf(r.at[i].Sub(origin)), Power: v})
		}
	}
	return out
}

// source turns readings and kernels into what a sensor is identified from.
func (r *sensorReadings) source(kernels []hostagent.Kernel, info hostagent.Info) (*sensorSource, error) {
	origin := r.at[0]
	s := &sensorSource{origin: origin, gpu: info.Name, uuid: info.UUID, driver: info.Driver, description: "load on " + info.Name}
	for _, f := range []struct {
		name string
		w    []measure.Watt
	}{{"instant", r.instant}, {"average", r.average}, {"usage", r.usage}} {
		for _, p := range r.polls(f.w, origin) {
			s.add(f.name, p)
		}
	}
	for _, k := range kernels {
		s.phases = append(s.phases, sensor.Phase{Name: k.Name, From: measure.SecondsOf(k.Span.Start.Sub(origin)), To: measure.SecondsOf(k.Span.End.Sub(origin))})
	}
	return s, s.usePhases("the times of the kernels")
}

// Package experiment runs a piece of work on a GPU once, with a meter beside it or with
// the GPU's own sensor alone. The packages below are experiments: each has work of its own,
// and computes its result from the power.
//
//	              ┌─ Meter set:  measurement ─ bench held ─ Open ─ Prepare ─ WarmUp ─ markers ─ work
//	Bench.Run ────┤
//	              └─ Meter nil:  Open ─ WarmUp ─ Prepare ─ Alone(sensor, work)
//
//	instructions  the energy of single instructions, by differences of two kernels
//	sweep         a kernel's time and energy over its number of blocks
//	tiny          the energy of kernels shorter than the meter can bracket
package experiment

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/wattmark/wattmark/hostagent/gpu"
	"github.com/wattmark/wattmark/hostagent/measurement"
	"github.com/wattmark/wattmark/hostagent/sensor"
	"github.com/wattmark/wattmark/store"
)

// Bench is a GPU, found and not yet open, with or without a meter beside it.
type Bench struct {
	Device gpu.Device
	// Open opens the GPU and returns its own sensor, nil for none. Run calls it once; the caller
	// closes both. Nil where the Device is open and has no sensor.
	Open func(ctx context.Context) (gpu.PowerSensor, error)
	// WarmUp loads the GPU before the work; zero for none.
	WarmUp time.Duration
	// Prepare runs once on the open GPU before the work, for instance to plan by trying it
	// out. Its error ends the run, and with a meter leaves no task. Nil for nothing.
	Prepare func(ctx context.Context) error

	// Meter is the measurement around the work; its Device, Open and WarmUp are set by Run.
	// Nil to run without a meter.
	Meter *measurement.Config
	// Measure makes the measurement; measurement.Measure when nil.
	Measure measurement.MeasureFunc
	// Alone runs the work where there is no meter, usually with Around; nil to call the work.
	Alone func(ctx context.Context, own gpu.PowerSensor, work measurement.Work) ([]gpu.Kernel, error)
}

// Ran is the outcome of Bench.Run.
type Ran struct {
	Task    store.TaskID // zero without a meter, or where the run failed before there was a task
	Kernels []gpu.Kernel // as the work returned them
}

// Run runs the work and blocks until its measurement, if any, has ended. With an error too
// the result holds the task and the kernels that there are. It is for one goroutine.
func (b *Bench) Run(ctx context.Context, work measurement.Work) (out Ran, err error) {
	kept := func(ctx context.Context) (_ []gpu.Kernel, err error) {
		out.Kernels, err = work(ctx)
		return out.Kernels, err
	}
	if b.Meter == nil {
		own, err := b.open(ctx, b.WarmUp)
		switch {
		case err != nil:
		case b.Alone != nil:
			_, err = b.Alone(ctx, own, kept)
		default:
			_, err = kept(ctx)
		}
		return out, err
	}
	cfg := *b.Meter
	cfg.Device, cfg.WarmUp = b.Device, b.WarmUp
	cfg.Open = func(ctx context.Context) (gpu.PowerSensor, error) { return b.open(ctx, 0) }
	measure := b.Measure
	if measure == nil {
		measure = measurement.Measure
	}
	out.Task, err = measure(ctx, cfg, kept)
	return out, err
}

// open opens the GPU, warms it up for a time, and prepares on it: a try-out on a cold GPU would
// mislead the plan.
func (b *Bench) open(ctx context.Context, warm time.Duration) (own gpu.PowerSensor, err error) {
	if b.Open != nil {
		if own, err = b.Open(ctx); err != nil {
			return nil, err
		}
	}
	if warm > 0 {
		if err := b.Device.WarmUp(ctx, warm); err != nil {
			return own, fmt.Errorf("warm up: %w", err)
		}
	}
	if b.Prepare != nil {
		err = b.Prepare(ctx)
	}
	return own, err
}

// Around runs work while read, which must return when its context ends, runs on an OS
// thread of its own from lead before the work until trail after it. It returns when read
// has ended; the work's error comes without the trail.
func Around(
	ctx context.Context, lead, trail time.Duration, read func(context.Context), work measurement.Work,
) (kernels []gpu.Kernel, err error) {
	side, cancel := context.WithCancel(ctx)
	var reader sync.WaitGroup
	reader.Go(func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		read(side)
	})
	defer func() { cancel(); reader.Wait() }()
	if err := sensor.Pause(ctx, lead); err != nil {
		return nil, err
	}
	if kernels, err = work(ctx); err != nil {
		return kernels, err
	}
	return kernels, sensor.Pause(ctx, trail)
}

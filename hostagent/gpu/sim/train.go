package sim

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/wattmark/wattmark/hostagent/gpu"
	"github.com/wattmark/wattmark/measure"
)

// Step is a stretch of constant load.
type Step struct {
	Load Load
	// Level in watts takes the load's place where it is positive.
	Level measure.Watt
	For   time.Duration
}

// Kernel is a kernel of set power and duration, as a real one would show itself.
type Kernel struct {
	// Cold is the power of a launch that finds its data in no cache, Warm of one that
	// does; without Warm all launches are cold.
	Cold, Warm []Step
	// Overlap is how much of a launch's end runs beside the begin of the next one
	// where nothing lies between them: the card draws the one's power, not both.
	Overlap time.Duration
}

// length is how long steps last.
func length(steps []Step) (d time.Duration) {
	for _, s := range steps {
		d += s.For
	}
	return d
}

// ErrKernel: the simulated GPU cannot run such a kernel.
var ErrKernel = errors.New("not a kernel of the simulated GPU")

// perStep leaves time to lay a step down in another process before it is due.
const perStep = 3 * time.Microsecond

// maxSteps is how many steps are handed to the plant at a time.
const maxSteps = 20_000

var _ gpu.TrainRunner = (*Device)(nil)

// RunTrain lays a train down and returns when it has passed. The kernel is
// Config.Kernel where there is one, else the train's built-in benchmark.
func (d *Device) RunTrain(ctx context.Context, t gpu.Train) (gpu.Ran, error) {
	if err := t.Validate(); err != nil {
		return gpu.Ran{}, fmt.Errorf("sim: %w", err)
	}
	k, err := d.kernel(t.Insert)
	if err != nil {
		return gpu.Ran{}, fmt.Errorf("sim: train: %w", err)
	}
	carrier, ok := benchLoads[t.Carrier]
	if !ok {
		return gpu.Ran{}, fmt.Errorf("sim: train: carrier %q: want half, compute or memory", t.Carrier)
	}
	// The whole train is laid down ahead of the meter's clock, in parts: the plant must have a
	// step before the meter reads it. Each part begins where the one before ends.
	steps, ran := lay(&t, k, carrier)
	steps = append(steps, Step{Load: ActiveIdle})
	begin := d.launch().Add(time.Duration(min(len(steps), maxSteps)) * perStep)
	end := begin
	for from := 0; from < len(steps); from += maxSteps {
		part := steps[from:min(from+maxSteps, len(steps))]
		at, err := d.cfg.Plant.SetSteps(end, part)
		if err == nil && !at.Equal(end) {
			err = fmt.Errorf("the meter had read %v further than the train was laid down", at.Sub(end))
		}
		if err != nil {
			return gpu.Ran{}, fmt.Errorf("sim: train: %w", err)
		}
		end = end.Add(length(part))
	}
	if err := d.await(ctx, end); err != nil {
		return gpu.Ran{}, fmt.Errorf("sim: train: %w", err)
	}
	return shift(ran, begin), nil
}

// kernel returns the power of an insert. ErrKernel for one that cannot be simulated.
func (d *Device) kernel(i gpu.Insert) (Kernel, error) {
	if d.cfg.Kernel != nil {
		return *d.cfg.Kernel, nil
	}
	if i.PTX != nil {
		return Kernel{}, fmt.Errorf("%w: a PTX file needs a real GPU: name a built-in kernel, or what a simulated one "+
			"draws", ErrKernel)
	}
	l, ok := benchLoads[i.Benchmark]
	if !ok {
		return Kernel{}, fmt.Errorf("%w: %q: want half, compute or memory", ErrKernel, i.Benchmark)
	}
	return Kernel{Cold: []Step{{Load: l, For: i.Length}}}, nil
}

// lay returns the steps of a train, and how it runs, from time zero on.
func lay(t *gpu.Train, k Kernel, carrier Load) (steps []Step, ran gpu.Ran) {
	var now time.Duration
	var zero time.Time
	put := func(s ...Step) {
		steps = append(steps, s...)
		now += length(s)
	}
	lengths := t.Lengths()
	for _, p := range t.Phases {
		r := gpu.RanPhase{Span: gpu.Span{Start: zero.Add(now)}}
		start := func() {
			r.Inserted++
			if t.Starts {
				r.Starts = append(r.Starts, zero.Add(now))
			}
		}
		for range p.Slices {
			put(Step{Load: carrier, For: lengths[0]})
			r.Carrier, lengths = r.Carrier+lengths[0], lengths[1:]
			if p.Kernel {
				start()
				put(k.Cold...)
			}
		}
		for i := range p.Bare {
			start()
			put(k.bare(i, p.Bare)...)
		}
		r.Span.End = zero.Add(now)
		ran.Phases = append(ran.Phases, r)
	}
	return steps, ran
}

// bare is launch i of n back to back: the first is cold, and each but the last
// loses its end to the next.
func (k Kernel) bare(i, n int) []Step {
	steps := k.Cold
	if i > 0 && len(k.Warm) > 0 {
		steps = k.Warm
	}
	if i == n-1 || k.Overlap == 0 {
		return steps
	}
	steps = append([]Step(nil), steps...)
	last := &steps[len(steps)-1]
	last.For = max(last.For-k.Overlap, 0)
	return steps
}

// shift moves a train from time zero to where it began.
func shift(ran gpu.Ran, begin time.Time) gpu.Ran {
	var zero time.Time
	move := func(t *time.Time) { *t = begin.Add(t.Sub(zero)) }
	for i := range ran.Phases {
		p := &ran.Phases[i]
		move(&p.Span.Start)
		move(&p.Span.End)
		for j := range p.Starts {
			move(&p.Starts[j])
		}
	}
	return ran
}

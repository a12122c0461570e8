// Package sweep measures a kernel over its number of blocks: the two kernels of
// Boughzala et al. (2020), vectorAdd and matrixMul, in PTX of our own, launched
// with grids around and beyond the number of blocks that the GPU holds at a time.
//
//	Plan ─ Measure ─ load ─ loops (turns that fill a round) ─ idle ─ launches … ─ idle ─▶ Outcome
//
// A block's loop is set so that a full round takes the plan's time. Sizes are measured in an
// order that is drawn by lot, several times over, and the GPU rests before, between and
// after.
package sweep

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/wattmark/wattmark/hostagent/gpu"
	"github.com/wattmark/wattmark/hostagent/sensor"
	"github.com/wattmark/wattmark/measure"
)

// The kinds of error, for errors.Is.
var (
	// ErrPlan: a sweep cannot be made as asked.
	ErrPlan = errors.New("not to be swept")
	// ErrResult: a kernel left another result than it must.
	ErrResult = errors.New("wrong result")
)

// Launch is one measured launch, or the GPU at rest where Blocks is zero.
type Launch struct {
	Blocks uint64
	Pass   int
	Span   gpu.Span
	// Energy is the launch's energy by each method of the GPU's own sensor; methods without a
	// result are left out.
	Energy    map[sensor.Method]measure.Joule
	Throttled []string
}

// Time is how long it took.
func (l *Launch) Time() measure.Seconds { return measure.SecondsOf(l.Span.End.Sub(l.Span.Start)) }

// Outcome is a sweep.
type Outcome struct {
	GPU           gpu.Info
	Kernel        Kernel
	SMs, Resident uint64
	Loops         uint64 // turns of each block's loop
	Launches      []Launch
}

// Measure makes a sweep and blocks until it has ended. The launches measured so far come
// back with an error as well.
func Measure(
	ctx context.Context, m Machine, s gpu.PowerSensor, p Plan, progress func(done, all int),
) (out *Outcome, err error) {
	if err := p.Check(); err != nil {
		return nil, err
	}
	program, err := load(ctx, m, &p)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, program.Close()) }()
	out = &Outcome{GPU: m.Info(), Kernel: p.Kernel}
	out.SMs, out.Resident = program.Shape()
	if out.Loops, err = loops(ctx, program, p); err != nil {
		return nil, err
	}
	if err := p.bounded(out); err != nil {
		return nil, err
	}
	w := sensor.NewWatcher(s, sensor.MethodOptions{})
	stop := w.Start(ctx)
	err = p.launches(ctx, program, s, w, out, progress)
	stop()
	for i := range out.Launches {
		out.Launches[i].read(w)
	}
	return out, err
}

// load makes the kernel ready for the plan's sizes, which follow from the GPU
// where the plan has none.
func load(ctx context.Context, m Machine, p *Plan) (Loaded, error) {
	if len(p.Blocks) == 0 {
		one, err := m.Load(ctx, p.Kernel, 1)
		if err != nil {
			return nil, fmt.Errorf("sweep: %s: %w", p.Kernel, err)
		}
		p.Blocks = Sizes(one.Shape())
		if err := one.Close(); err != nil {
			return nil, err
		}
	}
	// Loops are set on a full round, which must fit as well.
	most := slices.Max(p.Blocks)
	for {
		l, err := m.Load(ctx, p.Kernel, most)
		if err != nil {
			return nil, fmt.Errorf("sweep: %s: %w", p.Kernel, err)
		}
		sms, resident := l.Shape()
		if most >= sms*resident {
			return l, nil
		}
		most = sms * resident
		if err := l.Close(); err != nil {
			return nil, err
		}
	}
}

// loops finds the turns that make a full round as long as it is to be, on clocks
// that have risen.
func loops(ctx context.Context, l Loaded, p Plan) (uint64, error) {
	sms, resident := l.Shape()
	n := uint64(1)
	for {
		span, err := l.Run(ctx, sms*resident, n)
		if err != nil {
			return 0, fmt.Errorf("sweep: %s: %w", p.Kernel, err)
		}
		took := span.End.Sub(span.Start)
		if took >= p.Round/4 {
			if err := l.Check(sms * resident); err != nil {
				return 0, fmt.Errorf("sweep: %w", err)
			}
			return max(1, uint64(float64(n)*p.Round.Seconds()/took.Seconds())), nil
		}
		if n >= 1<<40 {
			return 0, fmt.Errorf("sweep: %s: %d turns took %v only: the loop does no work", p.Kernel, n, took)
		}
		grow := min(16, max(2, p.Round.Seconds()/4/max(took.Seconds(), 1e-6)))
		n = uint64(math.Ceil(float64(n) * grow))
	}
}

// bounded refuses launches too long to be waited for: a running kernel cannot be stopped.
func (p *Plan) bounded(o *Outcome) error {
	most := slices.Max(p.Blocks)
	long := time.Duration(most/(o.SMs*o.Resident)+1) * p.Round
	if long > mostLaunch {
		return fmt.Errorf("%w: %d blocks would run for about %v, and a kernel cannot be stopped: make --round shorter "+
			"or the sizes smaller", ErrPlan, most, long.Round(time.Second))
	}
	return nil
}

// launches measures the rest, every size in every pass, and the rest again.
func (p *Plan) launches(
	ctx context.Context, l Loaded, s gpu.PowerSensor, w *sensor.Watcher, o *Outcome, progress func(done, all int),
) error {
	all := len(p.Blocks)*p.Repeat + 2
	tell := func() {
		if progress != nil {
			progress(len(o.Launches), all)
		}
	}
	if err := p.rest(ctx, o); err != nil {
		return err
	}
	tell()
	// One launch warms the GPU up and is not kept.
	if _, err := l.Run(ctx, o.SMs*o.Resident, o.Loops); err != nil {
		return fmt.Errorf("sweep: %s: %w", p.Kernel, err)
	}
	rng := rand.New(rand.NewPCG(p.Seed, 0x7377_6570))
	for pass := range p.Repeat {
		order := slices.Clone(p.Blocks)
		rng.Shuffle(len(order), func(a, b int) { order[a], order[b] = order[b], order[a] })
		for _, n := range order {
			if err := sensor.Pause(ctx, p.Rest); err != nil {
				return err
			}
			w.Begin()
			span, err := l.Run(ctx, n, o.Loops)
			w.End()
			if err == nil && pass == 0 {
				err = l.Check(n)
			}
			if err != nil {
				return fmt.Errorf("sweep: %s of %d blocks: %w", p.Kernel, n, err)
			}
			x := Launch{Blocks: n, Pass: pass, Span: span}
			if c, ok := s.(gpu.ConditionReader); ok {
				x.Throttled = c.Condition().Throttled()
			}
			o.Launches = append(o.Launches, x)
			tell()
		}
	}
	err := p.rest(ctx, o)
	tell()
	return err
}

// rest measures the GPU with its context and without work.
func (p *Plan) rest(ctx context.Context, o *Outcome) error {
	if err := sensor.Pause(ctx, p.Settle); err != nil {
		return err
	}
	x := Launch{Span: gpu.Span{Start: time.Now()}}
	err := sensor.Pause(ctx, p.Idle)
	x.Span.End = time.Now()
	o.Launches = append(o.Launches, x)
	return err
}

// read stores the sensor's energies of a launch.
func (l *Launch) read(w *sensor.Watcher) {
	l.Energy = map[sensor.Method]measure.Joule{}
	for _, r := range w.Results(l.Span) {
		if !math.IsNaN(float64(r.Energy)) {
			l.Energy[sensor.Method(r.Method)] = r.Energy
		}
	}
}

// Plan is a sweep to measure.
type Plan struct {
	Kernel Kernel
	// Blocks are the sizes; those of Sizes when empty.
	Blocks []uint64
	// Round is how long a full round is to take, Rest how long the GPU rests before
	// each launch, and Idle how long it is measured at rest, before and after all,
	// when it has been left alone for Settle.
	Round, Rest, Idle, Settle time.Duration
	Repeat                    int
	Seed                      uint64
}

// The bounds of a plan: a kernel that runs cannot be stopped.
const (
	mostBlocks = 1 << 20
	mostRepeat = 1000
	mostLaunch = 2 * time.Minute
)

// Check refuses a plan that no GPU could be swept by. Errors wrap ErrPlan.
func (p *Plan) Check() error {
	if err := p.Kernel.valid(); err != nil {
		return err
	}
	for _, n := range p.Blocks {
		if n == 0 || n > mostBlocks {
			return fmt.Errorf("%w: %d blocks: want 1 to %d", ErrPlan, n, mostBlocks)
		}
	}
	switch {
	case p.Round < 10*time.Millisecond || p.Round > 10*time.Second:
		return fmt.Errorf("%w: a round of %v: want 10ms to 10s", ErrPlan, p.Round)
	case p.Rest < 0 || p.Rest > time.Minute || p.Idle <= 0 || p.Idle > time.Minute || p.Settle < 0 ||
		p.Settle > time.Minute:
		return fmt.Errorf("%w: a rest of %v, %v of idleness %v after work: want up to a minute each, and some "+
			"idleness", ErrPlan, p.Rest, p.Idle, p.Settle)
	case p.Repeat < 1 || p.Repeat > mostRepeat:
		return fmt.Errorf("%w: %d repetitions: want 1 to %d", ErrPlan, p.Repeat, mostRepeat)
	}
	return nil
}

// Sizes returns numbers of blocks below, at and above a round of the GPU: parts of one, full
// ones, and some that end within one.
func Sizes(sms, resident uint64) []uint64 {
	r := sms * resident
	out := []uint64{max(1, r/4), max(1, r/2), max(1, 3*r/4), r, r + max(1, r/4), 2 * r, 5 * r / 2, 4 * r, 6 * r, 8 * r}
	slices.Sort(out)
	return slices.Compact(out)
}

// Takes is about how long a plan takes on a GPU.
func (p *Plan) Takes(sms, resident uint64) time.Duration {
	var out time.Duration
	for _, n := range p.Blocks {
		out += p.Rest + time.Duration((n+sms*resident-1)/(sms*resident))*p.Round
	}
	return time.Duration(p.Repeat)*out + 2*(p.Idle+p.Settle)
}

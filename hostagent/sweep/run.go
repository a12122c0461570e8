package sweep

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"wattmark/hostagent"
	"wattmark/hostagent/methods"
	"wattmark/measure"
)

// Launch is one measured launch, or the GPU at rest where Blocks is zero.
type Launch struct {
	Blocks uint64
	Pass   int
	Span   hostagent.Span
	// Energy is what each way to read the GPU's own sensor says; ways that have
	// nothing to say are left out.
	Energy    map[methods.Method]measure.Joule
	Throttled []string
}

// Time is how long it took.
func (l *Launch) Time() measure.Seconds { return measure.SecondsOf(l.Span.End.Sub(l.Span.Start)) }

// Outcome is a sweep.
type Outcome struct {
	GPU           hostagent.Info
	Kernel        Kernel
	SMs, Resident uint64
	Loops         uint64 // turns of each block's loop
	Launches      []Launch
}

// Measure makes a sweep. What was measured comes back with an error as well.
func Measure(ctx context.Context, m Machine, s hostagent.PowerSensor, p Plan, progress func(done, all int)) (out *Outcome, err error) {
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
	watched, stop := context.WithCancel(ctx)
	defer stop()
	w, ended := methods.New(s, methods.Options{}), make(chan struct{})
	go func() { defer close(ended); w.Run(watched) }()
	err = p.launches(ctx, program, s, w, out, progress)
	stop()
	<-ended
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

// bounded refuses launches that nobody could stop.
func (p *Plan) bounded(o *Outcome) error {
	most := slices.Max(p.Blocks)
	long := time.Duration(most/(o.SMs*o.Resident)+1) * p.Round
	if long > mostLaunch {
		return fmt.Errorf("%w: %d blocks would run for about %v, and a kernel cannot be stopped: make --round shorter or the sizes smaller", ErrPlan, most, long.Round(time.Second))
	}
	return nil
}

// launches measures the rest, every size in every pass, and the rest again.
func (p *Plan) launches(ctx context.Context, l Loaded, s hostagent.PowerSensor, w *methods.Watcher, o *Outcome, progress func(done, all int)) error {
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
			if err := pause(ctx, p.Rest); err != nil {
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
			if c, ok := s.(hostagent.ConditionReader); ok {
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
	if err := pause(ctx, p.Settle); err != nil {
		return err
	}
	x := Launch{Span: hostagent.Span{Start: time.Now()}}
	err := pause(ctx, p.Idle)
	x.Span.End = time.Now()
	o.Launches = append(o.Launches, x)
	return err
}

// read notes what the sensor said of a launch.
func (l *Launch) read(w *methods.Watcher) {
	l.Energy = map[methods.Method]measure.Joule{}
	for _, r := range w.Results(l.Span) {
		if !math.IsNaN(float64(r.Energy)) {
			l.Energy[methods.Method(r.Method)] = r.Energy
		}
	}
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}

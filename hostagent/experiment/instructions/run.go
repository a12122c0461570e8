package instructions

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/wattmark/wattmark/hostagent/gpu"
	"github.com/wattmark/wattmark/hostagent/sensor"
	"github.com/wattmark/wattmark/measure"
)

// Plan is a measurement of instructions: their settings, lengths and repetitions.
type Plan struct {
	Instructions []Instruction
	Layouts      []Layout
	Levels       []int
	// Steps of the loop's body in each layout.
	Steps map[Layout]int
	// Passes over everything, each in an order of its own.
	Passes int
	// Settle is how long a program runs before it is measured, so that a sensor
	// which averages shows it alone; Length is how long it is measured.
	Settle, Length map[Layout]time.Duration
	Seed           uint64
	// Host and Version are noted with every run.
	Host, Version string
}

// DefaultPlan measures everything, for a sensor that averages over a second.
// Programs of one thread all draw the same, to a watt, and need little settling.
//
// The body has 200 steps, not the 5 of Arafa et al.: a loop's own counting and
// branch take some 20 cycles on a Hopper, and run beside the block. Five steps of
// 4 cycles vanish behind them; 200 lose a tenth of a cycle each.
func DefaultPlan() Plan {
	return Plan{
		Instructions: Catalogue(), Layouts: []Layout{OneThread, WholeGPU}, Levels: []int{3, 0}, Passes: 3,
		Steps:  map[Layout]int{OneThread: 200, WholeGPU: 200},
		Settle: map[Layout]time.Duration{OneThread: 200 * time.Millisecond, WholeGPU: 1100 * time.Millisecond},
		Length: map[Layout]time.Duration{OneThread: 300 * time.Millisecond, WholeGPU: 400 * time.Millisecond},
		Seed:   1,
	}
}

// Sensor is the GPU's own power sensor, with its condition.
type Sensor interface {
	gpu.PowerSensor
	Condition() gpu.Condition
}

// ErrResult: a program left another result than it must.
var ErrResult = errors.New("wrong result")

// job is one program to measure.
type job struct {
	i     Instruction
	s     Setting
	block bool
	base  string
}

// String names it in errors.
func (j job) String() string {
	if j.base == "" {
		return fmt.Sprintf("%s, %s", Idle, j.s.Layout)
	}
	return fmt.Sprintf("%s, -O%d, %s", j.i.Name, j.s.Level, j.s.Layout)
}

// Measure runs a plan and hands on every run. A program that this GPU does not
// have is a Run with an Error; a wrong result, or a lost GPU, ends the plan.
func Measure(ctx context.Context, m Machine, own Sensor, p Plan, each func(Run) error) error {
	cc, err := m.Capability()
	if err != nil {
		return err
	}
	sound, err := p.verify(ctx, m, cc)
	if err != nil {
		return err
	}
	campaign, info := time.Now().UTC().Truncate(time.Second), gpu.Identify(m.Info(), own)
	rng := rand.New(rand.NewPCG(p.Seed, 0))
	for pass := range p.Passes {
		for _, layout := range p.Layouts {
			jobs, err := p.jobs(layout, cc)
			if err != nil {
				return err
			}
			rng.Shuffle(len(jobs), func(a, b int) { jobs[a], jobs[b] = jobs[b], jobs[a] })
			// The idle GPU first, so that a plan which is cut short has it, and last: it
			// gets warmer meanwhile.
			rest := job{s: Setting{Layout: layout}}
			for _, j := range slices.Concat([]job{rest}, jobs, []job{rest}) {
				r, err := p.measure(ctx, m, own, j, cc)
				if err != nil {
					return fmt.Errorf("instructions: %v: %w", j, err)
				}
				r.Campaign, r.GPU, r.UUID, r.Driver = campaign, info.Name, info.UUID, info.Driver
				r.Seed, r.Host, r.Version = p.Seed, p.Host, p.Version
				r.Pass, r.Checked = pass, j.block && sound[j.i.Name]
				if err := each(r); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// jobs lists programs with the block, and each program without it once: many
// instructions share one.
func (p *Plan) jobs(layout Layout, cc int) ([]job, error) {
	var out []job
	for _, level := range p.Levels {
		s := Setting{Layout: layout, Level: level, Steps: p.Steps[layout]}
		seen := map[string]bool{}
		for _, i := range p.Instructions {
			if cc < i.Least {
				continue
			}
			text, err := i.PTX(Kernel{Steps: s.Steps, Capability: cc})
			if err != nil {
				return nil, err
			}
			sum := sha256.Sum256(text)
			base := hex.EncodeToString(sum[:6])
			if i.Place != NoMemory { // the same text, but other data
				base += fmt.Sprint("-", i.Place)
			}
			out = append(out, job{i, s, true, base})
			if !seen[base] {
				seen[base] = true
				out = append(out, job{i, s, false, base})
			}
		}
	}
	return out, nil
}

// measure runs one job. A program that does not load is a Run with an Error, no error.
func (p *Plan) measure(ctx context.Context, m Machine, own Sensor, j job, cc int) (r Run, err error) {
	if j.base == "" {
		return p.idle(ctx, own, j.s)
	}
	r = Run{Instruction: j.i.Name, Setting: j.s, Block: j.block, Base: j.base}
	source, err := j.i.PTX(Kernel{Steps: j.s.Steps, Block: j.block, Capability: cc})
	if err != nil {
		return r, err
	}
	program, err := m.Load(ctx, j.i, source, j.s)
	if err != nil {
		if ctx.Err() != nil { // it is the plan that ended, not this program that fails
			return r, err
		}
		r.Error = err.Error()
		return r, nil
	}
	defer func() { err = errors.Join(err, program.Close()) }()
	err = p.launch(ctx, program, own, &r)
	return r, err
}

// launch runs a program twice, to settle and to be measured, and notes the sensor's
// readings of the second run.
func (p *Plan) launch(ctx context.Context, program Loaded, own Sensor, r *Run) error {
	turn, err := turnTime(ctx, program)
	if err != nil {
		return err
	}
	times := func(d time.Duration) uint64 { return max(1, uint64(d.Seconds()/turn)) }
	w := watch(ctx, own)
	if _, err = program.Run(ctx, times(p.Settle[r.Layout])); err != nil {
		return errors.Join(err, w.end())
	}
	r.Turns = times(p.Length[r.Layout])
	l, err := program.Run(ctx, r.Turns)
	c := own.Condition()
	if err := errors.Join(err, w.end()); err != nil {
		return err
	}
	if ctx.Err() != nil { // the kernel ran on, but the readings ended
		return context.Cause(ctx)
	}
	r.Threads, r.Cycles, r.X = l.Threads, l.Cycles, l.X
	r.span = l.Span
	r.Time = measure.SecondsOf(l.Span.End.Sub(l.Span.Start))
	r.Power, r.Reads = w.means(l.Span), w.rate()
	r.at(c)
	return nil
}

// turnTime returns the length of a turn of the loop in seconds, from a run that is long
// enough for the clock to have risen, and short enough not to matter.
func turnTime(ctx context.Context, p Loaded) (float64, error) {
	turns := uint64(64)
	for {
		l, err := p.Run(ctx, turns)
		if err != nil {
			return 0, err
		}
		took := l.Span.End.Sub(l.Span.Start)
		if took > 5*time.Millisecond || turns >= 1<<40 {
			return took.Seconds() / float64(turns), nil
		}
		turns *= 4
	}
}

// Idle is the name under which the power of a GPU with a context and without a
// kernel is recorded.
const Idle = "idle"

// idle measures the GPU at rest.
func (p *Plan) idle(ctx context.Context, own Sensor, s Setting) (Run, error) {
	r := Run{Instruction: Idle, Setting: s}
	if err := sensor.Pause(ctx, p.Settle[WholeGPU]); err != nil {
		return r, err
	}
	w := watch(ctx, own)
	at := gpu.Span{Start: time.Now()}
	err := sensor.Pause(ctx, p.Length[s.Layout])
	at.End = time.Now()
	c := own.Condition()
	if err := errors.Join(err, w.end()); err != nil {
		return r, err
	}
	if ctx.Err() != nil {
		return r, context.Cause(ctx)
	}
	r.span = at
	r.Time = measure.SecondsOf(at.End.Sub(at.Start))
	r.Power, r.Reads = w.means(at), w.rate()
	r.at(c)
	return r, nil
}

// verifyTurns is how many turns of the loop are computed again in Go.
const verifyTurns = 1000

// verify runs every block in one thread and compares its result with that of Go; for an
// instruction that Go cannot compute, all levels must agree. It returns the names that were
// compared with Go. Programs that do not load are left to the plan's own run.
func (p *Plan) verify(ctx context.Context, m Machine, cc int) (map[string]bool, error) {
	sound := map[string]bool{}
	for _, i := range p.Instructions {
		if cc < i.Least {
			continue
		}
		var first uint64
		for n, level := range p.Levels {
			x, ok, err := runOnce(ctx, m, i, level, cc)
			if err != nil {
				return nil, fmt.Errorf("instructions: %s at -O%d: %w", i.Name, level, err)
			}
			if !ok {
				break
			}
			if n == 0 {
				first = x
			}
			switch {
			case i.Next != nil && x != i.Result(verifyTurns, operands):
				return nil, fmt.Errorf("%w: %s at -O%d gives %#x after %d steps, %#x is right", ErrResult, i.Name,
					level, x, verifyTurns*operands, i.Result(verifyTurns, operands))
			case i.Place == NoMemory && x != first:
				return nil, fmt.Errorf("%w: %s gives %#x at -O%d, and %#x at -O%d", ErrResult, i.Name, first,
					p.Levels[0], x, level)
			}
			sound[i.Name] = i.Next != nil
		}
	}
	return sound, nil
}

// runOnce returns x of thread 0 at the end; ok is false for a program that does not load.
func runOnce(ctx context.Context, m Machine, i Instruction, level, cc int) (x uint64, ok bool, err error) {
	source, err := i.PTX(Kernel{Steps: operands, Block: true, Capability: cc})
	if err != nil {
		return 0, false, err
	}
	p, err := m.Load(ctx, i, source, Setting{Layout: OneThread, Level: level, Steps: operands})
	if err != nil {
		return 0, false, nil //nolint:nilerr // the plan's own run reports it
	}
	l, err := p.Run(ctx, verifyTurns)
	return l.X, true, errors.Join(err, p.Close())
}

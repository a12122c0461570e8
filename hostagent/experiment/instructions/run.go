package instructions

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/wattmark/wattmark/hostagent/gpu"
	"github.com/wattmark/wattmark/hostagent/sensor"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/store"
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
	r = Run{Instruction: j.i.Name, Setting: j.s, ProgramRun: store.ProgramRun{Block: j.block, Base: j.base}}
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
	r.Threads, r.Cycles, r.X = l.Threads, l.Cycles, l.X
	return r.note(ctx, l.Span, w, own.Condition(), err)
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
	err = r.note(ctx, at, w, own.Condition(), err)
	return r, err
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
		source, err := i.PTX(Kernel{Steps: operands, Block: true, Capability: cc})
		var first uint64
		for n, level := range p.Levels {
			var l Launch
			if err == nil {
				program, loadErr := m.Load(ctx, i, source, Setting{Layout: OneThread, Level: level, Steps: operands})
				if loadErr != nil {
					break
				}
				l, err = program.Run(ctx, verifyTurns)
				err = errors.Join(err, program.Close())
			}
			if err != nil {
				return nil, fmt.Errorf("instructions: %s at -O%d: %w", i.Name, level, err)
			}
			if n == 0 {
				first = l.X
			}
			switch {
			case i.Next != nil && l.X != i.Result(verifyTurns, operands):
				return nil, fmt.Errorf("%w: %s at -O%d gives %#x after %d steps, %#x is right", ErrResult, i.Name,
					level, l.X, verifyTurns*operands, i.Result(verifyTurns, operands))
			case i.Place == NoMemory && l.X != first:
				return nil, fmt.Errorf("%w: %s gives %#x at -O%d, and %#x at -O%d", ErrResult, i.Name, first,
					p.Levels[0], l.X, level)
			}
			sound[i.Name] = i.Next != nil
		}
	}
	return sound, nil
}

// Method is a way to compute power from a GPU's own sensor: the key of stored powers.
type Method = string

// The methods. The first three are those of Arafa et al.
const (
	// SMA reads nvmlDeviceGetPowerUsage every 15 ms, not synchronised to anything.
	SMA Method = "sma"
	// MTSM reads it without pause, exactly from launch to synchronisation.
	MTSM Method = "mtsm"
	// PAPI takes one reading at the end for the whole time.
	PAPI Method = "papi"
	// Counter divides the energy counter's growth by the time between its changes.
	Counter Method = "counter"
	// Instant is the mean of the instantaneous field.
	Instant Method = "instant"
	// Meter is no method of the GPU's: the mean by an external meter.
	Meter Method = "meter"
)

// Methods lists those of the GPU's own sensor.
func Methods() []Method { return []Method{SMA, MTSM, PAPI, Counter, Instant} }

// smaEvery is SMA's period (Arafa et al., 66.7 Hz).
const smaEvery = 15 * time.Millisecond

// reading is one reading of the power registers.
type reading struct {
	at             time.Time
	usage, instant measure.Watt
}

// count is one reading of the energy counter.
type count struct {
	at     time.Time
	energy measure.Joule
}

// watcher reads the sensors from two threads: the counter's call takes
// milliseconds, and must not hold up the others.
type watcher struct {
	stop context.CancelFunc
	done sync.WaitGroup

	readings []reading
	counts   []count
	errs     [2]error
}

// watch starts to read; end stops it.
func watch(ctx context.Context, s gpu.PowerSensor) *watcher {
	ctx, stop := context.WithCancel(ctx)
	w := &watcher{stop: stop}
	power := func() (more bool, err error) { // without pause
		r, err := s.Read()
		if err == nil {
			w.readings = append(w.readings, reading{r.At, r.Usage, r.Instant})
		}
		return true, err
	}
	energy := func() (more bool, err error) {
		begin := time.Now()
		e, err := s.ReadEnergy()
		if err != nil || math.IsNaN(float64(e)) {
			return false, err // it has none
		}
		w.counts = append(w.counts, count{begin.Add(time.Since(begin) / 2), e})
		_ = sensor.Pause(ctx, 5*time.Millisecond) // let others have the driver's lock
		return true, nil
	}
	for i, read := range []func() (bool, error){power, energy} {
		w.done.Go(func() {
			runtime.LockOSThread() // a thread of its own
			defer runtime.UnlockOSThread()
			for more := true; more && ctx.Err() == nil; {
				var err error
				if more, err = read(); err != nil {
					w.errs[i] = fmt.Errorf("instructions: %w", err)
					return
				}
			}
		})
	}
	return w
}

// end stops the watch; the readings may be used after it.
func (w *watcher) end() error {
	w.stop()
	w.done.Wait()
	return cmp.Or(w.errs[0], w.errs[1])
}

// means returns each method's mean power over a span; methods without a reading there are
// left out.
func (w *watcher) means(s gpu.Span) map[Method]measure.Watt {
	out := map[Method]measure.Watt{}
	var usage, instant, every mean
	last, due := measure.Watt(math.NaN()), time.Time{}
	for _, r := range w.readings {
		sma := !r.at.Before(due)
		if sma {
			due = r.at.Add(smaEvery)
		}
		if r.at.Before(s.Start) || r.at.After(s.End) {
			continue
		}
		usage.add(r.usage)
		instant.add(r.instant)
		if sma {
			every.add(r.usage)
		}
		last = r.usage
	}
	out[MTSM], out[Instant], out[SMA], out[PAPI] = usage.value(), instant.value(), every.value(), last
	out[Counter] = slope(w.counts, s)
	maps.DeleteFunc(out, func(_ Method, p measure.Watt) bool { return math.IsNaN(float64(p)) })
	return out
}

// slope is the counter's growth between its first and last change in a span.
func slope(counts []count, s gpu.Span) measure.Watt {
	var first, last *count
	for i := 1; i < len(counts); i++ {
		c := &counts[i]
		if c.energy == counts[i-1].energy || c.at.Before(s.Start) || c.at.After(s.End) {
			continue
		}
		first = cmp.Or(first, c)
		last = c
	}
	if first == nil || last == first {
		return measure.Watt(math.NaN())
	}
	return measure.Watt(float64(last.energy-first.energy) / last.at.Sub(first.at).Seconds())
}

// mean is the mean of the values that are numbers; NaN for none.
type mean struct{ sum, n float64 }

// add takes a value; NaN is skipped.
func (m *mean) add(w measure.Watt) {
	if !math.IsNaN(float64(w)) {
		m.sum += float64(w)
		m.n++
	}
}

// value is NaN for no values.
func (m *mean) value() measure.Watt { return measure.Watt(m.sum / m.n) }

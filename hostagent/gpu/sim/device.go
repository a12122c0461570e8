package sim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/wattmark/wattmark/hostagent/gpu"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/load"
	"github.com/wattmark/wattmark/measure/marker"
)

// Config is a simulated GPU. Zero values give a useful one.
type Config struct {
	Plant Plant // required
	Clock Clock // nil for Wall
	Seed  uint64
	// Launch is the time from a call to the first instruction of its kernel, and
	// Jitter the width of its uniform variation. 50 µs and 20 µs when zero.
	Launch, Jitter time.Duration
	// Name as the GPU names itself; "simulated GPU" when empty.
	Name string
	// Kernel is launched by RunTrain between its slices; nil for the train's own.
	Kernel *Kernel
}

// Device is a simulated GPU. Calls are made from one goroutine.
type Device struct {
	cfg  Config
	rng  *rand.Rand
	open bool
}

var (
	_ gpu.Device = (*Device)(nil)
	_ gpu.Opener = (*Device)(nil)
)

// Open makes a context on the simulated GPU: it goes from idle to active idle.
func Open(cfg Config) (*Device, error) {
	d, err := Find(cfg)
	if err != nil {
		return nil, err
	}
	return d, d.Open(context.Background())
}

// Find is Open without the context, which the method Open makes.
func Find(cfg Config) (*Device, error) {
	if cfg.Plant == nil {
		return nil, fmt.Errorf("sim: open: no plant: a simulated GPU needs a board to draw power from")
	}
	cfg.Clock = cmp.Or[Clock](cfg.Clock, Wall{})
	cfg.Launch, cfg.Jitter = cmp.Or(cfg.Launch, 50*time.Microsecond), cmp.Or(cfg.Jitter, 20*time.Microsecond)
	cfg.Name = cmp.Or(cfg.Name, "simulated GPU")
	return &Device{cfg: cfg, rng: rand.New(rand.NewPCG(cfg.Seed, 0x51_6d))}, nil
}

// Open takes the GPU from idle to active idle, as a CUDA context does. A second call does
// nothing.
func (d *Device) Open(ctx context.Context) error {
	if ctx.Err() != nil {
		return fmt.Errorf("sim: open: %w", context.Cause(ctx))
	}
	if d.open {
		return nil
	}
	if _, err := d.cfg.Plant.SetSteps(d.cfg.Clock.Now(), []load.Step{{Load: load.ActiveIdle}}); err != nil {
		return fmt.Errorf("sim: open: %w", err)
	}
	d.open = true
	return nil
}

// UUID is that of the simulated GPU of a seed.
func UUID(seed uint64) string {
	return fmt.Sprintf("GPU-51600000-0000-0000-0000-%012x", seed&0xffffffffffff)
}

// Info identifies the simulated GPU.
func (d *Device) Info() gpu.Info {
	return gpu.Info{
		Name: d.cfg.Name, UUID: UUID(d.cfg.Seed), PCIBusID: "0000:00:00.0", Driver: "simulated", Simulated: true,
	}
}

// launch returns the instant at which a kernel called for now begins.
func (d *Device) launch() time.Time {
	return d.cfg.Clock.Now().Add(d.cfg.Launch + time.Duration(d.rng.Int64N(int64(d.cfg.Jitter)+1)))
}

// hold lays one load down from start to end, blocks until it has passed, and returns the
// span that was really drawn. When ctx ends, the load ends at once.
func (d *Device) hold(ctx context.Context, l load.State, length time.Duration) (gpu.Span, error) {
	if length <= 0 {
		return gpu.Span{}, fmt.Errorf("sim: %v for %v: the time must be positive", l, length)
	}
	span, err := d.step(ctx, load.Step{Load: l, For: length})
	if err != nil {
		return span, fmt.Errorf("sim: %v: %w", l, err)
	}
	return span, nil
}

// step is hold of a step.
func (d *Device) step(ctx context.Context, s load.Step) (gpu.Span, error) {
	begin, err := d.cfg.Plant.SetSteps(d.launch(), []load.Step{s, {Load: load.ActiveIdle}})
	if err != nil {
		return gpu.Span{}, err
	}
	end := begin.Add(s.For)
	if err := d.await(ctx, end); err != nil {
		return gpu.Span{Start: begin, End: d.cfg.Clock.Now()}, err
	}
	return gpu.Span{Start: begin, End: end}, nil
}

// await blocks until t. When ctx ends first, the rest of the load is dropped and the GPU
// falls back to active idle.
func (d *Device) await(ctx context.Context, t time.Time) error {
	err := d.cfg.Clock.WaitUntil(ctx, t)
	if err == nil {
		return nil
	}
	now := d.cfg.Clock.Now()
	d.cfg.Plant.Cancel(now)
	if _, e := d.cfg.Plant.SetSteps(now, []load.Step{{Load: load.ActiveIdle}}); e != nil {
		return fmt.Errorf("%w (and the load could not be taken off: %v)", err, e)
	}
	return err
}

// PlayMarker lays the whole marker down, all at once, so that a busy machine can delay the
// marker but not distort it, and returns when it has passed.
func (d *Device) PlayMarker(ctx context.Context, spec marker.Spec, kind marker.Kind) (gpu.Played, error) {
	if err := spec.Validate(); err != nil {
		return gpu.Played{}, fmt.Errorf("sim: play marker: %w", err)
	}
	chips, first := spec.Chips(kind), -spec.CodeStart()
	due := func(i int) time.Duration { return time.Duration(float64(i) * float64(spec.Chip) * 1e9) }
	steps := make([]load.Step, len(chips), len(chips)+1)
	for i, high := range chips {
		steps[i] = load.Step{Load: load.Sleep, For: due(i+1) - due(i)}
		if high {
			steps[i].Load = load.Full
		}
	}
	steps = append(steps, load.Step{Load: load.ActiveIdle})
	begin, err := d.cfg.Plant.SetSteps(d.launch(), steps)
	if err != nil {
		return gpu.Played{}, fmt.Errorf("sim: play marker: %w", err)
	}
	p := gpu.Played{Kind: kind, Span: gpu.Span{Start: begin, End: begin.Add(due(len(chips)))}}
	for i := range steps {
		p.Edges = append(p.Edges, gpu.PlayedEdge{Chip: first + i, At: begin.Add(due(i))})
	}
	if err := d.await(ctx, p.Span.End); err != nil {
		return gpu.Played{}, fmt.Errorf("sim: play marker: %w", err)
	}
	return p, nil
}

var benchLoads = map[gpu.Benchmark]load.State{
	gpu.BenchHalf: load.Half, gpu.BenchCompute: load.Compute, gpu.BenchMemory: load.Memory,
}

// RunBenchmark draws the benchmark's power for length and returns when it has passed.
func (d *Device) RunBenchmark(ctx context.Context, b gpu.Benchmark, length time.Duration) ([]gpu.Kernel, error) {
	l, ok := benchLoads[b]
	if !ok {
		return nil, fmt.Errorf("sim: benchmark %q: want half, compute or memory", b)
	}
	span, err := d.hold(ctx, l, length)
	if err != nil {
		return nil, err
	}
	return []gpu.Kernel{{Name: string(b), Span: span}}, nil
}

// WarmUp draws full load for length.
func (d *Device) WarmUp(ctx context.Context, length time.Duration) error {
	_, err := d.hold(ctx, load.Full, length)
	return err
}

// Close releases the context: the GPU falls back to idle. It is safe to call twice.
func (d *Device) Close() error {
	if !d.open {
		return nil
	}
	d.open = false
	now := d.cfg.Clock.Now()
	d.cfg.Plant.Cancel(now)
	if _, err := d.cfg.Plant.SetSteps(now, []load.Step{{Load: load.Idle}}); err != nil {
		return fmt.Errorf("sim: close: %w", err)
	}
	return nil
}

// Roofline is a simulated GPU's cost of work, after the energy roofline of Choi et
// al. (IPDPS 2013): peak rates, and the energy of one operation of each kind.
type Roofline struct {
	Flops, Bytes  float64       // a second, at most
	Flop, Byte    measure.Joule // each
	ConstantPower measure.Watt
}

// DefaultRoofline is that of a card of 300 W: 270 W where both limits meet, at 20
// flop a byte.
func DefaultRoofline() Roofline {
	return Roofline{Flops: 20e12, Bytes: 1e12, Flop: 6e-12, Byte: 90e-12, ConstantPower: 60}
}

var _ gpu.MixRunner = (*Device)(nil)

// RunMix draws the power of so much work, for the time that the roofline gives it.
func (d *Device) RunMix(ctx context.Context, rounds uint32, length time.Duration) (gpu.MixRan, error) {
	if rounds == 0 || length <= 0 {
		return gpu.MixRan{}, fmt.Errorf("sim: mix of %d rounds for %v: both must be positive", rounds, length)
	}
	m := DefaultRoofline()
	flops := min(m.Flops, m.Bytes*gpu.MixIntensity(rounds))
	bytes := flops / gpu.MixIntensity(rounds)
	level := m.ConstantPower + measure.Watt(flops*float64(m.Flop)+bytes*float64(m.Byte))
	span, err := d.step(ctx, load.Step{Level: level, For: length})
	if err != nil {
		return gpu.MixRan{}, fmt.Errorf("sim: mix: %w", err)
	}
	took := length.Seconds()
	return gpu.MixRan{
		Kernel: gpu.Kernel{Name: fmt.Sprintf("mix of %d rounds", rounds), Span: span},
		Flops:  flops * took, Bytes: bytes * took,
	}, nil
}

// Kernel is a kernel of set power and duration, as a real one would show itself.
type Kernel struct {
	// Cold is the power of a launch that finds its data in no cache, Warm of one that
	// does; without Warm all launches are cold.
	Cold, Warm []load.Step
	// Overlap is how much of a launch's end runs beside the begin of the next one
	// where nothing lies between them: the card draws the one's power, not both.
	Overlap time.Duration
}

// length is how long steps last.
func length(steps []load.Step) (d time.Duration) {
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
	var k Kernel
	insert, ok := benchLoads[t.Insert.Benchmark]
	switch {
	case d.cfg.Kernel != nil:
		k = *d.cfg.Kernel
	case t.Insert.PTX != nil:
		return gpu.Ran{}, fmt.Errorf("sim: train: %w: a PTX file needs a real GPU: name a built-in kernel, or what a "+
			"simulated one draws", ErrKernel)
	case !ok:
		return gpu.Ran{}, fmt.Errorf("sim: train: %w: %q: want half, compute or memory", ErrKernel, t.Insert.Benchmark)
	default:
		k.Cold = []load.Step{{Load: insert, For: t.Insert.Length}}
	}
	carrier, ok := benchLoads[t.Carrier]
	if !ok {
		return gpu.Ran{}, fmt.Errorf("sim: train: carrier %q: want half, compute or memory", t.Carrier)
	}
	// The whole train is laid down ahead of the meter's clock, in parts: the plant must have a
	// step before the meter reads it. The first part may begin late, each other one where the one before ends.
	steps, _ := lay(&t, k, carrier, time.Time{})
	steps = append(steps, load.Step{Load: load.ActiveIdle})
	begin := d.launch().Add(time.Duration(min(len(steps), maxSteps)) * perStep)
	end := begin
	for from := 0; from < len(steps); from += maxSteps {
		part := steps[from:min(from+maxSteps, len(steps))]
		at, err := d.cfg.Plant.SetSteps(end, part)
		if from == 0 {
			begin, end = at, at
		}
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
	_, ran := lay(&t, k, carrier, begin)
	return ran, nil
}

// lay returns the steps of a train, and how it runs from an instant on.
func lay(t *gpu.Train, k Kernel, carrier load.State, now time.Time) (steps []load.Step, ran gpu.Ran) {
	put := func(s ...load.Step) {
		steps = append(steps, s...)
		now = now.Add(length(s))
	}
	lengths := t.Lengths()
	for _, p := range t.Phases {
		r := gpu.RanPhase{Span: gpu.Span{Start: now}}
		start := func() {
			r.Inserted++
			if t.Starts {
				r.Starts = append(r.Starts, now)
			}
		}
		for range p.Slices {
			put(load.Step{Load: carrier, For: lengths[0]})
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
		r.Span.End = now
		ran.Phases = append(ran.Phases, r)
	}
	return steps, ran
}

// bare is launch i of n back to back: the first is cold, and each but the last
// loses its end to the next.
func (k Kernel) bare(i, n int) []load.Step {
	steps := k.Cold
	if i > 0 && len(k.Warm) > 0 {
		steps = k.Warm
	}
	if i == n-1 || k.Overlap == 0 {
		return steps
	}
	steps = append([]load.Step(nil), steps...)
	last := &steps[len(steps)-1]
	last.For = max(last.For-k.Overlap, 0)
	return steps
}

package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/wattmark/wattmark/hostagent/gpu"
	"github.com/wattmark/wattmark/measure"
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
	return d, d.begin()
}

// Find is Open without the context, which the method Open makes.
func Find(cfg Config) (*Device, error) {
	if cfg.Plant == nil {
		return nil, fmt.Errorf("sim: open: no plant: a simulated GPU needs a board to draw power from")
	}
	if cfg.Clock == nil {
		cfg.Clock = Wall{}
	}
	if cfg.Launch == 0 {
		cfg.Launch = 50 * time.Microsecond
	}
	if cfg.Jitter == 0 {
		cfg.Jitter = 20 * time.Microsecond
	}
	if cfg.Name == "" {
		cfg.Name = "simulated GPU"
	}
	return &Device{cfg: cfg, rng: rand.New(rand.NewPCG(cfg.Seed, 0x51_6d))}, nil
}

// Open takes the GPU from idle to active idle.
func (d *Device) Open(ctx context.Context) error {
	if ctx.Err() != nil {
		return fmt.Errorf("sim: open: %w", context.Cause(ctx))
	}
	return d.begin()
}

// begin raises the plant from idle to active idle, as a CUDA context does. A second call does
// nothing.
func (d *Device) begin() error {
	if d.open {
		return nil
	}
	if _, err := d.cfg.Plant.SetLoad(d.cfg.Clock.Now(), ActiveIdle); err != nil {
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
func (d *Device) hold(ctx context.Context, l Load, length time.Duration) (gpu.Span, error) {
	if length <= 0 {
		return gpu.Span{}, fmt.Errorf("sim: %v for %v: the time must be positive", l, length)
	}
	span, err := d.step(ctx, Step{Load: l, For: length})
	if err != nil {
		return span, fmt.Errorf("sim: %v: %w", l, err)
	}
	return span, nil
}

// step is hold of a step.
func (d *Device) step(ctx context.Context, s Step) (gpu.Span, error) {
	begin, err := d.cfg.Plant.SetSteps(d.launch(), []Step{s, {Load: ActiveIdle}})
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
	if _, e := d.cfg.Plant.SetLoad(now, ActiveIdle); e != nil {
		return fmt.Errorf("%w (and the load could not be taken off: %v)", err, e)
	}
	return err
}

// PlayMarker lays the whole marker down and returns when it has passed.
func (d *Device) PlayMarker(ctx context.Context, spec marker.Spec, kind marker.Kind) (gpu.Played, error) {
	if err := spec.Validate(); err != nil {
		return gpu.Played{}, fmt.Errorf("sim: play marker: %w", err)
	}
	p, err := d.layMarker(spec, kind)
	if err != nil {
		return gpu.Played{}, fmt.Errorf("sim: play marker: %w", err)
	}
	chips := len(p.Edges) - 1
	p.Span = gpu.Span{Start: p.Edges[0].At, End: p.Edges[chips].At}
	if err := d.await(ctx, p.Span.End); err != nil {
		return gpu.Played{}, fmt.Errorf("sim: play marker: %w", err)
	}
	return p, nil
}

// layMarker lays a marker's chips down, all at once, so that a busy machine can delay
// the marker but not distort it.
func (d *Device) layMarker(spec marker.Spec, kind marker.Kind) (gpu.Played, error) {
	chips, first := spec.Chips(kind), -spec.CodeStart()
	due := func(i int) time.Duration { return time.Duration(float64(i) * float64(spec.Chip) * 1e9) }
	steps := make([]Step, len(chips), len(chips)+1)
	for i, high := range chips {
		steps[i] = Step{Load: Sleep, For: due(i+1) - due(i)}
		if high {
			steps[i].Load = Full
		}
	}
	steps = append(steps, Step{Load: ActiveIdle})
	p := gpu.Played{Kind: kind}
	begin, err := d.cfg.Plant.SetSteps(d.launch(), steps)
	if err != nil {
		return p, err
	}
	for i := range steps {
		p.Edges = append(p.Edges, gpu.PlayedEdge{Chip: first + i, At: begin.Add(due(i))})
	}
	return p, nil
}

var benchLoads = map[gpu.Benchmark]Load{
	gpu.BenchHalf: Half, gpu.BenchCompute: Compute, gpu.BenchMemory: Memory,
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
	_, err := d.hold(ctx, Full, length)
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
	if _, err := d.cfg.Plant.SetLoad(now, Idle); err != nil {
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
	span, err := d.step(ctx, Step{Level: level, For: length})
	if err != nil {
		return gpu.MixRan{}, fmt.Errorf("sim: mix: %w", err)
	}
	took := length.Seconds()
	return gpu.MixRan{
		Kernel: gpu.Kernel{Name: fmt.Sprintf("mix of %d rounds", rounds), Span: span},
		Flops:  flops * took, Bytes: bytes * took,
	}, nil
}

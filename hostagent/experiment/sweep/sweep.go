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
	_ "embed"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/wattmark/wattmark/hostagent/gpu"
	"github.com/wattmark/wattmark/hostagent/gpu/cuda"
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
	// A running kernel cannot be stopped: launches too long to be waited for are refused.
	most := slices.Max(p.Blocks)
	if long := time.Duration(most/(out.SMs*out.Resident)+1) * p.Round; long > mostLaunch {
		return nil, fmt.Errorf("%w: %d blocks would run for about %v, and a kernel cannot be stopped: make --round "+
			"shorter or the sizes smaller", ErrPlan, most, long.Round(time.Second))
	}
	w := sensor.NewWatcher(s, sensor.MethodOptions{})
	stop := w.Start(ctx)
	err = p.launches(ctx, program, s, w, out, progress)
	stop()
	for i := range out.Launches {
		l := &out.Launches[i]
		l.Energy = map[sensor.Method]measure.Joule{}
		for _, r := range w.Results(l.Span) {
			if !math.IsNaN(float64(r.Energy)) {
				l.Energy[sensor.Method(r.Method)] = r.Energy
			}
		}
	}
	return out, err
}

// load makes the kernel ready for the plan's sizes, which follow from the GPU
// where the plan has none.
func load(ctx context.Context, m Machine, p *Plan) (Loaded, error) {
	for most := slices.Max(slices.Concat(p.Blocks, []uint64{1})); ; {
		l, err := m.Load(ctx, p.Kernel, most)
		if err != nil {
			return nil, fmt.Errorf("sweep: %s: %w", p.Kernel, err)
		}
		sms, resident := l.Shape()
		if len(p.Blocks) == 0 {
			p.Blocks = Sizes(sms, resident)
		}
		// Loops are set on a full round, which must fit as well.
		need := max(slices.Max(p.Blocks), sms*resident)
		if most >= need {
			return l, nil
		}
		most = need
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

// Kernel names one of the package's kernels.
type Kernel string

// The kernels.
const (
	// VectorAdd adds two vectors, a sum a thread: it waits for memory.
	VectorAdd Kernel = "vectoradd"
	// MatMul multiplies matrices by tiles in shared memory, a tile a block: it
	// computes.
	MatMul Kernel = "matmul"
)

// Kernels lists them.
func Kernels() []Kernel { return []Kernel{VectorAdd, MatMul} }

// Threads is the size of a block.
const Threads = 1024

// The matrices' sizes: A is tile by depth, B depth by tile·blocks.
const (
	tile  = 32
	depth = 64
)

//go:embed kernels.ptx
var kernelsPTX string

// Source is the PTX of both kernels, NUL-terminated.
func Source() []byte {
	var b strings.Builder
	for k := range tile {
		fmt.Fprintf(&b, "\tld.shared.f32 %%va, [%%ra+%d];\n\tld.shared.f32 %%vb, [%%rb+%d];\n\tfma.rn.f32 %%sum, "+
			"%%va, %%vb, %%sum;\n", 4*k, 4*tile*k)
	}
	return []byte(strings.Replace(kernelsPTX, "$PRODUCTS\n", b.String(), 1) + "\x00")
}

// Entry is the kernel's name in the PTX.
func (k Kernel) Entry() string { return "wm_" + string(k) }

// valid refuses the name of an unknown kernel with ErrPlan.
func (k Kernel) valid() error {
	if k != VectorAdd && k != MatMul {
		return fmt.Errorf("%w: kernel %q: want %s or %s", ErrPlan, k, VectorAdd, MatMul)
	}
	return nil
}

// Flops is the work of a block in one turn of its loop.
func (k Kernel) Flops() float64 {
	if k == MatMul {
		return 2 * depth * Threads
	}
	return Threads
}

// floats is how many numbers A, B and C hold for so many blocks.
func (k Kernel) floats(blocks uint64) [3]uint64 {
	if k == MatMul {
		return [3]uint64{tile * depth, depth * tile * blocks, Threads * blocks}
	}
	return [3]uint64{Threads * blocks, Threads * blocks, Threads * blocks}
}

// value is number i of operand A (0) or B (1): eighths from 1 to 3, all of whose
// products and sums here are exact in single precision, in whatever order.
func value(operand int, i uint64) float32 {
	h := (i + 1) * 0x9e3779b97f4a7c15 >> (20 + 7*operand)
	return 1 + float32(h%17)/8
}

// pack puts floats in pairs into words, as they lie in memory.
func pack(operand int, n uint64) []uint64 {
	out := make([]uint64, (n+1)/2)
	for i := range n {
		out[i/2] |= uint64(math.Float32bits(value(operand, i))) << (32 * (i % 2))
	}
	return out
}

// want is number i of C.
func (k Kernel) want(blocks, i uint64) float32 {
	if k == VectorAdd {
		return value(0, i) + value(1, i)
	}
	width := tile * blocks
	row, x := i/width, i%width
	var sum float32
	for d := range uint64(depth) {
		sum += value(0, row*depth+d) * value(1, d*width+x)
	}
	return sum
}

// Machine is a GPU that runs the kernels. Calls are made from one goroutine.
type Machine interface {
	Info() gpu.Info
	// Load makes a kernel ready for grids of up to so many blocks.
	Load(ctx context.Context, k Kernel, most uint64) (Loaded, error)
}

// Loaded is a kernel that is ready to run.
type Loaded interface {
	// Shape is how many multiprocessors there are, and how many blocks each holds.
	Shape() (sms, resident uint64)
	// Run launches blocks whose loops turn so often, and waits for their end.
	Run(ctx context.Context, blocks, loops uint64) (gpu.Span, error)
	// Check compares the last run's results with those computed here; ErrResult.
	Check(blocks uint64) error
	Close() error
}

// OnGPU makes a Machine of a GPU, which stays the caller's.
func OnGPU(d *cuda.Device) Machine { return programs{d} }

// programs is a Machine on a real GPU.
type programs struct{ *cuda.Device }

// loaded is a kernel with its data.
type loaded struct {
	k             Kernel
	p             *cuda.Program
	data          [3]*cuda.Buffer // A, B, C
	sms, resident uint64
}

// Load compiles a kernel, and fills its operands.
func (g programs) Load(ctx context.Context, k Kernel, most uint64) (_ Loaded, err error) {
	if err := k.valid(); err != nil {
		return nil, err
	}
	l := &loaded{k: k}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.Close())
		}
	}()
	if l.p, err = g.Device.Load(Source(), k.Entry(), 4); err != nil {
		return nil, err
	}
	all, err := l.p.Blocks(Threads)
	if err != nil {
		return nil, err
	}
	l.sms = uint64(g.SMs())
	l.resident = max(1, uint64(all)/l.sms)
	for n, floats := range k.floats(most) {
		if l.data[n], err = g.Allocate(4 * floats); err != nil {
			return nil, err
		}
		if n == 2 || ctx.Err() != nil {
			continue
		}
		if err = l.data[n].Upload(pack(n, floats)); err != nil {
			return nil, err
		}
	}
	return l, context.Cause(ctx)
}

// Shape returns the multiprocessors, and the blocks that each holds.
func (l *loaded) Shape() (sms, resident uint64) { return l.sms, l.resident }

// Run launches the kernel; matmul has one more parameter, which is zero.
func (l *loaded) Run(ctx context.Context, blocks, loops uint64) (gpu.Span, error) {
	args := []uint64{l.data[0].Address(), l.data[1].Address(), l.data[2].Address(), loops}
	if l.k == MatMul {
		args = append(args, 0)
	}
	return l.p.Run(ctx, [3]uint32{uint32(blocks), 1, 1}, [3]uint32{Threads, 1, 1}, args...)
}

// Check reads C back.
func (l *loaded) Check(blocks uint64) error {
	n := l.k.floats(blocks)[2]
	words := make([]uint64, n/2)
	if err := l.data[2].Download(words); err != nil {
		return err
	}
	// Every row and the ends of the grid are among these; all would take longer
	// than the sweep.
	for i := uint64(0); i < n; i += max(1, n/4096) {
		got := math.Float32frombits(uint32(words[i/2] >> (32 * (i % 2))))
		if want := l.k.want(blocks, i); got != want {
			return fmt.Errorf("%w: %s of %d blocks gives %v at %d, %v is right", ErrResult, l.k, blocks, got, i, want)
		}
	}
	return nil
}

// Close unloads the kernel and its data.
func (l *loaded) Close() error {
	return errors.Join(l.p.Close(), l.data[0].Close(), l.data[1].Close(), l.data[2].Close())
}

package cuda

import (
	"context"
	"time"

	"github.com/wattmark/wattmark/hostagent/gpu"
	"github.com/wattmark/wattmark/hostagent/gpu/kernels"
)

// Rates are the rates that a benchmark achieved: how well it loaded the GPU.
type Rates struct {
	Batches      uint64
	BytesPerSec  float64
	FlopsPerSec  float64
	Blocks       uint32
	ClockU       time.Duration // uncertainty of the kernel's time stamps
	Begin, Ended time.Time
}

// Work of one batch of a benchmark, a thread.
const (
	memoryBytes = 128 + 16 // read and written
	computeFMA  = 512
	halfBytes   = 64
	halfFMA     = 256
)

// Benchmark is RunBenchmark with the rates that the kernel achieved.
func (d *Device) Benchmark(ctx context.Context, b gpu.Benchmark, length time.Duration) (Rates, error) {
	r, err := d.benchmark(ctx, b, length)
	if err != nil {
		return Rates{}, err
	}
	perSecond := float64(r.n) * kernels.Threads / (float64(r.end-r.begin) * 1e-9)
	return Rates{
		Batches: r.n, Blocks: d.fns[benchmarks[b]].blocks, Begin: r.on().Start, Ended: r.on().End,
		ClockU: max(r.clocks.a.u, r.clocks.b.u),
		BytesPerSec: perSecond * map[gpu.Benchmark]float64{
			gpu.BenchMemory: memoryBytes, gpu.BenchHalf: halfBytes,
		}[b],
		FlopsPerSec: perSecond * map[gpu.Benchmark]float64{
			gpu.BenchCompute: 2 * computeFMA, gpu.BenchHalf: 2 * halfFMA,
		}[b],
	}, nil
}

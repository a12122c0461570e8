package main

import (
	"context"
	"slices"
	"time"
)

// A call is quiet where the fixed piece of work took at most quietRatio of its least just
// before and just after. Fewer than fewQuiet tell nothing.
const (
	quietRatio = 1.25
	fewQuiet   = 30
)

// timePages calls a few times to warm up, and then as often as said, with the fixed piece
// of work between the calls.
func timePages(ctx context.Context, calls int, call func() (int, error)) (p pageReport, err error) {
	took := make([]float64, 0, calls)
	var work fixedWork
	alone := make([]time.Duration, 1, calls+1) // before and after each call
	for i := -calls / 10; i < calls; i++ {
		alone[len(alone)-1] = work.do()
		begin := time.Now()
		if p.Tasks, err = call(); err != nil {
			return p, err
		}
		if i >= 0 {
			took, alone = append(took, time.Since(begin).Seconds()), append(alone, 0)
		}
		if err := ctx.Err(); err != nil {
			return p, err
		}
	}
	alone[len(alone)-1] = work.do()
	p.Calls = calls
	p.quiet(took, alone)
	slices.Sort(took)
	p.LeastS, p.P50S, p.P99S = took[0], quantile(took, 0.5), quantile(took, 0.99)
	return p, nil
}

// quiet keeps what the calls with the processor to themselves took.
func (p *pageReport) quiet(took []float64, alone []time.Duration) {
	limit := time.Duration(quietRatio * float64(slices.Min(alone)))
	var quiet []float64
	for i, t := range took {
		if alone[i] <= limit && alone[i+1] <= limit {
			quiet = append(quiet, t)
		}
	}
	if p.QuietCalls = len(quiet); len(quiet) >= fewQuiet {
		slices.Sort(quiet)
		p.QuietP50S, p.QuietP99S = quantile(quiet, 0.5), quantile(quiet, 0.99)
	}
}

// fixedWork sorts the same numbers again and again: it allocates nothing and fits the
// processor's first cache, so what it takes longer is other programs' (and other virtual
// machines') share of the core.
type fixedWork [2000]uint32

// do returns what the second of two runs takes: the first brings it into the caches.
func (w *fixedWork) do() (took time.Duration) {
	for range 2 {
		x := uint32(1)
		for i := range w {
			x = 1664525*x + 1013904223 // Numerical Recipes' linear congruential generator
			w[i] = x
		}
		begin := time.Now()
		slices.Sort(w[:])
		took = time.Since(begin)
	}
	return took
}

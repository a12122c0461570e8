package faults

import (
	"context"
	"os"
	"runtime/pprof"
	"strconv"
	"sync"
	"time"
)

// Options are a campaign's knobs.
type Options struct {
	// Seed is that of the first schedule; the others follow it.
	Seed uint64
	// Schedules is how many are played, Until the moment after which no other is
	// begun; zero for none.
	Schedules int
	Until     time.Time
	// Workers is how many are played at a time: 16 when zero. Most of a schedule is
	// waiting.
	Workers int
	// Dir is where the worlds' folders are made: in memory where the system has such
	// a place, when empty.
	Dir    string
	Broken Broken
	// Stop ends the campaign at the first violation.
	Stop bool
	// Tell is told of each result, from one goroutine at a time; nil for silence.
	Tell func(Result)
}

// scratch is where nothing has to survive: in memory, if there is such a place.
func scratch() string {
	const shm = "/dev/shm"
	if f, err := os.CreateTemp(shm, "wattmark-campaign-"); err == nil {
		_ = f.Close()
		_ = os.Remove(f.Name())
		return shm
	}
	return os.TempDir()
}

// Run plays schedules. It returns the results of those that were played, and the
// first error that kept the campaign itself from going on.
func Run(ctx context.Context, o Options) (Report, error) {
	if o.Workers <= 0 {
		o.Workers = 16
	}
	if o.Dir == "" {
		o.Dir = scratch()
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	begun := time.Now()
	r := Report{Asked: o.Schedules, Moves: map[Move]int{}}
	var mu sync.Mutex
	next := 0
	take := func() (uint64, bool) {
		mu.Lock()
		defer mu.Unlock()
		if next >= o.Schedules || ctx.Err() != nil || (!o.Until.IsZero() && time.Now().After(o.Until)) {
			return 0, false
		}
		next++
		return o.Seed + uint64(next-1), true
	}
	var workers sync.WaitGroup
	for range o.Workers {
		workers.Go(func() {
			for seed, more := take(); more; seed, more = take() {
				var res Result
				var err error
				pprof.Do(ctx, pprof.Labels(label, strconv.FormatUint(seed, 10)), func(ctx context.Context) {
					res, err = Play(ctx, Draw(seed), o.Broken, o.Dir)
				})
				if err != nil {
					cancel(err)
					return
				}
				mu.Lock()
				r.add(res)
				if o.Tell != nil {
					o.Tell(res)
				}
				if o.Stop && len(res.Violations) > 0 {
					next = o.Schedules
				}
				mu.Unlock()
			}
		})
	}
	workers.Wait()
	r.Took = time.Since(begun)
	if err := ctx.Err(); err != nil {
		return r, context.Cause(ctx)
	}
	r.Leaks = Leaks()
	return r, nil
}

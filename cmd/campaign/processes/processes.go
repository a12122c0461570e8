// Package processes plays faults against real processes: wattmark's emulated meter on
// a pseudo-terminal, its monitor, its run and its daemon. They are killed with SIGKILL,
// stopped with SIGSTOP, ended with SIGTERM. The meter's pseudo-terminal is unplugged.
// Where network namespaces can be made, monitor and host are machines of their own,
// and the line between them is cut and disturbed.
package processes

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"wattmark/cmd/campaign/network"
)

// Options are a campaign's knobs.
type Options struct {
	// Program is wattmark, to be run.
	Program string
	// Dir is where the folders of schedules are made; the system's when empty. That of
	// a schedule with violations stays, with what the processes logged.
	Dir  string
	Seed uint64 // of the first schedule
	// Schedules is how many are played, Until the moment after which no other is
	// begun; zero for none.
	Schedules int
	Until     time.Time
	// Workers is how many are played at a time: 6 when zero.
	Workers int
	// Together puts all processes on this machine's own loopback. Nothing happens to
	// their network then.
	Together bool
	// Tell is told of each result, from one goroutine at a time; nil for silence.
	Tell func(Result)
}

// Result is what became of a schedule.
type Result struct {
	Schedule   Schedule
	Outcome    string
	Violations []string
	Took       time.Duration
}

// Available tells why network namespaces cannot be made here; nil where they can.
func Available() error {
	n, err := network.New(fmt.Sprintf("wmcampaign%d-try", os.Getpid()))
	if err != nil {
		return err
	}
	return n.Close()
}

// Run plays schedules. An error means that the campaign itself could not go on.
func Run(ctx context.Context, o Options) (Report, error) {
	if o.Workers <= 0 {
		o.Workers = 6
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	r, begun := Report{Asked: o.Schedules, rows: map[string]map[string]int{}}, time.Now()
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
				res, err := play(ctx, o, Draw(seed, o.Together))
				if err != nil {
					cancel(fmt.Errorf("%v: %w", res.Schedule, err))
					return
				}
				mu.Lock()
				r.add(res)
				if o.Tell != nil {
					o.Tell(res)
				}
				mu.Unlock()
			}
		})
	}
	workers.Wait()
	r.Took = time.Since(begun)
	return r, context.Cause(ctx)
}

// play plays a schedule in a folder and on machines of its own.
func play(ctx context.Context, o Options, s Schedule) (r Result, err error) {
	r.Schedule = s
	begun := time.Now()
	p, err := newPlace(ctx, o, s.Seed)
	if err != nil {
		return r, err
	}
	defer func() {
		err = errors.Join(err, p.end(len(p.violations) > 0))
		r.Violations, r.Took = p.violations, time.Since(begun)
	}()
	if err := p.open(ctx, s.Daemon); err != nil {
		return r, err
	}
	if err := p.start("run"); err != nil {
		return r, err
	}
	for _, f := range s.Faults {
		wait(ctx, f.After)
		if err := p.strike(ctx, f); err != nil {
			return r, err
		}
	}
	if err := p.ends(ctx, "run"); err != nil {
		p.fail("%v", err)
	}
	if !s.Daemon {
		if err := p.start("host"); err != nil {
			return r, err
		}
	}
	if err := p.until(ctx, "rest", func() error { return errors.Join(p.ended(ctx), p.free(ctx)) }); err != nil {
		p.fail("%v", err)
	}
	r.Outcome = p.check(ctx)
	p.leaks(ctx)
	return r, context.Cause(ctx)
}

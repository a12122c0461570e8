// Package play plays schedules of faults, several at a time, and reports what became of
// them. What a schedule is, and what is checked, is the campaigns' own.
package play

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"
)

// Options are a campaign's settings.
type Options struct {
	// Seed is that of the first schedule; the others follow it.
	Seed uint64
	// Schedules is how many are played. Until is the time after which none is begun; zero
	// for no limit.
	Schedules int
	Until     time.Time
	// Workers is how many are played at a time; the campaign's own number when zero.
	Workers int
	// Dir is where the schedules' folders are made; a folder in memory, where the system
	// has one, when empty.
	Dir string
	// Stop ends the campaign at the first violation.
	Stop bool
	// Tell is called with each result, from one goroutine at a time; may be nil.
	Tell func(Result)
}

// Result is what became of a schedule.
type Result struct {
	Schedule   string   // with its seed
	Again      string   // arguments of the campaign that repeat it
	Struck     []string // kinds of the faults that struck
	Outcome    string
	Notes      []string
	Violations []string
	Took       time.Duration
}

// Report is what a campaign came to.
type Report struct {
	Asked, Played int
	Took          time.Duration
	Violated      []Result
	rows          map[string]map[string]int // schedules by fault and outcome
}

const violations = "violations"

// Scratch is a folder for what need not survive: in memory, if there is one.
func Scratch() string {
	const shm = "/dev/shm"
	if f, err := os.CreateTemp(shm, "wattmark-campaign-"); err == nil {
		_ = f.Close()
		_ = os.Remove(f.Name())
		return shm
	}
	return os.TempDir()
}

// Run plays schedules, each by one call of one. It returns the results of those that were
// played, and the first error that kept the campaign itself from going on.
func Run(ctx context.Context, o Options, one func(ctx context.Context, seed uint64) (Result, error)) (Report, error) {
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
				begun := time.Now()
				res, err := one(ctx, seed)
				if err != nil {
					cancel(fmt.Errorf("seed %d: %w", seed, err))
					return
				}
				res.Took = time.Since(begun)
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
	return r, context.Cause(ctx)
}

// add counts a schedule in the row of each kind of fault that struck.
func (r *Report) add(res Result) {
	r.Played++
	if len(res.Violations) > 0 {
		r.Violated = append(r.Violated, res)
	}
	counted := map[string]bool{}
	for _, k := range res.Struck {
		if counted[k] {
			continue
		}
		counted[k] = true
		if r.rows[k] == nil {
			r.rows[k] = map[string]int{}
		}
		r.rows[k][res.Outcome]++
		if len(res.Violations) > 0 {
			r.rows[k][violations]++
		}
	}
}

func (r *Report) String() string {
	return fmt.Sprintf("%d of %d schedules in %v: %d with violations", r.Played, r.Asked, r.Took.Round(time.Millisecond), len(r.Violated))
}

// Table is faults × outcomes as Markdown.
func (r *Report) Table(kinds, outcomes []string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "| fault | schedules | %s | %s |\n|---|%s\n", strings.Join(outcomes, " | "), violations, strings.Repeat("--:|", len(outcomes)+2))
	for _, k := range kinds {
		row, total := r.rows[k], 0
		for _, o := range outcomes {
			total += row[o]
		}
		fmt.Fprintf(&b, "| %s | %d |", k, total)
		for _, o := range append(outcomes[:len(outcomes):len(outcomes)], violations) {
			fmt.Fprintf(&b, " %d |", row[o])
		}
		b.WriteString("\n")
	}
	return b.String()
}

func (r Result) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n  %s in %v\n", r.Schedule, r.Outcome, r.Took.Round(time.Millisecond))
	for _, n := range r.Notes {
		fmt.Fprintf(&b, "  %s\n", n)
	}
	for _, v := range r.Violations {
		fmt.Fprintf(&b, "  VIOLATION: %s\n", v)
	}
	if len(r.Violations) > 0 {
		fmt.Fprintf(&b, "  again: go run ./cmd/campaign %s\n", r.Again)
	}
	return b.String()
}

// Package harness holds the parts that several trials of the product share.
//
//   - Run plays schedules of faults, several at once, and counts their outcomes by fault in a Report.
//   - Examine compares a stored task with itself: chunks, counts, gaps, plots, reason and state.
//   - Plant and Gather add bystanders: other programs' files, and connections that never send a request.
//   - Build, Start, Await and Descriptors compile and start the real program, wait for it and list its open files.
//
// Each package beside it is one trial: its tests draw the schedules, strike and check.
package harness

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/wattmark/wattmark/store"
)

// Options are a campaign's settings.
type Options struct {
	Seed      uint64    // the schedules have the seeds from this one on, and are played in the order of stride
	Schedules int       // number of schedules to play
	Least     int       // number that is played however long it takes
	Until     time.Time // no further schedule begins later; zero for no limit
	Workers   int       // schedules played at once; 0 for the campaign's own number
	Dir       string    // parent of the schedules' folders; empty for Scratch
	Stop      bool      // end at the first violation
	// Report is called with each result, by one goroutine at a time; may be nil.
	Report func(Result)
}

// Flags are a campaign's settings on the command line of its test.
type Flags struct {
	o     Options
	limit time.Duration
}

// NewFlags registers the flags of a campaign. Call it once, in a variable of a test file, before flags are parsed.
func NewFlags() *Flags {
	f := &Flags{}
	flag.IntVar(&f.o.Schedules, "schedules", 0, "number of schedules; 0 for as many as fit into a plain test's time")
	flag.Uint64Var(&f.o.Seed, "seed", 1, "seed of the first schedule; the others follow it")
	flag.IntVar(&f.o.Workers, "workers", 0, "schedules played at once; 0 for the campaign's own number")
	flag.StringVar(&f.o.Dir, "dir", "", "parent of the schedules' folders; empty for a folder in memory")
	flag.BoolVar(&f.o.Stop, "stop", false, "end at the first violation")
	flag.DurationVar(&f.limit, "limit", 0, "begin no schedule after this time; 0 for no limit, or that of a plain test")
	return f
}

// Options returns the settings from the command line. Without -schedules they are those of a plain test: so many
// schedules, none begun after the limit once a tenth was. With -v each result is logged when its schedule ends.
func (f *Flags) Options(t *testing.T, schedules int, limit time.Duration) Options {
	o := f.o
	o.Dir = Path(o.Dir)
	if o.Schedules > 0 {
		limit = f.limit
	} else if o.Schedules = schedules; f.limit > 0 {
		limit = f.limit
	}
	if limit > 0 {
		o.Until, o.Least = time.Now().Add(limit), (o.Schedules+9)/10
	}
	if testing.Verbose() {
		o.Report = func(r Result) { t.Log(r) }
	}
	return o
}

// Result is the course of one schedule.
type Result struct {
	Schedule   string   // in words, with its seed
	Again      string   // command that repeats it
	Struck     []string // kinds of the faults that struck
	Outcome    string
	Notes      []string
	Violations []string
	Took       time.Duration
}

// Report sums up a campaign.
type Report struct {
	Asked, Played int
	Took          time.Duration
	Violated      []Result
	rows          map[string]map[string]int // schedules by fault and outcome
}

const violations = "violations"

// Scratch returns a folder for files that need not survive a restart: in memory where the system has one.
func Scratch() string {
	const shm = "/dev/shm"
	if f, err := os.CreateTemp(shm, "wattmark-trial-"); err == nil {
		_ = f.Close()
		_ = os.Remove(f.Name())
		return shm
	}
	return os.TempDir()
}

// Database returns the content of a database file after fill has changed it. Schedules copy it, because creating the
// schema takes longer than most of them.
func Database(fill func(*store.DB) error) ([]byte, error) {
	dir, err := os.MkdirTemp("", "wattmark-trial-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "power.db")
	db, err := store.Open(context.Background(), path)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(fill(db), db.Close()); err != nil {
		return nil, err
	}
	return os.ReadFile(path)
}

// EmptyDatabase returns the content of a database file without a task. It may be called from any goroutine.
var EmptyDatabase = sync.OnceValues(func() ([]byte, error) {
	return Database(func(*store.DB) error { return nil })
})

// stride returns the step from one of n schedules to the next one, modulo n: it reaches each of them, and any few that
// follow each other are spread over all. A campaign that its limit ends has seen each kind of fault and step.
func stride(n int) int {
	step := max(1, int(0.618034*float64(n)))
	for gcd(step, n) > 1 {
		step++
	}
	return step
}

func gcd(a, b int) int {
	for b > 0 {
		a, b = b, a%b
	}
	return a
}

// Run plays each schedule by one call of one, on o.Workers goroutines, and returns when all have ended. The report
// has the schedules that were played. An error is the first of one, which ends the campaign, or the context's.
func Run(ctx context.Context, o Options, one func(ctx context.Context, seed uint64) (Result, error)) (Report, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	r, begun := Report{Asked: o.Schedules, rows: map[string]map[string]int{}}, time.Now()
	var mu sync.Mutex
	next, step := 0, stride(o.Schedules)
	take := func() (uint64, bool) {
		mu.Lock()
		defer mu.Unlock()
		late := next >= o.Least && !o.Until.IsZero() && time.Now().After(o.Until)
		if next >= o.Schedules || ctx.Err() != nil || late {
			return 0, false
		}
		next++
		return o.Seed + uint64((next-1)*step%o.Schedules), true
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
				if o.Report != nil {
					o.Report(res)
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

// add counts a schedule once in the row of each kind of fault that struck.
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
	return fmt.Sprintf("%d of %d schedules in %v: %d with violations",
		r.Played, r.Asked, r.Took.Round(time.Millisecond), len(r.Violated))
}

// Table returns faults × outcomes in Markdown.
func (r *Report) Table(kinds, outcomes []string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "| fault | schedules | %s | %s |\n|---|%s\n",
		strings.Join(outcomes, " | "), violations, strings.Repeat("--:|", len(outcomes)+2))
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
		fmt.Fprintf(&b, "  again: %s\n", r.Again)
	}
	return b.String()
}

// Package trial tries the product as a whole, in one process or as real programs.
//
//   - faults_…: the campaign; monitor, host and database in one process, faults drawn from seeds
//   - processes_…, network_…: emulator, monitor, run and daemon as processes, on two machines if root makes them
//   - powercut_…: a disk under SQLite that loses power, and a cut of both machines at each sync of a measurement
//   - relays_…: the way of tasks from databases to a store
//   - soak_…: captures back to back for as long as -for asks
//
// They share the harness. Run plays schedules of faults, several at once, and counts their outcomes by fault in a
// Report. Examine compares a stored task with itself: chunks, counts, gaps, plots, reason and state. Plant and Gather
// add bystanders: other programs' files, and connections that never send a request. Build, Start, Await and
// Descriptors compile and start the real program, wait for it and list its open files.
package trial

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
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

// Flags are a campaign's settings on the command line.
type Flags struct {
	o     Options
	limit time.Duration
}

// The settings that all trials read; -run chooses the trial that they are meant for.
var (
	settings Flags
	wattmark = flag.String("wattmark", "", "program to run; empty: one that is built for processes, bin/wattmark for "+
		"the soak, none for the import of files beside a relay")
)

func init() {
	f := &settings
	flag.IntVar(&f.o.Schedules, "schedules", 0, "number of schedules; 0 for the few of a plain test, or all that -limit allows")
	flag.Uint64Var(&f.o.Seed, "seed", 1, "seed of the first schedule; the others follow it")
	flag.IntVar(&f.o.Workers, "workers", 0, "schedules played at once; 0 for the campaign's own number")
	flag.StringVar(&f.o.Dir, "dir", "", "parent of the schedules' folders; empty for a folder in memory")
	flag.BoolVar(&f.o.Stop, "stop", false, "end at the first violation")
	flag.DurationVar(&f.limit, "limit", 0, "begin no schedule after this time; 0 for no limit")
}

// Options returns the settings from the command line. Without -schedules and -limit they are those of a plain test: the
// first few of so many schedules, in the order of stride. With -v each result is logged when its schedule ends.
func (f *Flags) Options(t *testing.T, schedules, few int) Options {
	o := f.o
	o.Dir = Path(o.Dir)
	if o.Schedules == 0 {
		o.Schedules, o.Least, o.Until = schedules, few, time.Now()
	}
	if f.limit > 0 {
		o.Until = time.Now().Add(f.limit)
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

// Process is a started program. Its methods may be called from any goroutine.
type Process struct {
	*exec.Cmd
	Ended <-chan struct{} // closed when the program has ended and was waited for
	log   string
}

// Start starts a command. Its standard error, and its standard output where the caller set none, are appended to a
// file. The exit status is dropped: a trial judges a program by the files and answers it leaves.
func Start(c *exec.Cmd, log string) (*Process, error) {
	f, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer f.Close() // the process has its own descriptor
	if c.Stderr = f; c.Stdout == nil {
		c.Stdout = f
	}
	if err := c.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", c.Path, err)
	}
	ended := make(chan struct{})
	go func() {
		_ = c.Wait()
		close(ended)
	}()
	return &Process{Cmd: c, Ended: ended, log: log}, nil
}

// Stop sends a signal and waits for the end of the process; after 20 s it is killed.
func (p *Process) Stop(sig os.Signal) {
	_ = p.Process.Signal(sig)
	select {
	case <-p.Ended:
	case <-time.After(20 * time.Second):
		_ = p.Process.Kill()
		<-p.Ended
	}
}

// AwaitPort waits until something listens at a TCP address. It fails when the process or the context ends first.
func (p *Process) AwaitPort(ctx context.Context, address string) error {
	for {
		c, err := net.Dial("tcp", address)
		if err == nil {
			return c.Close()
		}
		select {
		case <-p.Ended:
			return fmt.Errorf("%s ended before it listened at %s: see %s", p.Path, address, p.log)
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// Wait waits for a time, or until the context ends.
func Wait(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// Await calls f every 20 ms until it returns nil. It fails after a time, with f's last error.
func Await(ctx context.Context, event string, within time.Duration, f func() error) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	for {
		err := f()
		if err == nil {
			return nil
		}
		if Wait(ctx, 20*time.Millisecond); ctx.Err() != nil {
			return fmt.Errorf("%s did not come within %v: %w", event, within, err)
		}
	}
}

// Path resolves a relative path against the folder of the module around the working directory: the go command runs a
// test in the folder of its package. Outside of a module, and for the empty path, it returns the path itself.
func Path(path string) string {
	wd, err := os.Getwd()
	if err != nil || path == "" || filepath.IsAbs(path) {
		return path
	}
	for dir := wd; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return filepath.Join(dir, path)
		} else if dir == filepath.Dir(dir) {
			return path
		}
	}
}

// Build compiles wattmark without C. It also looks at each Go file of the module: the go command repeats a cached
// verdict unless a file that the test itself has looked at has changed, and knows nothing of the files that go build
// reads.
func Build(ctx context.Context, program string) error {
	err := filepath.WalkDir(Path("."), func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && filepath.Ext(path) == ".go" {
			_, err = os.Stat(path)
		}
		return err
	})
	c := exec.CommandContext(ctx, "go", "build", "-ldflags=-s -w", "-o", program, "github.com/wattmark/wattmark/cmd/wattmark")
	c.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, berr := c.CombinedOutput()
	if berr != nil {
		err = errors.Join(err, fmt.Errorf("build wattmark: %w: %s", berr, out))
	}
	return err
}

// Descriptors lists the files and sockets that a process has open, as /proc names them. It returns
// fs.ErrNotExist where the process has ended, or the system has no /proc.
func Descriptors(pid int) (open []string, err error) {
	dir := filepath.Join("/proc", strconv.Itoa(pid), "fd")
	all, err := os.ReadDir(dir)
	for _, fd := range all {
		if to, err := os.Readlink(filepath.Join(dir, fd.Name())); err == nil { // else closed meanwhile
			open = append(open, to)
		}
	}
	return open, err
}

// Get returns the body of a page. A status other than 200 is an error.
func Get(ctx context.Context, c *http.Client, url string) (string, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	resp, err := c.Do(r)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", url, resp.Status)
	}
	return string(b), err
}

// Every schedule is played once; a limit that has passed leaves a tenth, from all over the seeds.
func TestRunPlaysEachSchedule(t *testing.T) {
	for _, n := range []int{1, 2, 3, 10, 44, 126, 1000} {
		for _, least := range []int{0, (n + 9) / 10} {
			o := Options{Seed: 7, Schedules: n, Workers: 3}
			want := n
			if least > 0 {
				o.Least, o.Until, o.Workers, want = least, time.Unix(1, 0), 1, least
			}
			var mu sync.Mutex
			seen := map[uint64]bool{}
			r, err := Run(t.Context(), o, func(_ context.Context, seed uint64) (Result, error) {
				mu.Lock()
				defer mu.Unlock()
				seen[seed-7] = true
				return Result{}, nil
			})
			if err != nil || r.Played != want || len(seen) != want {
				t.Fatalf("%d of %d schedules, %d of them different: %v", r.Played, n, len(seen), err)
			}
			quarters := map[uint64]bool{}
			for s := range seen {
				if s >= uint64(n) {
					t.Errorf("schedule %d of %d", s, n)
				}
				quarters[4*s/uint64(n)] = true
			}
			if len(quarters) < min(want, 4) {
				t.Errorf("%d of %d schedules lie in %d quarters", want, n, len(quarters))
			}
		}
	}
}

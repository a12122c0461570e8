// Package processes plays faults against real processes: wattmark's emulated meter on
// a pseudo-terminal, its monitor, its run and its daemon. They are killed with SIGKILL,
// stopped with SIGSTOP, ended with SIGTERM. The meter's pseudo-terminal is unplugged.
// Where network namespaces can be made, monitor and host are machines of their own,
// and the line between them is cut and disturbed.
package processes

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/wattmark/wattmark/cmd/trial/internal/harness"
	"github.com/wattmark/wattmark/cmd/trial/network"
)

// Options are a campaign's settings. The folder of a schedule with violations stays, with
// what the processes logged.
type Options struct {
	harness.Options
	// Program is wattmark, to be run.
	Program string
	// Together puts all processes on this machine's own loopback. Nothing happens to
	// their network then.
	Together bool
}

// Available returns the reason why network namespaces cannot be made here; nil where they can.
func Available() error {
	n, err := network.New(fmt.Sprintf("wmcampaign%d-try", os.Getpid()))
	if err != nil {
		return err
	}
	return n.Close()
}

// Run plays schedules, 6 at a time unless Options have another number. An error means
// that the campaign itself could not go on.
func Run(ctx context.Context, o Options) (harness.Report, error) {
	if o.Workers <= 0 {
		o.Workers = 6
	}
	return harness.Run(ctx, o.Options, func(ctx context.Context, seed uint64) (harness.Result, error) {
		return one(ctx, o, Draw(seed, o.Together))
	})
}

// Table is faults × outcomes as Markdown.
func Table(r *harness.Report) string {
	var all []string
	for _, k := range slices.Concat(nearby, between) {
		all = append(all, k.name)
	}
	return r.Table(all, []string{"complete", "incomplete", "untrimmed", noTask})
}

// one plays a schedule in a folder and on machines of its own.
func one(ctx context.Context, o Options, s Schedule) (r harness.Result, err error) {
	r.Schedule = s.String()
	r.Again = fmt.Sprintf("go test ./cmd/trial/processes -run Processes -v -schedules 1 -seed %d", s.Seed)
	for _, f := range s.Faults {
		r.Struck = append(r.Struck, f.name)
	}
	p, err := newPlace(ctx, o, s.Seed)
	if err != nil {
		return r, err
	}
	defer func() {
		err = errors.Join(err, p.end(len(p.violations) > 0))
		r.Violations = p.violations
	}()
	if err := p.open(ctx, s.Daemon); err != nil {
		return r, err
	}
	if err := p.start("run"); err != nil {
		return r, err
	}
	for _, f := range s.Faults {
		harness.Wait(ctx, f.After)
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
	p.untouched()
	return r, context.Cause(ctx)
}

// The settings of TestProcesses.
var (
	settings = harness.NewFlags()
	wattmark = flag.String("wattmark", "", "the program to run; it is built when empty")
	alone    = flag.Bool("together", false, "one machine, without faults of the network: needs no root")
)

// Real processes, for as many schedules as there is time for. A longer campaign, as root:
//
//	go test ./cmd/trial/processes -run Processes -timeout 0 -v -schedules 500
func TestProcesses(t *testing.T) {
	if testing.Short() {
		t.Skip("other processes are raced by no detector of this one")
	}
	o := Options{Program: harness.Path(*wattmark), Together: *alone}
	if err := Available(); err != nil && !o.Together {
		if os.Getenv("WATTMARK_REQUIRE_TOOLS") == "1" {
			t.Fatal(err)
		}
		t.Logf("on one machine, without faults of the network: %v", err)
		o.Together = true
	}
	if o.Program == "" {
		o.Program = filepath.Join(t.TempDir(), "wattmark")
		if err := harness.Build(t.Context(), o.Program); err != nil {
			t.Fatal(err)
		}
	}
	o.Options = settings.Options(t, 126, 30*time.Second) // the time begins now
	r, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%v\n%s", &r, Table(&r))
	if r.Played < min(4, r.Asked) {
		t.Errorf("%d schedules show nothing", r.Played)
	}
	for _, v := range r.Violated {
		t.Error(v)
	}
}

// Seeds that follow each other reach each fault.
func TestDrawReachesEachFault(t *testing.T) {
	for _, together := range []bool{false, true} {
		seen := map[string]bool{}
		want := len(nearby)
		if !together {
			want += len(between)
		}
		for seed := range uint64(want) {
			seen[Draw(seed, together).Faults[0].name] = true
		}
		if len(seen) != want {
			t.Errorf("%d of %d faults", len(seen), want)
		}
	}
}

// kind is a kind of fault: a signal to a process, a plug, or the line's weather.
type kind struct {
	name    string
	target  string // of a signal: meter, monitor, run, host (the daemon)
	signal  syscall.Signal
	plug    []network.Side // that are pulled
	weather network.Weather
	crowded bool // both services, by idle connections
}

// nearby are the faults that need no network.
var nearby = []kind{
	{name: "monitor killed", target: "monitor", signal: syscall.SIGKILL},
	{name: "monitor paused", target: "monitor", signal: syscall.SIGSTOP},
	{name: "monitor stopped", target: "monitor", signal: syscall.SIGTERM},
	{name: "run killed", target: "run", signal: syscall.SIGKILL},
	{name: "run paused", target: "run", signal: syscall.SIGSTOP},
	{name: "run stopped", target: "run", signal: syscall.SIGTERM},
	{name: "daemon killed", target: "host", signal: syscall.SIGKILL},
	{name: "daemon paused", target: "host", signal: syscall.SIGSTOP},
	{name: "meter's terminal unplugged", target: "meter", signal: syscall.SIGKILL},
	{name: "meter silent", target: "meter", signal: syscall.SIGSTOP},
	{name: "idle connections crowd both services", crowded: true},
}

// between are the faults of the line between two machines.
var between = []kind{
	{name: "monitor's network plug pulled", plug: []network.Side{network.Monitor}},
	{name: "host's network plug pulled", plug: []network.Side{network.Host}},
	{name: "both network plugs pulled", plug: []network.Side{network.Monitor, network.Host}},
	{name: "line cut without a sign", weather: network.Weather{Deaf: [2]bool{true, true}}},
	{name: "line cut towards the host", weather: network.Weather{Deaf: [2]bool{network.Host: true}}},
	{name: "line cut towards the monitor", weather: network.Weather{Deaf: [2]bool{network.Monitor: true}}},
	{name: "line slow", weather: network.Weather{Delay: 40 * time.Millisecond}},
	{name: "line loses frames", weather: network.Weather{Lose: 0.2}},
	{name: "frames overtake each other", weather: network.Weather{Delay: time.Millisecond, Jitter: 10 * time.Millisecond}},
	{name: "frames arrive twice", weather: network.Weather{Twice: 0.3}},
	{name: "frames garbled", weather: network.Weather{Garble: 0.2}},
}

// Fault is one fault at its moment.
type Fault struct {
	kind
	After time.Duration // from the fault before, or the start of the run
	Hold  time.Duration // until it is started again, goes on, or is mended
}

func (f Fault) String() string { return fmt.Sprintf("%s after %v for %v", f.name, f.After, f.Hold) }

// Schedule is the faults of one measurement.
type Schedule struct {
	Seed   uint64
	Faults []Fault
	// Daemon runs from the beginning; else it comes when the run has ended.
	Daemon bool
}

func (s Schedule) String() string {
	all := make([]string, len(s.Faults))
	for i, f := range s.Faults {
		all[i] = f.String()
	}
	return fmt.Sprintf("processes, seed %d: %s (daemon from the beginning: %v)", s.Seed, strings.Join(all, "; then "),
		s.Daemon)
}

// lease of the runs: short, so that a fault can outlast it.
const lease = 1500 * time.Millisecond

// Draw makes the schedule of a seed. Seeds that follow each other go through all
// faults; a third of the schedules have a second one.
func Draw(seed uint64, together bool) Schedule {
	rng := rand.New(rand.NewPCG(seed, 0x9e41))
	all := nearby
	if !together {
		all = append(all[:len(all):len(all)], between...)
	}
	s := Schedule{Seed: seed, Daemon: rng.IntN(2) == 0}
	s.Faults = append(s.Faults, draw(rng, all[seed%uint64(len(all))]))
	if rng.IntN(3) == 0 {
		s.Faults = append(s.Faults, draw(rng, all[rng.IntN(len(all))]))
	}
	for _, f := range s.Faults {
		s.Daemon = s.Daemon || f.target == "host" || f.crowded
	}
	return s
}

func draw(rng *rand.Rand, k kind) Fault {
	f := Fault{
		kind: k, After: time.Duration(rng.IntN(1200)) * time.Millisecond,
		Hold: time.Duration(50+rng.IntN(600)) * time.Millisecond,
	}
	if rng.IntN(6) == 0 {
		f.Hold += lease
	}
	return f
}

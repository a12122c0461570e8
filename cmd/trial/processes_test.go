package trial

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

	"github.com/wattmark/wattmark/internal/coverage"
)

// The trial of processes plays faults against real ones: wattmark's emulated meter on
// a pseudo-terminal, its monitor, its run and its daemon. They are killed with SIGKILL,
// stopped with SIGSTOP, ended with SIGTERM. The meter's pseudo-terminal is unplugged.
// Where network namespaces can be made, monitor and host are machines of their own,
// and the line between them is cut and disturbed.

// ProcessOptions are a campaign's settings. The folder of a schedule with violations stays, with
// what the processes logged.
type ProcessOptions struct {
	Options
	// Program is wattmark, to be run.
	Program string
	// Together puts all processes on this machine's own loopback. Nothing happens to
	// their network then.
	Together bool
}

// Available returns the reason why network namespaces cannot be made here; nil where they can.
func Available() error {
	n, err := NewNetwork(fmt.Sprintf("wmcampaign%d-try", os.Getpid()))
	if err != nil {
		return err
	}
	return n.Close()
}

// RunProcesses plays schedules, 6 at a time unless Options have another number. An error means
// that the campaign itself could not go on.
func RunProcesses(ctx context.Context, o ProcessOptions) (Report, error) {
	if o.Workers <= 0 {
		o.Workers = 6
	}
	return Run(ctx, o.Options, func(ctx context.Context, seed uint64) (Result, error) {
		return playProcesses(ctx, o, DrawProcesses(seed, o.Together))
	})
}

// ProcessTable is faults × outcomes as Markdown.
func ProcessTable(r *Report) string {
	var all []string
	for _, k := range slices.Concat(nearby, between) {
		all = append(all, k.name)
	}
	return r.Table(all, []string{"complete", "incomplete", "untrimmed", noTask})
}

// playProcesses plays a schedule in a folder and on machines of its own.
func playProcesses(ctx context.Context, o ProcessOptions, s ProcessSchedule) (r Result, err error) {
	r.Schedule = s.String()
	r.Again = fmt.Sprintf("go test ./cmd/trial -run Processes -v -schedules 1 -seed %d", s.Seed)
	for _, f := range s.Faults {
		r.Struck = append(r.Struck, f.name)
	}
	p, err := newProcessPlace(ctx, o, s.Seed)
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
		Wait(ctx, f.After)
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

// oneMachine is the setting of TestProcesses.
var oneMachine = flag.Bool("together", false, "one machine, without faults of the network: needs no root")

// Real processes: each fault once. A longer campaign, as root:
//
//	go test ./cmd/trial -run Processes -timeout 0 -v -schedules 500
func TestProcesses(t *testing.T) {
	coverage.Long(t)
	if testing.Short() {
		t.Skip("other processes are raced by no detector of this one")
	}
	o := ProcessOptions{Program: Path(*wattmark), Together: *oneMachine}
	if err := Available(); err != nil && !o.Together {
		if os.Getenv("WATTMARK_REQUIRE_TOOLS") == "1" {
			t.Fatal(err)
		}
		t.Logf("on one machine, without faults of the network: %v", err)
		o.Together = true
	}
	if o.Program == "" {
		o.Program = filepath.Join(t.TempDir(), "wattmark")
		if err := Build(t.Context(), o.Program); err != nil {
			t.Fatal(err)
		}
	}
	faults := len(nearby)
	if !o.Together {
		faults += len(between)
	}
	o.Options = settings.Options(t, faults, faults)
	r, err := RunProcesses(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%v\n%s", &r, ProcessTable(&r))
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
			seen[DrawProcesses(seed, together).Faults[0].name] = true
		}
		if len(seen) != want {
			t.Errorf("%d of %d faults", len(seen), want)
		}
	}
}

// processKind is a kind of fault: a signal to a process, a plug, or the line's weather.
type processKind struct {
	name    string
	target  string // of a signal: meter, monitor, run, host (the daemon)
	signal  syscall.Signal
	plug    []Side // that are pulled
	weather Weather
	crowded bool // both services, by idle connections
}

// nearby are the faults that need no network.
var nearby = []processKind{
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
var between = []processKind{
	{name: "monitor's network plug pulled", plug: []Side{MonitorSide}},
	{name: "host's network plug pulled", plug: []Side{HostSide}},
	{name: "both network plugs pulled", plug: []Side{MonitorSide, HostSide}},
	{name: "line cut without a sign", weather: Weather{Deaf: [2]bool{true, true}}},
	{name: "line cut towards the host", weather: Weather{Deaf: [2]bool{HostSide: true}}},
	{name: "line cut towards the monitor", weather: Weather{Deaf: [2]bool{MonitorSide: true}}},
	{name: "line slow", weather: Weather{Delay: 40 * time.Millisecond}},
	{name: "line loses frames", weather: Weather{Lose: 0.2}},
	{name: "frames overtake each other", weather: Weather{Delay: time.Millisecond, Jitter: 10 * time.Millisecond}},
	{name: "frames arrive twice", weather: Weather{Twice: 0.3}},
	{name: "frames garbled", weather: Weather{Garble: 0.2}},
}

// ProcessFault is one fault at its moment.
type ProcessFault struct {
	processKind
	After time.Duration // from the fault before, or the start of the run
	Hold  time.Duration // until it is started again, goes on, or is mended
}

func (f ProcessFault) String() string {
	return fmt.Sprintf("%s after %v for %v", f.name, f.After, f.Hold)
}

// ProcessSchedule is the faults of one measurement.
type ProcessSchedule struct {
	Seed   uint64
	Faults []ProcessFault
	// Daemon runs from the beginning; else it comes when the run has ended.
	Daemon bool
}

func (s ProcessSchedule) String() string {
	all := make([]string, len(s.Faults))
	for i, f := range s.Faults {
		all[i] = f.String()
	}
	return fmt.Sprintf("processes, seed %d: %s (daemon from the beginning: %v)", s.Seed, strings.Join(all, "; then "),
		s.Daemon)
}

// lease of the runs: short, so that a fault can outlast it.
const lease = 1500 * time.Millisecond

// DrawProcesses makes the schedule of a seed. Seeds that follow each other go through all
// faults; a third of the schedules have a second one.
func DrawProcesses(seed uint64, together bool) ProcessSchedule {
	rng := rand.New(rand.NewPCG(seed, 0x9e41))
	all := nearby
	if !together {
		all = append(all[:len(all):len(all)], between...)
	}
	s := ProcessSchedule{Seed: seed, Daemon: rng.IntN(2) == 0}
	s.Faults = append(s.Faults, drawProcess(rng, all[seed%uint64(len(all))]))
	if rng.IntN(3) == 0 {
		s.Faults = append(s.Faults, drawProcess(rng, all[rng.IntN(len(all))]))
	}
	for _, f := range s.Faults {
		s.Daemon = s.Daemon || f.target == "host" || f.crowded
	}
	return s
}

func drawProcess(rng *rand.Rand, k processKind) ProcessFault {
	f := ProcessFault{
		processKind: k, After: time.Duration(rng.IntN(1200)) * time.Millisecond,
		Hold: time.Duration(50+rng.IntN(600)) * time.Millisecond,
	}
	if rng.IntN(6) == 0 {
		f.Hold += lease
	}
	return f
}

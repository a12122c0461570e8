package processes

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"syscall"
	"time"

	"wattmark/cmd/campaign/network"
)

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

// Schedule is what happens to one measurement.
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
	return fmt.Sprintf("processes, seed %d: %s (daemon from the beginning: %v)", s.Seed, strings.Join(all, "; then "), s.Daemon)
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
	f := Fault{kind: k, After: time.Duration(rng.IntN(1200)) * time.Millisecond, Hold: time.Duration(50+rng.IntN(600)) * time.Millisecond}
	if rng.IntN(6) == 0 {
		f.Hold += lease
	}
	return f
}

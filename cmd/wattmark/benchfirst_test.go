package main

import (
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"wattmark/hostagent"
	"wattmark/hostagent/sim"
	"wattmark/monitor/emulator/board"
	"wattmark/store"
)

// Who is refused, or waits in line, has no context on the card: the measurement that runs
// keeps its energy.
func TestRefusedRunLeavesTheCardAlone(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := r.measuring("3s", 2)
	gpu := []string{"--gpu", "sim:" + r.socket, "--monitor", r.address, "--db", r.db, "--db-free", "0"}
	for _, args := range [][]string{
		{"run", "--benchmark", "memory"},
		{"run", "--", "true"},
		{"run", "--benchmark", "memory", "--wait", "300ms"},
		{"pulse", "--for", "200ms", "--svg", filepath.Join(t.TempDir(), "p.svg")},
		{"tiny", "--sim-kernel", "280W:120us", "--dry-run"},
		{"roofline", "sweep"},
		{"sensor", "load", "--each", "100ms", "--periods", "50ms"},
		{"sensor", "run", "--period", "100ms", "--window", "1s", "--benchmark", "memory", "--kernel", "10ms"},
		{"predict", "sweep", "--kernel", "matmul"},
	} {
		more, words := gpu[:len(gpu)-2], 2
		switch args[0] {
		case "run":
			more, words = gpu, 1
		case "pulse", "tiny":
			words = 1
		}
		refused := start(t, slices.Insert(slices.Clone(args), words, more...)...)
		if code := refused.wait(t); code != exitBusy {
			t.Errorf("%v: exit code %d, want %d\n%s", args, code, exitBusy, &refused.err)
		}
	}
	if code := p.wait(t); code != 0 {
		t.Fatalf("exit code %d\n%s", code, &p.err)
	}
	x, _ := task(t, r.db, 1)
	if x.State != store.Complete || x.Result == nil {
		t.Fatalf("state %v: %s", x.State, x.Reason)
	}
	watts := float64(x.Result.Mean)
	if level, _ := r.live.Level(board.Memory); math.Abs(watts/float64(level)-1) > 0.05 {
		t.Errorf("%.1f W were measured of a kernel of %v", watts, level)
	}
	for _, e := range x.Events {
		if strings.Contains(e.Detail, "used the GPU") {
			t.Errorf("a stranger on the card: %s", e.Detail)
		}
	}
}

// What ends between the bench and the task, here after the plan, frees the bench at once.
func TestPlanAloneFreesTheBench(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	tiny := start(t, "tiny", "--gpu", "sim:"+r.socket, "--monitor", r.address, "--db", r.db, "--sim-kernel", "280W:120us", "--u", "0.1", "--dry-run")
	if code := tiny.wait(t); code != 0 {
		t.Errorf("exit code %d\n%s", code, &tiny.err)
	}
	if cs := r.captures(); len(cs) != 0 {
		t.Errorf("captures left on the monitor: %+v", cs)
	}
	if _, ok := task(t, r.db, 1); ok {
		t.Error("a plan alone left a task")
	}
	r.free()
}

// A second process's context, and its end, take nothing of the load that the first has
// laid down; both are seen, with what they used.
func TestSharedCard(t *testing.T) {
	b, err := board.New(board.Config{Seed: 3})
	if err != nil {
		t.Fatal(err)
	}
	live := board.NewLive(b, time.Now())
	k := &card{live: live}
	one, two := &cardUser{pid: 1, name: "one"}, &cardUser{pid: 2, name: "two"}
	at := time.Now().Add(50 * time.Millisecond)
	lay := func(c *cardUser, at time.Time, steps ...board.Step) {
		t.Helper()
		if begin, err := k.lay(c, at, steps); err != nil || !begin.Equal(at) {
			t.Fatal(begin, err)
		}
	}
	level := func(l board.Load) float64 { w, _ := live.Level(l); return float64(w) }
	lay(one, at, board.Step{Load: board.Memory, For: time.Second}, board.Step{Load: board.ActiveIdle})
	lay(two, at.Add(300*time.Millisecond), board.Step{Load: board.ActiveIdle})
	lay(two, at.Add(400*time.Millisecond), board.Step{Load: board.Full, For: 200 * time.Millisecond}, board.Step{Load: board.ActiveIdle})
	k.cancel(two, at.Add(500*time.Millisecond))
	if _, err := k.leave(two, at.Add(500*time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		from, to time.Duration
		load     board.Load
	}{{250, 290, board.Memory}, {350, 390, board.Memory}, {450, 490, board.Full}, {600, 900, board.Memory}, {1100, 1200, board.ActiveIdle}} {
		got := float64(live.MeanPower(at.Add(tc.from*time.Millisecond), at.Add(tc.to*time.Millisecond)))
		if want := level(tc.load); math.Abs(got/want-1) > 0.1 {
			t.Errorf("%v to %v ms: %.1f W, want %.1f", int64(tc.from), int64(tc.to), got, want)
		}
	}
	ps := k.processes(at, at.Add(2*time.Second))
	if len(ps) != 2 || ps[0].PID != 1 || math.Abs(ps[0].Busy-0.5) > 0.01 || ps[1].PID != 2 || math.Abs(ps[1].Busy-0.05) > 0.01 {
		t.Errorf("%+v", ps)
	}
	if _, err := k.leave(one, at.Add(2*time.Second)); err != nil {
		t.Fatal(err)
	}
	if got := float64(live.MeanPower(at.Add(4*time.Second), at.Add(5*time.Second))); math.Abs(got/level(board.Idle)-1) > 0.2 {
		t.Errorf("%.1f W when all have gone", got)
	}
}

var _ hostagent.Opener = simDevice{&sim.Device{}, remotePlant{}}

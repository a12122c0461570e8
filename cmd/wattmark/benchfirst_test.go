package main

import (
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/hostagent/gpu"
	"github.com/wattmark/wattmark/hostagent/gpu/sim"
	"github.com/wattmark/wattmark/measure/load"
	"github.com/wattmark/wattmark/store"
)

// Who is refused, or waits in line, has no context on the card: the measurement that runs
// keeps its energy.
func TestRefusedRunLeavesTheCardAlone(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	// The measured program leaves the card idle, and runs until all others were refused.
	p, end := r.measuring(2)
	gpu := []string{"--gpu", "sim:" + r.socket, "--monitor", r.address, "--db", r.db, "--db-free", "0"}
	for _, args := range [][]string{
		{"run", "--benchmark", "memory"},
		{"run", "--", "true"},
		{"run", "--benchmark", "memory", "--wait", "300ms"},
		{"pulse", "--duration", "200ms", "--svg", filepath.Join(t.TempDir(), "p.svg")},
		{"tiny", "--sim-kernel", "280W:120us", "--dry-run"},
		{"roofline", "sweep"},
		{"sensor", "load", "--each", "100ms", "--periods", "50ms"},
		{"sensor", "run", "--period", "100ms", "--window", "1s", "--benchmark", "memory", "--length", "10ms"},
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
		if code := refused.wait(t); code != cli.ExitBusy {
			t.Errorf("%v: exit code %d, want %d\n%s", args, code, cli.ExitBusy, &refused.err)
		}
	}
	end()
	if code := p.wait(t); code != 0 {
		t.Fatalf("exit code %d\n%s", code, &p.err)
	}
	x, _ := onlyTask(t, r.db, 1)
	if x.State != store.Complete || x.Result == nil {
		t.Fatalf("state %v: %s", x.State, x.Reason)
	}
	watts := float64(x.Result.Mean)
	if level, _ := r.live.Level(load.ActiveIdle); math.Abs(watts/float64(level)-1) > 0.05 {
		t.Errorf("%.1f W were measured of an idle card of %v", watts, level)
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
	tiny := start(t, "tiny", "--gpu", "sim:"+r.socket, "--monitor", r.address, "--db", r.db, "--sim-kernel", "280W:120us", "--until-u", "0.1", "--dry-run")
	if code := tiny.wait(t); code != 0 {
		t.Errorf("exit code %d\n%s", code, &tiny.err)
	}
	if cs := r.captures(); len(cs) != 0 {
		t.Errorf("captures left on the monitor: %+v", cs)
	}
	if _, ok := onlyTask(t, r.db, 1); ok {
		t.Error("a plan alone left a task")
	}
	r.free()
}

var _ gpu.Opener = sim.RemoteDevice{Device: &sim.Device{}}

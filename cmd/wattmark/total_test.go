package main

import (
	"context"
	"math"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/wattmark/wattmark/api"
	"github.com/wattmark/wattmark/api/wire"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/report"
	"github.com/wattmark/wattmark/cmd/internal/study/total"
	"github.com/wattmark/wattmark/hostagent/measurement"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/store"
	"google.golang.org/grpc"
)

// serveTasks serves a task database as wattmark host does.
func serveTasks(t *testing.T, path string) string {
	t.Helper()
	db, err := store.Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer(wire.ServerOptions()...)
	trim := func(ctx context.Context, id store.TaskID, w measure.Window) error {
		return measurement.Retrim(ctx, db, id, w)
	}
	health := api.New(t.Context(), db, api.Options{Works: api.Works{Trim: trim}}).Register(s)
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		health.Shutdown()
		s.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String()
}

func TestTotalOverHosts(t *testing.T) {
	t.Parallel()
	noRaces(t)
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a.db"), filepath.Join(dir, "b.db")
	const gain, noise = 0.02, 0.01
	of := func(gpu, serial string, at time.Duration, joules, seconds float64) made {
		return made{name: "train", job: "J", gpu: gpu, serial: serial, at: at, energy: joules, length: seconds, gain: gain, noise: noise}
	}
	// Meter 7 measured on both hosts; 8 and 9 are others.
	makeTasks(t, a, of("GPU-1", "7", 0, 100, 10), of("GPU-2", "8", time.Second, 200, 10), made{name: "train", gpu: "GPU-1", energy: 5, length: 1, at: -time.Hour})
	makeTasks(t, b, of("GPU-3", "7", 2*time.Second, 300, 10), of("GPU-4", "9", 2*time.Second, 400, 6))
	address := serveTasks(t, b)
	for _, source := range []string{b, address} { // a database and its service say the same
		var r total.JobReport
		object(t, inside(t, "total", "--job", "J", a, source, "--expect", "4", "--json").ok(t).out, &r)
		shared := 2 * gain * 400
		own := 2 * math.Sqrt(gain*gain*(200*200+400*400)+noise*noise*(100*100+200*200+300*300+400*400))
		if r.Energy != 1000 || math.Abs(float64(r.Shared)-shared) > 1e-6 || math.Abs(float64(r.Independent)-own) > 1e-6 || math.Abs(float64(r.U)-math.Hypot(shared, own)) > 1e-6 {
			t.Errorf("%s: got %+v; want 1000 J, %v shared, %v own", source, r, shared, own)
		}
		if all := 2 * math.Hypot(gain*1000, noise*math.Sqrt(300000)); math.Abs(float64(r.AllShared)-all) > 1e-6 {
			t.Errorf("%s: %v J if all were one error, want %v", source, r.AllShared, all)
		}
		if len(r.Common) != 1 || r.Common[0].By != "instrument daq 7" || len(r.Common[0].Tasks) != 2 || r.Common[0].Tasks[1] != source+" task 1" {
			t.Errorf("%s: shared %+v", source, r.Common)
		}
		// Windows begin a second after the start of the capture, which is a second before
		// the launch: at the launch.
		close := func(a, b measure.Seconds) bool { return math.Abs(float64(a-b)) < 1e-6 }
		if h := r.Hosts; !close(r.Span, 12) || !close(r.Together, 9) || h[0].Before != 0 || !close(h[0].After, 1) || !close(h[1].Before, 2) || !close(h[0].Busy, 11) {
			t.Errorf("%s: times %+v", source, r)
		}
		if !r.From.Equal(noon) || r.Missing != 0 || len(r.Cautions) != 0 || r.Hosts[1].Tasks[1].UUID != "GPU-4" {
			t.Errorf("%s: %+v", source, r)
		}
	}
	text := inside(t, "total", "--job", "J", a, b).ok(t).out
	for _, want := range []string{"Job J: 1000 J ± ", "4 tasks, 2 hosts", "instrument daq 7", "all hosts at once for 9 s", "idle before"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}

// What is missing is said, and is an error.
func TestTotalLacks(t *testing.T) {
	t.Parallel()
	noRaces(t)
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a.db"), filepath.Join(dir, "b.db")
	task := made{name: "train", job: "J", gpu: "GPU-1", serial: "7", energy: 100, length: 10, gain: 0.01, noise: 0.001}
	db, err := store.Open(t.Context(), a)
	if err != nil {
		t.Fatal(err)
	}
	g, err := db.BeginGroup(t.Context(), store.NewGroup{Name: "train", User: "lab", Launched: noon, Members: []store.GroupMember{
		{GPU: "H200", GPUUUID: "GPU-1"}, {GPU: "H200", GPUUUID: "GPU-2", Reason: "its monitor is away"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	task.group = store.GroupRef{Group: g}
	task.put(t, db)
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	makeTasks(t, b, made{name: "train", job: "J", gpu: "GPU-3", at: time.Second}, made{name: "train", job: "other", gpu: "GPU-3", energy: 1, length: 1})
	r := inside(t, "total", "--job", "J", a, b, filepath.Join(dir, "none.db"), "127.0.0.1:1", "--json")
	r.fails(t, cli.ExitIncomplete, "not whole: 4 missing")
	var got total.JobReport
	object(t, r.out, &got)
	if got.Energy != 100 || got.Missing != 4 {
		t.Errorf("got %+v", got)
	}
	for i, want := range []string{"GPU-2 of group 1: its monitor is away", "task 1 is incomplete: cable pulled", "no task database", "connection refused"} {
		if m := strings.Join(got.Hosts[i].Missing, " "); !strings.Contains(m, want) {
			t.Errorf("host %d lacks %q, want %q", i, m, want)
		}
	}
	inside(t, "total", "--job", "J", a, "--expect", "3").fails(t, cli.ExitIncomplete, "not whole")
	inside(t, "total", "--job", "nothing", a).fails(t, cli.ExitNotFound, "no measured task")
	inside(t, "total", a).fails(t, cli.ExitUsage, "--job")
	inside(t, "total", "--job", "J", a, a).fails(t, cli.ExitUsage, "measured twice at the same time")
}

// Without a job tasks are found by name, where that is one a GPU.
func TestTotalByName(t *testing.T) {
	t.Parallel()
	noRaces(t)
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a.db"), filepath.Join(dir, "b.db")
	makeTasks(t, a, made{name: "train", gpu: "GPU-1", energy: 100, length: 1}, made{name: "train", gpu: "GPU-2", energy: 100, length: 1}, made{name: "train", gpu: "GPU-1", energy: 50, length: 1, at: 24 * time.Hour})
	makeTasks(t, b, made{name: "train", gpu: "GPU-3", energy: 70, length: 1, at: time.Hour})
	inside(t, "total", "--job", "train", a).fails(t, cli.ExitUsage, "tasks 1 and 3", "--since")
	var r total.JobReport
	object(t, inside(t, "total", "--job", "train", a, b, "--until", "2026-03-05", "--json").ok(t).out, &r)
	if r.Energy != 270 || !r.Hosts[0].ByName || r.Together >= 0 || !strings.Contains(strings.Join(r.Cautions, " "), "never worked all at once") {
		t.Errorf("got %+v", r)
	}
	// Two tasks by a meter that tells no number, where it was: one error.
	var again total.JobReport
	c := filepath.Join(dir, "c.db")
	makeTasks(t, c, made{name: "x", job: "K", gpu: "GPU-1", energy: 100, length: 1, gain: 0.01, noise: 0.001}, made{name: "x", job: "K", gpu: "GPU-1", energy: 100, length: 1, gain: 0.01, noise: 0.001, at: time.Hour})
	object(t, inside(t, "total", "--job", "K", c, "--json").ok(t).out, &again)
	if len(again.Common) != 1 || math.Abs(float64(again.Shared)-4) > 1e-9 {
		t.Errorf("got %+v", again)
	}
}

// A task keeps its job, and lists find it.
func TestRunKeepsTheJob(t *testing.T) {
	t.Parallel()
	noRaces(t)
	r := newRig(t)
	if code := r.run("--benchmark", "half", "--duration", "100ms", "--job", "J 7").wait(t); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	if x, ok := onlyTask(t, r.db, 1); !ok || x.Job != "J 7" {
		t.Errorf("got %+v", x)
	}
	var list struct {
		Tasks []report.Report `json:"tasks"`
	}
	object(t, inside(t, "tasks", "--job", "J 7", "--json", "--db", r.db).ok(t).out, &list)
	if len(list.Tasks) != 1 || list.Tasks[0].Job != "J 7" {
		t.Errorf("got %+v", list)
	}
	if text := inside(t, "tasks", "--job", "other", "--db", r.db).ok(t).out; !strings.Contains(text, "No such tasks") {
		t.Errorf("got %s", text)
	}
}

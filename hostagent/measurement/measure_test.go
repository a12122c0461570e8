package measurement_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/wattmark/wattmark/hostagent/gpu"
	"github.com/wattmark/wattmark/hostagent/measurement"
	"github.com/wattmark/wattmark/hostagent/monitorclient"
	"github.com/wattmark/wattmark/hostagent/sensor"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/marker"
	"github.com/wattmark/wattmark/measure/quality"
	"github.com/wattmark/wattmark/measure/session"
	"github.com/wattmark/wattmark/store"
)

func TestMeasureFindsTheEnergy(t *testing.T) {
	inVirtualTime(t, findsTheEnergy)
}

func findsTheEnergy(t *testing.T, b *bench) {
	cfg := b.config()
	cfg.WarmUp = 30 * time.Millisecond
	var mu sync.Mutex
	var phases []measurement.Phase
	var last measurement.Progress
	cfg.Progress = func(p measurement.Progress) {
		mu.Lock()
		defer mu.Unlock()
		if last = p; len(phases) == 0 || phases[len(phases)-1] != p.Phase {
			phases = append(phases, p.Phase)
		}
	}
	id, err := measurement.Measure(t.Context(), cfg, b.memory(300*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	task, truth := b.task(t, id), b.truth(t, id)
	if task.State != store.Complete || task.Reason != "" {
		t.Fatalf("state %v: %s", task.State, task.Reason)
	}
	r := task.Result
	off := float64(r.Total.Energy - truth)
	t.Logf("%v ± %v, truth %v, off by %.4f %%; clock rms %v over %d edges; NVML %v",
		r.Total.Energy, r.Total.U, truth, 100*off/float64(truth), task.Clock.RMS, task.Clock.Used, *task.NVML)
	if math.Abs(off) > 0.005*float64(truth) || math.Abs(off) > float64(r.Total.U) {
		t.Errorf("energy %v ± %v, truth %v", r.Total.Energy, r.Total.U, truth)
	}
	if d := r.To - r.From; math.Abs(float64(d)-0.3) > 1e-4 {
		t.Errorf("a window of %v for a kernel of 300 ms", d)
	}
	if len(task.Markers) != 2 || task.Clock.Used < 10 || task.Clock.RMS > 100e-6 {
		t.Errorf("%d markers, clock %+v", len(task.Markers), task.Clock)
	}
	if task.User != "lab" || task.GPU != "simulated GPU" || task.Monitor != b.address || task.Bench != "soft" {
		t.Errorf("got %+v", task)
	}
	readings, err := b.db.Readings(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	n := map[string]int{}
	for _, x := range readings {
		n[x.Method]++
	}
	if n[sensor.EnergyCounter] != 2 || n[sensor.InstantPower] < 20 || n[sensor.AveragePower] != n[sensor.InstantPower] {
		t.Errorf("readings: %v", n)
	}
	checkMethods(t, b, id, n)
	want := []measurement.Phase{
		"bench", "capture", "warm-up", "marker", "work", "marker", "stop", "transfer",
		"analysis", "done",
	}
	mu.Lock()
	defer mu.Unlock()
	for i, p := range want {
		if i >= len(phases) || phases[i] != p {
			t.Fatalf("phases: got %v, want %v", phases, want)
		}
	}
	if last.Task != id || last.Chunks != task.Chunks || last.Scans != task.Scans || last.Bytes == 0 {
		t.Errorf("progress ended at %+v; stored: %d chunks, %d scans", last, task.Chunks, task.Scans)
	}
	b.mustBeFree(t)
	if n := b.captures(t); n != 0 {
		t.Errorf("the monitor still keeps %d captures", n)
	}
}

// checkMethods: every software method spoke of the same work as the meter.
func checkMethods(t *testing.T, b *bench, id store.TaskID, readings map[string]int) {
	t.Helper()
	got, err := b.db.Methods(t.Context(), id)
	if err != nil || len(got) != len(sensor.Methods()) {
		t.Fatalf("%d methods: %v", len(got), err)
	}
	k, err := b.db.Kernels(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range got {
		if !m.From.Equal(k[0].Start) || !m.To.Equal(k[0].End) {
			t.Errorf("%s speaks of %v to %v, the kernel ran from %v to %v", m.Method, m.From, m.To, k[0].Start,
				k[0].End)
		}
		if m.Call.N == 0 || m.Call.P99 < m.Call.P50 {
			t.Errorf("%s: calls %+v", m.Method, m.Call)
		}
	}
	for _, m := range []sensor.Method{sensor.SMA, sensor.MTSM, sensor.PAPI, sensor.Counter} {
		if readings[measurement.MethodPrefix+string(m)] == 0 {
			t.Errorf("no readings of %s are kept: %v", m, readings)
		}
	}
}

// Wherever it is cancelled, a measurement leaves a task that says so, and a
// free bench.
func TestCancelledAtEveryStep(t *testing.T) {
	for _, at := range []measurement.Phase{
		measurement.PhaseBench, measurement.PhaseCapture, measurement.PhaseWarmUp, measurement.PhaseMarker,
		measurement.PhaseWork, "second marker", measurement.PhaseStop, measurement.PhaseTransfer,
		measurement.PhaseAnalysis,
	} {
		t.Run(string(at), func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, b *bench) { cancelledAt(t, b, at) })
		})
	}
}

func cancelledAt(t *testing.T, b *bench, at measurement.Phase) {
	cfg := b.config()
	cfg.WarmUp = 10 * time.Millisecond
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var mu sync.Mutex
	worked := false
	cfg.Progress = func(p measurement.Progress) {
		mu.Lock()
		defer mu.Unlock()
		worked = worked || p.Phase == measurement.PhaseWork
		if p.Phase == at || (at == "second marker" && worked && p.Phase == measurement.PhaseMarker) {
			cancel()
		}
	}
	id, err := measurement.Measure(ctx, cfg, b.memory(50*time.Millisecond))
	b.mustBeFree(t)
	switch at {
	case measurement.PhaseBench, measurement.PhaseCapture:
		if id != 0 || !errors.Is(err, context.Canceled) {
			t.Errorf("before there is a capture: task %d, %v", id, err)
		}
		return
	case measurement.PhaseStop, measurement.PhaseTransfer, measurement.PhaseAnalysis:
		// All is measured: what is left is brought to its end.
		if task := b.task(t, id); err != nil || task.State != store.Complete {
			t.Errorf("got %v, state %v: %s", err, task.State, task.Reason)
		}
	default:
		task := b.task(t, id)
		if !errors.Is(err, context.Canceled) || task.State != store.Incomplete ||
			!strings.Contains(task.Reason, "cancelled during") {
			t.Errorf("got %v, state %v: %s", err, task.State, task.Reason)
		}
	}
	if n := b.captures(t); n != 0 {
		t.Errorf("the monitor still keeps %d captures", n)
	}
}

// silent is a GPU whose markers cannot be seen.
type silent struct{ gpu.Device }

func (s silent) PlayMarker(ctx context.Context, spec marker.Spec, kind marker.Kind) (gpu.Played, error) {
	now := time.Now()
	return gpu.Played{Kind: kind, Span: gpu.Span{Start: now, End: now}, Edges: []gpu.PlayedEdge{{Chip: 0, At: now}}},
		ctx.Err()
}

func TestWithoutMarkersTheSamplesAreKept(t *testing.T) {
	inVirtualTime(t, withoutMarkersTheSamplesAreKept)
}

func withoutMarkersTheSamplesAreKept(t *testing.T, b *bench) {
	cfg := b.config()
	cfg.Device = silent{b.device}
	id, err := measurement.Measure(t.Context(), cfg, b.memory(200*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	task := b.task(t, id)
	if task.State != store.Untrimmed || !strings.Contains(task.Reason, "no start marker") || task.Result != nil ||
		task.Scans < 4000 {
		t.Fatalf("state %v: %s; %d scans", task.State, task.Reason, task.Scans)
	}
	b.mustBeFree(t)

	// By hand: the kernel's time on the meter's clock is known to the emulator.
	k, err := b.db.Kernels(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	from := measure.SecondsOf(k[0].Start.Sub(task.Started))
	for _, bad := range []measurement.Window{{From: 5, To: 6}, {From: 0.2, To: 0.1}, {From: -1, To: 0.1}} {
		if err := measurement.Retrim(t.Context(), b.db, id, bad); !errors.Is(err, measure.ErrNoData) &&
			!errors.Is(err, measure.ErrWindow) {
			t.Errorf("window %v: got %v", bad, err)
		}
	}
	if err := measurement.Retrim(t.Context(), b.db, id,
		measurement.Window{From: from + 0.02, To: from + 0.12}); err != nil {
		t.Fatal(err)
	}
	e, err := b.live.Energy(k[0].Start.Add(20*time.Millisecond), k[0].Start.Add(120*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	task = b.task(t, id)
	if got := task.Result.Total.Energy; task.State != store.Complete || task.Reason != "window set by hand" ||
		math.Abs(float64(got/e.Total)-1) > 0.01 {
		t.Errorf("state %v: %s; %v, truth %v", task.State, task.Reason, got, e.Total)
	}
	if err := measurement.Retrim(t.Context(), b.db, 999, measurement.Window{From: 0, To: 1}); !errors.Is(err,
		store.ErrNotFound) {
		t.Errorf("a task that is not there: %v", err)
	}
}

func TestBusyBenchNamesItsHolder(t *testing.T) { inVirtualTime(t, busyBenchNamesItsHolder) }

func busyBenchNamesItsHolder(t *testing.T, b *bench) {
	s, err := b.client.Start(t.Context(),
		session.Request{Holder: "ann@lab", TaskName: "x", Marker: *b.config().Marker})
	if err != nil {
		t.Fatal(err)
	}
	id, err := measurement.Measure(t.Context(), b.config(), b.memory(time.Millisecond))
	if id != 0 || !errors.Is(err, monitorclient.ErrBusy) || !strings.Contains(err.Error(), "ann@lab") {
		t.Errorf("task %d: %v", id, err)
	}
	if _, err := b.client.Stop(t.Context(), s.CaptureID); err != nil {
		t.Fatal(err)
	}
}

// The GPU is opened once the bench is held: not at all by who is refused. Where it cannot
// be opened the bench is free at once, nothing is kept, and there is no task.
func TestBenchFirstGPUThen(t *testing.T) { inVirtualTime(t, benchFirstGPUThen) }

func benchFirstGPUThen(t *testing.T, b *bench) {
	opened := 0
	cfg := b.config()
	cfg.Open = func(ctx context.Context) (gpu.PowerSensor, error) {
		if got, err := b.client.GetBench(ctx); err != nil || got.Holder != cfg.Holder {
			t.Errorf("opened while the bench is held by %q, %v", got.Holder, err)
		}
		opened++
		return nil, nil
	}
	s, err := b.client.Start(t.Context(),
		session.Request{Holder: "ann@lab", TaskName: "x", Marker: *cfg.Marker})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := measurement.Measure(t.Context(), cfg, b.memory(time.Millisecond)); !errors.Is(err,
		monitorclient.ErrBusy) || opened != 0 {
		t.Errorf("refused, and opened %d times: %v", opened, err)
	}
	if _, err := b.client.Stop(t.Context(), s.CaptureID); err != nil {
		t.Fatal(err)
	}
	if err := b.client.Release(t.Context(), s.CaptureID); err != nil {
		t.Fatal(err)
	}
	if _, err := measurement.Measure(t.Context(), cfg, b.memory(50*time.Millisecond)); err != nil || opened != 1 {
		t.Errorf("opened %d times: %v", opened, err)
	}
	fault := errors.New("out of memory")
	cfg.Open = func(context.Context) (gpu.PowerSensor, error) { return nil, fault }
	if id, err := measurement.Measure(t.Context(), cfg, b.memory(time.Millisecond)); !errors.Is(err, fault) || id != 0 {
		t.Errorf("task %d: %v", id, err)
	}
	b.mustBeFree(t)
	if n := b.captures(t); n != 0 {
		t.Errorf("%d captures left on the monitor", n)
	}
	if _, err := b.db.Task(t.Context(), 2); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("a task was left: %v", err)
	}
}

// telling is a sensor that also tells the GPU's condition, hotter each time.
type telling struct {
	gpu.PowerSensor
	asked float64
}

func (s *telling) Condition() gpu.Condition {
	s.asked++
	return gpu.Condition{SM: 1.98e9, Memory: 2.6e9, Temperature: 40 + s.asked, Throttle: 4}
}

// The GPU's condition is kept as it was just before and just after the work.
func TestConditionAroundTheWork(t *testing.T) { inVirtualTime(t, conditionAroundTheWork) }

func conditionAroundTheWork(t *testing.T, b *bench) {
	cfg := b.config()
	cfg.Sensor = &telling{PowerSensor: b.sensor}
	id, err := measurement.Measure(t.Context(), cfg, b.memory(50*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	readings, err := b.db.Readings(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	kernels, err := b.db.Kernels(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	c := sensor.Conditions(readings)
	if len(c) != 2 || c[0].Temperature != 41 || c[1].Temperature != 42 || c[1].Throttle != 4 {
		t.Fatalf("conditions %+v", c)
	}
	if c[0].At.After(kernels[0].Start) || c[1].At.Before(kernels[0].End) {
		t.Errorf("conditions at %v and %v, the kernel from %v to %v", c[0].At, c[1].At, kernels[0].Start,
			kernels[0].End)
	}
	if task := b.task(t, id); task.State != store.Complete || task.NVML == nil {
		t.Errorf("state %v: %s; NVML %v", task.State, task.Reason, task.NVML)
	}
}

// Work that fails has drawn power all the same.
func TestFailedWorkIsMeasured(t *testing.T) { inVirtualTime(t, failedWorkIsMeasured) }

func failedWorkIsMeasured(t *testing.T, b *bench) {
	failed := errors.New("exit status 3")
	id, err := measurement.Measure(t.Context(), b.config(), func(ctx context.Context) ([]gpu.Kernel, error) {
		if _, err := b.device.RunBenchmark(ctx, gpu.BenchHalf, 50*time.Millisecond); err != nil {
			return nil, err
		}
		return nil, failed
	})
	task := b.task(t, id)
	if !errors.Is(err, failed) || task.State != store.Failed || task.Failure == nil || task.Failure.ExitCode != nil ||
		!strings.Contains(task.Reason, "the work failed: exit status 3") {
		t.Errorf("got %v, state %v: %s", err, task.State, task.Reason)
	}
	if d := task.Result.Duration(); d < 0.05 || d > 0.2 {
		t.Errorf("the work named no kernels: its own time counts; got %v", d)
	}
}

func TestPulledCableIsToldWithItsPlace(t *testing.T) { inVirtualTime(t, pulledCableIsToldWithItsPlace) }

func pulledCableIsToldWithItsPlace(t *testing.T, b *bench) {
	id, err := measurement.Measure(t.Context(), b.config(), func(ctx context.Context) ([]gpu.Kernel, error) {
		if _, err := b.device.RunBenchmark(ctx, gpu.BenchMemory, 60*time.Millisecond); err != nil {
			return nil, err
		}
		b.pull()
		return b.device.RunBenchmark(ctx, gpu.BenchMemory, 60*time.Millisecond)
	})
	if err != nil {
		t.Fatal(err)
	}
	task := b.task(t, id)
	t.Logf("%s", task.Reason)
	if task.State != store.Incomplete || !strings.Contains(task.Reason, "the capture ended early") ||
		task.Result != nil {
		t.Errorf("state %v: %s", task.State, task.Reason)
	}
	if task.Scans == 0 {
		t.Error("what was taken before is not there")
	}
	b.mustBeFree(t)
}

func TestBrokenGPUEndsTheTask(t *testing.T) { inVirtualTime(t, brokenGPUEndsTheTask) }

func brokenGPUEndsTheTask(t *testing.T, b *bench) {
	cfg := b.config()
	cfg.Device = broken{b.device}
	id, err := measurement.Measure(t.Context(), cfg, b.memory(time.Millisecond))
	task := b.task(t, id)
	if !errors.Is(err, errBroken) || task.State != store.Incomplete ||
		!strings.Contains(task.Reason, "the start marker could not be played: GPU is lost") {
		t.Errorf("got %v, state %v: %s", err, task.State, task.Reason)
	}
	b.mustBeFree(t)
}

var errBroken = errors.New("GPU is lost")

type broken struct{ gpu.Device }

func (broken) PlayMarker(context.Context, marker.Spec, marker.Kind) (gpu.Played, error) {
	return gpu.Played{}, errBroken
}

func TestMeasureRefusesAnEmptyConfig(t *testing.T) {
	if id, err := measurement.Measure(t.Context(), measurement.Config{Name: "x"}, nil); id != 0 || err == nil {
		t.Errorf("task %d: %v", id, err)
	}
}

// The exit code of a program that failed is kept, also where the window is set by hand
// later: the task does not become complete by that.
func TestFailedProgramStaysFailed(t *testing.T) { inVirtualTime(t, failedProgramStaysFailed) }

func failedProgramStaysFailed(t *testing.T, b *bench) {
	id, err := measurement.Measure(t.Context(), b.config(), func(ctx context.Context) ([]gpu.Kernel, error) {
		k, err := b.device.RunBenchmark(ctx, gpu.BenchHalf, 50*time.Millisecond)
		return k, errors.Join(err, &measurement.ProgramError{Program: "./gemm", How: "exit status 7", Code: 7})
	})
	task := b.task(t, id)
	if err == nil || task.State != store.Failed || task.Failure.ExitCode == nil || *task.Failure.ExitCode != 7 ||
		task.Failure.Reason != "./gemm ended with exit status 7" {
		t.Fatalf("%v: state %v, %+v: %s", err, task.State, task.Failure, task.Reason)
	}
	if task.Result == nil || !(task.Result.Total.Energy > 0) {
		t.Fatalf("what was measured of it is gone: %+v", task.Result)
	}
	if err := measurement.Retrim(t.Context(), b.db, id,
		measurement.Window{From: task.Result.From, To: task.Result.To}); err != nil {
		t.Fatal(err)
	}
	if task = b.task(t, id); task.State != store.Failed {
		t.Errorf("state %v: %s", task.State, task.Reason)
	}
}

// A program that was told to end by who cancelled has not failed.
func TestCancelledWorkHasNotFailed(t *testing.T) { inVirtualTime(t, cancelledWorkHasNotFailed) }

func cancelledWorkHasNotFailed(t *testing.T, b *bench) {
	ctx, cancel := context.WithCancel(t.Context())
	id, _ := measurement.Measure(ctx, b.config(), func(context.Context) ([]gpu.Kernel, error) {
		cancel()
		return nil, &measurement.ProgramError{Program: "./gemm", How: "signal: terminated", Code: 143}
	})
	task := b.task(t, id)
	if task.State != store.Incomplete || task.Failure != nil || !strings.Contains(task.Reason, "cancelled during work") ||
		!strings.Contains(task.Reason, "; no window: ") {
		t.Errorf("state %v, %+v: %s", task.State, task.Failure, task.Reason)
	}
	// A window set by hand is no reason to set one; it is said once.
	before, rest, _ := strings.Cut(task.Reason, "; no window: ")
	_, after, _ := strings.Cut(rest, "wattmark trim")
	for range 2 {
		if err := measurement.Retrim(t.Context(), b.db, id, measurement.Window{From: 0.03, To: 0.04}); err != nil {
			t.Fatal(err)
		}
		task = b.task(t, id)
		if want := "window set by hand; " + before + after; task.State != store.Incomplete || task.Reason != want {
			t.Errorf("state %v: %q, want %q", task.State, task.Reason, want)
		}
	}
}

// peopled is a sensor that tells which processes use the GPU.
type peopled struct {
	gpu.PowerSensor
	list []gpu.ProcessUse
	err  error
}

func (p peopled) Processes(gpu.Span) ([]gpu.ProcessUse, error) { return p.list, p.err }

// What other processes do on the GPU while it is measured is told and judged; idle
// contexts are noted, one's own processes are not, and where the numbers are not those of
// this machine nothing is said.
func TestOtherProcessesAreNoticed(t *testing.T) {
	b := newBench(t)
	start := func(env ...string) int {
		c := exec.Command("sleep", "60")
		c.Env = append(os.Environ(), env...)
		if err := c.Start(); err != nil {
			t.Skip(err)
		}
		t.Cleanup(func() { _, _ = c.Process.Kill(), c.Wait() })
		return c.Process.Pid
	}
	root := start() // whose process tree this process is not of
	marked := start(fmt.Sprintf("%s=%d", measurement.EnvWork, root))
	stranger, idle := os.Getpid(), start()
	use := func(pid int, busy float64) gpu.ProcessUse {
		return gpu.ProcessUse{PID: pid, Name: "x", Busy: busy}
	}
	const none = 4_194_999
	for _, tc := range []struct {
		name  string
		list  []gpu.ProcessUse
		err   error
		kinds []measure.EventKind
		told  string
	}{
		{"alone", []gpu.ProcessUse{use(root, 0.9)}, nil, nil, ""},
		{"one's own", []gpu.ProcessUse{use(root, 0.1), use(marked, 0.9)}, nil, nil, ""},
		{
			"a stranger",
			[]gpu.ProcessUse{use(root, 0.9), use(stranger, 0.4)},
			nil,
			[]measure.EventKind{measure.EventOthers},
			fmt.Sprintf("process %d x for 40 %% of the time", stranger),
		},
		{
			"a stranger and a desktop",
			[]gpu.ProcessUse{use(root, 0.9), use(stranger, 0.4), use(idle, 0.01)},
			nil,
			[]measure.EventKind{measure.EventOthers, measure.EventNote},
			fmt.Sprintf("process %d x", idle),
		},
		{
			"a desktop",
			[]gpu.ProcessUse{use(root, 0.9), use(idle, 0)},
			nil,
			[]measure.EventKind{measure.EventNote},
			"little or no work",
		},
		{
			"not told how much",
			[]gpu.ProcessUse{use(root, math.NaN()), use(idle, math.NaN())},
			nil,
			[]measure.EventKind{measure.EventNote},
			"is not told",
		},
		{"gone before it could be asked", []gpu.ProcessUse{use(root, 0.5), use(none, 0.5)}, nil, nil, ""},
		{
			"the service that shares the GPU",
			[]gpu.ProcessUse{use(root, 0.5), {PID: idle, Name: "nvidia-cuda-mps", Busy: 0.9}},
			nil, nil, "",
		},
		{"numbers of another namespace", []gpu.ProcessUse{use(stranger, 0.9), use(none, 0.9)}, nil, nil, ""},
		{"a driver that does not tell", nil, errors.New("not supported"), nil, ""},
	} {
		cfg := b.config()
		cfg.Process, cfg.NoMethods = root, true
		cfg.Sensor = peopled{cfg.Sensor, tc.list, tc.err}
		id, err := measurement.Measure(t.Context(), cfg, b.memory(50*time.Millisecond))
		if err != nil {
			t.Fatal(tc.name, err)
		}
		task := b.task(t, id)
		var kinds []measure.EventKind
		var text []string
		for _, e := range task.Events {
			kinds, text = append(kinds, e.Kind), append(text, e.Detail)
		}
		slices.Sort(kinds)
		slices.Sort(tc.kinds)
		if !slices.Equal(kinds, tc.kinds) || !strings.Contains(strings.Join(text, "; "), tc.told) {
			t.Errorf("%s: %v: %s", tc.name, kinds, text)
		}
		v, _ := task.Verdict()
		judged := slices.ContainsFunc(v.Reasons,
			func(r quality.Reason) bool { return r.Cause == quality.OthersOnGPU && r.Level == quality.Doubtful })
		if judged != slices.Contains(tc.kinds, measure.EventOthers) {
			t.Errorf("%s: %+v", tc.name, v)
		}
	}
}

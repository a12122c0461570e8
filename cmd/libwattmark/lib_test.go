package main_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"wattmark/hostagent/measurement"
	"wattmark/store"
)

// said is a line of the C program about one measurement.
type said struct {
	What      string
	Code      int
	Task      int64
	State     int
	Energy, U float64
	Seconds   float64
	Samples   uint64
}

func parse(t *testing.T, o output) (all []said) {
	t.Helper()
	for line := range strings.Lines(o.out) {
		var s said
		if err := json.Unmarshal([]byte(line), &s); err != nil {
			t.Fatalf("%v in %q\n%s", err, o.out, o.err)
		}
		all = append(all, s)
	}
	return all
}

// holds compares a result with what the board really drew over the task's parts.
func (r *rig) holds(db *store.DB, s said) []store.Kernel {
	r.t.Helper()
	x := r.task(db, store.TaskID(s.Task))
	if x.State != store.Complete || s.State != int(store.Complete) || s.Code != 0 || len(x.Markers) != 2 {
		r.t.Fatalf("state %v, %d markers: %s", x.State, len(x.Markers), x.Reason)
	}
	k, err := db.Kernels(r.t.Context(), x.ID)
	if err != nil {
		r.t.Fatal(err)
	}
	e, err := r.live.Energy(k[0].Start, k[len(k)-1].End)
	if err != nil {
		r.t.Fatal(err)
	}
	off := s.Energy - float64(e.Total)
	r.t.Logf("%s: %.3f J ± %.3f J over %.4f s, truth %.3f J, off by %+.3f %%", s.What, s.Energy, s.U, s.Seconds, float64(e.Total), 100*off/float64(e.Total))
	if math.Abs(off) > s.U || math.Abs(off) > 0.005*float64(e.Total) || s.Energy != float64(x.Result.Total.Energy) {
		r.t.Errorf("%v J ± %v J, truth %v", s.Energy, s.U, e.Total)
	}
	return k
}

func TestKernelsInTheDefaultStream(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	got := parse(t, r.drive("plain"))
	if len(got) != 1 {
		t.Fatalf("got %+v", got)
	}
	db := r.open()
	r.holds(db, got[0])
	// Ten kernels of 20 ms, seen by their loads on the board.
	if s := got[0].Seconds; s < 0.2 || s > 0.3 {
		t.Errorf("a window of %v s", s)
	}
	x := r.task(db, 1)
	if x.GPU != "Stand-in GPU" || x.User != "lab" || x.Name != "plain" || x.NVML == nil || math.Abs(float64(*x.NVML)/got[0].Seconds-123.456) > 1 {
		t.Errorf("got %q, user %q, name %q, NVML %v", x.GPU, x.User, x.Name, x.NVML)
	}
	r.mustBeFree()
}

func TestMarksInSeveralStreams(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	o := r.drive("two")
	t.Log(strings.TrimSpace(o.err))
	k := r.holds(r.open(), parse(t, o)[0])
	// The first stream works for 20 ms, and is marked behind that; the second is
	// marked once more before the last three of its five kernels.
	last := k[len(k)-1]
	if d := last.End.Sub(last.Start) - 60*time.Millisecond; last.Name != "rest" || d.Abs() > time.Millisecond {
		t.Errorf("the last part is %s, of %v", last.Name, last.End.Sub(last.Start))
	}
	first := k[slices.IndexFunc(k, func(p store.Kernel) bool { return p.Name == "even" })]
	if d := first.Start.Sub(k[0].Start); d < 20*time.Millisecond || k[0].Name != "two" {
		t.Errorf("the first mark behind a kernel of 20 ms is reached after %v", d)
	}
}

func TestSeveralThreads(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	got := parse(t, r.drive("threads"))
	if len(got) != 3 {
		t.Fatalf("got %+v", got)
	}
	db := r.open()
	for _, s := range got {
		r.holds(db, s)
		if name := r.task(db, store.TaskID(s.Task)).Name; name != s.What {
			t.Errorf("task %d is %s, want %s", s.Task, name, s.What)
		}
	}
}

func TestMisuse(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	if o := r.drive("misuse"); o.code != 0 {
		t.Fatalf("exit code %d\n%s", o.code, o.err)
	}
	x := r.task(r.open(), 1)
	if x.State != store.Incomplete || !strings.Contains(x.Reason, "cancelled during work") || x.Scans == 0 {
		t.Errorf("what was given up is %v with %d scans: %s", x.State, x.Scans, x.Reason)
	}
	r.mustBeFree()
}

func TestThePapersInterface(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	o := r.drive("paper")
	if o.code != 0 {
		t.Fatalf("exit code %d\n%s", o.code, o.err)
	}
	if !strings.Contains(o.err, "P_marker: call out of order: call P_startMonitor first") {
		t.Errorf("P_getError printed %q", o.err)
	}
	lines := strings.Split(o.out, "\n")
	tables, rows := 0, 0
	for _, l := range lines {
		switch n := strings.Count(l, "\t"); {
		case strings.HasPrefix(l, "taskID\ttaskName\tuser\tpower\t"):
			tables++
		case n == 11 && strings.HasPrefix(l, "3\tp\tlab\t"):
			rows++
		}
	}
	var n, id, seq int
	var mean float64
	if _, err := fmt.Sscanf(lines[2], "records %d of p by lab task %d mean", &n, &id); err != nil {
		n = -1
	}
	for _, l := range lines {
		if strings.HasPrefix(l, "records") {
			if _, err := fmt.Sscanf(l, "records %d of p by lab task %d mean %f seq %d", &n, &id, &mean, &seq); err != nil || mean < 50 || mean > 600 {
				t.Errorf("got %q: %v", l, err)
			}
		}
	}
	if id != 3 || rows < 2*n || tables < 3 {
		t.Errorf("%d tables with %d rows of task 3, which has %d records (last task %d)", tables, rows, n, id)
	}
	r.mustBeFree()
}

// A program that dies between its markers frees the bench with its lease; what
// was sampled is kept, and recovered.
func TestDeathBetweenTheMarkers(t *testing.T) {
	for _, sig := range []os.Signal{syscall.SIGKILL, syscall.SIGINT, syscall.SIGSEGV} {
		t.Run(sig.String(), func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			c := r.command(filepath.Join(r.dir, "drive"), "hang")
			out, err := c.StdoutPipe()
			if err == nil {
				err = c.Start()
			}
			if err != nil {
				t.Fatal(err)
			}
			if line, err := bufio.NewReader(out).ReadString('\n'); line != "measuring\n" {
				t.Fatalf("%q, %v", line, err)
			}
			if err := c.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			if err := c.Wait(); err == nil {
				t.Error("it ended by itself")
			}
			m := r.monitorClient()
			eventually(t, "the lease has ended", func() bool {
				b, err := m.GetBench(t.Context())
				return err == nil && b.Holder == ""
			})
			db := r.open()
			if x := r.task(db, 1); x.State != store.Running {
				t.Errorf("the task is %v: %s", x.State, x.Reason)
			}
			done, err := measurement.Recover(t.Context(), db, func(context.Context, string) (measurement.Monitor, func() error, error) {
				return m, func() error { return nil }, nil
			})
			x := r.task(db, 1)
			if err != nil || len(done) != 1 || x.State != store.Incomplete || x.Scans == 0 || !strings.Contains(x.Reason, "interrupted before the work had ended") {
				t.Errorf("recovered %v, %v: %v with %d scans: %s", done, err, x.State, x.Scans, x.Reason)
			}
		})
	}
}

// A program that ends without wm_end frees the bench at once.
func TestExitWithoutEnd(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	if o := r.drive("leave"); o.code != 0 {
		t.Fatalf("exit code %d\n%s", o.code, o.err)
	}
	r.mustBeFree()
	if x := r.task(r.open(), 1); x.State != store.Incomplete {
		t.Errorf("the task is %v: %s", x.State, x.Reason)
	}
}

func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); <-tick.C {
		if f() {
			return
		}
	}
	t.Fatalf("it did not happen that %s", what)
}

// Whichever call of the driver fails, the program hears of it, and the bench is free.
func TestEveryCallOfTheDriverFails(t *testing.T) {
	for _, c := range []struct {
		fail, call string
		task       bool // there is one by then
	}{
		{"cuCtxGetCurrent=700", "cuCtxGetCurrent", false},
		{"cuInit=700@2", "cuInit", false}, // the first is the program's own
		{"cuCtxSetCurrent=700", "cuCtxSetCurrent", false},
		{"cuCtxGetDevice=700", "cuCtxGetDevice", false},
		{"cuDeviceGetName=700", "cuDeviceGetName", false},
		{"cuDeviceGetUuid_v2=700", "cuDeviceGetUuid", false},
		{"cuDeviceGetPCIBusId=700", "cuDeviceGetPCIBusId", false},
		{"cuDriverGetVersion=700", "cuDriverGetVersion", false},
		{"cuDeviceGetAttribute=700", "cuDeviceGetAttribute", false},
		{"cuModuleLoadDataEx=700@2", "cuModuleLoadDataEx", false},
		{"cuModuleGetFunction=700@2", "cuModuleGetFunction", false},
		{"cuOccupancyMaxActiveBlocksPerMultiprocessor=700", "cuOccupancyMaxActiveBlocksPerMultiprocessor", false},
		{"cuStreamCreate=700", "cuStreamCreate", false},
		{"cuMemHostAlloc=2", "cuMemHostAlloc", false},
		{"cuMemGetInfo_v2=700", "cuMemGetInfo", false},
		{"cuMemAlloc_v2=2", "cuMemAlloc", false},
		{"cuMemAlloc_v2=2@4", "cuMemAlloc", false},
		{"cuLaunchKernel=700", "cuLaunchKernel", false},
		{"cuStreamSynchronize=700", "cuStreamSynchronize", false},
		{"cuMemcpyDtoHAsync_v2=700", "cuMemcpyDtoH", false},
		{"cuCtxSynchronize=700", "cuCtxSynchronize", false},
		{"cuMemsetD8Async=700", "cuMemsetD8", true},
		{"cuMemcpyHtoDAsync_v2=700", "cuMemcpyHtoD", true},
		{"cuStreamQuery=700", "cuStreamQuery", true},
		{"cuMemAlloc_v2=2@7", "cuMemAlloc", true},
		{"cuCtxSynchronize=700@2", "cuCtxSynchronize", true}, // the kernels failed
	} {
		t.Run(c.fail, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.more = []string{"FAKE_FAIL=" + c.fail}
			o := finish(t, r.command(filepath.Join(r.dir, "drive"), "plain"))
			if o.code != 7 || !strings.Contains(o.err, c.call) {
				t.Errorf("exit code %d, want WM_E_GPU with %s\n%s", o.code, c.call, o.err)
			}
			r.mustBeFree()
			db := r.open()
			tasks, err := db.Tasks(t.Context(), store.Query{})
			if err != nil || (len(tasks) == 1) != c.task {
				t.Fatalf("%d tasks, %v", len(tasks), err)
			}
			if c.task && (tasks[0].State != store.Incomplete || !strings.Contains(tasks[0].Reason, c.call)) && c.fail != "cuCtxSynchronize=700@2" {
				t.Errorf("the task is %v: %s", tasks[0].State, tasks[0].Reason)
			}
		})
	}
}

func TestWithoutADriver(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	dir := t.TempDir()
	if err := os.Symlink(filepath.Join(r.dir, "libwattmark.so"), filepath.Join(dir, "libwattmark.so")); err != nil {
		t.Fatal(err)
	}
	c := append(compile(dir, "vectoradd"), "examples/plain.c", "-L"+dir, "-lwattmark")
	if out, err := exec.CommandContext(t.Context(), c[0], c[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	r.more = []string{"LD_LIBRARY_PATH=" + dir}
	o := finish(t, r.command(filepath.Join(dir, "vectoradd")))
	if o.code == 0 || !strings.Contains(o.err, "no CUDA driver") {
		t.Errorf("exit code %d: %s", o.code, o.err)
	}
}

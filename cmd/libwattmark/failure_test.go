package main_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/wattmark/wattmark/hostagent/measurement"
	"github.com/wattmark/wattmark/internal/coverage"
	"github.com/wattmark/wattmark/store"
)

// started is the driver amid a measurement. What it says of errors is whole once
// it has ended.
func (r *rig) started(name string) (c *exec.Cmd, in io.WriteCloser, out *bufio.Reader, errs *bytes.Buffer) {
	r.t.Helper()
	c, errs = r.command(filepath.Join(r.dir, "drive"), name), new(bytes.Buffer)
	c.Stderr = errs
	in, inErr := c.StdinPipe()
	pipe, outErr := c.StdoutPipe()
	if err := errors.Join(inErr, outErr); err != nil {
		r.t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		r.t.Fatal(err)
	}
	out = bufio.NewReader(pipe)
	if line, err := out.ReadString('\n'); line != "measuring\n" {
		r.t.Fatalf("%q, %v", line, err)
	}
	return c, in, out, errs
}

func (r *rig) eventuallyFree() {
	r.t.Helper()
	m := r.monitorClient()
	eventually(r.t, "the bench is free", func() bool {
		b, err := m.GetBench(r.t.Context())
		return err == nil && b.Holder == ""
	})
}

// deaths are how a program ends between its markers.
var deaths = []syscall.Signal{syscall.SIGKILL, syscall.SIGINT, syscall.SIGSEGV}

// A program that dies between its markers frees the bench with its lease; what
// was sampled is kept, and recovered.
func TestDeathBetweenTheMarkers(t *testing.T) {
	coverage.Long(t)
	for _, sig := range deaths {
		t.Run(sig.String(), func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			c, _, _, _ := r.started("hang")
			if err := c.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			if err := c.Wait(); err == nil {
				t.Error("it ended by itself")
			}
			r.eventuallyFree()
			db := r.open()
			if x := r.task(db, 1); x.State != store.Running {
				t.Errorf("the task is %v: %s", x.State, x.Reason)
			}
			m := r.monitorClient()
			done, err := measurement.Recover(t.Context(), db, func(context.Context, string) (measurement.Monitor, func() error, error) {
				return m, func() error { return nil }, nil
			})
			x := r.task(db, 1)
			if err != nil || len(done) != 1 || x.State != store.Incomplete || x.Scans == 0 || !strings.Contains(x.Reason, "the process that measured was gone before it had stored when the work ran") {
				t.Errorf("recovered %v, %v: %v with %d scans: %s", done, err, x.State, x.Scans, x.Reason)
			}
		})
	}
}

// A program that ends without wm_end frees the bench at once.
func TestExitWithoutEnd(t *testing.T) { coverage.Long(t); inBothModes(t, exitWithoutEnd) }

func exitWithoutEnd(t *testing.T, r *rig) {
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
	coverage.Long(t)
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
	for _, name := range []string{"libwattmark.so", "libwattmark.so.0"} {
		if err := os.Symlink(filepath.Join(r.dir, name), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	r.more = []string{"LD_LIBRARY_PATH=" + dir}
	for _, example := range []string{"plain", "cost"} {
		c := append(compile(dir, example), "examples/"+example+".c", "-L"+dir, "-lwattmark")
		if out, err := exec.CommandContext(t.Context(), c[0], c[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		o := finish(t, r.command(filepath.Join(dir, example)))
		if o.code != 7 || !strings.Contains(o.err, "no CUDA driver") {
			t.Errorf("%s: exit code %d: %s", example, o.code, o.err)
		}
	}
}

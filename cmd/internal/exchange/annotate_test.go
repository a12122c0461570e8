package exchange

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/hostagent/measurement"
	"github.com/wattmark/wattmark/internal/coverage"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/chunk"
	"github.com/wattmark/wattmark/measure/clock"
	"github.com/wattmark/wattmark/store"
	"golang.org/x/sys/unix"
)

// work is a program's: begins and ends of its kernels in seconds of the meter, at 250 W over 50 W.
var work = [][2]float64{{1.02, 1.31}, {1.5, 1.58}, {1.93, 2.64}, {2.9, 3.13}, {3.6, 3.66}, {3.81, 4.4}, {4.52, 4.95}}

// origin is the host's time at the meter's zero.
var origin = time.Now().Add(-10 * time.Second).Truncate(time.Second)

// worked makes a database with a task of the work, whose clock is known to u and stated late.
func worked(t *testing.T, u, late measure.Seconds) string {
	t.Helper()
	ctx, path := t.Context(), filepath.Join(t.TempDir(), "power.db")
	setup := measure.Setup{
		Timebase: measure.Timebase{TickHz: 1e6, TicksPerScan: 200},
		Channels: []measure.Channel{{Name: "aux.p", Unit: measure.UnitWatt, Gain: 0.01, UGain: 0.005}},
		Rails:    []measure.Rail{{Name: "aux_12v", Role: measure.RolePSU, Wiring: measure.WiringPower, Y: -1}},
	}
	b := measure.Block{Counts: make([][]measure.Count, 1)}
	for i := range 30_000 {
		at, p := float64(i)/5000, measure.Count(5000+i*7%13)
		for _, w := range work {
			if at >= w[0] && at < w[1] {
				p += 20_000
			}
		}
		b.Counts[0] = append(b.Counts[0], p)
	}
	g, err := measure.NewIntegrator(&setup, 0.5, 5.5)
	if err != nil {
		t.Fatal(err)
	}
	e, err := chunk.NewEncoder(setup.Timebase, 1, len(b.Counts[0]))
	if err != nil {
		t.Fatal(err)
	}
	_, err = e.Append(&b)
	result, fault := measure.Result{}, g.Add(&b)
	if err = errors.Join(err, fault); err == nil {
		result, err = g.Result(measure.Edges{})
	}
	if err != nil {
		t.Fatal(err)
	}
	db, err := store.Open(ctx, path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	id, err := db.BeginTask(ctx, store.NewTask{Name: "gemm", User: "ada", Launched: origin, GPU: "MI300X", GPUUUID: "u"})
	if err != nil {
		t.Fatal(err)
	}
	c := clock.Fit{Origin: measure.Seconds(origin.Unix()), A: late, B: 1, VarA: float64(u * u), Used: 2}
	err = errors.Join(
		db.PutHeader(ctx, id, store.Header{Bench: "lab", Setup: setup, CalibrationID: "c", Started: origin}),
		db.AppendChunks(ctx, id, []*chunk.Chunk{e.Flush(0)}, nil),
		db.Finish(ctx, id, store.Outcome{State: store.Complete, Result: &result, Clock: &c}))
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// rocprofTables writes the work as rocprofv3 does, kernels of which begin so many ns behind the clock's zero, and
// returns the table of kernels.
func rocprofTables(t *testing.T, zero int64, work [][2]float64) string {
	t.Helper()
	var tables [3]strings.Builder
	fmt.Fprintln(&tables[0], `"Kind","Agent_Id","Queue_Id","Kernel_Name","Correlation_Id","Start_Timestamp","End_Timestamp",`+
		`"Workgroup_Size_X","Workgroup_Size_Y","Workgroup_Size_Z","Grid_Size_X","Grid_Size_Y","Grid_Size_Z"`)
	head := `"Domain","Function","Process_Id","Thread_Id","Correlation_Id","Start_Timestamp","End_Timestamp"`
	fmt.Fprintln(&tables[1], head)
	fmt.Fprintln(&tables[2], head)
	for i, w := range work {
		from, to := zero+int64(w[0]*1e9), zero+int64(w[1]*1e9)
		fmt.Fprintf(&tables[0], `"KERNEL_DISPATCH","Agent 7",1,"gemm(float*, int)",%d,%d,%d,256,1,1,4096,2,1`+"\n", i+1, from, to)
		fmt.Fprintf(&tables[1], `"HIP_RUNTIME_API","hipLaunchKernel",70,71,%d,%d,%d`+"\n", i+1, from-9000, from-4000)
		fmt.Fprintf(&tables[2], `"MARKER_CORE_RANGE_API","step %d",70,71,%d,%d,%d`+"\n", i%2, 100+i, from-20_000, from-1000)
	}
	dir := t.TempDir()
	for i, name := range []string{kernelTable, "hip_api_trace.csv", "marker_api_trace.csv"} {
		if err := os.WriteFile(filepath.Join(dir, "out_"+name), []byte(tables[i].String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, "out_"+kernelTable)
}

// A trace on a clock of its own is related to a task by the steps of the power.
func TestAnnotateByPower(t *testing.T) {
	coverage.Long(t)
	var up unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &up); err != nil {
		t.Fatal(err)
	}
	here := origin.UnixNano() - (time.Now().UnixNano() - up.Nano())
	if here < 0 {
		t.Skip("this machine started less than ten seconds ago")
	}
	later := [][2]float64{{1, 1.4}, {2, 2.1}, {2.3, 3.3}, {3.4, 3.45}}
	for name, c := range map[string]struct {
		u, late measure.Seconds // the task's clock
		zero    int64
		work    [][2]float64
		fails   string
	}{
		"the clock of a machine that was started anew": {u: 20e-6, zero: 1_614_963_487_781_917, work: work},
		"a task without markers":                       {u: 0.05, late: 0.03, zero: 8e15, work: work},
		"this machine, since its start":                {u: 20e-6, zero: here, work: work},
		"one that started 2 s later":                   {u: 20e-6, zero: here - 2e9, work: work},
		"one that started 0.3 s later":                 {u: 20e-6, zero: here - 3e8, work: work, fails: "its work fits the power"},
		"another program":                              {u: 20e-6, zero: 8e15, work: later, fails: "does not name its clock"},
	} {
		path, table := worked(t, c.u, c.late), rocprofTables(t, c.zero, c.work)
		var out bytes.Buffer
		a := &cli.App{Streams: cli.Streams{Out: &out, Err: &out}, DB: path, JSON: true}
		joules := filepath.Join(t.TempDir(), "x.json")
		err := annotate(t.Context(), a, "1", table, joules)
		if c.fails != "" {
			if _, fault := os.Stat(joules); !errors.Is(err, measurement.ErrAnother) || !strings.Contains(err.Error(), c.fails) || fault == nil {
				t.Errorf("%s: %v\n%s", name, err, &out)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var got AnnotateReport
		if err := json.Unmarshal(out.Bytes(), &got); err != nil {
			t.Fatal(err)
		}
		// The task's clock is late: so are the kernels on it, which thus lie where the meter has them.
		want := float64(origin.UnixNano()-c.zero)*1e-9 - float64(c.late)
		if got.ByPower == nil || math.Abs(float64(got.Shift)-want) > 0.3e-3 || got.ByPower.Edges < 12 ||
			(got.ByPower.Shift == 0) != (c.zero == here) || got.ByPower.Alone != (c.zero != here) {
			t.Errorf("%s: shift %v, want %v: %+v", name, got.Shift, want, got.ByPower)
		}
		if got.Added != len(work) || got.Outside != 0 || len(got.Ranges) != 2 || got.Ranges[0].Launches != 4 {
			t.Errorf("%s: %+v", name, got.Annotated)
		}
		sum := 0.0
		for _, w := range work {
			sum += 250 * (w[1] - w[0])
		}
		if e := got.Ranges[0].Energy + got.Ranges[1].Energy; math.Abs(float64(e)-sum) > 0.01*sum {
			t.Errorf("%s: %v, want %v J", name, e, sum)
		}
		// Once more, by the kernels that the task has now.
		out.Reset()
		if err := annotate(t.Context(), a, "1", table, joules+"2"); err != nil || !strings.Contains(out.String(), `"matched": 7`) {
			t.Errorf("%s, again: %v\n%s", name, err, &out)
		}
	}
}

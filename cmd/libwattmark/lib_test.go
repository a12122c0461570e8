package main_test

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/wattmark/wattmark/internal/coverage"
	"github.com/wattmark/wattmark/store"
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
	coverage.Long(t)
	inBothModes(t, kernelsInTheDefaultStream)
}

func kernelsInTheDefaultStream(t *testing.T, r *rig) {
	got := parse(t, r.drive("plain"))
	if len(got) != 1 {
		t.Fatalf("got %+v", got)
	}
	db := r.open()
	k := r.holds(db, got[0])
	// Ten kernels of 20 ms, seen by their loads on the board; a busy machine launches them late.
	spanned := k[len(k)-1].End.Sub(k[0].Start).Seconds()
	if s := got[0].Seconds; s < 0.2 || math.Abs(s-spanned) > 1e-3 {
		t.Errorf("a window of %v s of kernels in %v s", s, spanned)
	}
	x := r.task(db, 1)
	if x.GPU != "Stand-in GPU" || x.User != "lab" || x.Name != "plain" || x.NVML == nil || math.Abs(float64(*x.NVML)/got[0].Seconds-123.456) > 1 {
		t.Errorf("got %q, user %q, name %q, NVML %v", x.GPU, x.User, x.Name, x.NVML)
	}
	p := x.Provenance
	if host, _ := os.Hostname(); p == nil || p.Host != host || p.Version == "" || len(p.Command) != 2 || filepath.Base(p.Command[0]) != "drive" || p.Command[1] != "plain" {
		t.Errorf("run from %+v", p)
	}
	r.mustBeFree()
}

func TestMarksInSeveralStreams(t *testing.T) { coverage.Long(t); inBothModes(t, marksInSeveralStreams) }

func marksInSeveralStreams(t *testing.T, r *rig) {
	o := r.drive("two")
	t.Log(strings.TrimSpace(o.err))
	k := r.holds(r.open(), parse(t, o)[0])
	// The first stream works for 20 ms, and is marked behind that; the second is
	// marked once more before the last three of its five kernels, of 20 ms each.
	last := k[len(k)-1]
	if d := last.End.Sub(last.Start) - 60*time.Millisecond; last.Name != "rest" || d.Abs() > time.Millisecond {
		t.Errorf("the last part is %s, of %v", last.Name, last.End.Sub(last.Start))
	}
	first := k[slices.IndexFunc(k, func(p store.Kernel) bool { return p.Name == "even" })]
	if d := first.Start.Sub(k[0].Start); d < 20*time.Millisecond || k[0].Name != "two" {
		t.Errorf("the first mark behind a kernel of 20 ms is reached after %v", d)
	}
}

func TestSeveralThreads(t *testing.T) { coverage.Long(t); inBothModes(t, severalThreads) }

func severalThreads(t *testing.T, r *rig) {
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

func TestMisuse(t *testing.T) { coverage.Long(t); inBothModes(t, misuse) }

func misuse(t *testing.T, r *rig) {
	if o := r.drive("misuse"); o.code != 0 {
		t.Fatalf("exit code %d\n%s", o.code, o.err)
	}
	x := r.task(r.open(), 1)
	if x.State != store.Incomplete || !strings.Contains(x.Reason, "cancelled during work") || x.Scans == 0 {
		t.Errorf("what was given up is %v with %d scans: %s", x.State, x.Scans, x.Reason)
	}
	r.mustBeFree()
}

func TestThePapersInterface(t *testing.T) { inBothModes(t, thePapersInterface) }

func thePapersInterface(t *testing.T, r *rig) {
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

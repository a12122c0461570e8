package main

import (
	"cmp"
	"math"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/cudatest"
	"github.com/wattmark/wattmark/cmd/internal/report"
	"github.com/wattmark/wattmark/hostagent/gpu/sim"
	"github.com/wattmark/wattmark/internal/coverage"
	"github.com/wattmark/wattmark/measure/marker"
	"github.com/wattmark/wattmark/store"
)

// selecting is a program whose launches are bracketed by the library within it: on
// stand-ins for libcuda, which loads the rig's board, and for libcupti.
func selecting(t *testing.T) *injected {
	t.Helper()
	in := compiledFrom(t, "testdata/selected.c.txt", func(dir string) []string {
		cuda := filepath.Join(dir, "libcuda.so.1")
		fake := exec.CommandContext(t.Context(), "gcc", "-shared", "-fPIC", "-O1", "-o", cuda, "../libwattmark/testdata/fakecuda.c", "-lpthread")
		if out, err := fake.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return []string{"-L" + dir, "-l:libcuda.so.1", "-Wl,-rpath," + dir}
	})
	uuid := strings.TrimPrefix(sim.UUID(sim.SocketSeed(in.socket)), "GPU-")
	gpu := filepath.Join(t.TempDir(), "board")
	in.env = append(in.env, "LD_LIBRARY_PATH="+filepath.Dir(in.program), "FAKE_BOARD="+gpu, "FAKE_UUID="+strings.ReplaceAll(uuid, "-", ""))
	cudatest.Serve(t, gpu, in.live)
	return in
}

// bracketed measures the program with a selection. Where a busy machine loses a
// marker it is measured again.
func (in *injected) bracketed(flags ...string) (r report.Report, x store.Task) {
	in.t.Helper()
	for range 4 {
		args := append([]string{"--auto", "--library", in.library, "--name", "bracketed"}, flags...)
		p := in.rig.run(append(args, "--", in.program)...)
		code := p.wait(in.t)
		r = report.Report{}
		object(in.t, p.out.String(), &r)
		if code == 0 {
			x, _ = onlyTask(in.t, in.db, store.TaskID(r.TaskID))
			return r, x
		}
		if code != cli.ExitIncomplete || !strings.Contains(r.Reason, "marker") {
			in.t.Fatalf("exit code %d: %s\n%s", code, r.Reason, &p.err)
		}
		in.t.Log("measured again: ", r.Reason)
	}
	in.t.Fatal("no measurement is complete")
	return r, x
}

// Markers around every second launch of one kernel: played by the library in the
// program's own context, found in the trace, and part of the clock fit.
func TestMarkersAroundSelectedKernels(t *testing.T) {
	t.Parallel()
	in := selecting(t)
	r, x := in.bracketed("--kernel", "gemm", "--one-in", "2")
	count := map[marker.Kind]int{}
	for _, f := range x.Markers {
		if f.TagOK {
			count[f.Kind]++
		}
	}
	// Five launches of gemm, the first, third and fifth chosen, the fifth captured.
	if count[marker.Start] != 3 || count[marker.Stop] != 3 {
		t.Errorf("found %v, want three of each: one around all and two around gemm", count)
	}
	one, edges := x.Marker.Chips(marker.Start), 0
	for i := range one[1:] {
		if one[i+1] != one[i] {
			edges++
		}
	}
	if x.Clock.Used < 5*edges {
		t.Errorf("the clocks are related by %d edges, one marker has %d", x.Clock.Used, edges)
	}
	if r.Kernels == nil || r.Kernels.Recorded < 13 {
		t.Fatalf("%+v", r.Kernels)
	}
	if w := strings.Join(r.Kernels.Warnings, "\n"); !strings.Contains(w, "1 selected launches were not bracketed: those that were captured") {
		t.Errorf("warnings: %q", w)
	}
	in.asTheBoard(x, r)
}

// asTheBoard holds each kernel's energy against the board's over the same times.
func (in *injected) asTheBoard(x store.Task, r report.Report) {
	t := in.t
	t.Helper()
	db, err := store.OpenReadOnly(t.Context(), in.db)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	tables, err := db.LaunchTables(t.Context(), x.ID)
	if err != nil {
		t.Fatal(err)
	}
	truth := map[string]float64{}
	for l, err := range db.Launches(t.Context(), x.ID) {
		if err != nil {
			t.Fatal(err)
		}
		e, err := in.live.Energy(time.Unix(0, l.Start), time.Unix(0, l.End))
		if err != nil {
			t.Fatal(err)
		}
		truth[tables.Names[l.Name]] += float64(e.Total)
	}
	for _, l := range r.Kernels.Lines {
		if want, ok := truth[cmp.Or(l.Symbol, l.Name)]; ok && math.Abs(float64(l.Energy)-want) > float64(l.U) {
			t.Errorf("%s: %v ± %v J, the board drew %v J", l.Name, float64(l.Energy), float64(l.U), want)
		}
	}
}

func TestSelectionsThatComeToNothing(t *testing.T) {
	coverage.Long(t)
	t.Parallel()
	in := selecting(t)
	for name, c := range map[string]struct {
		flags   []string
		fail    string
		warning string
	}{
		"no such kernel": {[]string{"--kernel", "attention"}, "", `none matches "attention"`},
		"only the first": {[]string{"--kernel", "copy", "--at-most", "1"}, "", "7 selected launches were not bracketed: those behind the first 1"},
		"no memory":      {[]string{"--kernel", "gemm"}, "cuMemAlloc_v2=2", "no further kernels are bracketed"},
	} {
		t.Run(name, func(t *testing.T) {
			defer in.within(t, "FAKE_FAIL="+c.fail)()
			r, _ := in.bracketed(c.flags...)
			if w := strings.Join(r.Kernels.Warnings, "\n"); !strings.Contains(w, c.warning) {
				t.Errorf("warnings: %q", w)
			}
		})
	}
	for _, c := range []struct {
		want string
		args []string
	}{
		{"missing closing", []string{"--auto", "--kernel", "("}},
		{"want 1 or more", []string{"--auto", "--kernel", "x", "--one-in", "0"}},
		{"--one-in goes with --kernel", []string{"--auto", "--one-in", "3"}},
		{"--kernel goes with --auto", []string{"--kernel", "x"}},
	} {
		p := in.rig.run(append(append(c.args, "--library", in.library, "--"), in.program)...)
		if code := p.wait(t); code != cli.ExitUsage || !strings.Contains(p.err.String(), c.want) {
			t.Errorf("%v: exit code %d\n%s", c.args, code, &p.err)
		}
	}
}

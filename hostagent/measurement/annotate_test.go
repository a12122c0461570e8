package measurement_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/wattmark/wattmark/hostagent/gpu"
	"github.com/wattmark/wattmark/hostagent/measurement"
	"github.com/wattmark/wattmark/measure/attribute"
	"github.com/wattmark/wattmark/monitor/emulator/meter"
	"github.com/wattmark/wattmark/store"
)

// profiled is a trace of kernels, launched by a thread in a range each, with the loop around them.
func profiled(spans []gpu.Span, clock int64) *attribute.Trace {
	out := &attribute.Trace{HostClock: true, Calls: map[uint32]attribute.Call{}, Devices: map[uint32]bool{0: true}}
	for i, s := range spans {
		from, to := s.Start.UnixNano()+clock, s.End.UnixNano()+clock
		out.Kernels = append(out.Kernels, attribute.Profiled{
			Event: i, Start: from, End: to, Name: "kernel of the trace", Correlation: uint32(i), Grid: [3]uint32{uint32(i), 1, 1},
		})
		at := from - 1000
		out.Calls[uint32(i)] = attribute.Call{At: at}
		out.Ranges = append(out.Ranges, attribute.Range{Event: 100 + i, From: at - 10, To: at + 10, Name: "forward", External: int64(i + 1)})
	}
	first, last := out.Ranges[0], out.Ranges[len(spans)-1]
	out.Ranges = append(out.Ranges, attribute.Range{Event: 200, From: first.From - 1, To: last.To + 1, Name: "loop"})
	return out
}

// launchesOf are the same kernels, as they were recorded in the program.
func launchesOf(spans []gpu.Span) (rows []store.Launch, tables store.LaunchTables) {
	for i, s := range spans {
		rows = append(rows, store.Launch{
			Start: s.Start.UnixNano(), End: s.End.UnixNano(), Correlation: uint32(i), Grid: [3]uint32{uint32(i), 1, 1},
		})
	}
	n := uint64(len(spans))
	return rows, store.LaunchTables{
		Processes: []store.LaunchProcess{{PID: 1, Kernels: n, Reported: n, Whole: true}},
		Names:     []string{"_Z6kernelv"}, Devices: []store.LaunchDevice{{Measured: true}},
	}
}

func TestAnnotate(t *testing.T) {
	inVirtualTimeWith(t, meter.Config{Seed: 3, Rate: 20e3}, func(t *testing.T, b *bench) {
		var spans []gpu.Span
		measured := func(n int) store.TaskID {
			spans = nil
			id, err := measurement.Measure(t.Context(), b.config(), func(ctx context.Context) ([]gpu.Kernel, error) {
				begin := time.Now()
				for range n {
					k, err := b.memory(30 * time.Millisecond)(ctx)
					if err != nil {
						return nil, err
					}
					spans = append(spans, k[0].Span)
				}
				return []gpu.Kernel{{Name: "program", Span: gpu.Span{Start: begin, End: time.Now()}}}, nil
			})
			if err != nil {
				t.Fatal(err)
			}
			return id
		}
		bare := measured(3)
		annotateAlone(t, b, bare, spans)
		id := measured(5)
		rows, tables := launchesOf(spans)
		if err := errors.Join(b.db.PutLaunches(t.Context(), id, 0, rows), b.db.PutLaunchTables(t.Context(), id, tables)); err != nil {
			t.Fatal(err)
		}
		annotateRefuses(t, b, id, spans)
		// The profiler's clock is another, and it saw the kernels from the second on.
		trace := profiled(spans[1:], -5e9)
		trace.HostClock = false
		for i := range trace.Kernels {
			trace.Kernels[i].Correlation, trace.Kernels[i].Grid[0] = uint32(i+1), uint32(i+1)
			trace.Calls[uint32(i+1)] = attribute.Call{At: trace.Kernels[i].Start - 1000}
		}
		got, err := measurement.Annotate(t.Context(), b.db, id, trace, "trace.json")
		if err != nil {
			t.Fatal(err)
		}
		if got.Kernels != 4 || got.Matched != 4 || got.Added != 0 || got.Outside != 0 || math.Abs(float64(got.Shift)-5) > 1e-9 {
			t.Errorf("%+v", got)
		}
		b.holds(t, got, trace, spans[1:])
	})
}

// holds compares the energies of kernels and ranges with the board's.
func (b *bench) holds(t *testing.T, got *measurement.Annotated, trace *attribute.Trace, spans []gpu.Span) {
	t.Helper()
	var all float64
	for i, s := range spans {
		e, err := b.live.Energy(s.Start, s.End)
		if err != nil {
			t.Fatal(err)
		}
		all += float64(e.Total)
		m := got.Marks[trace.Kernels[i].Event]
		if off := math.Abs(float64(m.Energy - e.Total)); off > float64(m.U) || !(m.U > 0) || m.U > m.Energy/5 {
			t.Errorf("kernel %d: %v ± %v J, the board %v", i, m.Energy, m.U, e.Total)
		}
		if r := got.Marks[100+i]; r != m || got.Copies[int64(i+1)] != m {
			t.Errorf("the range around kernel %d has %+v, its copy %+v, want %+v", i, r, got.Copies[int64(i+1)], m)
		}
	}
	n := len(spans)
	if len(got.Ranges) != 2 || got.Ranges[0].Path != "loop" || got.Ranges[1].Path != "loop/forward" {
		t.Fatalf("%+v", got.Ranges)
	}
	for i, r := range got.Ranges {
		if r.Ranges != []int{1, n}[i] || r.Launches != uint64(n) || math.Abs(float64(r.Energy)-all) > float64(r.U) {
			t.Errorf("%+v, the board %v", r, all)
		}
	}
}

// annotateAlone takes the kernels out of the trace, as the task has none.
func annotateAlone(t *testing.T, b *bench, id store.TaskID, spans []gpu.Span) {
	t.Helper()
	ctx := t.Context()
	later := profiled(spans, 60e9)
	if _, err := measurement.Annotate(ctx, b.db, id, later, "x"); !errors.Is(err, measurement.ErrAnother) || !strings.Contains(err.Error(), "the meter from") {
		t.Errorf("a trace of a minute later: %v", err)
	}
	two := profiled(spans, 0)
	two.Devices[1] = true
	if _, err := measurement.Annotate(ctx, b.db, id, two, "x"); !errors.Is(err, measurement.ErrAnother) || !strings.Contains(err.Error(), "2 GPUs") {
		t.Errorf("two GPUs: %v", err)
	}
	if tables, err := b.db.LaunchTables(ctx, id); err != nil || len(tables.Processes) != 0 {
		t.Errorf("a refused trace left %+v, %v", tables, err)
	}
	trace := profiled(spans, 0)
	got, err := measurement.Annotate(ctx, b.db, id, trace, "trace.json")
	if err != nil {
		t.Fatal(err)
	}
	if got.Added != 3 || got.Matched != 0 {
		t.Errorf("%+v", got)
	}
	b.holds(t, got, trace, spans)
	again, err := measurement.Annotate(ctx, b.db, id, trace, "trace.json")
	if err != nil || again.Added != 0 || again.Matched != 3 || cmp.Diff(got.Ranges, again.Ranges) != "" {
		t.Errorf("again: %+v, %v", again, err)
	}
	tables, err := b.db.LaunchTables(ctx, id)
	if err != nil || len(tables.Processes) != 1 || !strings.Contains(tables.Processes[0].Trouble, "trace.json") {
		t.Errorf("%+v, %v", tables, err)
	}
}

// annotateRefuses hands over traces that are not of the run.
func annotateRefuses(t *testing.T, b *bench, id store.TaskID, spans []gpu.Span) {
	t.Helper()
	lengths := profiled(spans, 0)
	for i := range lengths.Kernels {
		lengths.Kernels[i].End += 10_000
	}
	clock := profiled(spans, 1000)
	clock.HostClock = false
	for i := range clock.Kernels {
		clock.Kernels[i].Correlation += 100
	}
	drift := profiled(spans, 0)
	for i := range drift.Kernels {
		drift.Kernels[i].Start += int64(i) * 200_000
		drift.Kernels[i].End += int64(i) * 200_000
	}
	for name, c := range map[string]struct {
		trace *attribute.Trace
		want  string
	}{
		"other lengths":          {lengths, "0 are among its launches"},
		"a clock that runs away": {drift, "it is of another run"},
		"no clock, no match":     {clock, "baseTimeNanoseconds"},
		"the host's clock set":   {profiled(spans, 5e6), "5ms away"},
	} {
		if _, err := measurement.Annotate(t.Context(), b.db, id, c.trace, "x"); !errors.Is(err, measurement.ErrAnother) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

package measurement

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"

	"github.com/wattmark/wattmark/hostagent/gpu/launchlog"
	"github.com/wattmark/wattmark/measure/attribute"
	"github.com/wattmark/wattmark/store"
)

// StoreRanges calculates the energies of the ranges that the processes of a task named, as their logs have them, and
// stores them; nothing where they named none. The task's kernels must have been stored. Errors wrap ErrNoShares.
func StoreRanges(ctx context.Context, db *store.DB, id store.TaskID, logs []string) error {
	var all store.Ranges
	for _, path := range logs {
		trace, note, err := traceOf(path)
		if err != nil {
			return fmt.Errorf("ranges of %s: %w", path, err)
		}
		if trace == nil {
			continue
		}
		x, err := Annotate(ctx, db, id, trace, path)
		if err != nil {
			return fmt.Errorf("ranges of %s: %w", path, err)
		}
		all.Add(x.Ranges, x.Spans)
		if note != "" {
			all.Notes = append(all.Notes, note)
		}
	}
	return db.PutRanges(ctx, id, all)
}

// traceOf reads a log with ranges as a trace; nil for one without. note reports ranges without an end.
func traceOf(path string) (trace *attribute.Trace, note string, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, "", err
	}
	defer f.Close()
	l, err := launchlog.Open(f)
	if errors.Is(err, launchlog.ErrNotLog) {
		return nil, "", nil
	}
	trace = &attribute.Trace{HostClock: true, Calls: map[uint32]attribute.Call{}}
	var k launchlog.Kernel
	for err == nil {
		if err = l.Next(&k); err == nil {
			trace.Kernels = append(trace.Kernels, attribute.Profiled{
				Event: len(trace.Kernels), Start: k.Start, End: k.End, Device: k.Device, Stream: k.Stream,
				Correlation: k.Correlation, Grid: k.Grid, Block: k.Block,
			})
		}
	}
	// Of a damaged log there is what came before the damage; StoreLaunches reports it.
	if !errors.Is(err, io.EOF) && !errors.Is(err, launchlog.ErrCorrupt) {
		return nil, "", err
	}
	p := &l.Process
	if len(p.Ranges) == 0 || len(trace.Kernels) == 0 {
		return nil, "", nil
	}
	for c, x := range p.Calls {
		trace.Calls[c] = attribute.Call{Thread: int(x.Thread), At: x.At}
	}
	if n := spansOf(p, trace); n > 0 {
		note = fmt.Sprintf("process %d: %d ranges never ended: they count to the program's end", p.PID, n)
	}
	return trace, note, nil
}

// spansOf adds the ranges of a process to its trace, and returns how many never ended. An end without a begin is of
// a range from before CUDA was initialised.
func spansOf(p *launchlog.Process, trace *attribute.Trace) (open int) {
	type key struct{ thread, domain uint32 }
	stacks, begun := map[key][]int{}, map[uint64]int{}
	begin := func(r *launchlog.Range) int {
		open++
		trace.Ranges = append(trace.Ranges, attribute.Range{
			Event: -1 - len(trace.Ranges), From: r.At, To: math.MaxInt64, Thread: int(r.Thread), Name: p.Names[r.Name],
			Process: r.Kind == launchlog.Start,
		})
		return len(trace.Ranges) - 1
	}
	for i := range p.Ranges {
		r := &p.Ranges[i]
		at := key{r.Thread, r.Domain}
		switch stack := stacks[at]; r.Kind {
		case launchlog.Push:
			stacks[at] = append(stack, begin(r))
		case launchlog.Pop:
			if n := len(stack); n > 0 {
				trace.Ranges[stack[n-1]].To = r.At
				stacks[at], open = stack[:n-1], open-1
			}
		case launchlog.Start:
			begun[r.ID] = begin(r)
		case launchlog.End:
			if n, ok := begun[r.ID]; ok {
				trace.Ranges[n].To = r.At
				open--
				delete(begun, r.ID)
			}
		}
	}
	return open
}

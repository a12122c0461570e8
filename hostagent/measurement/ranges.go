package measurement

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"time"

	"github.com/wattmark/wattmark/hostagent/gpu/launchlog"
	"github.com/wattmark/wattmark/measure/attribute"
	"github.com/wattmark/wattmark/store"
)

// rangesKind is the kind of the analyses that hold a task's energy by range; their name is the task's number.
const rangesKind = "ranges"

// Ranges is the energy by range of a task.
type Ranges struct {
	Result int           `json:"result"` // number of the result that it rests on
	Ranges []RangeEnergy `json:"ranges"`
	Notes  []string      `json:"notes,omitempty"`
}

// StoreRanges calculates the energies of the ranges that the processes of a task named, as their logs have them, and
// stores them; nothing where they named none. The task's kernels must have been stored. Errors wrap ErrNoShares.
func StoreRanges(ctx context.Context, db *store.DB, id store.TaskID, logs []string) error {
	var all Ranges
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
		all.Ranges = append(all.Ranges, x.Ranges...)
		if note != "" {
			all.Notes = append(all.Notes, note)
		}
	}
	return PutRanges(ctx, db, id, all)
}

// PutRanges stores the energy by range of a task's result in use; nothing where there are none.
func PutRanges(ctx context.Context, db *store.DB, id store.TaskID, r Ranges) error {
	if len(r.Ranges) == 0 {
		return nil
	}
	t, err := db.Task(ctx, id)
	if err != nil {
		return err
	}
	r.Result = t.ResultNumber
	content, err := json.Marshal(r)
	if err != nil {
		return err
	}
	_, err = db.PutAnalysis(ctx, store.Analysis{
		Kind: rangesKind, Name: fmt.Sprint(id), Made: time.Now(), Content: content, Tasks: []store.TaskID{id},
	})
	return err
}

// TaskRanges returns the energy by range of a task; nil for one whose program named none.
func TaskRanges(ctx context.Context, db *store.DB, t *store.Task) (*Ranges, error) {
	a, err := db.Analysis(ctx, rangesKind, fmt.Sprint(t.ID), 0)
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	r := new(Ranges)
	if err := json.Unmarshal(a.Content, r); err != nil {
		return nil, fmt.Errorf("ranges of task %d: %w: %w", t.ID, store.ErrCorrupt, err)
	}
	if r.Result != t.ResultNumber {
		r.Notes = append(r.Notes, fmt.Sprintf("they rest on result %d, not on the one shown", r.Result))
	}
	return r, nil
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
				stacks[at] = stack[:n-1]
			}
		case launchlog.Start:
			begun[r.ID] = begin(r)
		case launchlog.End:
			if n, ok := begun[r.ID]; ok {
				trace.Ranges[n].To = r.At
				delete(begun, r.ID)
			}
		}
	}
	for i := range trace.Ranges {
		if trace.Ranges[i].To == math.MaxInt64 {
			open++
		}
	}
	return open
}

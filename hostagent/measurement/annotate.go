package measurement

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/attribute"
	"github.com/wattmark/wattmark/store"
)

// ErrAnother: a profiler's trace is not of the task's run, or cannot be related to it.
var ErrAnother = errors.New("the trace does not belong to the task")

// How far two records of one kernel may lie apart, in ns. Both come from CUPTI; a profiler's own clock is carried
// to the host's within a microsecond, one that is set by hand within a millisecond.
const (
	sameClock  = int64(time.Millisecond)
	sameStart  = int64(50 * time.Microsecond)
	sameLength = int64(2 * time.Microsecond)
)

// fits is the part of the kernels that must fit the task's: a profiler may drop some.
const fits = 0.9

// Annotated is how a trace was related to a task, and the energies of what is in it.
type Annotated struct {
	Kernels int `json:"kernels"` // of the trace
	Matched int `json:"matched"` // that the task had recorded too
	Added   int `json:"added"`   // that only the trace has: they were stored with the task
	Outside int `json:"outside"` // of the window: without energy
	// Shift is by how much the host's clock is ahead of the trace's, as the kernels of both show.
	Shift  measure.Seconds          `json:"shift_s"`
	Ranges []store.RangeEnergy      `json:"ranges"`
	Spans  []store.RangeSpan        `json:"-"`
	Marks  map[int]attribute.Mark   `json:"-"` // by the trace's events
	Copies map[int64]attribute.Mark `json:"-"` // of ranges, by their ids
	From   int64                    `json:"-"` // of the trace, on the host's clock in ns
	To     int64                    `json:"-"`
}

// Annotate relates a profiler's trace to a task by the kernels in both, else by the host's clock, and returns the
// energies of its kernels and ranges. Kernels that the task lacks, as its program's profiler had CUPTI alone, are
// stored with it, named after the file, and its energies by kernel are calculated anew. A trace that does not fit is
// ErrAnother, one of a task without window ErrNoShares: nothing is stored then.
func Annotate(
	ctx context.Context, db *store.DB, id store.TaskID, trace *attribute.Trace, file string,
) (*Annotated, error) {
	t, err := db.Task(ctx, id)
	if err != nil {
		return nil, err
	}
	if t.Result == nil || t.Clock == nil {
		return nil, fmt.Errorf("task %d: %w: it has no window, or no clock that relates it to the host", id, ErrNoShares)
	}
	if _, err := bent(ctx, db, &t); err != nil {
		return nil, err
	}
	n := len(trace.Kernels)
	r := &relation{task: &t, trace: trace, of: make([]string, n), start: make([]int64, n), out: &Annotated{Kernels: n}}
	if err := r.recorded(ctx, db); err != nil {
		return nil, err
	}
	if err := r.relate(ctx, db); err != nil {
		return nil, fmt.Errorf("task %d: %w", id, err)
	}
	var lines []store.NameEnergy
	if r.out.Added > 0 {
		if err = r.add(ctx, db, file); err == nil {
			lines, err = Attribute(ctx, db, id)
		}
	} else if lines, err = db.NameEnergies(ctx, id, t.ResultNumber); err == nil && len(lines) == 0 {
		lines, err = Attribute(ctx, db, id)
	}
	if err != nil && !(errors.Is(err, store.ErrReadOnly) && len(lines) > 0) {
		return nil, err
	}
	own, err := r.own(ctx, db)
	if err != nil {
		return nil, err
	}
	r.energies(lines, own)
	return r.out, nil
}

// own are the energies of launches that the meter resolves, by their own edges. The others have the mean power of
// their name.
func (r *relation) own(ctx context.Context, db *store.DB) (map[launchKey]attribute.Mark, error) {
	s := &sharing{ctx: ctx, db: db, task: r.task, tables: &r.tables, alone: map[launchKey]int{}}
	s.spans = s.kernels(db)
	x, err := s.run()
	if err != nil {
		return nil, fmt.Errorf("task %d: %w", r.task.ID, err)
	}
	out := map[launchKey]attribute.Mark{}
	for key, n := range s.alone {
		if n < len(x.Kernels) {
			u := &x.Kernels[n]
			out[key] = attribute.Mark{Share: s.part(u, false), Busy: u.Busy}
		}
	}
	return out, nil
}

// relation is one Annotate.
type relation struct {
	task     *store.Task
	trace    *attribute.Trace
	out      *Annotated
	tables   store.LaunchTables
	launches map[uint32][]store.Launch // by correlation
	count    uint64
	from, to int64 // of the launches
	shift    int64
	of       []string // the task's name of each of the trace's kernels
	start    []int64  // and its start there
	missing  []int    // kernels that the task lacks
}

// recorded reads the task's launches.
func (r *relation) recorded(ctx context.Context, db *store.DB) (err error) {
	if r.tables, err = db.LaunchTables(ctx, r.task.ID); err != nil {
		return err
	}
	r.launches = map[uint32][]store.Launch{}
	for l, err := range db.Launches(ctx, r.task.ID) {
		if err != nil {
			return err
		}
		if l.Name >= len(r.tables.Names) {
			return fmt.Errorf("a launch of name %d: %w", l.Name, store.ErrCorrupt)
		}
		if r.count == 0 {
			r.from = l.Start
		}
		r.count, r.to = r.count+1, max(r.to, l.End)
		r.launches[l.Correlation] = append(r.launches[l.Correlation], l)
	}
	return nil
}

// candidates are the recorded launches that a kernel may be.
func (r *relation) candidates(k *attribute.Profiled) []store.Launch {
	return lists.Filter(r.launches[k.Correlation], func(l *store.Launch) bool {
		return l.Grid == k.Grid && l.Block == k.Block
	})
}

// relate finds the shift of the clocks and the kernels that the task has, and refuses a trace of another run.
func (r *relation) relate(ctx context.Context, db *store.DB) error {
	var shifts []int64
	for i := range r.trace.Kernels {
		k := &r.trace.Kernels[i]
		if c := r.candidates(k); len(c) == 1 {
			shifts = append(shifts, c[0].Start-k.Start)
		}
	}
	slices.Sort(shifts)
	if len(shifts) > 0 {
		r.shift = shifts[len(shifts)/2]
	}
	_, u := r.task.Clock.Host((r.task.Result.From + r.task.Result.To) / 2)
	most := max(sameClock, (4 * u).Duration().Nanoseconds()) // u is a part of a second without markers
	far := r.shift > most || r.shift < -most
	recorded := slices.ContainsFunc(r.trace.Kernels, func(k attribute.Profiled) bool {
		return k.Start >= r.from && k.End <= r.to
	})
	switch {
	case !r.trace.HostClock && len(shifts) == 0:
		return fmt.Errorf("%w: it does not name its clock (baseTimeNanoseconds), and none of its kernels was recorded "+
			"with the task", ErrAnother)
	case r.trace.HostClock && far && recorded:
		return fmt.Errorf("%w: the same launches ran %v away: it is of another run, or the host's clock was set",
			ErrAnother, time.Duration(r.shift))
	case r.trace.HostClock && far:
		r.shift = 0 // of the same program, but when nothing was recorded
	}
	inside := r.match()
	if float64(r.out.Matched) < fits*float64(inside) {
		return fmt.Errorf("%w: of %d kernels while the task recorded, %d are among its launches at the same time and as "+
			"long: it is of another run", ErrAnother, inside, r.out.Matched)
	}
	return r.within(ctx, db)
}

// match names the kernels that the task recorded, and returns how many ran while it did.
func (r *relation) match() (inside int) {
	for i := range r.trace.Kernels {
		k := &r.trace.Kernels[i]
		start := k.Start + r.shift
		found := false
		for _, l := range r.candidates(k) {
			if apart(l.Start, start) <= sameStart && apart(l.End-l.Start, k.End-k.Start) <= sameLength {
				if found = true; l.Device < len(r.tables.Devices) && r.tables.Devices[l.Device].Measured {
					r.of[i], r.start[i] = r.tables.Names[l.Name], l.Start
				}
				break
			}
		}
		if r.count > 0 && start >= r.from && start <= r.to {
			inside++
		} else if !found {
			r.missing = append(r.missing, i)
		}
		if found {
			r.out.Matched++
		}
	}
	return inside
}

// host returns a device time on the host's clock, in ns since 1970.
func (r *relation) host(s measure.Seconds) int64 {
	host, _ := r.task.Clock.Host(s)
	return HostTime(*r.task.Clock, host).UnixNano()
}

func apart(a, b int64) int64 { return max(a-b, b-a) }

// within keeps the missing kernels that ran while the meter did, and refuses a trace of which no kernel did.
func (r *relation) within(ctx context.Context, db *store.DB) error {
	a, b, err := db.Extent(ctx, r.task.ID)
	if err != nil {
		return err
	}
	from, to := r.host(a), r.host(b)
	ks := r.trace.Kernels
	first := slices.MinFunc(ks, func(a, b attribute.Profiled) int { return cmp.Compare(a.Start, b.Start) }).Start
	last := slices.MaxFunc(ks, func(a, b attribute.Profiled) int { return cmp.Compare(a.End, b.End) }).End
	r.missing = slices.DeleteFunc(r.missing, func(i int) bool {
		return ks[i].Start+r.shift < from || ks[i].End+r.shift > to
	})
	r.out.Added = len(r.missing)
	r.out.Shift = measure.Seconds(r.shift) * 1e-9
	r.out.From, r.out.To = max(first+r.shift, from), min(last+r.shift, to)
	switch {
	case r.out.Matched+r.out.Added == 0:
		clock := func(ns int64) string { return time.Unix(0, ns).UTC().Format("2006-01-02 15:04:05.000") }
		return fmt.Errorf("%w: its kernels ran from %s to %s, the meter from %s to %s", ErrAnother, clock(first), clock(last),
			clock(from), clock(to))
	case r.out.Added > 0 && len(r.trace.Devices) > 1:
		return fmt.Errorf("%w: it has kernels of %d GPUs that the task did not record: which was measured is unknown",
			ErrAnother, len(r.trace.Devices))
	}
	return nil
}

// add stores the kernels that only the trace has as those of one more process.
func (r *relation) add(ctx context.Context, db *store.DB, file string) error {
	device := store.LaunchDevice{Process: len(r.tables.Processes), UUID: r.task.GPUUUID, Measured: true}
	in := launches{tables: r.tables, names: map[string]int{}}
	for i, n := range r.tables.Names {
		in.names[n] = i
	}
	var rows []store.Launch
	for _, i := range r.missing {
		k := &r.trace.Kernels[i]
		n := in.name(k.Name)
		device.Ordinal, r.of[i], r.start[i] = k.Device, in.tables.Names[n], k.Start+r.shift
		rows = append(rows, store.Launch{
			Start: k.Start + r.shift, End: k.End + r.shift, Name: n, Device: len(r.tables.Devices), Stream: k.Stream,
			Correlation: k.Correlation, Grid: k.Grid, Block: k.Block,
		})
	}
	slices.SortFunc(rows, func(a, b store.Launch) int { return cmp.Compare(a.Start, b.Start) })
	r.tables = in.tables
	r.tables.Devices = append(r.tables.Devices, device)
	r.tables.Processes = append(r.tables.Processes, store.LaunchProcess{
		Kernels: uint64(len(rows)), Reported: uint64(len(rows)), Whole: true,
		Trouble: measure.Printable("these kernels are from a profiler's trace, " + file),
	})
	for part := range slices.Chunk(rows, launchBatch) {
		if err := db.PutLaunches(ctx, r.task.ID, r.count, part); err != nil {
			return err
		}
		r.count += uint64(len(part))
	}
	return db.PutLaunchTables(ctx, r.task.ID, r.tables)
}

// energies are those of the kernels, each its part of its name's line by time, and of the ranges.
func (r *relation) energies(lines []store.NameEnergy, own map[launchKey]attribute.Mark) {
	by := map[string]*store.NameEnergy{}
	for i := range lines {
		if lines[i].Class == store.KernelEnergy {
			for _, n := range strings.Split(lines[i].Name, store.Together) {
				by[n] = &lines[i]
			}
		}
	}
	from, to := r.host(r.task.Result.From), r.host(r.task.Result.To)
	r.out.Marks, r.out.Copies = map[int]attribute.Mark{}, map[int64]attribute.Mark{}
	var started []attribute.Started
	for i := range r.trace.Kernels {
		k := &r.trace.Kernels[i]
		line := by[r.of[i]]
		if line == nil || !(line.Busy > 0) || k.Start+r.shift < from || k.End+r.shift > to {
			r.out.Outside++
			continue
		}
		busy := measure.Seconds(k.End-k.Start) * 1e-9
		part := float64(busy / line.Busy)
		e := line.Energy
		m := attribute.Mark{Busy: busy}
		m.Energy, m.U = e.Energy*measure.Joule(part), e.U*measure.Joule(part) // kernels of a name err together
		if x, ok := own[launchKey{r.start[i], k.Correlation}]; ok {
			m = x
		}
		r.out.Marks[k.Event] = m
		if c, ok := r.trace.Calls[k.Correlation]; ok {
			started = append(started, attribute.Started{Thread: c.Thread, At: c.At, Busy: m.Busy, Share: m.Share})
		}
	}
	r.ranges(started)
}

// ranges have the energies of the kernels that were launched in them: users' ranges also of those that a thread
// without any launched for them, the framework's operations only of their own thread's.
func (r *relation) ranges(started []attribute.Started) {
	for _, op := range []bool{false, true} {
		of := lists.Filter(r.trace.Ranges, func(x *attribute.Range) bool { return x.Op == op })
		spans := lists.Map(of, func(x attribute.Range) attribute.Span {
			return attribute.Span{Thread: x.Thread, From: x.From, To: x.To, Process: x.Process}
		})
		uses := attribute.Spans(spans, started, !op)
		for n, x := range of {
			if u := uses[n]; u.Launches > 0 {
				m := attribute.Mark{Share: u.Share, Busy: u.Busy}
				r.out.Marks[x.Event] = m
				if !op && x.External != 0 {
					r.out.Copies[x.External] = m
				}
			}
		}
		if !op {
			r.spans(spans, lists.Map(of, func(x attribute.Range) string { return x.Name }), uses)
		}
	}
}

// spans has the users' ranges one by one, in device time, and summed up by their names. One that never ended lasts as
// long as the kernels.
func (r *relation) spans(spans []attribute.Span, names []string, uses []attribute.SpanUse) {
	f := r.task.Clock
	meter := func(ns int64) measure.Seconds {
		s, _ := f.Meter(HostSeconds(*f, time.Unix(0, ns)))
		return s
	}
	var of []int
	r.out.Ranges, of = rangesByPath(spans, names, uses)
	r.out.Spans = make([]store.RangeSpan, len(spans))
	for i := range spans {
		s, u := &spans[i], &uses[i]
		if s.To == math.MaxInt64 {
			s.To = max(s.From, r.out.To-r.shift)
		}
		r.out.Spans[i] = store.RangeSpan{
			Range: of[i], Thread: s.Thread, From: meter(s.From + r.shift), To: meter(s.To + r.shift), Launches: u.Launches,
			Estimate: u.Estimate,
		}
	}
}

// rangesByPath sums ranges up by their names, each behind those of the ranges around it on its thread, in the order
// in which they first begin. of are the sums of the spans.
func rangesByPath(
	spans []attribute.Span, names []string, uses []attribute.SpanUse,
) (out []store.RangeEnergy, of []int) {
	of = make([]int, len(spans))
	order := lists.Order(len(spans), func(a, b int) int {
		return cmp.Or(cmp.Compare(spans[a].From, spans[b].From), cmp.Compare(spans[b].To, spans[a].To))
	})
	var sums []measure.Share
	out, place := []store.RangeEnergy{}, map[string]int{}
	type around struct {
		to   int64
		path string
	}
	open := map[int][]around{}
	for _, i := range order {
		s := &spans[i]
		path, list := measure.Printable(names[i]), open[s.Thread]
		for len(list) > 0 && list[len(list)-1].to < s.To {
			list = list[:len(list)-1]
		}
		if s.Process {
			path += " (start to end)"
		} else {
			if len(list) > 0 {
				path = list[len(list)-1].path + "/" + path
			}
			open[s.Thread] = append(list, around{s.To, path})
		}
		n, ok := place[path]
		if !ok {
			n = len(out)
			place[path], out, sums = n, append(out, store.RangeEnergy{Path: path}), append(sums, measure.Share{})
		}
		of[i] = n
		x := &out[n]
		x.Ranges++
		x.Launches += uses[i].Launches
		x.Busy += uses[i].Busy
		sums[n].Add(&uses[i].Share)
		x.Estimate = sums[n].Estimate
	}
	return out, of
}

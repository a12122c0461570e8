package exchange

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/marker"
	"github.com/wattmark/wattmark/store"
)

// Timeline is a task for a trace viewer: everything on the host's clock, in ns since 1970. The parts come
// from two clocks: samples and markers in device time, by the clock fit; kernels and readings on the host's
// clock.
type Timeline struct {
	Meta Meta
	// Tracks are those of the slices and instants, by their numbers.
	Tracks []string
	// Slices are in the order of their begins; those of one track do not overlap.
	Slices   iter.Seq2[*Slice, error]
	Instants []Instant
	// Readings are the counters that software read beside the meter.
	Readings []Counter
	// Power are the rails' columns, and Counters which of them are drawn.
	Power    *Table
	Counters []int
}

// Slice is something that lasted.
type Slice struct {
	Track      int
	Start, End int64
	Name       string
	Args       []Arg
}

// Arg is a detail of a slice or instant.
type Arg struct{ Name, Value string }

// Instant is something that happened.
type Instant struct {
	Track int
	At    int64
	Name  string
	Args  []Arg
}

// Counter is a series of readings.
type Counter struct {
	Name, Unit string
	At         []int64
	Values     []float64
}

// Tasks is the source of timelines; *store.DB is one.
type Tasks interface {
	Chunks
	Kernels(ctx context.Context, id store.TaskID) ([]store.Kernel, error)
	Readings(ctx context.Context, id store.TaskID) ([]store.Reading, error)
	LaunchTables(ctx context.Context, id store.TaskID) (store.LaunchTables, error)
	Launches(ctx context.Context, id store.TaskID) iter.Seq2[store.Launch, error]
	Ranges(ctx context.Context, t *store.Task) (*store.Ranges, error)
}

// NewTimeline makes a timeline of a task. readable turns a kernel's symbol into a
// name. Rails' powers are derived; Choice.Raw is not used.
func NewTimeline(
	ctx context.Context, db Tasks, t *store.Task, program string, c Choice, readable func(string) string,
) (*Timeline, error) {
	c.Raw, c.HostTime = false, true
	power, err := NewTable(ctx, db, t, program, c)
	if err != nil {
		return nil, err
	}
	out := &Timeline{Meta: power.Meta, Power: power}
	for i, col := range power.Columns {
		// All columns in W; the total, column 2, only where all rails are shown, as it would not be
		// their sum.
		if col.Unit == "W" && (i != 2 || len(c.Rails) == 0) {
			out.Counters = append(out.Counters, i)
		}
	}
	b := timelineBuilder{ctx: ctx, db: db, t: t, out: out, window: c.Window, readable: readable}
	b.marks()
	if err := b.readings(); err != nil {
		return nil, err
	}
	return out, b.slices()
}

// timelineBuilder makes one timeline: marks, readings and slices, in this order.
type timelineBuilder struct {
	ctx      context.Context
	db       Tasks
	t        *store.Task
	out      *Timeline
	window   *measure.Window
	readable func(string) string
}

// track numbers a track, making it where there is none of that name.
func (b *timelineBuilder) track(name string) int {
	if i := slices.Index(b.out.Tracks, name); i >= 0 {
		return i
	}
	b.out.Tracks = append(b.out.Tracks, name)
	return len(b.out.Tracks) - 1
}

// inside reports whether a span of the host's clock reaches into the window.
func (b *timelineBuilder) inside(from, to int64) bool {
	if b.window == nil {
		return true
	}
	m := &b.out.Meta
	return to >= m.HostNanos(b.window.From) && from <= m.HostNanos(b.window.To)
}

// marks adds the markers that were found and the events of the capture.
func (b *timelineBuilder) marks() {
	m := &b.out.Meta
	add := func(track, name string, t measure.Seconds, args ...Arg) {
		if at := m.HostNanos(t); b.inside(at, at) {
			b.out.Instants = append(b.out.Instants, Instant{b.track(track), at, name, args})
		}
	}
	for _, f := range b.t.Markers {
		name := "start marker"
		if f.Kind == marker.Stop {
			name = "stop marker"
		}
		add("markers", name, f.T,
			Arg{"u_s", fmt.Sprintf("%.3g", float64(f.U))}, Arg{"correlation", fmt.Sprintf("%.4g", f.Correlation)})
	}
	tb := b.t.Setup.Timebase
	for _, e := range b.t.Events {
		name := e.Kind.String()
		if e.Kind == measure.EventGap {
			name = "scans lost"
		}
		// An event has its scan; where scans carry stamps its time is the nominal one.
		at := tb.Seconds(float64(e.FirstScan) * tb.TicksPerScan)
		add("capture", name, at, Arg{"scans", fmt.Sprint(e.Scans)}, Arg{"detail", e.Detail})
	}
}

// readings adds software readings as counters.
func (b *timelineBuilder) readings() error {
	all, err := b.db.Readings(b.ctx, b.t.ID)
	if err != nil {
		return err
	}
	for _, r := range all {
		at := r.At.UnixNano()
		if r.Value != r.Value || !b.inside(at, at) { // a viewer cannot draw NaN
			continue
		}
		// Readings come by method: each method is one run.
		if n := len(b.out.Readings); n == 0 || b.out.Readings[n-1].Name != r.Method {
			unit := "W"
			switch m := r.Method; { // see store.Reading
			case strings.HasSuffix(m, "_hz"):
				unit = "Hz"
			case strings.HasSuffix(m, "_s"):
				unit = "s"
			case strings.HasSuffix(m, "temperature_c"):
				unit = "°C"
			case strings.HasSuffix(m, "_bits"):
				unit = "1"
			case strings.HasSuffix(m, "energy"), strings.Contains(m, "counter"):
				unit = "J"
			}
			b.out.Readings = append(b.out.Readings, Counter{Name: r.Method, Unit: unit})
		}
		c := &b.out.Readings[len(b.out.Readings)-1]
		c.At, c.Values = append(c.At, at), append(c.Values, r.Value)
	}
	return nil
}

// slices arranges for the kernels: those that were recorded within the program, else those of the host. The
// tracks must be known before the first slice is written: fixed slices are kept in memory, launches, which
// may be millions, are read twice.
func (b *timelineBuilder) slices() error {
	var fixed []Slice
	if r := b.t.Result; r != nil {
		m := &b.out.Meta
		fixed = append(fixed, Slice{
			Track: b.track("window"), Start: m.HostNanos(r.From), End: m.HostNanos(r.To), Name: "window",
			Args: []Arg{
				{"energy_j", fmt.Sprintf("%.6g", float64(r.Total.Energy))},
				{"u_j", fmt.Sprintf("%.3g", float64(r.Total.U))},
			},
		})
	}
	kernels, err := b.db.Kernels(b.ctx, b.t.ID)
	if err != nil {
		return err
	}
	l := lanes{}
	for _, k := range kernels {
		if from, to := k.Start.UnixNano(), k.End.UnixNano(); b.inside(from, to) {
			fixed = append(fixed, Slice{Track: l.put(b, "work", from, to), Start: from, End: to, Name: b.readable(k.Name)})
		}
	}
	named, err := b.ranges()
	if err != nil {
		return err
	}
	fixed = append(fixed, named...)
	slices.SortStableFunc(fixed, func(a, b Slice) int { return cmp.Compare(a.Start, b.Start) })
	tables, err := b.db.LaunchTables(b.ctx, b.t.ID)
	if err != nil {
		return err
	}
	// A first walk through the launches makes the tracks.
	for _, err := range b.launches(&tables) {
		if err != nil {
			return err
		}
	}
	b.out.Slices = func(yield func(*Slice, error) bool) {
		for i := range fixed {
			if !yield(&fixed[i], nil) {
				return
			}
		}
		b.launches(&tables)(yield)
	}
	return nil
}

// ranges are those that the program named, a track a thread and depth, with their energies.
func (b *timelineBuilder) ranges() (out []Slice, err error) {
	r, err := b.db.Ranges(b.ctx, b.t)
	if r == nil || err != nil {
		return nil, err
	}
	l := lanes{}
	for _, s := range r.Spans {
		from, to := b.out.Meta.HostNanos(s.From), b.out.Meta.HostNanos(s.To)
		if !b.inside(from, to) {
			continue
		}
		path := r.Ranges[s.Range].Path
		out = append(out, Slice{
			Track: l.put(b, fmt.Sprintf("ranges of thread %d", s.Thread), from, to), Start: from, End: to,
			Name: path[strings.LastIndex(path, "/")+1:],
			Args: []Arg{
				{"path", path},
				{"launches", fmt.Sprint(s.Launches)},
				{"energy_j", fmt.Sprintf("%.6g", float64(s.Energy))},
				{"u_j", fmt.Sprintf("%.3g", float64(s.U))},
			},
		})
	}
	return out, nil
}

// launches yields the recorded kernels, a track a stream.
func (b *timelineBuilder) launches(tables *store.LaunchTables) iter.Seq2[*Slice, error] {
	return func(yield func(*Slice, error) bool) {
		if len(tables.Processes) == 0 {
			return
		}
		l := lanes{}
		names := lists.Map(tables.Names, b.readable)
		var s Slice
		for k, err := range b.db.Launches(b.ctx, b.t.ID) {
			// Indexes of a damaged file must not panic.
			if err == nil && (k.Name >= len(names) || k.Device >= len(tables.Devices) ||
				tables.Devices[k.Device].Process >= len(tables.Processes)) {
				err = fmt.Errorf("task %d: a launch of name %d on device %d: %w", b.t.ID, k.Name, k.Device, store.ErrCorrupt)
			}
			if err != nil {
				yield(nil, err)
				return
			}
			if !b.inside(k.Start, k.End) {
				continue
			}
			// A stream is a queue of one device: its name has the process, as ids of streams repeat between
			// processes.
			d := tables.Devices[k.Device]
			stream := fmt.Sprintf("GPU %d, stream %d, process %d", d.Ordinal, k.Stream, tables.Processes[d.Process].PID)
			s = Slice{Track: l.put(b, stream, k.Start, k.End), Start: k.Start, End: k.End, Name: names[k.Name], Args: s.Args[:0]}
			s.Args = append(
				s.Args, Arg{"correlation", fmt.Sprint(k.Correlation)}, Arg{"grid", dim(k.Grid)}, Arg{"block", dim(k.Block)})
			if k.Graph != 0 {
				s.Args = append(s.Args, Arg{"graph", fmt.Sprint(k.Graph)})
			}
			if !yield(&s, nil) {
				return
			}
		}
	}
}

// dim returns the dimensions of a grid or block.
func dim(d [3]uint32) string { return fmt.Sprintf("%d,%d,%d", d[0], d[1], d[2]) }

// lanes spreads slices that overlap over several tracks: a viewer nests slices that
// overlap on one, and kernels are not within each other.
type lanes map[string][]lane

// lane is a track and the end of its last slice, in ns since 1970.
type lane struct {
	track int
	end   int64
}

// put returns the track for a slice of a name's; slices come by their begins.
// First fit: the lowest lane that is free at the begin. Lanes are as many as slices overlap at once.
func (l lanes) put(b *timelineBuilder, name string, from, to int64) int {
	have := l[name]
	for i := range have {
		if have[i].end <= from {
			have[i].end = to
			return have[i].track
		}
	}
	full := name
	if len(have) > 0 {
		full = fmt.Sprintf("%s (%d at once)", name, len(have)+1)
	}
	track := b.track(full)
	l[name] = append(have, lane{track, to})
	return track
}

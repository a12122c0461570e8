package exchange

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"

	"wattmark/measure"
	"wattmark/store"
)

// Timeline is a task for a trace viewer: everything on the host's clock, in ns
// since 1970.
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

// Begin is the host's time, in ns since 1970, before which there is nothing: that of device
// time zero, unless software read, or a kernel ran, before the meter's first scan.
func (t *Timeline) Begin() int64 {
	at := t.Meta.HostNanos(0)
	for _, c := range t.Readings {
		for _, x := range c.At {
			at = min(at, x)
		}
	}
	for _, i := range t.Instants {
		at = min(at, i.At)
	}
	for s, err := range t.Slices { // the first is the earliest; an error comes again
		if err == nil {
			at = min(at, s.Start)
		}
		break
	}
	return at
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

// Tasks is what a timeline is made from; *store.DB is one.
type Tasks interface {
	Chunks
	Kernels(ctx context.Context, id store.TaskID) ([]store.Kernel, error)
	Readings(ctx context.Context, id store.TaskID) ([]store.Reading, error)
	LaunchTables(ctx context.Context, id store.TaskID) (store.LaunchTables, error)
	Launches(ctx context.Context, id store.TaskID) iter.Seq2[store.Launch, error]
}

// NewTimeline makes a timeline of a task. readable turns a kernel's symbol into a
// name. Rails' powers are derived; Choice.Raw is not used.
func NewTimeline(ctx context.Context, db Tasks, t *store.Task, program string, c Choice, readable func(string) string) (*Timeline, error) {
	c.Raw, c.HostTime = false, true
	power, err := NewTable(ctx, db, t, program, c)
	if err != nil {
		return nil, err
	}
	out := &Timeline{Meta: power.Meta, Power: power}
	for i, col := range power.Columns {
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

var eventTimes = map[measure.EventKind]string{measure.EventGap: "scans lost"}

// marks adds the markers that were found and what befell the capture.
func (b *timelineBuilder) marks() {
	m := &b.out.Meta
	add := func(track, name string, t measure.Seconds, args ...Arg) {
		if at := m.HostNanos(t); b.inside(at, at) {
			b.out.Instants = append(b.out.Instants, Instant{b.track(track), at, name, args})
		}
	}
	for _, f := range b.t.Markers {
		name := "start marker"
		if f.Kind == 2 {
			name = "stop marker"
		}
		add("markers", name, f.T, Arg{"u_s", fmt.Sprintf("%.3g", float64(f.U))}, Arg{"correlation", fmt.Sprintf("%.4g", f.Correlation)})
	}
	tb := b.t.Setup.Timebase
	for _, e := range b.t.Events {
		name := e.Kind.String()
		if n, ok := eventTimes[e.Kind]; ok {
			name = n
		}
		// An event knows its scan; where scans carry stamps its time is the nominal one.
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
		if n := len(b.out.Readings); n == 0 || b.out.Readings[n-1].Name != r.Method {
			b.out.Readings = append(b.out.Readings, Counter{Name: r.Method, Unit: readingUnit(r.Method)})
		}
		c := &b.out.Readings[len(b.out.Readings)-1]
		c.At, c.Values = append(c.At, at), append(c.Values, r.Value)
	}
	return nil
}

// readingUnit is the unit of a software reading (store.Reading).
func readingUnit(method string) string {
	switch {
	case strings.HasSuffix(method, "_hz"):
		return "Hz"
	case strings.HasSuffix(method, "temperature_c"):
		return "°C"
	case strings.HasSuffix(method, "_bits"):
		return "1"
	case strings.HasSuffix(method, "energy"), strings.Contains(method, "counter"):
		return "J"
	}
	return "W"
}

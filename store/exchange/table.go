package exchange

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"strings"

	"wattmark/measure"
	"wattmark/measure/chunk"
	"wattmark/store"
)

// Type is the type of a column's values.
type Type string

// The types. A column has no missing values.
const (
	Int32   Type = "int32"
	Int64   Type = "int64"
	Float64 Type = "float64"
)

// Column is one column of a table.
type Column struct {
	Name  string `json:"name"`
	Type  Type   `json:"type"`
	Unit  string `json:"unit"` // s, ns, A, V, W; 1 for numbers and counts
	About string `json:"about"`
	// Channel is the channel that counts are of; empty for derived columns.
	Channel string `json:"channel,omitempty"`
}

// BatchRows is the number of rows of a batch, but of the last.
const BatchRows = 1 << 16

// Values are a column of a batch, in the slice of its type.
type Values struct {
	I32 []int32
	I64 []int64
	F64 []float64
}

// Batch is a run of rows.
type Batch struct {
	Rows    int
	Columns []Values // in the table's order
}

// Table is a task as rows: one a scan.
type Table struct {
	Meta    Meta
	Columns []Column
	// Batches yields the rows in order. A batch is used again for the next one. The
	// first error ends the sequence.
	Batches iter.Seq2[*Batch, error]
}

// Choice says what of a task is wanted.
type Choice struct {
	// Raw gives counts as the meter delivered them, else volts, amperes and watts.
	Raw bool
	// Window bounds the device time, both ends taken in; nil for all scans.
	Window *measure.Window
	// Rails names the rails that get columns; none for all. The total is of all rails
	// in any case.
	Rails []string
	// HostTime adds the host's time of each scan.
	HostTime bool
}

// Chunks is where a task's scans come from; *store.DB is one.
type Chunks interface {
	Chunks(ctx context.Context, id store.TaskID, from uint64) iter.Seq2[*chunk.Chunk, error]
}

// ErrNoRail is wrapped by errors about rails that a task does not have.
var ErrNoRail = errors.New("no such rail")

// NewTable makes a table of a task. Nothing is read before Batches is.
func NewTable(ctx context.Context, db Chunks, t *store.Task, program string, c Choice) (*Table, error) {
	if err := t.Setup.Validate(); err != nil {
		return nil, fmt.Errorf("table of task %d: %w", t.ID, err)
	}
	rails, err := chosenRails(&t.Setup, c.Rails)
	if err != nil {
		return nil, fmt.Errorf("table of task %d: %w", t.ID, err)
	}
	out := &Table{Meta: NewMeta(t, program)}
	if w := c.Window; w != nil {
		out.Meta.Span = &SpanMeta{float64(w.From), float64(w.To)}
	}
	s := scans{ctx: ctx, db: db, id: t.ID, setup: &t.Setup, window: c.Window, host: newHostTime(t), hostTime: c.HostTime}
	if c.Raw {
		out.Meta.Content = "raw"
		channels := chosenChannels(&t.Setup, rails, len(c.Rails) == 0)
		out.Columns = rawColumns(&t.Setup, channels, c.HostTime)
		out.Batches = s.raw(out.Columns, channels)
	} else {
		out.Meta.Content = "derived"
		out.Columns = derivedColumns(&t.Setup, rails, c.HostTime)
		out.Batches = s.derived(out.Columns, rails)
	}
	out.Meta.Columns = out.Columns
	return out, nil
}

// chosenRails are the indices of the rails that are named, all where none is.
func chosenRails(s *measure.Setup, names []string) (out []int, err error) {
	for i, r := range s.Rails {
		if len(names) == 0 || slices.Contains(names, r.Name) {
			out = append(out, i)
		}
	}
	for _, n := range names {
		if !slices.ContainsFunc(s.Rails, func(r measure.Rail) bool { return r.Name == n }) {
			var have []string
			for _, r := range s.Rails {
				have = append(have, r.Name)
			}
			return nil, fmt.Errorf("rail %q: %w: it has %s", n, ErrNoRail, strings.Join(have, ", "))
		}
	}
	return out, nil
}

// chosenChannels are the channels behind rails, or all of them.
func chosenChannels(s *measure.Setup, rails []int, all bool) (out []int) {
	for c := range s.Channels {
		if all || slices.ContainsFunc(rails, func(r int) bool { return s.Rails[r].X == c || s.Rails[r].Y == c }) {
			out = append(out, c)
		}
	}
	return out
}

// namer gives columns names that occur once.
type namer map[string]bool

func (n namer) name(s string) string {
	s = strings.ReplaceAll(s, ".", "_")
	out := s
	for i := 2; n[out]; i++ {
		out = fmt.Sprintf("%s_%d", s, i)
	}
	n[out] = true
	return out
}

var (
	scanColumn = Column{Name: "scan", Type: Int64, Unit: "1", About: "number of the scan since the capture began; it jumps over scans that were lost"}
	hostColumn = Column{Name: "host_ns", Type: Int64, Unit: "ns", About: "host's clock since 1970 (UTC), by the task's clock fit"}
)

func rawColumns(s *measure.Setup, channels []int, hostTime bool) []Column {
	names := namer{}
	tick := Column{Name: names.name("tick"), Type: Int64, Unit: "1", About: "device time in ticks since the capture's first scan; calibration.tick_hz of them are a second"}
	if !wholeTicks(s.Timebase) {
		tick.Type = Float64
	}
	names.name(scanColumn.Name)
	out := []Column{scanColumn, tick}
	for _, c := range channels {
		ch := s.Channels[c]
		out = append(out, Column{
			Name: names.name(ch.Name + "_count"), Type: Int32, Unit: "1", Channel: ch.Name,
			About: fmt.Sprintf("raw count; %s = %v + %v x count", ch.Unit, ch.Offset, ch.Gain),
		})
	}
	if hostTime {
		out = append(out, hostColumn)
	}
	return out
}

// wholeTicks reports whether every scan lies at a whole tick.
func wholeTicks(tb measure.Timebase) bool {
	return tb.Stamped || tb.TicksPerScan == math.Trunc(tb.TicksPerScan)
}

func derivedColumns(s *measure.Setup, rails []int, hostTime bool) []Column {
	names := namer{}
	out := []Column{
		scanColumn,
		{Name: "t_s", Type: Float64, Unit: "s", About: "device time since the capture's first scan"},
		{Name: "power_w", Type: Float64, Unit: "W", About: "power of all rails of the task together"},
	}
	for _, c := range append(out, hostColumn) {
		names.name(c.Name)
	}
	for _, r := range rails {
		rail := s.Rails[r]
		if rail.Wiring != measure.WiringPower {
			voltage := "voltage of rail " + rail.Name
			if rail.Wiring == measure.WiringAssumed {
				voltage += ", assumed, not measured"
			}
			out = append(out,
				Column{Name: names.name(rail.Name + "_current_a"), Type: Float64, Unit: "A", About: "current of rail " + rail.Name},
				Column{Name: names.name(rail.Name + "_voltage_v"), Type: Float64, Unit: "V", About: voltage})
		}
		out = append(out, Column{Name: names.name(rail.Name + "_power_w"), Type: Float64, Unit: "W", About: "power of rail " + rail.Name})
	}
	if hostTime {
		out = append(out, hostColumn)
	}
	return out
}

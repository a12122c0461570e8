package exchange

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"sort"
	"strings"

	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/chunk"
	"github.com/wattmark/wattmark/store"
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
	// Behind is how long a derived column's values lie behind t_s: the instant of its rail's first channel.
	Behind measure.Seconds `json:"behind_s,omitempty"`
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

// Choice of a task's rows and columns.
type Choice struct {
	// Raw gives counts as the meter delivered them, else volts, amperes and watts.
	Raw bool
	// Window bounds the device time, both ends taken in; nil for all scans.
	Window *measure.Window
	// Rails names the rails that get columns; none for all. The total is of all rails in any case.
	Rails []string
	// HostTime adds the host's time of each scan.
	HostTime bool
}

// Chunks is the source of a task's scans; *store.DB is one.
type Chunks interface {
	Chunks(ctx context.Context, id store.TaskID, from uint64) iter.Seq2[*chunk.Chunk, error]
}

// ErrNoRail is wrapped where a task has no such rail.
var ErrNoRail = errors.New("no such rail")

// NewTable makes a table of a task. Nothing is read before Batches is.
// The table checks the setup and the rails now; samples are decoded batch by batch as the caller takes
// them, in memory of one batch, and checksums are verified on the way.
func NewTable(ctx context.Context, db Chunks, t *store.Task, program string, c Choice) (*Table, error) {
	if err := t.Setup.Validate(); err != nil {
		return nil, fmt.Errorf("table of task %d: %w", t.ID, err)
	}
	// The indices of the named rails, in the order of the setup; all where none is named.
	var rails []int
	var have []string
	for i, r := range t.Setup.Rails {
		if have = append(have, r.Name); len(c.Rails) == 0 || slices.Contains(c.Rails, r.Name) {
			rails = append(rails, i)
		}
	}
	for _, n := range c.Rails {
		if !slices.Contains(have, n) {
			return nil, fmt.Errorf("table of task %d: rail %q: %w: it has %s", t.ID, n, ErrNoRail, strings.Join(have, ", "))
		}
	}
	out := &Table{Meta: NewMeta(t, program)}
	// The span of the metadata is the one asked for, not that of the rows in it.
	if w := c.Window; w != nil {
		out.Meta.Span = &SpanMeta{w.From, w.To}
	}
	s := scans{ctx: ctx, db: db, id: t.ID, setup: &t.Setup, window: c.Window, meta: &out.Meta, hostTime: c.HostTime}
	if c.Raw {
		out.Meta.Content = "raw"
		s.raw(out, rails, len(c.Rails) == 0)
	} else {
		out.Meta.Content = "derived"
		s.derived(out, rails)
	}
	out.Meta.Columns = out.Columns
	return out, nil
}

// namer gives columns names that occur once.
type namer map[string]bool

// name returns s as a column's name, with a number behind it where s is taken.
func (n namer) name(s string) string {
	// Dots are separators in many readers' paths.
	s = strings.ReplaceAll(s, ".", "_")
	out := s
	for i := 2; n[out]; i++ {
		out = fmt.Sprintf("%s_%d", s, i)
	}
	n[out] = true
	return out
}

// series is a column of a table with its values: fill appends those of scans [lo, hi) of the source that is
// being read.
type series struct {
	Column
	fill func(v *Values, lo, hi int)
}

// whole fills a column with the whole numbers of scans, floats with other numbers.
func whole(of func(scan int) int64) func(v *Values, lo, hi int) {
	return func(v *Values, lo, hi int) {
		for i := lo; i < hi; i++ {
			v.I64 = append(v.I64, of(i))
		}
	}
}

func floats(of func(scan int) float64) func(v *Values, lo, hi int) {
	return func(v *Values, lo, hi int) {
		for i := lo; i < hi; i++ {
			v.F64 = append(v.F64, of(i))
		}
	}
}

// scans reads a task's scans into batches:
//
//	chunks ─▶ blocks of counts ──────────────────────────▶ filler ─▶ batches (raw)
//	                  └─▶ measure.PowerStream: volts, ... ─▶ filler ─▶ batches (derived)
type scans struct {
	ctx      context.Context
	db       Chunks
	id       store.TaskID
	setup    *measure.Setup
	window   *measure.Window
	meta     *Meta
	hostTime bool
}

// beside is the number of scans read on either side of the window: channels read one after the
// other are brought to one instant by interpolation between neighbours.
const beside = 256

// blocks yields the blocks that reach into the window, and some beside it. Chunks with stamps
// are all decoded from the first on: only their ticks have the end of a chunk.
func (s *scans) blocks() iter.Seq2[*measure.Block, error] {
	tb := s.setup.Timebase
	near := func(yield func(*chunk.Chunk, error) bool) {
		for c, err := range s.db.Chunks(s.ctx, s.id, 0) {
			if err == nil && s.window != nil {
				margin := beside * tb.TicksPerScan
				// Chunks come by rising ticks: the first one behind the window ends the reading.
				if first := float64(c.FirstTick); first-margin > tb.Ticks(s.window.To) {
					return
					// Stamped chunks before the window are decoded nevertheless: see blocks.
				} else if (!tb.Stamped || c.Sums != nil) && first+float64(c.Scans)*tb.TicksPerScan+margin < tb.Ticks(s.window.From) {
					continue
				}
			}
			if !yield(c, err) {
				return
			}
		}
	}
	return chunk.DecodeAll(near, s.setup)
}

// within returns the scans [lo, hi) of n that lie in the window, by bisection: ticks rise.
func (s *scans) within(n int, tick func(int) float64) (lo, hi int) {
	if s.window == nil {
		return 0, n
	}
	tb := s.setup.Timebase
	// Both ends of the window are taken in: lo is the first at or behind From, hi the first behind To.
	lo = sort.Search(n, func(i int) bool { return tb.Seconds(tick(i)) >= s.window.From })
	hi = lo + sort.Search(n-lo, func(i int) bool { return tb.Seconds(tick(lo+i)) > s.window.To })
	return lo, hi
}

// filler collects rows and yields full batches, whose memory grows to that of one batch.
type filler struct {
	batch  Batch
	yield  func(*Batch, error) bool
	series []series
}

// errStopped ends the loops where the caller took no more; it is no error of the export.
var errStopped = errors.New("the reader stopped")

// add appends rows [lo, hi) of the source of fill.
func (f *filler) add(lo, hi int) error {
	for lo < hi {
		n := min(hi-lo, BatchRows-f.batch.Rows)
		for i, s := range f.series {
			s.fill(&f.batch.Columns[i], lo, lo+n)
		}
		f.batch.Rows += n
		lo += n
		if f.batch.Rows == BatchRows {
			if err := f.flush(); err != nil {
				return err
			}
		}
	}
	return nil
}

// flush yields the batch, and begins another in its memory.
func (f *filler) flush() error {
	if f.batch.Rows == 0 {
		return nil
	}
	if !f.yield(&f.batch, nil) {
		return errStopped
	}
	// The batch is the caller's until the yield returns: it is used again then.
	f.batch.Rows = 0
	for i := range f.batch.Columns {
		v := &f.batch.Columns[i]
		v.I32, v.I64, v.F64 = v.I32[:0], v.I64[:0], v.F64[:0]
	}
	return nil
}

// end yields the last batch, or the error.
func (f *filler) end(err error) {
	if err == nil {
		err = f.flush()
	}
	if err != nil && !errors.Is(err, errStopped) {
		f.yield(nil, err)
	}
}

// finish sets a table's columns and its batches, which read yields by the filler that it gets.
func (s *scans) finish(t *Table, list []series, read func(*filler) error) {
	t.Columns = lists.Map(list, func(x series) Column { return x.Column })
	t.Batches = func(yield func(*Batch, error) bool) {
		f := &filler{yield: yield, series: list, batch: Batch{Columns: make([]Values, len(list))}}
		f.end(read(f))
	}
}

// numbered returns the column of scan numbers, of a source whose first scan first returns.
func numbered(first func() uint64) series {
	return series{Column{
		Name: "scan", Type: Int64, Unit: "1",
		About: "number of the scan since the capture began; it jumps over scans that were lost",
	}, whole(func(i int) int64 { return int64(first()) + int64(i) })}
}

// hosted returns the column of the host's time of scans whose ticks tick returns.
func (s *scans) hosted(tick func(int) float64) series {
	return series{Column{
		Name: "host_ns", Type: Int64, Unit: "ns", About: "host's clock since 1970 (UTC), by the task's clock fit",
	}, whole(func(i int) int64 { return s.meta.HostNanos(s.setup.Timebase.Seconds(tick(i))) })}
}

// wholeCard returns the columns of device time and of the total power, which is of all rails, also of those
// without columns; p are the powers that are being read.
func (s *scans) wholeCard(p **measure.Powers) []series {
	at := floats(func(i int) float64 { return float64(s.setup.Timebase.Seconds((*p).Tick(i))) })
	total := floats(func(i int) (sum float64) {
		for _, r := range (*p).Rails {
			sum += float64(r.P[i])
		}
		return sum
	})
	return []series{
		{Column{Name: "t_s", Type: Float64, Unit: "s", About: "device time since the capture's first scan"}, at},
		{Column{Name: "power_w", Type: Float64, Unit: "W", About: "power of all rails of the task together"}, total},
	}
}

// raw makes a table of the counts of the channels of rails, or of all of them.
func (s *scans) raw(t *Table, rails []int, all bool) {
	tb, names := s.setup.Timebase, namer{"scan": true}
	var block *measure.Block // that is being read
	at := func(i int) float64 { return block.TickAt(tb, i) }
	tick := series{Column{
		Name: names.name("tick"), Type: Int64, Unit: "1",
		About: "device time in ticks since the capture's first scan; calibration.tick_hz of them are a second",
	}, whole(func(i int) int64 { return int64(at(i)) })}
	// With stamps the tick is the instrument's own; without, it is scan·ticks_per_scan, which may be a
	// fraction.
	if !tb.Stamped && tb.TicksPerScan != math.Trunc(tb.TicksPerScan) {
		tick.Type, tick.fill = Float64, floats(at)
	}
	list := []series{numbered(func() uint64 { return block.FirstScan }), tick}
	// A channel that is x of one rail and y of another comes once.
	for c, ch := range s.setup.Channels {
		of := func(r int) bool { return s.setup.Rails[r].X == c || s.setup.Rails[r].Y == c }
		if !all && !slices.ContainsFunc(rails, of) {
			continue
		}
		list = append(list, series{Column{
			Name: names.name(ch.Name + "_count"), Type: Int32, Unit: "1", Channel: ch.Name,
			About: fmt.Sprintf("raw count; %s = %v + %v x count", ch.Unit, ch.Offset, ch.Gain),
		}, func(v *Values, lo, hi int) { v.I32 = append(v.I32, block.Counts[c][lo:hi]...) }})
	}
	if s.hostTime {
		list = append(list, s.hosted(at))
	}
	s.finish(t, list, func(f *filler) (err error) {
		for block, err = range s.blocks() {
			if err == nil {
				err = f.add(s.within(block.Scans(), at))
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// derived makes a table of volts, amperes and watts.
// PowerStream interpolates channels that are read one after the other to one instant, so powers lag
// behind the blocks: its callback has the rows that are finished.
func (s *scans) derived(t *Table, rails []int) {
	var p *measure.Powers // that are being read
	list := append([]series{numbered(func() uint64 { return p.FirstScan })}, s.wholeCard(&p)...)
	// host_ns is reserved also without HostTime: the choice of a column does not rename others.
	names := namer{"scan": true, "t_s": true, "power_w": true, "host_ns": true}
	add := func(rail measure.Rail, quantity, unit, note string, of func(scan int) float64) {
		name := names.name(rail.Name + "_" + quantity + "_" + strings.ToLower(unit))
		c := Column{
			Name: name, Type: Float64, Unit: unit, About: quantity + " of rail " + rail.Name + note,
			Behind: s.setup.Instant(rail.X),
		}
		list = append(list, series{c, floats(of)})
	}
	for _, r := range rails {
		rail, note := s.setup.Rails[r], ""
		// A voltage that was assumed must not pass as measured.
		if rail.Wiring == measure.WiringAssumed {
			note = ", assumed, not measured"
		}
		// A rail that reads watts has neither current nor voltage.
		if rail.Wiring != measure.WiringPower {
			add(rail, "current", "A", "", func(i int) float64 { return float64(p.Rails[r].I[i]) })
			add(rail, "voltage", "V", note, func(i int) float64 { return float64(p.Rails[r].V[i]) })
		}
		add(rail, "power", "W", "", func(i int) float64 { return float64(p.Rails[r].P[i]) })
	}
	if s.hostTime {
		list = append(list, s.hosted(func(i int) float64 { return p.Tick(i) }))
	}
	s.finish(t, list, func(f *filler) error {
		stream, err := measure.NewPowerStream(s.setup, func(powers *measure.Powers) error {
			p = powers
			return f.add(s.within(p.Scans(), p.Tick))
		})
		if err != nil {
			return err
		}
		for b, err := range s.blocks() {
			if err == nil {
				err = stream.Add(b)
			}
			if err != nil {
				return err
			}
		}
		// Close passes the last scans on, for which no neighbour comes.
		return stream.Close()
	})
}

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
	// Rails names the rails that get columns; none for all. The total is of all rails
	// in any case.
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
	rails, err := chosenRails(&t.Setup, c.Rails)
	if err != nil {
		return nil, fmt.Errorf("table of task %d: %w", t.ID, err)
	}
	out := &Table{Meta: NewMeta(t, program)}
	// The span of the metadata is the one asked for, not that of the rows in it.
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

// chosenRails returns the indices of the named rails; all where none is named.
func chosenRails(s *measure.Setup, names []string) (out []int, err error) {
	// In the order of the setup, whatever the order of the names.
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

// chosenChannels returns the channels of rails, or all of them.
// A channel that is x of one rail and y of another comes once.
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

var (
	scanColumn = Column{
		Name: "scan", Type: Int64, Unit: "1",
		About: "number of the scan since the capture began; it jumps over scans that were lost",
	}
	hostColumn = Column{
		Name: "host_ns", Type: Int64, Unit: "ns", About: "host's clock since 1970 (UTC), by the task's clock fit",
	}
)

// rawColumns returns the columns of counts.
func rawColumns(s *measure.Setup, channels []int, hostTime bool) []Column {
	names := namer{}
	// With stamps the tick is the instrument's own; without, it is scan·ticks_per_scan, which may be a
	// fraction.
	tick := Column{
		Name: names.name("tick"), Type: Int64, Unit: "1",
		About: "device time in ticks since the capture's first scan; calibration.tick_hz of them are a second",
	}
	if !wholeTicks(s.Timebase) {
		tick.Type = Float64
		// Names that are reserved for columns without a rail.
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

// derivedColumns returns the columns of volts, amperes and watts.
func derivedColumns(s *measure.Setup, rails []int, hostTime bool) []Column {
	names := namer{}
	out := []Column{
		scanColumn,
		{Name: "t_s", Type: Float64, Unit: "s", About: "device time since the capture's first scan"},
		{Name: "power_w", Type: Float64, Unit: "W", About: "power of all rails of the task together"},
	}
	// Reserved also without HostTime: the choice of a column does not rename others.
	for _, c := range append(out, hostColumn) {
		names.name(c.Name)
	}
	add := func(rail, quantity, unit, note string) {
		name := names.name(rail + "_" + quantity + "_" + strings.ToLower(unit))
		out = append(out, Column{Name: name, Type: Float64, Unit: unit, About: quantity + " of rail " + rail + note})
	}
	for _, r := range rails {
		rail := s.Rails[r]
		note := ""
		// A voltage that was assumed must not pass as measured.
		if rail.Wiring == measure.WiringAssumed {
			note = ", assumed, not measured"
		}
		// A rail that reads watts has neither current nor voltage.
		if rail.Wiring != measure.WiringPower {
			add(rail.Name, "current", "A", "")
			add(rail.Name, "voltage", "V", note)
		}
		add(rail.Name, "power", "W", "")
	}
	if hostTime {
		out = append(out, hostColumn)
	}
	return out
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
	host     hostTime
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
				} else if !tb.Stamped && first+float64(c.Scans)*tb.TicksPerScan+margin < tb.Ticks(s.window.From) {
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

// filler collects rows and yields full batches. fill appends rows [lo, hi) of its source to each
// column of a batch.
type filler struct {
	batch Batch
	yield func(*Batch, error) bool
	fill  func(b *Batch, lo, hi int)
}

// errStopped ends the loops where the caller took no more; it is no error of the export.
var errStopped = errors.New("the reader stopped")

// newFiller returns a filler of batches of columns, whose memory grows to that of one batch.
func newFiller(columns []Column, yield func(*Batch, error) bool) *filler {
	return &filler{yield: yield, batch: Batch{Columns: make([]Values, len(columns))}}
}

// add appends rows [lo, hi) of the source of fill.
func (f *filler) add(lo, hi int) error {
	for lo < hi {
		n := min(hi-lo, BatchRows-f.batch.Rows)
		f.fill(&f.batch, lo, lo+n)
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

// raw yields batches of counts.
func (s *scans) raw(columns []Column, channels []int) iter.Seq2[*Batch, error] {
	return func(yield func(*Batch, error) bool) {
		f := newFiller(columns, yield)
		var block *measure.Block
		// fill reads the block of the loop below.
		f.fill = func(b *Batch, lo, hi int) { s.fillRaw(b, block, channels, lo, hi) }
		var err error
		for block, err = range s.blocks() {
			if err == nil {
				err = f.add(s.within(block.Scans(), func(i int) float64 { return block.TickAt(s.setup.Timebase, i) }))
			}
			if err != nil {
				break
			}
		}
		f.end(err)
	}
}

// fillRaw appends scans [lo, hi) of a block, in the order of rawColumns.
func (s *scans) fillRaw(b *Batch, from *measure.Block, channels []int, lo, hi int) {
	tb := s.setup.Timebase
	scan, tick := &b.Columns[0].I64, &b.Columns[1]
	whole := wholeTicks(tb)
	for i := lo; i < hi; i++ {
		*scan = append(*scan, int64(from.FirstScan)+int64(i))
		if t := from.TickAt(tb, i); whole {
			tick.I64 = append(tick.I64, int64(t))
		} else {
			tick.F64 = append(tick.F64, t)
		}
	}
	for k, c := range channels {
		v := &b.Columns[2+k]
		v.I32 = append(v.I32, from.Counts[c][lo:hi]...)
	}
	if s.hostTime {
		v := &b.Columns[2+len(channels)]
		for i := lo; i < hi; i++ {
			v.I64 = append(v.I64, s.host.nanos(tb.Seconds(from.TickAt(tb, i))))
		}
	}
}

// derived yields batches of volts, amperes and watts.
// PowerStream interpolates channels that are read one after the other to one instant, so powers lag
// behind the blocks: its callback has the rows that are finished.
func (s *scans) derived(columns []Column, rails []int) iter.Seq2[*Batch, error] {
	return func(yield func(*Batch, error) bool) {
		f := newFiller(columns, yield)
		var powers *measure.Powers
		f.fill = func(b *Batch, lo, hi int) { s.fillDerived(b, powers, rails, lo, hi) }
		stream, err := measure.NewPowerStream(s.setup, func(p *measure.Powers) error {
			powers = p
			return f.add(s.within(p.Scans(), p.Tick))
		})
		if err != nil {
			f.end(err)
			return
		}
		for b, err := range s.blocks() {
			if err == nil {
				err = stream.Add(b)
			}
			if err != nil {
				f.end(err)
				return
			}
		}
		// Close passes the last scans on, for which no neighbour comes.
		f.end(stream.Close())
	}
}

// fillDerived appends scans [lo, hi) of powers, in the order of derivedColumns.
func (s *scans) fillDerived(b *Batch, p *measure.Powers, rails []int, lo, hi int) {
	tb := s.setup.Timebase
	for i := lo; i < hi; i++ {
		b.Columns[0].I64 = append(b.Columns[0].I64, int64(p.FirstScan)+int64(i))
		// The total is of all rails, also of those without columns.
		b.Columns[1].F64 = append(b.Columns[1].F64, float64(tb.Seconds(p.Tick(i))))
		total := 0.0
		for r := range p.Rails {
			total += float64(p.Rails[r].P[i])
		}
		b.Columns[2].F64 = append(b.Columns[2].F64, total)
	}
	at := 3
	for _, r := range rails {
		// A rail that reads watts has no currents: one column less.
		if cols := &p.Rails[r]; len(cols.I) > 0 {
			b.Columns[at].F64 = appendAll(b.Columns[at].F64, cols.I[lo:hi])
			b.Columns[at+1].F64 = appendAll(b.Columns[at+1].F64, cols.V[lo:hi])
			at += 2
		}
		b.Columns[at].F64 = appendAll(b.Columns[at].F64, p.Rails[r].P[lo:hi])
		at++
	}
	if s.hostTime {
		for i := lo; i < hi; i++ {
			b.Columns[at].I64 = append(b.Columns[at].I64, s.host.nanos(tb.Seconds(p.Tick(i))))
		}
	}
}

// appendAll appends quantities as plain numbers.
func appendAll[T ~float64](dst []float64, src []T) []float64 {
	for _, v := range src {
		dst = append(dst, float64(v))
	}
	return dst
}

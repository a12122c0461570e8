// Package textin turns rows of numbers with units into blocks of counts: the part
// that readers of text formats share. A file is read twice: Look finds ranges and digits of its
// columns, in constant memory, and Read makes blocks of it.
//
//	csvfile, ps3dump ── Source of Rows ─┬─▶ Look ─▶ Survey ─┐
//	                    Columns, Fields ─▶ NewPlan ─▶ Plan ─┴─▶ Setup, Read ─▶ Sink of blocks
package textin

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/logfile"
)

// ErrInput is wrapped by errors about files that cannot be taken in. They name the line and the remedy.
var ErrInput = errors.New("cannot be imported")

// Kind is the use of a column.
type Kind uint8

// The kinds.
const (
	Ignored  Kind = iota
	Time          // a number of the column's unit, or a moment where it has none
	Scan          // the number of the scan: it jumps where scans were lost
	Quantity      // volts, amperes or watts
)

// Column is a column that was recognised.
type Column struct {
	logfile.Column
	Kind Kind
	// Channel is the index of the channel that a quantity belongs to.
	Channel int
	// Absolute: the time counts from 1970.
	Absolute bool
}

// Row is one line of a file.
type Row struct {
	logfile.Row
	// Clock is set by readers that reckon a row's time from more than one column.
	Clock *Clock
}

// Clock is the time at which a row was sampled.
type Clock struct {
	Time int64 // ns
	Scan int64 // its number, which jumps where scans were lost; less than 0 where the file has none
	// Estimated: the jump before it is an estimate.
	Estimated bool
}

// Source reads a file from its beginning and hands on its rows; an error of row
// ends it and is returned. Fields are lent until row returns.
type Source func(row func(Row) error) error

// Survey is the result of a first look at a file.
type Survey struct {
	Rows        uint64
	First, Last int64   // ns, of the file's own clock
	Step        float64 // median distance of the first rows, in ns
	// Gain is the value of one count by channel, in its unit; Exact: the file's own digits are kept.
	Gain  []float64
	Exact []bool
}

// looked is the number of intervals of which the median is taken.
const looked = 4096

// Fault returns an error about a line of a file.
func Fault(line int, format string, a ...any) error {
	return &logfile.Error{Line: line, Kind: ErrInput, Err: fmt.Errorf(format, a...)}
}

// values is the content of one row.
type values struct {
	columns []Column
	time    int64
	scan    int64
	hasScan bool
	guessed bool       // how far scan jumped
	q       []quantity // by channel
}

// newValues returns the values of rows of columns, with room for each channel.
func newValues(columns []Column) *values {
	n := 0
	for _, c := range columns {
		if c.Kind == Quantity {
			n = max(n, c.Channel+1)
		}
	}
	return &values{columns: columns, q: make([]quantity, n)}
}

// read parses a row.
func (v *values) read(r Row) error {
	if len(r.Fields) != len(v.columns) {
		return Fault(r.Line, "it has %d values, the heading names %d: mend or remove it", len(r.Fields), len(v.columns))
	}
	if c := r.Clock; c != nil {
		v.time, v.scan, v.hasScan, v.guessed = c.Time, c.Scan, c.Scan >= 0, c.Estimated
	}
	for i, c := range v.columns {
		f := r.Fields[i]
		var err error
		switch c.Kind {
		case Time:
			if c.Unit.Of == "" {
				v.time, _, err = measure.ParseMoment(f)
			} else {
				v.time, err = measure.ParseNanos(f, c.Unit.Exponent)
			}
		case Scan:
			v.scan, err = strconv.ParseInt(f, 10, 64)
			v.hasScan = true
		case Quantity:
			v.q[c.Channel], err = parseQuantity(f, c.Unit.Exponent)
		}
		if err != nil {
			if c.Kind != Time || c.Unit.Of != "" {
				kind := map[Kind]string{Time: "time", Scan: "whole number", Quantity: "finite number"}[c.Kind]
				err = fmt.Errorf("%q is no %s: fill in the value or remove the row", f, kind)
			}
			return &logfile.Error{Line: r.Line, Column: c.Text, Kind: ErrInput, Err: err}
		}
	}
	return nil
}

// Look reads a file once. Times must rise from row to row.
func Look(src Source, columns []Column) (*Survey, error) {
	v := newValues(columns)
	s := &Survey{Gain: make([]float64, len(v.q)), Exact: make([]bool, len(v.q))}
	most, digits := make([]float64, len(v.q)), make([]int, len(v.q))
	var steps []float64
	var firstScan, lastScan int64
	err := src(func(r Row) error {
		if err := v.read(r); err != nil {
			return err
		}
		switch {
		case s.Rows == 0:
			s.First, firstScan = v.time, v.scan
		case v.time <= s.Last:
			return Fault(r.Line, "its time is not later than that of the row before: "+
				"sort the rows by time and remove doubles")
		case v.hasScan && v.scan <= lastScan:
			return Fault(r.Line, "scan %d follows scan %d: remove the column or sort the rows", v.scan, lastScan)
		case len(steps) < looked:
			steps = append(steps, float64(v.time-s.Last))
		}
		s.Last, lastScan = v.time, v.scan
		s.Rows++
		for i, q := range v.q {
			most[i], digits[i] = max(most[i], math.Abs(q.v)), max(digits[i], q.digits)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if s.Rows < 2 {
		return nil, fmt.Errorf("%w: it has %s of values: want two at least", ErrInput, measure.Plural(s.Rows, "row"))
	}
	slices.Sort(steps)
	s.Step = steps[len(steps)/2]
	// The median of steps of 250.4 µs in whole µs is 250.
	// Numbers of scans give the step more exactly than a median of whole units.
	if mean := float64(s.Last-s.First) / float64(lastScan-firstScan); v.hasScan && math.Abs(mean/s.Step-1) < 0.05 {
		s.Step = mean
	}
	for i := range s.Gain {
		s.Gain[i], s.Exact[i] = resolution(most[i], digits[i])
	}
	return s, nil
}

// tick is the length of a tick in ns: 1, but for rows so far apart that a chunk's
// ticks would not be exact in a float64.
func (s *Survey) tick() int64 {
	if s.Step > 1e10 {
		return 1000
	}
	return 1
}

// Timebase returns the timebase of the blocks that Read makes: stamps since the first row.
func (s *Survey) Timebase(uTick float64) measure.Timebase {
	n := float64(s.tick())
	return measure.Timebase{TickHz: measure.Hertz(1e9 / n), UTickHz: uTick, TicksPerScan: s.Step / n, Stamped: true}
}

// quantity is a value with its digits behind the point, in SI units.
type quantity struct {
	v      float64
	digits int // at least 0
}

// resolution chooses the value of one count: the file's last decimal place where
// 31 bits hold the largest value in it, else the smallest step of 1, 2 or 5 times a
// power of ten for which they do. At the file's own resolution import and export lose nothing;
// at another a value is rounded by at most half a count, 10⁻⁹ of the largest.
func resolution(most float64, digits int) (gain float64, exact bool) {
	const top = 1 << 30
	most = max(most, 1e-9) // any less is zero
	if digits <= 15 {
		if g := pow10(-digits); most/g < top {
			return g, true
		}
	}
	e := math.Floor(math.Log10(most / top))
	for _, m := range []float64{1, 2, 5, 10} {
		if g := m * math.Pow(10, e); most/g <= top {
			return g, false
		}
	}
	return 10 * math.Pow(10, e), false
}

// pow10 is a power of ten that reads back as such.
func pow10(e int) float64 {
	f, _ := strconv.ParseFloat("1e"+strconv.Itoa(e), 64) // always a number
	return f
}

// parseQuantity reads a number of 10^exponent SI units.
func parseQuantity(s string, exponent int) (quantity, error) {
	f, err := strconv.ParseFloat(s, 64)
	if err != nil || strings.ContainsAny(s, "xX") || math.IsNaN(f) || math.IsInf(f, 0) || math.Abs(f) > 1e12 {
		return quantity{}, ErrInput
	}
	// The digits behind the point that it is written with.
	mantissa, power, _ := strings.Cut(strings.ToLower(s), "e")
	_, fraction, _ := strings.Cut(mantissa, ".")
	exp, _ := strconv.Atoi(power) // 0 for none; ParseFloat has checked it
	return quantity{f * pow10(exponent), max(max(len(fraction)-exp, 0)-exponent, 0)}, nil
}

// Sink receives blocks and events. A block is lent until the call returns.
type Sink struct {
	Block func(*measure.Block) error
	Event func(measure.Event) error
}

// blockRows is the number of scans of a block.
const blockRows = 4096

// gapSteps is the distance in median steps from which on rows between two count as lost,
// where the file does not number its scans.
const gapSteps = 10

// Read makes blocks of a file that Look has seen. Where scans are missing, by
// their numbers or by their times, an event has their count.
func Read(src Source, columns []Column, s *Survey, sink Sink) error {
	r := reader{v: newValues(columns), s: s, sink: sink}
	r.b.Counts = make([][]measure.Count, len(r.v.q))
	if err := src(r.row); err != nil {
		return err
	}
	return r.flush()
}

// reader makes blocks of rows. A block ends where it is full or scans are lost.
type reader struct {
	v        *values
	s        *Survey
	sink     Sink
	b        measure.Block
	rows     uint64
	next     uint64 // number of the next scan where none is lost
	lastTime int64
	lastScan int64
}

// row adds a row to the block, and reports the scans lost before it.
func (r *reader) row(row Row) error {
	if err := r.v.read(row); err != nil {
		return err
	}
	if r.rows++; r.rows > r.s.Rows || r.v.time < r.s.First || r.v.time > r.s.Last {
		return Fault(row.Line, "the file changed while it was read: import it again")
	}
	if lost, exact := r.lost(); lost > 0 {
		// A block has no gap in it: it ends here, and the next one begins behind the lost scans.
		if err := r.flush(); err != nil {
			return err
		}
		gap := measure.Event{Kind: measure.EventGap, FirstScan: r.next, Scans: lost, Exact: exact, Channel: -1}
		if err := r.sink.Event(gap); err != nil {
			return err
		}
		r.next += lost
	}
	if len(r.b.Ticks) == 0 {
		r.b.FirstScan, r.b.FirstTick = r.next, (r.v.time-r.s.First)/r.s.tick()
	}
	r.b.Ticks = append(r.b.Ticks, (r.v.time-r.s.First)/r.s.tick())
	for c, q := range r.v.q {
		// Look chose the gain so that all values fit; a value that does not is of a later write.
		n := math.Round(q.v / r.s.Gain[c])
		if !(math.Abs(n) < math.MaxInt32) {
			return Fault(row.Line, "the file changed while it was read: import it again")
		}
		r.b.Counts[c] = append(r.b.Counts[c], measure.Count(n))
	}
	r.next++
	r.lastTime, r.lastScan = r.v.time, r.v.scan
	if len(r.b.Ticks) == blockRows {
		return r.flush()
	}
	return nil
}

// lost returns the number of scans missing before the row that was read: by their numbers, which
// are exact unless the reader guessed them, else by the distance in time.
func (r *reader) lost() (n uint64, exact bool) {
	switch {
	case r.rows == 1:
		return 0, false
	case r.v.hasScan:
		return uint64(r.v.scan-r.lastScan) - 1, !r.v.guessed
	}
	if steps := float64(r.v.time-r.lastTime) / r.s.Step; steps > gapSteps {
		return uint64(math.Round(steps)) - 1, false
	}
	return 0, false
}

// flush hands the block on, and begins another.
func (r *reader) flush() error {
	if len(r.b.Ticks) == 0 {
		return nil
	}
	if err := r.sink.Block(&r.b); err != nil {
		return err
	}
	r.b.Ticks = r.b.Ticks[:0]
	for c := range r.b.Counts {
		r.b.Counts[c] = r.b.Counts[c][:0]
	}
	return nil
}

// Field is a column of a quantity as a format's reader understood it.
type Field struct {
	Column int
	Rail   string
	Unit   logfile.Unit
}

// Plan are the columns, channels and rails of a file.
type Plan struct {
	Columns  []Column
	Channels []measure.Channel // Gain is set by Apply
	Rails    []measure.Rail
	// Left names columns that were not used, with the reason.
	Left []string
}

// Options settle ambiguities of a file.
type Options struct {
	// Assumed are the voltages of rails of which only the current is there.
	Assumed map[string]measure.Volt
	// Rails names the rails that are wanted; none for all.
	Rails []string
}

// NewPlan makes rails of fields: a current and a voltage of one name make a clamp
// rail, and a power beside them is left, since it follows; a current alone takes
// the voltage that Options.Assumed has for its rail; a power alone is a rail itself. A
// power without a rail's name is the total, taken only where there is nothing else.
func NewPlan(columns []Column, fields []Field, o Options) (*Plan, error) {
	p := &Plan{Columns: columns}
	var names []string
	for i, f := range fields {
		if slices.ContainsFunc(fields[:i], func(g Field) bool { return g.Rail == f.Rail && g.Unit.Of == f.Unit.Of }) {
			return nil, fmt.Errorf("%w: two columns hold the same: %q is the second: remove or rename it",
				ErrInput, columns[f.Column].Text)
		}
		if !slices.Contains(names, f.Rail) && f.Rail != "" {
			names = append(names, f.Rail)
		}
	}
	for _, n := range o.Rails {
		if !slices.Contains(names, n) {
			return nil, fmt.Errorf("%w: --rail %s: its rails are %s", ErrInput, n, strings.Join(names, ", "))
		}
	}
	for _, n := range names {
		if len(o.Rails) > 0 && !slices.Contains(o.Rails, n) {
			continue
		}
		if err := p.rail(n, fields, o.Assumed); err != nil {
			return nil, err
		}
	}
	if w, ok := find(fields, "", measure.UnitWatt); ok && len(p.Rails) == 0 {
		p.Rails = append(p.Rails, measure.Rail{
			Name: "total", Role: measure.RoleWholeGPU, Wiring: measure.WiringPower, X: p.channel(w, "total.power"), Y: -1,
		})
	} else if ok {
		p.leave(w, "the rails make the total")
	}
	for rail := range o.Assumed {
		used := func(r measure.Rail) bool { return r.Name == rail && r.Wiring == measure.WiringAssumed }
		if !slices.ContainsFunc(p.Rails, used) {
			return nil, fmt.Errorf("%w: --assume %s: the file has no rail of that name with a current and no voltage",
				ErrInput, rail)
		}
	}
	if len(p.Rails) == 0 {
		return nil, fmt.Errorf("%w: no column makes a power: name them as in pcie_12v_current_a and "+
			`pcie_12v_voltage_v, gpu_power_w, or "12V current [mA]"`, ErrInput)
	}
	return p, nil
}

// find returns the field of a rail and unit.
func find(fields []Field, rail string, u measure.Unit) (f Field, ok bool) {
	i := slices.IndexFunc(fields, func(f Field) bool { return f.Rail == rail && f.Unit.Of == u })
	if i < 0 {
		return f, false
	}
	return fields[i], true
}

// leave notes that a field is not used.
func (p *Plan) leave(f Field, why string) {
	p.Left = append(p.Left, p.Columns[f.Column].Text+": "+why)
}

// rail makes a rail of the fields of its name.
func (p *Plan) rail(name string, fields []Field, assumed map[string]measure.Volt) error {
	i, hasI := find(fields, name, measure.UnitAmpere)
	v, hasV := find(fields, name, measure.UnitVolt)
	w, hasW := find(fields, name, measure.UnitWatt)
	volts, assume := assumed[name]
	r := measure.Rail{Name: name, Y: -1}
	switch {
	case hasI && hasV:
		r.Wiring, r.X, r.Y = measure.WiringClamp, p.channel(i, name+".current"), p.channel(v, name+".voltage")
		if hasW {
			p.leave(w, "it follows from current and voltage")
		}
	case hasI && assume:
		r.Wiring, r.X, r.Assumed = measure.WiringAssumed, p.channel(i, name+".current"), volts
		if hasW {
			p.leave(w, "current and assumed voltage make the power")
		}
	case hasW:
		r.Wiring, r.X = measure.WiringPower, p.channel(w, name+".power")
		if hasI {
			p.leave(i, "the rail's power is there")
		}
		if hasV {
			p.leave(v, "the rail's power is there")
		}
	case hasI:
		return fmt.Errorf("%w: rail %s has a current (%q) and no voltage: "+
			"add a column %s_voltage_v, or say what to assume: --assume %s=12",
			ErrInput, name, p.Columns[i.Column].Text, name, name)
	default:
		p.leave(v, "a voltage without a current")
		return nil
	}
	p.Rails = append(p.Rails, r)
	return nil
}

// channel makes a channel of a field.
func (p *Plan) channel(f Field, name string) int {
	n := len(p.Channels)
	p.Channels = append(p.Channels, measure.Channel{Name: name, Unit: f.Unit.Of})
	c := &p.Columns[f.Column]
	c.Kind, c.Unit, c.Channel = Quantity, f.Unit, n
	return n
}

// Setup is the setup of a file that was looked at. uGain is a relative standard
// uncertainty that is stated for all channels.
func (p *Plan) Setup(s *Survey, uGain, uTick float64) measure.Setup {
	out := measure.Setup{Timebase: s.Timebase(uTick), Rails: slices.Clone(p.Rails), Channels: slices.Clone(p.Channels)}
	for i := range out.Channels {
		out.Channels[i].Gain, out.Channels[i].UGain = s.Gain[i], uGain
	}
	return out
}

package predict

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/wattmark/wattmark/analysis/stats"
	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/logfile"
	"gonum.org/v1/gonum/stat"
)

// ErrFormat: a file is not what it should be.
var ErrFormat = errors.New("unreadable")

// Table are the points of a file.
type Table struct {
	Points []Point
	// Kernels names the kernel of each point; empty where the file names none.
	Kernels []string
}

// Kernel returns the points of one kernel, all where name is empty. A file of
// several wants a name.
func (t *Table) Kernel(name string) ([]Point, error) {
	known := slices.Compact(slices.Sorted(slices.Values(t.Kernels)))
	if name == "" {
		if len(known) > 1 {
			return nil, fmt.Errorf("%w: it has points of %d kernels: name one of %s",
				ErrFormat, len(known), strings.Join(known, ", "))
		}
		return t.Points, nil
	}
	var out []Point
	for i, k := range t.Kernels {
		if k == name {
			out = append(out, t.Points[i])
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%w: no points of %q: it has %s", ErrFormat, name, strings.Join(known, ", "))
	}
	return out, nil
}

// pointColumns are the columns of a table of points. The first three must be there.
var pointColumns = []string{"blocks", "time_s", "energy_j", "u_j", "u_s", "repeat", "kernel"}

// ReadPoints reads a CSV file with a header: blocks, time_s and energy_j, and
// where wanted u_j and u_s (expanded uncertainties, k = 2), repeat (launches that
// time and energy are divided by) and kernel. Other columns are passed over. name is the
// file's, for errors.
func ReadPoints(r io.Reader, name string) (*Table, error) {
	in, err := logfile.Open(r, logfile.Options{Name: name, Kind: ErrFormat, Want: strings.Join(pointColumns[:3], ",")})
	if err != nil {
		return nil, err
	}
	columns, err := find(in, pointColumns, 3)
	if err != nil {
		return nil, err
	}
	t := &Table{}
	for row, err := range in.Rows() {
		var p Point
		if err == nil {
			p, err = parsePoint(name, row, columns)
		}
		if err != nil {
			return nil, err
		}
		t.Points, t.Kernels = append(t.Points, p), append(t.Kernels, row.Text(columns[6]))
	}
	if len(t.Points) == 0 {
		return nil, in.Fault("a header and no points")
	}
	return t, nil
}

// find returns the columns of names, of which the first must be there, and none twice.
func find(t *logfile.Table, names []string, must int) (out []logfile.Column, err error) {
	for i, name := range names {
		c := t.Find(name)
		twice := func(d logfile.Column) bool { return d.Index != c.Index && logfile.Plain(d.Text) == name }
		switch {
		case !c.Is() && i < must:
			return nil, t.Fault("no column %q: want %s, and may have %s",
				name, strings.Join(names[:must], ","), strings.Join(names[must:], ","))
		case c.Is() && slices.ContainsFunc(t.Columns, twice):
			return nil, t.Fault("two columns %q", name)
		}
		out = append(out, c)
	}
	return out, nil
}

// parsePoint reads a row as one launch: repeat launches share its time and energy.
func parsePoint(file string, row logfile.Row, columns []logfile.Column) (p Point, err error) {
	v := [...]float64{5: 1} // as pointColumns: without a column repeat, of one launch
	for i := range v {
		if c := columns[i]; i < 3 || row.Text(c) != "" {
			if v[i], err = row.Number(c); err != nil {
				return p, err
			}
		}
	}
	n, repeat := v[0], v[5]
	if n != math.Trunc(n) || n < 0 || n > MostBlocks {
		return p, row.Fault(columns[0], "blocks %v: want a whole number", n)
	}
	if repeat < 1 || repeat != math.Trunc(repeat) {
		return p, row.Fault(columns[5], "repeat %v: want a whole number of launches, 1 or more", repeat)
	}
	p = Point{
		Blocks: uint64(n), Time: measure.Seconds(v[1] / repeat), Energy: measure.Joule(v[2] / repeat),
		UTime: measure.Seconds(v[4] / 2 / repeat), UEnergy: measure.Joule(v[3] / 2 / repeat),
		From: fmt.Sprintf("%s:%d", file, row.Line),
	}
	return p, p.Validate()
}

// Reading is one power reading of a trace.
type Reading struct {
	At     measure.Seconds
	Power  measure.Watt
	PState string // "P0" to "P15"; empty where the trace has none
}

// Trace is a power trace of one launch, in order of time.
type Trace struct {
	Name     string
	Readings []Reading
	// Dropped counts readings of other performance states.
	Dropped int
}

// ReadTrace reads a power trace: CSV with time_s, power_w and maybe pstate, or
// what nvidia-smi --query-gpu=timestamp,power.draw,pstate --format=csv writes.
// name is the file's, for errors.
func ReadTrace(r io.Reader, name string) (*Trace, error) {
	in, err := logfile.Open(r, logfile.Options{Name: name, Kind: ErrFormat, Want: "time_s,power_w"})
	if err != nil {
		return nil, err
	}
	names := []string{"time_s", "power_w", "pstate"}
	draw := in.First(func(c logfile.Column) bool { return strings.HasPrefix(strings.ToLower(c.Text), "power.draw") })
	if draw.Is() {
		names[0], names[1] = "timestamp", logfile.Plain(draw.Text)
	}
	columns, err := find(in, names, 2)
	if err != nil {
		return nil, err
	}
	t := &Trace{Name: name}
	// Dates count from the trace's first reading, plain seconds as they are.
	var first int64 // ns, the zero of a trace with dates: milliseconds stay exact
	for row, err := range in.Rows() {
		if err != nil {
			return nil, err
		}
		ns, form, err := row.Time(columns[0])
		w, fault := row.Number(columns[1])
		if err = cmp.Or(err, fault); err != nil {
			return nil, err
		}
		if len(t.Readings) == 0 && form != logfile.Counted {
			first = ns
		}
		x := Reading{
			At: measure.Seconds(float64(ns-first) / 1e9), Power: measure.Watt(w), PState: strings.ToUpper(row.Text(columns[2])),
		}
		if n := len(t.Readings); n > 0 && x.At <= t.Readings[n-1].At {
			return nil, row.Fault(columns[0], "the time does not go on from %v s to %v s",
				float64(t.Readings[n-1].At), float64(x.At))
		}
		if x.Power < 0 {
			return nil, row.Fault(columns[1], "a power of %v W", float64(x.Power))
		}
		t.Readings = append(t.Readings, x)
	}
	if len(t.Readings) < 2 {
		return nil, in.Fault("%s: two are needed at least", measure.Plural(len(t.Readings), "reading"))
	}
	return t, nil
}

// Busy returns the readings in performance state P0, which the paper takes for
// the GPU at work; all of a trace without states. They need persistence
// mode: without it nvidia-smi itself wakes the GPU into P0.
func (t *Trace) Busy() *Trace {
	busy := lists.Filter(t.Readings, func(r *Reading) bool { return r.PState == "" || r.PState == "P0" })
	return &Trace{Name: t.Name, Readings: busy, Dropped: len(t.Readings) - len(busy)}
}

// Period is the median distance of the readings.
func (t *Trace) Period() measure.Seconds {
	if len(t.Readings) < 2 {
		return 0
	}
	d := stats.Differences(lists.Map(t.Readings, func(r Reading) measure.Seconds { return r.At }))
	slices.Sort(d)
	return measure.Seconds(d[len(d)/2])
}

// Mean is the mean power of the readings.
func (t *Trace) Mean() measure.Watt {
	powers := lists.Map(t.Readings, func(r Reading) float64 { return float64(r.Power) })
	return measure.Watt(stat.Mean(powers, nil))
}

// Point makes a calibration point of a trace: T is the readings times their
// period, E the sum of their powers times the period (section IV-C; the dynamic
// energy is then E − P_s·T).
func (t *Trace) Point(blocks uint64) (Point, error) {
	if len(t.Readings) < 2 {
		return Point{}, fmt.Errorf("%w: %s: %d readings in P0 (%d in other states): "+
			"record a longer launch, or a trace without the column pstate", ErrPoints, t.Name, len(t.Readings), t.Dropped)
	}
	span := measure.Seconds(float64(t.Period()) * float64(len(t.Readings)))
	p := Point{Blocks: blocks, Time: span, Energy: measure.Joule(float64(t.Mean()) * float64(span)), From: t.Name}
	return p, p.Validate()
}

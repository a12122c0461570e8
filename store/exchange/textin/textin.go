// Package textin turns rows of numbers with units into blocks of counts: the part
// that readers of text formats share. A file is read twice: Look finds what its
// columns hold, in constant memory, and Read makes blocks of it.
package textin

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"

	"wattmark/measure"
)

// ErrInput is wrapped by errors about files that cannot be taken in. They name the
// row and what to do.
var ErrInput = errors.New("cannot be imported")

// Kind is what a column is for.
type Kind uint8

// The kinds.
const (
	Ignored  Kind = iota
	Time          // a number in 10^Exponent seconds, ns where Stamp is nil
	Scan          // the number of the scan: it jumps where scans were lost
	Quantity      // volts, amperes or watts, in 10^Exponent of them
)

// Column is a column that was recognised.
type Column struct {
	Name     string // as the file has it
	Kind     Kind
	Exponent int // power of ten of the unit: −3 for mA
	// Channel is the index of the channel that a quantity belongs to.
	Channel int
	// Stamp reads a time that is no plain number, in ns since 1970.
	Stamp func(string) (int64, error)
	// Absolute says that a time counts from 1970.
	Absolute bool
}

// Row is one line of a file.
type Row struct {
	Number int // counted from 1 in the file, headings included
	Fields []string
	// Clock is there where a reader works out a row's time from more than one column.
	Clock *Clock
}

// Clock is when a row was sampled.
type Clock struct {
	Time int64 // ns
	Scan int64 // its number, which jumps where scans were lost; less than 0: not known
	// Estimated says that the jump before it is an estimate.
	Estimated bool
}

// Source reads a file from its beginning and hands on its rows; an error of row
// ends it and is returned. Fields are lent until row returns.
type Source func(row func(Row) error) error

// Survey is what a first look at a file found.
type Survey struct {
	Rows        uint64
	First, Last int64   // ns, of the file's own clock
	Step        float64 // median distance of the first rows, in ns
	// Gain is the value of one count by channel, in its unit; Exact says that the
	// file's own digits are kept.
	Gain  []float64
	Exact []bool
}

// looked is how many intervals the median is taken of.
const looked = 4096

// fault makes an error about a row.
func fault(row int, format string, a ...any) error {
	return fmt.Errorf("row %d: %w: %s", row, ErrInput, fmt.Sprintf(format, a...))
}

// values reads one row.
type values struct {
	columns []Column
	time    int64
	scan    int64
	hasScan bool
	guessed bool       // how far scan jumped
	q       []quantity // by channel
}

func newValues(columns []Column) *values {
	n := 0
	for _, c := range columns {
		if c.Kind == Quantity {
			n = max(n, c.Channel+1)
		}
	}
	return &values{columns: columns, q: make([]quantity, n)}
}

func (v *values) read(r Row) error {
	if len(r.Fields) != len(v.columns) {
		return fault(r.Number, "it has %d values, the heading names %d: mend or remove it", len(r.Fields), len(v.columns))
	}
	if c := r.Clock; c != nil {
		v.time, v.scan, v.hasScan, v.guessed = c.Time, c.Scan, c.Scan >= 0, c.Estimated
	}
	for i, c := range v.columns {
		f := r.Fields[i]
		var err error
		switch c.Kind {
		case Time:
			if c.Stamp != nil {
				v.time, err = c.Stamp(f)
			} else {
				v.time, err = measure.ParseNanos(f, c.Exponent)
			}
		case Scan:
			v.scan, err = strconv.ParseInt(f, 10, 64)
			v.hasScan = true
		case Quantity:
			v.q[c.Channel], err = parseQuantity(f, c.Exponent)
		}
		if err != nil && c.Stamp != nil {
			return fault(r.Number, "column %q: %v", c.Name, err)
		}
		if err != nil {
			return fault(r.Number, "column %q: %q is no %s: fill in the value or remove the row", c.Name, f, map[Kind]string{Time: "time", Scan: "whole number", Quantity: "finite number"}[c.Kind])
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
			return fault(r.Number, "its time is not later than that of the row before: sort the rows by time and remove doubles")
		case v.hasScan && v.scan <= lastScan:
			return fault(r.Number, "scan %d follows scan %d: remove the column or sort the rows", v.scan, lastScan)
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
		return nil, fmt.Errorf("%w: it has %d row(s) of values: want two at least", ErrInput, s.Rows)
	}
	slices.Sort(steps)
	s.Step = steps[len(steps)/2]
	// Numbered scans tell the step better than a median of whole units does.
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

// Timebase is the timebase of what Read makes: stamps since the first row.
func (s *Survey) Timebase(uTick float64) measure.Timebase {
	n := float64(s.tick())
	return measure.Timebase{TickHz: measure.Hertz(1e9 / n), UTickHz: uTick, TicksPerScan: s.Step / n, Stamped: true}
}

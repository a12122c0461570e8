// Package metercsv reads power that a meter logged as CSV: named columns with
// units, one of time and one or more of power, or of voltage and current. It is
// pure, and holds a row at a time.
//
//	time_s,power_w        t [ms],power [mW]        timestamp,voltage_v,current_a
//
// What wattmark export --format csv writes is such a file. Comments begin with #.
package metercsv

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"strconv"
	"strings"
	"time"

	"wattmark/analysis/validate"
	"wattmark/measure"
	"wattmark/measure/csvrow"
)

// ErrFormat is wrapped by errors about files that are no such log. They name the
// row, as the file counts them.
var ErrFormat = errors.New("not a meter's CSV log")

// Header is what stands before the rows.
type Header struct {
	// Origin is what the samples' times count from: 1970 and some whole seconds where
	// the file has absolute times, the zero time where it has relative ones.
	Origin time.Time
	// Missing are rails that a comment says were not measured.
	Missing []string
	// Columns that make the power, by name.
	Time  string
	Power []string
}

// column is how a column's numbers become SI.
type column struct {
	index int
	scale float64
	name  string
}

// layout is which columns are what.
type layout struct {
	time             column
	power            []column
	voltage, current []column
}

// Read reads a log's header and then yields its samples in the order of its rows,
// which must be that of time. The header is there once Read returns; the rows are
// read as they are asked for.
func Read(r io.Reader) (*Header, iter.Seq2[validate.Sample, error], error) {
	br := bufio.NewReaderSize(r, 1<<16)
	h := &Header{}
	skipped, err := comments(br, h)
	if err != nil {
		return nil, nil, err
	}
	cr := csvrow.NewReader(br)
	cr.TrimLeadingSpace, cr.ReuseRecord, cr.Comment, cr.FieldsPerRecord = true, true, '#', -1
	names, err := cr.Read()
	if err != nil {
		return nil, nil, fmt.Errorf("metercsv: row %d: %w: no header: want one such as time_s,power_w", skipped+1, ErrFormat)
	}
	l, err := layoutOf(names)
	if err != nil {
		return nil, nil, fmt.Errorf("metercsv: row %d: %w: %w", skipped+1, ErrFormat, err)
	}
	h.Time = l.time.name
	for _, c := range append(append(append([]column(nil), l.power...), l.voltage...), l.current...) {
		h.Power = append(h.Power, c.name)
	}
	d := decoder{csv: cr, layout: l, width: len(names), skipped: skipped, header: h}
	first, err := d.next() // it says whether times are absolute
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, nil, err
	}
	return h, d.samples(first, err), nil
}

// comments reads the lines that begin with # before the header.
func comments(br *bufio.Reader, h *Header) (n int, err error) {
	for {
		c, err := br.Peek(1)
		if err != nil || c[0] != '#' && c[0] != '\n' && c[0] != '\r' {
			return n, nil
		}
		line, err := br.ReadSlice('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return n, fmt.Errorf("metercsv: row %d: %w", n+1, err)
		}
		n++
		if rail, ok := strings.CutPrefix(strings.TrimSpace(string(line)), "# not measured: rail "); ok {
			h.Missing = append(h.Missing, rail)
		}
	}
}

// decoder turns rows into samples.
type decoder struct {
	csv     *csvrow.Reader
	layout  layout
	width   int
	skipped int
	header  *Header
	row     int
	base    int64 // ns, taken off absolute times
	form    form
	last    float64
	started bool
}

// form is how a file writes times; one file has one form.
type form int

const (
	unknown form = iota
	number
	dated // with a zone, or since 1970
)

func (d *decoder) samples(first validate.Sample, err error) iter.Seq2[validate.Sample, error] {
	return func(yield func(validate.Sample, error) bool) {
		s, err := first, err
		for {
			if errors.Is(err, io.EOF) {
				return
			}
			if !yield(s, err) || err != nil {
				return
			}
			s, err = d.next()
		}
	}
}

func (d *decoder) next() (validate.Sample, error) {
	rec, err := d.csv.Read()
	if err != nil {
		if errors.Is(err, io.EOF) {
			return validate.Sample{}, io.EOF
		}
		return validate.Sample{}, fmt.Errorf("metercsv: %w: %w", ErrFormat, err)
	}
	line, _ := d.csv.FieldPos(0)
	d.row = line + d.skipped
	s, err := d.sample(rec)
	if err != nil {
		return s, fmt.Errorf("metercsv: row %d: %w: %w", d.row, ErrFormat, err)
	}
	return s, nil
}

func (d *decoder) sample(rec []string) (validate.Sample, error) {
	if len(rec) != d.width {
		return validate.Sample{}, fmt.Errorf("%d fields, the header has %d: mend or remove it", len(rec), d.width)
	}
	at, err := d.time(rec[d.layout.time.index])
	if err != nil {
		return validate.Sample{}, err
	}
	if d.started && at <= d.last {
		what := fmt.Sprintf("its time lies %.6g s before that of the row before it: sort the rows by time", d.last-at)
		if at == d.last {
			what = "its time is that of the row before it: remove one of them, or write times with more digits"
		}
		return validate.Sample{}, errors.New(what)
	}
	d.last, d.started = at, true
	p, err := d.power(rec)
	return validate.Sample{At: measure.Seconds(at), Power: measure.Watt(p)}, err
}

// time reads a number of the column's unit, or a time with its zone, or a number since
// 1970 where the column names no unit.
func (d *decoder) time(field string) (float64, error) {
	field = strings.TrimSpace(field)
	f := number
	var ns int64
	v, err := strconv.ParseFloat(field, 64)
	switch {
	case err == nil && (math.IsNaN(v) || math.IsInf(v, 0)):
		return 0, fmt.Errorf("time %q is not finite: mend or remove it", field)
	case err == nil && d.layout.time.scale != 0:
		if ns, err = measure.ParseNanos(field, int(math.Round(math.Log10(d.layout.time.scale)))); err != nil {
			return 0, fmt.Errorf("time %q is no number of %s within 146 years: mend or remove it", field, d.layout.time.name)
		}
	default:
		number, zoned := err == nil, false
		if ns, zoned, err = measure.ParseMoment(field); err != nil && number {
			return 0, fmt.Errorf("column %q says no unit: name it time_s, time_ms, time_us or time_ns, or write seconds since 1970", d.layout.time.name)
		}
		if err != nil || !zoned {
			return 0, fmt.Errorf("time %q is neither a number nor a time with its zone such as 2026-01-02T15:04:05.123Z", field)
		}
		f = dated
	}
	if err := d.same(f, ns, field); err != nil {
		return 0, err
	}
	return float64(ns-d.base) / 1e9, nil
}

// absolute is where numbers of ns count from 1970: three years behind it.
const absolute = 1e17

// same holds all rows to the form of the first, and sets the origin by that.
func (d *decoder) same(f form, ns int64, field string) error {
	switch {
	case d.form == unknown:
		d.form = f
		if f == dated || ns >= absolute {
			d.base = ns - ns%1e9
			d.header.Origin = time.Unix(0, d.base).UTC()
		}
	case d.form != f:
		return fmt.Errorf("time %q is written in another form than those before it: write all of them alike", field)
	}
	return nil
}

func (d *decoder) power(rec []string) (float64, error) {
	get := func(c column) (float64, error) {
		v, err := strconv.ParseFloat(strings.TrimSpace(rec[c.index]), 64)
		if err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
			return 0, fmt.Errorf("%s %q is not a finite number: mend or remove it", c.name, rec[c.index])
		}
		return v * c.scale, nil
	}
	sum := 0.0
	for _, c := range d.layout.power {
		v, err := get(c)
		if err != nil {
			return 0, err
		}
		sum += v
	}
	for i := range d.layout.voltage {
		v, err := get(d.layout.voltage[i])
		if err != nil {
			return 0, err
		}
		a, err := get(d.layout.current[i])
		if err != nil {
			return 0, err
		}
		sum += v * a
	}
	return sum, nil
}

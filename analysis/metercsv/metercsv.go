// Package metercsv reads power that a meter logged as CSV: named columns with
// units, one of time and one or more of power, or of voltage and current. It is
// pure, and holds a row at a time.
//
//	time_s,power_w        t [ms],power [mW]        timestamp,voltage_v,current_a
//
// What wattmark export --format csv writes is such a file. Comments begin with #.
package metercsv

import (
	"cmp"
	"errors"
	"io"
	"iter"
	"strings"
	"time"

	"github.com/wattmark/wattmark/analysis/validate"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/logfile"
)

// ErrFormat is wrapped by errors about files that are no such log. They name the line.
var ErrFormat = errors.New("not a meter's CSV log")

// Header describes a log before its rows.
type Header struct {
	// Origin is the zero of the samples' times: 1970 and some whole seconds where
	// the file has absolute times, the zero time where it has relative ones.
	Origin time.Time
	// Missing are rails that a comment lists as not measured.
	Missing []string
}

// Read reads a log's header and then yields its samples in the order of its rows,
// which must be that of time. The header is there once Read returns; the rows are
// read as they are asked for.
func Read(r io.Reader) (*Header, iter.Seq2[validate.Sample, error], error) {
	h := &Header{}
	comment := func(text string) {
		if rail, ok := strings.CutPrefix(text, "not measured: rail "); ok {
			h.Missing = append(h.Missing, rail)
		}
	}
	t, err := logfile.Open(r, logfile.Options{Kind: ErrFormat, Want: "time_s,power_w", Spaced: true, Comment: comment})
	if err != nil {
		return nil, nil, err
	}
	d := decoder{table: t, header: h, at: logfile.Column{Index: -1}}
	if err := d.choose(); err != nil {
		return nil, nil, err
	}
	s, err := d.next() // the form of the first shows whether times are absolute
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, nil, err
	}
	return h, func(yield func(validate.Sample, error) bool) {
		for ; !errors.Is(err, io.EOF); s, err = d.next() {
			if !yield(s, err) || err != nil {
				return
			}
		}
	}, nil
}

// decoder turns rows into samples.
type decoder struct {
	table          *logfile.Table
	header         *Header
	at             logfile.Column   // of time
	watts          []logfile.Column // summed
	volts, amperes []logfile.Column // of one rail at one index
	base           int64            // ns, taken off absolute times: a float64 keeps what is left
	form           logfile.Form     // of all times of the file
	last           float64
	started        bool
}

// choose chooses the columns. A total of power goes before those of rails, power before voltage
// and current.
func (d *decoder) choose() error {
	t := d.table
	var rails []logfile.Column
	for _, c := range t.Columns {
		// A total, or a rail such as slot_power.
		total := c.Named("power", "total_power", "p")
		switch {
		case c.Named("t", "time", "timestamp"):
			if d.at.Is() {
				return t.Heading.Fault(c, "%q and it are both times: leave one", d.at.Text)
			}
			d.at = c
		case !total && !strings.HasSuffix(c.Name, "_power"):
		case c.Unit.Of != measure.UnitWatt:
			return t.Heading.Fault(c, "name its unit, as in power_w or power_mw")
		case !total:
			rails = append(rails, c)
		case len(d.watts) > 0:
			return t.Heading.Fault(c, "%q and it are both the power: leave one", d.watts[0].Text)
		default:
			d.watts = append(d.watts, c)
		}
	}
	if !d.at.Is() {
		return t.Fault("no column of time in %q: want time_s, time_ms, time_us or time_ns, "+
			"or timestamp with zoned times or seconds since 1970", t.Heading.Fields)
	}
	if len(d.watts) == 0 {
		d.watts = rails
	}
	if len(d.watts) > 0 {
		return nil
	}
	for _, v := range t.Columns {
		// A rail's name is the part before, as in 12v_voltage and 12v_current; empty for one rail.
		rail, ok := strings.CutSuffix(v.Name, "voltage")
		if !ok || v.Unit.Of != measure.UnitVolt {
			continue
		}
		a := t.First(func(c logfile.Column) bool { return c.Name == rail+"current" && c.Unit.Of == measure.UnitAmpere })
		if a.Is() {
			d.volts, d.amperes = append(d.volts, v), append(d.amperes, a)
		}
	}
	if len(d.volts) == 0 {
		return t.Fault("no column of power in %q: want power_w or power_mw, or voltage_v and current_a",
			t.Heading.Fields)
	}
	return nil
}

// next reads a row; its time must be behind that of the row before.
func (d *decoder) next() (s validate.Sample, err error) {
	row, err := d.table.Next()
	if err != nil {
		return s, err
	}
	at, err := d.time(row)
	if err != nil {
		return s, err
	}
	switch {
	case d.started && at == d.last:
		return s, row.Fault(d.at, "its time is that of the row before it: remove one of them, or write times with "+
			"more digits")
	case d.started && at < d.last:
		return s, row.Fault(d.at, "its time lies %.6g s before that of the row before it: sort the rows by time",
			d.last-at)
	}
	d.last, d.started = at, true
	p, err := d.power(row)
	return validate.Sample{At: measure.Seconds(at), Power: measure.Watt(p)}, err
}

// absolute is the least number of ns that counts from 1970: three years behind it.
const absolute = 1e17

// time returns a row's time in s since the header's origin, which the first row sets. All
// rows write it in one form.
func (d *decoder) time(row logfile.Row) (float64, error) {
	c := d.at
	ns, form, err := row.Time(c)
	switch {
	case err != nil:
		return 0, err
	case form == logfile.Local:
		return 0, row.Fault(c, "%q names no zone, as 2026-01-02T15:04:05.123Z does", row.Text(c))
	case d.started && form != d.form:
		return 0, row.Fault(c, "%q is written in another form than the times before it: write all of them alike",
			row.Text(c))
	case !d.started && (form == logfile.Zoned || ns >= absolute):
		d.base = ns - ns%1e9
		d.header.Origin = time.Unix(0, d.base).UTC()
	}
	d.form = form
	return float64(ns-d.base) / 1e9, nil
}

// power returns a row's power in W: ΣP, or ΣU·I.
func (d *decoder) power(row logfile.Row) (sum float64, err error) {
	for _, c := range d.watts {
		v, err := row.Number(c)
		if err != nil {
			return 0, err
		}
		sum += v
	}
	for i := range d.volts {
		v, err := row.Number(d.volts[i])
		a, fault := row.Number(d.amperes[i])
		if err = cmp.Or(err, fault); err != nil {
			return 0, err
		}
		sum += v * a
	}
	return sum, nil
}

package smilog

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/logfile"
)

// Zeus and CodeCarbon log totals: Zeus joules of each GPU over a window (ZeusMonitor's log_file), CodeCarbon
// kilowatt-hours of all GPUs since the run began (emissions.csv). Logs of one GPU are read.
const (
	Zeus       = "zeus"
	CodeCarbon = "codecarbon"
)

// total is the energy of a stretch of time.
type total struct {
	from, to time.Time
	energy   measure.Joule
	line     int
}

// parseTotals reads a log of totals; nil for another table. A total becomes two readings, of its mean power at its
// begin and end: so it has its energy by Energy, and what lies between totals is interpolated.
func parseTotals(t *logfile.Table, utcOffset time.Duration) (*Log, error) {
	column := func(name string) logfile.Column {
		return t.First(func(c logfile.Column) bool { return c.Text == name })
	}
	l := &Log{Columns: map[Field][]Reading{}}
	var all []total
	var err error
	switch start, length, end := column("start_time"), column("elapsed_time"), column("timestamp"); {
	case start.Is() && length.Is():
		l.Tool, l.Absolute = Zeus, true
		all, err = l.zeus(t, start, length)
	case end.Is() && column("codecarbon_version").Is() && column("gpu_energy").Is():
		l.Tool = CodeCarbon
		all, err = l.codeCarbon(t, column, utcOffset)
	default:
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	f := l.order[0]
	for _, x := range outermost(all) {
		p := measure.Watt(float64(x.energy) / x.to.Sub(x.from).Seconds())
		l.Columns[f] = append(l.Columns[f], Reading{At: x.from, Power: p, Line: x.line}, Reading{At: x.to, Power: p, Line: x.line})
	}
	if len(l.Columns[f]) == 0 {
		return nil, t.Fault("no energy in it")
	}
	return l, nil
}

// zeus reads a row a window: its begin in seconds since 1970, its length, and the joules of a GPU.
func (l *Log) zeus(t *logfile.Table, start, length logfile.Column) (out []total, err error) {
	var gpu logfile.Column
	for _, c := range t.Columns {
		if strings.HasPrefix(c.Text, "gpu") && strings.HasSuffix(c.Text, "_energy") {
			gpu = c
			l.order = append(l.order, Field(c.Text))
		}
	}
	if n := len(l.order); n != 1 {
		return nil, t.Fault("it has the energies of %d GPUs: keep the column of the task's", n)
	}
	for row, err := range t.Rows() {
		if err != nil {
			return nil, err
		}
		ns, _, err := row.Time(start)
		s, fault := row.Number(length)
		e, wrong := row.Number(gpu)
		if err = cmp.Or(err, fault, wrong); err != nil {
			return nil, err
		}
		if !(s > 0) {
			return nil, row.Fault(length, "%q is no length in seconds", row.Text(length))
		}
		from := time.Unix(0, ns).UTC()
		out = append(out, total{from, from.Add(measure.Seconds(s).Duration()), measure.Joule(e), row.Line})
	}
	return out, nil
}

// codeCarbon reads rows of one run, whose totals count from its begin: the whole second of the first row less its
// duration.
func (l *Log) codeCarbon(
	t *logfile.Table, column func(string) logfile.Column, utcOffset time.Duration,
) (out []total, err error) {
	const joules = 3.6e6 // of a kilowatt-hour
	stamp, run, length, energy, count := column("timestamp"), column("run_id"), column("duration"), column("gpu_energy"),
		column("gpu_count")
	l.order = []Field{Field(energy.Text)}
	var begin time.Time
	var id string
	var before, used float64 // of the row before
	for row, err := range t.Rows() {
		if err != nil {
			return nil, err
		}
		ns, form, err := row.Time(stamp)
		if err != nil {
			return nil, err
		}
		s, err := row.Number(length)
		kwh, fault := row.Number(energy)
		if err = cmp.Or(err, fault); err != nil {
			return nil, err
		}
		if n := row.Text(count); count.Is() && n != "1" {
			return nil, row.Fault(count, "the energy is of %s GPUs together", n)
		}
		at := time.Unix(0, ns).UTC()
		if l.Absolute = form == logfile.Zoned; !l.Absolute {
			at = at.Add(-utcOffset)
		}
		if id == "" || row.Text(run) != id {
			id, begin, before, used = row.Text(run), at.Add(-measure.Seconds(s).Duration()), 0, 0
		}
		if !(s > before) || kwh < used {
			return nil, row.Fault(length, "a total of %v s and %v kWh behind one of %v s and %v kWh of the same run", s, kwh, before, used)
		}
		place := func(s float64) time.Time { return begin.Add(measure.Seconds(s).Duration()) }
		out = append(out, total{place(before), place(s), measure.Joule((kwh - used) * joules), row.Line})
		before, used = s, kwh
	}
	return out, nil
}

// outermost returns totals in order of time without those that lie within others, as windows in windows do, and without
// those that begin within another.
func outermost(all []total) (out []total) {
	slices.SortStableFunc(all, func(a, b total) int { return cmp.Or(a.from.Compare(b.from), b.to.Compare(a.to)) })
	var end time.Time
	for _, x := range all {
		if !x.from.Before(end) {
			out, end = append(out, x), x.to
		}
	}
	return out
}

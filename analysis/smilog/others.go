package smilog

import (
	"bufio"
	"bytes"
	"cmp"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/logfile"
)

// NvidiaSmi, AMDSmi, XPUSmi and Tegrastats are the programs whose logs Parse reads.
const (
	NvidiaSmi  = "nvidia-smi"
	AMDSmi     = "amd-smi"    // metric or monitor with --csv and --watch
	XPUSmi     = "xpu-smi"    // dump with --date
	Tegrastats = "tegrastats" // with the date and time before each line
)

// others are programs that log a table, by the columns of power that they alone have, in
// watts, and by the one that numbers the GPUs.
var others = []struct {
	tool, gpu string
	power     []string
}{
	{AMDSmi, "gpu", []string{"socket_power", "current_socket_power", "average_socket_power", "power_usage"}},
	{XPUSmi, "DeviceId", []string{"GPU Power"}},
}

// Tools returns the names of the programs.
func Tools() []string { return []string{NvidiaSmi, AMDSmi, XPUSmi, Tegrastats, Zeus, CodeCarbon} }

// CutTool splits the name of a method, such as "amd-smi socket_power", into program and
// column; ok is false for a name that does not begin with a program.
func CutTool(method string) (tool, field string, ok bool) {
	tool, field, ok = strings.Cut(method, " ")
	return tool, field, ok && slices.Contains(Tools(), tool)
}

// Method returns the name of the method that a column of the log is.
func (l *Log) Method(f Field) string { return l.Tool + " " + string(f) }

// Fields returns the columns of power, in the order in which they are preferred.
func (l *Log) Fields() []Field {
	order := l.order
	if l.Tool == NvidiaSmi {
		order = []Field{Instant, Draw, Average}
	}
	return lists.Filter(order, func(f *Field) bool { return len(l.Columns[*f]) > 0 })
}

// recognise sets the tool by the heading and returns its columns of power, and the one
// that numbers GPUs.
func (l *Log) recognise(t *logfile.Table) (power []logfile.Column, gpu logfile.Column) {
	for _, o := range others {
		for _, c := range t.Columns {
			if slices.Contains(o.power, c.Base) {
				c.Unit = logfile.Unit{Of: measure.UnitWatt}
				power = append(power, c)
				l.order = append(l.order, Field(c.Base))
			}
		}
		if len(power) > 0 {
			l.Tool = o.tool
			return power, t.First(func(c logfile.Column) bool { return c.Base == o.gpu })
		}
	}
	l.Tool = NvidiaSmi
	return nil, logfile.Column{Index: -1}
}

// opened returns the input behind amd-smi's line about Ctrl-C, and whether it is a log of
// tegrastats.
func opened(r io.Reader) (in *bufio.Reader, tegra bool) {
	in = bufio.NewReaderSize(r, 1<<12)
	head, _ := in.Peek(in.Size()) // shorter logs have an error, and a first line
	if bytes.HasPrefix(head, []byte("'CTRL'")) {
		_, _ = in.ReadSlice('\n') // met again by the reader of the heading
	}
	line, _, _ := bytes.Cut(head, []byte("\n"))
	return in, tegraLine.Match(line)
}

var (
	tegraLine = regexp.MustCompile(`^(\d\d-\d\d-\d{4} \d\d:\d\d:\d\d )?RAM \d+/\d+MB `)
	tegraRail = regexp.MustCompile(`\b(VDD_\w+|POM_\w+|VIN_\w+|CPU|GPU|SOC|CV) (\d+)(?:mW)?/\d+(?:mW)?`)
)

// parseTegrastats reads lines of tegrastats: local time to the second, then rails in mW as
// present/mean value. Lines of one second are taken as evenly spread over it.
func parseTegrastats(in *bufio.Reader, utcOffset time.Duration) (*Log, error) {
	l := &Log{Tool: Tegrastats, Columns: map[Field][]Reading{}}
	var second time.Time
	type value struct {
		rail Field
		Reading
	}
	var lines [][]value // of the second
	flush := func() {
		for i, list := range lines {
			for _, v := range list {
				v.At = second.Add(time.Duration(i) * time.Second / time.Duration(len(lines)))
				l.Columns[v.rail] = append(l.Columns[v.rail], v.Reading)
			}
		}
		lines = nil
	}
	scan := bufio.NewScanner(in)
	for n := 1; scan.Scan(); n++ {
		stamp := tegraLine.FindStringSubmatch(scan.Text())
		if stamp == nil {
			l.Skipped++
			continue
		}
		if stamp[1] == "" {
			return nil, fmt.Errorf("smilog: line %d: %w: tegrastats wrote no time: put one before each line, as in "+
				"01-31-2026 23:59:59", n, ErrFormat)
		}
		at, err := time.Parse("01-02-2006 15:04:05 ", stamp[1])
		if err != nil {
			return nil, fmt.Errorf("smilog: line %d: %w: %w", n, ErrFormat, err)
		}
		if at = at.Add(-utcOffset); !at.Equal(second) {
			flush()
			second = at
		}
		var list []value
		for _, m := range tegraRail.FindAllStringSubmatch(scan.Text(), -1) {
			var mw int64
			if _, err := fmt.Sscan(m[2], &mw); err != nil {
				return nil, fmt.Errorf("smilog: line %d: %w: %s: %w", n, ErrFormat, m[1], err)
			}
			list = append(list, value{Field(m[1]), Reading{Power: measure.Watt(mw) / 1000, Line: n}})
			l.order = lists.AddNew(l.order, Field(m[1]))
		}
		lines = append(lines, list)
	}
	flush()
	if err := scan.Err(); err != nil {
		return nil, fmt.Errorf("smilog: %w", err)
	}
	if len(l.order) == 0 {
		return nil, fmt.Errorf("smilog: %w: no rail with a power in it", ErrFormat)
	}
	return l, nil
}

// Zeus and CodeCarbon log totals: Zeus joules of each GPU over a window (ZeusMonitor's log_file), CodeCarbon
// kilowatt-hours of all GPUs since the run began (emissions.csv). Logs of one GPU are read.
const (
	Zeus       = "zeus"
	CodeCarbon = "codecarbon"
)

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
		l.Columns[f] = append(l.Columns[f], Reading{x.from, p, x.line}, Reading{x.to, p, x.line})
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
		s, fault := row.Number(length)
		kwh, wrong := row.Number(energy)
		if err = cmp.Or(err, fault, wrong); err != nil {
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
			return nil, row.Fault(length, "a total of %v s and %v kWh behind one of %v s and %v kWh of the same run", s,
				kwh, before, used)
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

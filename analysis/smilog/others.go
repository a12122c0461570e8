package smilog

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"

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
func (l *Log) Fields() (out []Field) {
	order := l.order
	if l.Tool == NvidiaSmi {
		order = []Field{Instant, Draw, Average}
	}
	for _, f := range order {
		if len(l.Columns[f]) > 0 {
			out = append(out, f)
		}
	}
	return out
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
	var lines [][]Reading // of the second
	var rails [][]Field
	flush := func() {
		for i, list := range lines {
			for j, r := range list {
				r.At = second.Add(time.Duration(i) * time.Second / time.Duration(len(lines)))
				l.Columns[rails[i][j]] = append(l.Columns[rails[i][j]], r)
			}
		}
		lines, rails = nil, nil
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
		var list []Reading
		var names []Field
		for _, m := range tegraRail.FindAllStringSubmatch(scan.Text(), -1) {
			var mw int64
			if _, err := fmt.Sscan(m[2], &mw); err != nil {
				return nil, fmt.Errorf("smilog: line %d: %w: %s: %w", n, ErrFormat, m[1], err)
			}
			list = append(list, Reading{Power: measure.Watt(mw) / 1000, Line: n})
			names = append(names, Field(m[1]))
			if !slices.Contains(l.order, Field(m[1])) {
				l.order = append(l.order, Field(m[1]))
			}
		}
		lines, rails = append(lines, list), append(rails, names)
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

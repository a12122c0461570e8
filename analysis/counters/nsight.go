package counters

import (
	"fmt"
	"slices"
	"strings"
)

// launch is one launch of a kernel as Nsight Compute recorded it.
type launch struct {
	app, kernel, grid, block string
	line                     int
	values                   map[int]float64 // by column
}

// The metrics that tell time and blocks.
const (
	timeMetric   = "gpu__time_duration.sum"
	blocksMetric = "launch__grid_size"
)

// kindOf tells events from everything else by a metric's name: sums over the
// units are events, unless they are taken per something or as a part of a peak.
func kindOf(metric string) Kind {
	if strings.HasSuffix(metric, ".sum") {
		return Count
	}
	return Rate
}

// metric returns the column of a metric.
func (t *Table) metric(name, base string) int {
	if i, seen := t.index[name]; seen {
		return i
	}
	if t.index == nil {
		t.index = map[string]int{}
	}
	t.index[name] = len(t.Columns)
	context := name == timeMetric
	for _, p := range []string{"launch__", "device__", "profiler__"} {
		context = context || strings.HasPrefix(name, p)
	}
	t.Columns = append(t.Columns, Column{Name: name, Unit: base, Kind: kindOf(name), Context: context})
	return len(t.Columns) - 1
}

// metricValue reads what Nsight Compute writes for a metric; NaN where that is no
// number.
func metricValue(name, base, text string) (float64, error) {
	switch {
	case foreignSum.MatchString(text) && kindOf(name) == Count && slices.Contains([]string{"inst", "sector", "request", "warp", "thread", "block"}, base):
		return 0, fmt.Errorf("%w: %q %s cannot be: export again with LC_ALL=C", ErrFormat, text, base)
	case text == "" || !strings.ContainsAny(text[:1], "0123456789+-.") || strings.ContainsAny(text, "xX{[(;"):
		return nan, nil
	}
	v, err := number(text)
	if err != nil && foreign.MatchString(text) {
		return 0, err
	}
	if err != nil {
		return nan, nil
	}
	return v, nil
}

// identity finds the columns that tell launches apart.
type identity struct{ id, pid, app, kernel, grid, block int }

func identify(fields []string) identity {
	at := func(name string) int { return slices.Index(fields, name) }
	return identity{at("ID"), at("Process ID"), at("Process Name"), at("Kernel Name"), at("Grid Size"), at("Block Size")}
}

func (d identity) launch(l line) *launch {
	text := func(i int) string {
		if i < 0 {
			return ""
		}
		return l.fields[i]
	}
	return &launch{app: text(d.app), kernel: text(d.kernel), grid: text(d.grid), block: text(d.block), line: l.no, values: map[int]float64{}}
}

// nsightLong reads a metric a line.
func (t *Table) nsightLong(lines []line, o Options) error {
	head := lines[0]
	d := identify(head.fields)
	name, un, value := slices.Index(head.fields, "Metric Name"), slices.Index(head.fields, "Metric Unit"), slices.Index(head.fields, "Metric Value")
	if d.id < 0 || d.kernel < 0 || name < 0 || un < 0 || value < 0 {
		return fmt.Errorf("line %d: %w: want the columns ID, Kernel Name, Metric Name, Metric Unit and Metric Value: write it by ncu --csv", head.no, ErrFormat)
	}
	need := max(d.id, d.kernel, name, un, value, d.app, d.pid, d.grid, d.block)
	by := map[string]*launch{}
	var order []*launch
	for _, l := range lines[1:] {
		if len(l.fields) <= need {
			return fmt.Errorf("line %d: %w: %d fields, the header has %d", l.no, ErrFormat, len(l.fields), len(head.fields))
		}
		metric := l.fields[name]
		if metric == "" { // a rule's line
			continue
		}
		key := l.fields[d.id] + "\x00" + l.fields[max(d.pid, 0)]
		at := by[key]
		if at == nil {
			at = d.launch(l)
			by[key], order = at, append(order, at)
		}
		scale, base := unit(l.fields[un])
		v, err := metricValue(metric, base, l.fields[value])
		if err != nil {
			return fmt.Errorf("line %d: metric %s: %w", l.no, metric, err)
		}
		at.values[t.metric(metric, base)] = v * scale
	}
	return t.combine(order, o)
}

// nsightWide reads a launch a line, below a line of units.
func (t *Table) nsightWide(lines []line, o Options) error {
	head := lines[0]
	d := identify(head.fields)
	if d.id < 0 || d.kernel < 0 || len(lines) < 2 {
		return fmt.Errorf("line %d: %w: want the columns ID and Kernel Name and a line of units: write it by ncu --csv --page raw", head.no, ErrFormat)
	}
	if err := header(head); err != nil {
		return err
	}
	units, rows := lines[1], lines[2:]
	if len(units.fields) != len(head.fields) || units.fields[d.id] != "" {
		return fmt.Errorf("line %d: %w: want a line of units below the header, as ncu --csv --page raw writes it", units.no, ErrFormat)
	}
	var metrics []int
	for i, name := range head.fields {
		if strings.Contains(name, "__") { // all metrics have it, what tells launches apart has not
			metrics = append(metrics, i)
		}
	}
	var order []*launch
	for _, l := range rows {
		if err := l.width(len(head.fields)); err != nil {
			return err
		}
		at := d.launch(l)
		for _, i := range metrics {
			scale, base := unit(units.fields[i])
			v, err := metricValue(head.fields[i], base, l.fields[i])
			if err != nil {
				return fmt.Errorf("line %d: metric %s: %w", l.no, head.fields[i], err)
			}
			at.values[t.metric(head.fields[i], base)] = v * scale
		}
		order = append(order, at)
	}
	return t.combine(order, o)
}

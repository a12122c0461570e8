package counters

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"wattmark/measure"
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

var sizeRE = regexp.MustCompile(`\d+`)

// blocksOf multiplies a grid's sides: "(128, 2, 1)" is 256.
func blocksOf(grid string) float64 {
	n := 1.0
	sides := sizeRE.FindAllString(grid, -1)
	for _, s := range sides {
		v, _ := strconv.ParseFloat(s, 64)
		n *= v
	}
	if len(sides) == 0 {
		return nan
	}
	return n
}

// combine makes rows of launches: counts and times are summed, rates averaged by
// time.
func (t *Table) combine(launches []*launch, o Options) error {
	groups := map[string][]*launch{}
	grids := map[string]map[string]bool{}
	var order []string
	for i, l := range launches {
		key := l.app + "\x00" + l.kernel + "\x00" + l.grid + "\x00" + l.block
		switch o.By {
		case ByLaunch:
			key = strconv.Itoa(i)
		case ByApp:
			key = l.app
		case ByKernel, "":
		default:
			return fmt.Errorf("%w: rows by %q: want %s, %s or %s", ErrFormat, o.By, ByKernel, ByLaunch, ByApp)
		}
		if o.Kernel != nil && !o.Kernel.MatchString(l.kernel) {
			continue
		}
		if groups[key] == nil {
			order = append(order, key)
		}
		groups[key] = append(groups[key], l)
		id := l.app + "\x00" + l.kernel
		if grids[id] == nil {
			grids[id] = map[string]bool{}
		}
		grids[id][l.grid+l.block] = true
	}
	for _, key := range order {
		g := groups[key]
		r := t.together(g)
		r.Name, r.App, r.Line = g[0].kernel, g[0].app, g[0].line
		switch {
		case o.By == ByApp && g[0].app != "":
			r.Name = g[0].app
		case o.By == ByLaunch:
			r.Name = fmt.Sprintf("%s #%s", r.Name, key)
		case len(grids[g[0].app+"\x00"+g[0].kernel]) > 1 && o.By != ByApp:
			r.Name += fmt.Sprintf(" %s×%s", g[0].grid, g[0].block)
		}
		t.Runs = append(t.Runs, r)
	}
	t.prune()
	return nil
}

// together makes one row of launches.
func (t *Table) together(g []*launch) Run {
	r := blank(len(t.Columns))
	r.Launches = len(g)
	times, at := make([]float64, len(g)), t.column(timeMetric)
	if at < 0 {
		at = t.column("Duration") // as the details page calls it
	}
	var total float64
	for i, l := range g {
		if v, ok := l.values[at]; ok && at >= 0 {
			times[i] = v
		} else {
			times[i] = nan
		}
		total += times[i]
		blocks := blocksOf(l.grid)
		if v, ok := l.values[t.column(blocksMetric)]; ok && math.IsNaN(blocks) {
			blocks = v
		}
		if !(r.Blocks <= blocks) {
			r.Blocks = blocks
		}
	}
	if total > 0 {
		r.Time = measure.Seconds(total)
	}
	for c := range t.Columns {
		r.Values[c] = t.Columns[c].over(g, c, times)
	}
	return r
}

// over combines a metric of several launches. Launches that lack it, as those of
// another pass, are taken to be as the others.
func (c Column) over(g []*launch, at int, times []float64) float64 {
	var sum, weight, n float64
	for i, l := range g {
		v, ok := l.values[at]
		if !ok || math.IsNaN(v) {
			continue
		}
		w := 1.0
		if c.Kind == Rate && !math.IsNaN(times[i]) {
			w = times[i]
		}
		sum, weight, n = sum+w*v, weight+w, n+1
	}
	switch {
	case n == 0 || weight == 0:
		return nan
	case c.Kind == Count:
		return sum / n * float64(len(g))
	}
	return sum / weight
}

// prune leaves out columns that hold no number in any row.
func (t *Table) prune() {
	var keep []int
	var none []string
	for c := range t.Columns {
		if slices.ContainsFunc(t.Runs, func(r Run) bool { return !math.IsNaN(r.Values[c]) }) {
			keep = append(keep, c)
		} else {
			none = append(none, t.Columns[c].Name)
		}
	}
	if len(none) == 0 {
		return
	}
	columns := make([]Column, len(keep))
	for k, c := range keep {
		columns[k] = t.Columns[c]
	}
	for i := range t.Runs {
		v := make([]float64, len(keep))
		for k, c := range keep {
			v[k] = t.Runs[i].Values[c]
		}
		t.Runs[i].Values = v
	}
	t.Columns = columns
	t.note("left out, for they hold no number: %s", quoted(none))
}

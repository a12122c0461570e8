package counters

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/ianlancetaylor/demangle"
	"github.com/wattmark/wattmark/internal/lazy"
	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
)

// launch is one launch of a kernel as Nsight Compute recorded it.
type launch struct {
	app, kernel, grid, block string
	line                     int
	values                   map[int]float64 // by column
}

// The metrics of time and blocks.
const (
	timeMetric   = "gpu__time_duration.sum"
	blocksMetric = "launch__grid_size"
)

// metric returns the column of a metric. Sums over the units are events, unless they are
// rates or shares of a peak.
func (t *Table) metric(name, base string) int {
	if i, seen := t.index[name]; seen {
		return i
	}
	if t.index == nil {
		t.index = map[string]int{}
	}
	t.index[name] = len(t.Columns)
	c := Column{Name: name, Unit: base, Context: name == timeMetric}
	if strings.HasSuffix(name, ".sum") {
		c.Kind = Count
	}
	for _, p := range []string{"launch__", "device__", "profiler__"} {
		c.Context = c.Context || strings.HasPrefix(name, p)
	}
	t.Columns = append(t.Columns, c)
	return len(t.Columns) - 1
}

// metricValue reads a metric's value by Nsight Compute; NaN where it is not a number.
func metricValue(name, base, text string) (float64, error) {
	switch {
	// A sum of whole things has no fraction: "1.024 inst" is 1024 in a locale that groups
	// thousands by dots.
	case foreignSum().MatchString(text) && strings.HasSuffix(name, ".sum") &&
		slices.Contains([]string{"inst", "sector", "request", "warp", "thread", "block"}, base):
		return 0, fmt.Errorf("%w: %q %s cannot be: export again with LC_ALL=C", ErrFormat, text, base)
	// Names, lists and hexadecimal numbers are no figures to fit.
	case text == "" || !strings.ContainsAny(text[:1], "0123456789+-.") || strings.ContainsAny(text, "xX{[(;"):
		return nan, nil
	}
	v, err := number(text)
	if err != nil && foreign().MatchString(text) {
		return 0, err
	}
	if err != nil {
		return nan, nil
	}
	return v, nil
}

// take reads one metric of a launch and adds its column.
func (t *Table) take(to *launch, l line, metric, un, text string) error {
	scale, base := unit(un)
	v, err := metricValue(metric, base, text)
	if err != nil {
		return fmt.Errorf("line %d: metric %s: %w", l.no, metric, err)
	}
	to.values[t.metric(metric, base)] = v * scale
	return nil
}

// at returns the index of a heading, −1 for none.
func (l line) at(heading string) int { return slices.Index(l.fields, heading) }

// launch starts a launch with the texts that identify it, below the headings of head; empty
// where the header lacks one.
func (l line) launch(head line) *launch {
	text := func(heading string) string {
		if i := head.at(heading); i >= 0 {
			return l.fields[i]
		}
		return ""
	}
	return &launch{
		app: text("Process Name"), kernel: text("Kernel Name"), grid: text("Grid Size"), block: text("Block Size"),
		line: l.no, values: map[int]float64{},
	}
}

// nsightLong reads a metric a line, as ncu --csv prints:
//
//	"ID","Process ID",…,"Kernel Name",…,"Metric Name","Metric Unit","Metric Value"
//	"0","4711",…,"add(float *)",…,"dram__bytes.sum","byte","1,048,576"
func (t *Table) nsightLong(lines []line, o Options) error {
	head := lines[0]
	id, process, kernel := head.at("ID"), head.at("Process ID"), head.at("Kernel Name")
	name, un, value := head.at("Metric Name"), head.at("Metric Unit"), head.at("Metric Value")
	if min(id, kernel, name, un, value) < 0 {
		return head.fault("want the columns ID, Kernel Name, Metric Name, Metric Unit and Metric Value: write it by " +
			"ncu --csv")
	}
	need := max(id, process, kernel, name, un, value, head.at("Process Name"), head.at("Grid Size"),
		head.at("Block Size"))
	by := map[string]*launch{}
	var order []*launch
	for _, l := range lines[1:] {
		if len(l.fields) <= need {
			return l.fault("%d fields, the header has %d", len(l.fields), len(head.fields))
		}
		metric := l.fields[name]
		if metric == "" { // a rule's line
			continue
		}
		key := l.fields[id] + "\x00" + l.fields[max(process, 0)]
		at := by[key]
		if at == nil {
			at = l.launch(head)
			by[key], order = at, append(order, at)
		}
		if err := t.take(at, l, metric, l.fields[un], l.fields[value]); err != nil {
			return err
		}
	}
	return t.combine(order, o)
}

// nsightWide reads a launch a line, below a line of units, as ncu --csv --page raw prints:
//
//	"ID","Process ID",…,"Kernel Name",…,"dram__bytes.sum"
//	"","",…,"",…,"byte"
//	"0","4711",…,"add(float *)",…,"1,048,576"
func (t *Table) nsightWide(lines []line, o Options) error {
	head := lines[0]
	id := head.at("ID")
	if id < 0 || head.at("Kernel Name") < 0 || len(lines) < 2 {
		return head.fault("want the columns ID and Kernel Name and a line of units: write it by ncu --csv --page raw")
	}
	if err := header(head); err != nil {
		return err
	}
	units := lines[1].fields
	if len(units) != len(head.fields) || units[id] != "" {
		return lines[1].fault("want a line of units below the header, as ncu --csv --page raw writes it")
	}
	var order []*launch
	for _, l := range lines[2:] {
		if err := l.width(len(head.fields)); err != nil {
			return err
		}
		at := l.launch(head)
		for i, name := range head.fields {
			if !strings.Contains(name, "__") { // in every metric's name, in no other column's
				continue
			}
			if err := t.take(at, l, name, units[i], l.fields[i]); err != nil {
				return err
			}
		}
		order = append(order, at)
	}
	return t.combine(order, o)
}

// accelwattch reads the counters of AccelWattch's hardware model: a plain table of Benchmark,
// Kernel and numbers for the whole kernel, without a time in seconds. Rows get the names of
// its table of powers: the k-th kernel of app is app_kK.
func (t *Table) accelwattch(lines []line, o Options) error {
	if lines[0].at("Benchmark") < 0 || lines[0].at("Kernel") < 0 {
		return lines[0].fault("want the columns Benchmark and Kernel")
	}
	o.App, o.Name = "Benchmark", "Kernel"
	if err := t.plain(lines, o); err != nil {
		return err
	}
	for n, list := range t.byApp() {
		t.numberKernels(n, list)
	}
	return nil
}

// byApp returns the rows of each application, in their order.
func (t *Table) byApp() map[string][]int {
	out := map[string][]int{}
	for i, r := range t.Runs {
		out[r.App] = append(out[r.App], i)
	}
	return out
}

var (
	ownNumber = lazy.Regexp(`^(.*)_k(\d+)$`)
	digits    = lazy.Regexp(`\d+`)
)

// numberKernels names an application's kernels app_k1, app_k2 …: by the number in the application's own name where
// there is one; by the numbers in the kernels' names where these are 1, 2 … (fwtBatch1Kernel is the first wherever it
// stands); else as they stand.
func (t *Table) numberKernels(app string, rows []int) {
	if m := ownNumber().FindStringSubmatch(app); m != nil && len(rows) == 1 {
		t.Runs[rows[0]].App, t.Runs[rows[0]].Name = m[1], app
		return
	}
	order := slices.Clone(rows)
	said := map[int]int{}
	for _, i := range rows {
		name, _, _ := strings.Cut(demangle.Filter(t.Runs[i].Name, demangle.NoParams, demangle.NoTemplateParams), "(")
		if n := digits().FindAllString(name, -1); len(n) == 1 {
			if v, err := strconv.Atoi(n[0]); err == nil {
				said[i] = v
			}
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(said[a], said[b]) })
	for k, i := range order {
		if said[i] != k+1 {
			order = rows
			break
		}
	}
	for k, i := range order {
		t.Runs[i].Name = fmt.Sprintf("%s_k%d", app, k+1)
	}
}

// Clocks that a table in the form of gpupowermodel states.
const (
	CoreClock   = "core_mhz"
	MemoryClock = "memory_mhz"
)

// utilisation reads the form of gpupowermodel: the number of clock domains, their default clocks in MHz, how many
// utilisations each has, their names; then rows of power, clocks and utilisations, perhaps behind a name; of a name
// and utilisations where the power is to be estimated.
//
//	2
//	1100, 3505
//	3, 1
//	sm, l2, shared, dram
//	add, 104.5, 1100, 3505, 0.41, 0.12, 0, 0.87
func (t *Table) utilisation(lines []line) error {
	if len(lines) < 4 {
		return fmt.Errorf("%w: %d lines: want clock domains, default clocks, sizes, names and rows", ErrFormat,
			len(lines))
	}
	defaults, total, err := clocksAndSizes(lines)
	if err != nil {
		return err
	}
	names := lines[3]
	if len(names.fields) != total {
		return names.fault("%d names, line %d has %d utilisations", len(names.fields), lines[2].no, total)
	}
	if err := header(names); err != nil {
		return err
	}
	t.Columns = lists.Map(names.fields, func(n string) Column { return Column{Name: n} })
	for _, n := range clockNames(len(defaults)) {
		t.Columns = append(t.Columns, Column{Name: n, Unit: "MHz", Context: true})
	}
	other := 0
	for _, l := range lines[4:] {
		r, err := t.utilisationRow(l, names.fields, defaults)
		if err != nil {
			return err
		}
		if !slices.Equal(r.Values[total:], defaults) {
			other++
		}
		t.Runs = append(t.Runs, r)
	}
	if other > 0 {
		t.note("%d rows ran at other clocks than the default ones: utilisations alone do not tell a clock: name "+
			"core_mhz or memory_mhz in a formula", other)
	}
	return nil
}

// clocksAndSizes reads the default clocks and how many utilisations there are.
func clocksAndSizes(lines []line) (defaults []float64, total int, err error) {
	if err := lines[2].width(len(lines[1].fields)); err != nil {
		return nil, 0, err
	}
	for i := range lines[1].fields {
		clock, err := lines[1].value(i, "default clock")
		n, fault := lines[2].value(i, "size")
		if err = cmp.Or(err, fault); err != nil {
			return nil, 0, err
		}
		if n < 0 || n != float64(int(n)) || n > 1e4 {
			return nil, 0, lines[2].fault("a size of %g utilisations", n)
		}
		defaults, total = append(defaults, clock), total+int(n)
	}
	return defaults, total, nil
}

// clockNames name so many clock domains: core, memory, then by number.
func clockNames(n int) []string {
	out := []string{CoreClock, MemoryClock}
	for i := len(out); i < n; i++ {
		out = append(out, fmt.Sprintf("clock%d_mhz", i))
	}
	return out[:n]
}

// utilisationRow reads one row. The number of its fields decides its form: without
// clocks the defaults hold, without a power it is NaN.
func (t *Table) utilisationRow(l line, names []string, defaults []float64) (Run, error) {
	domains, total := len(defaults), len(names)
	r := blank(total + domains)
	r.Line = l.no
	copy(r.Values[total:], defaults)
	at := 0 // of the field that comes next
	if _, err := number(l.fields[0]); err != nil {
		r.Name, at = l.fields[0], 1
	} else {
		r.Name, r.unnamed = fmt.Sprintf("row %d", len(t.Runs)+1), true
	}
	rest := len(l.fields) - at - total // power and clocks
	if rest != 1+domains && (at == 0 || rest != 0 && rest != 1) {
		return r, l.fault("%d fields: want power, %d clocks and %d utilisations, perhaps behind a name, or a name and "+
			"%d utilisations", len(l.fields), domains, total, total)
	}
	// The fields from at on are power, clocks and utilisations, as far as the row has them.
	labels := append([]string{"power"}, clockNames(domains)...)
	labels = append(labels[:rest], names...)
	values := make([]float64, len(labels))
	for i, label := range labels {
		var err error
		if values[i], err = l.value(at+i, label); err != nil {
			return r, err
		}
	}
	if rest > 0 {
		r.Power = measure.Watt(values[0])
		copy(r.Values[total:], values[1:rest])
	}
	copy(r.Values, values[rest:])
	return r, nil
}

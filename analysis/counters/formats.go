package counters

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/ianlancetaylor/demangle"
	"github.com/wattmark/wattmark/internal/lazy"
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

// kindOf classifies a metric by its name: sums over the units are events, unless they
// are rates or shares of a peak.
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

// metricValue reads a metric's value by Nsight Compute; NaN where it is not a number.
func metricValue(name, base, text string) (float64, error) {
	switch {
	case foreignSum().MatchString(text) && kindOf(name) == Count &&
		slices.Contains([]string{"inst", "sector", "request", "warp", "thread", "block"}, base):
		return 0, fmt.Errorf("%w: %q %s cannot be: export again with LC_ALL=C", ErrFormat, text, base)
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

// identity holds the columns that identify a launch.
type identity struct{ id, pid, app, kernel, grid, block int }

// identify finds the columns by their headings, −1 for a missing one.
func identify(fields []string) identity {
	at := func(name string) int { return slices.Index(fields, name) }
	return identity{
		at("ID"), at("Process ID"), at("Process Name"), at("Kernel Name"), at("Grid Size"), at("Block Size"),
	}
}

// launch starts a launch with the texts that identify it.
func (d identity) launch(l line) *launch {
	text := func(i int) string {
		if i < 0 {
			return ""
		}
		return l.fields[i]
	}
	return &launch{
		app: text(d.app), kernel: text(d.kernel), grid: text(d.grid), block: text(d.block), line: l.no,
		values: map[int]float64{},
	}
}

// nsightLong reads a metric a line.
func (t *Table) nsightLong(lines []line, o Options) error {
	head := lines[0]
	d := identify(head.fields)
	at := func(name string) int { return slices.Index(head.fields, name) }
	name, un, value := at("Metric Name"), at("Metric Unit"), at("Metric Value")
	if d.id < 0 || d.kernel < 0 || name < 0 || un < 0 || value < 0 {
		return head.fault("want the columns ID, Kernel Name, Metric Name, Metric Unit and Metric Value: write it by " +
			"ncu --csv")
	}
	need := max(d.id, d.kernel, name, un, value, d.app, d.pid, d.grid, d.block)
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
		key := l.fields[d.id] + "\x00" + l.fields[max(d.pid, 0)]
		at := by[key]
		if at == nil {
			at = d.launch(l)
			by[key], order = at, append(order, at)
		}
		if err := t.take(at, l, metric, l.fields[un], l.fields[value]); err != nil {
			return err
		}
	}
	return t.combine(order, o)
}

// nsightWide reads a launch a line, below a line of units.
func (t *Table) nsightWide(lines []line, o Options) error {
	head := lines[0]
	d := identify(head.fields)
	if d.id < 0 || d.kernel < 0 || len(lines) < 2 {
		return head.fault("want the columns ID and Kernel Name and a line of units: write it by ncu --csv --page raw")
	}
	if err := header(head); err != nil {
		return err
	}
	units, rows := lines[1], lines[2:]
	if len(units.fields) != len(head.fields) || units.fields[d.id] != "" {
		return units.fault("want a line of units below the header, as ncu --csv --page raw writes it")
	}
	var metrics []int
	for i, name := range head.fields {
		if strings.Contains(name, "__") { // in every metric's name, in no other column's
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
			if err := t.take(at, l, head.fields[i], units.fields[i], l.fields[i]); err != nil {
				return err
			}
		}
		order = append(order, at)
	}
	return t.combine(order, o)
}

// accelwattch reads the counters of AccelWattch's hardware model: Benchmark, Kernel
// and numbers for the whole kernel. Rows get the names of its table of powers:
// the k-th kernel of app is app_kK.
func (t *Table) accelwattch(lines []line) error {
	head := lines[0]
	if err := header(head); err != nil {
		return err
	}
	// The columns of names may stand anywhere; all others are counters.
	app, kernel := slices.Index(head.fields, "Benchmark"), slices.Index(head.fields, "Kernel")
	if app < 0 || kernel < 0 {
		return head.fault("want the columns Benchmark and Kernel")
	}
	var at []int
	for i, name := range head.fields {
		if i != app && i != kernel {
			at = append(at, i)
			t.Columns = append(t.Columns, Column{Name: name}) // it has no time in seconds
		}
	}
	for _, l := range lines[1:] {
		if err := l.width(len(head.fields)); err != nil {
			return err
		}
		r := blank(len(at))
		r.Line, r.App, r.Name = l.no, l.fields[app], l.fields[kernel]
		var err error
		if r.Values, err = l.values(head, at); err != nil {
			return err
		}
		t.Runs = append(t.Runs, r)
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

// numberKernels names an application's kernels app_k1, app_k2 …: by the number in
// the application's own name where there is one; by the numbers in the kernels'
// names where these are 1, 2 … (fwtBatch1Kernel is the first wherever it stands);
// else as they stand.
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

// utilisation reads the form of gpupowermodel: the number of clock domains, their
// default clocks in MHz, how many utilisations each has, their names; then rows of
// power, clocks and utilisations, perhaps behind a name; of a name and utilisations
// where the power is to be estimated.
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
	for _, n := range names.fields {
		t.Columns = append(t.Columns, Column{Name: n})
	}
	for i := range defaults {
		t.Columns = append(t.Columns, Column{Name: clockName(i), Unit: "MHz", Context: true})
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
		if err != nil {
			return nil, 0, err
		}
		n, err := lines[2].value(i, "size")
		if err != nil {
			return nil, 0, err
		}
		if n < 0 || n != float64(int(n)) || n > 1e4 {
			return nil, 0, lines[2].fault("a size of %g utilisations", n)
		}
		defaults, total = append(defaults, clock), total+int(n)
	}
	return defaults, total, nil
}

// clockName names a clock domain: core, memory, then by number.
func clockName(domain int) string {
	switch domain {
	case 0:
		return CoreClock
	case 1:
		return MemoryClock
	}
	return fmt.Sprintf("clock%d_mhz", domain)
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
	if rest > 0 {
		p, err := l.value(at, "power")
		if err != nil {
			return r, err
		}
		r.Power = measure.Watt(p)
	}
	for i := range rest - 1 {
		var err error
		if r.Values[total+i], err = l.value(at+1+i, clockName(i)); err != nil {
			return r, err
		}
	}
	skip := at + rest
	var err error
	for i := 0; i < total && err == nil; i++ {
		r.Values[i], err = l.value(skip+i, names[i])
	}
	return r, err
}

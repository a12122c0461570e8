package counters

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/logfile"
)

// agree is the largest relative difference of two passes in a common counter.
const agree = 0.05

// Merge makes one table of several: rows below each other, or, where files hold the
// same kernel of the same application, side by side, as passes with other counters. A
// counter of two passes may differ by 5 %, and counts by its mean.
func Merge(tables ...*Table) (*Table, error) {
	if len(tables) == 1 {
		return tables[0], nil
	}
	out := &Table{File: fmt.Sprintf("%s and %d more", tables[0].File, len(tables)-1), Form: tables[0].Form}
	if err := out.columnsOf(tables); err != nil {
		return nil, err
	}
	// Rows by application and kernel: a name alone may come from two programs.
	at := map[string]int{}
	passes := 0
	for _, t := range tables {
		for _, r := range t.Runs {
			// Widen the row to the columns of all tables; missing counters are NaN.
			wide := r
			wide.Values = blank(len(out.Columns)).Values
			for j, c := range t.Columns {
				wide.Values[out.column(c.Name)] = r.Values[j]
			}
			// The same kernel of another file is another pass; within one file it is
			// another row.
			key := r.App + "\x00" + r.Name
			i, seen := at[key]
			if !seen || r.unnamed || out.Runs[i].File == r.File {
				at[key] = len(out.Runs)
				out.Runs = append(out.Runs, wide)
				continue
			}
			passes++
			if err := out.join(&out.Runs[i], wide); err != nil {
				return nil, err
			}
		}
	}
	if passes > 0 {
		out.note("%d rows were joined from several passes", passes)
	}
	return out, nil
}

// columnsOf takes the columns and notes of all tables, each once. A column of another
// kind or unit in one of them is an error that wraps ErrFormat.
func (t *Table) columnsOf(tables []*Table) error {
	for _, x := range tables {
		for _, n := range x.Notes {
			t.Notes = lists.AddNew(t.Notes, n) // each pass leaves out the same
		}
		for _, c := range x.Columns {
			i := t.column(c.Name)
			if i < 0 {
				t.Columns = append(t.Columns, c)
			} else if t.Columns[i].Kind != c.Kind || t.Columns[i].Unit != c.Unit {
				return fmt.Errorf("%s: %w: %q is of another kind or unit than in %s", x.File, ErrFormat, c.Name,
					tables[0].File)
			}
		}
	}
	return nil
}

// join adds a pass to a row. Its counts are scaled to the row's time, or without a time
// to its number of launches, so that rates per second stay those of the pass. Counts of
// a launch must agree.
func (t *Table) join(r *Run, pass Run) error {
	// launches scales counts for the comparison, same for filling in.
	launches := float64(r.Launches) / float64(pass.Launches)
	// A pass may have run the kernel more often or for longer than the row's.
	same := launches
	if s := float64(r.Time / pass.Time); !math.IsNaN(s) {
		same = s
	}
	for j, v := range pass.Values {
		again := v
		if t.Columns[j].Kind == Count {
			v, again = v*same, v*launches
		}
		switch have := r.Values[j]; {
		case math.IsNaN(v):
		case math.IsNaN(have):
			r.Values[j] = v
		// Clocks and sizes describe a pass; the first one's stay.
		case t.Columns[j].Context:
		case math.Abs(again-have) > agree*max(math.Abs(again), math.Abs(have)):
			return fmt.Errorf("%s: line %d: %w: %s of %q is %.6g, in %s %.6g: these are not passes of one run",
				pass.File, pass.Line, ErrFormat, t.Columns[j].Name, r.Name, again, r.File, have)
		default:
			r.Values[j] = (have + again) / 2
		}
	}
	if math.IsNaN(float64(r.Power)) {
		r.Power, r.Measured = pass.Power, pass.Measured
	}
	if math.IsNaN(float64(r.Time)) {
		r.Time = pass.Time
	}
	r.Task = cmp.Or(r.Task, pass.Task)
	return nil
}

// Names returns the columns that a model takes when none are named: all that are
// no mere context; of Nsight Compute's those that count events.
func (t *Table) Names() []string {
	nsight := t.Form == NsightLong || t.Form == NsightWide
	wanted := lists.Filter(t.Columns, func(c *Column) bool { return !c.Context && (!nsight || c.Kind == Count) })
	return lists.Map(wanted, func(c Column) string { return c.Name })
}

// Power is a measured power by name.
type Power struct {
	Name  string // of a kernel, or of an application
	Power measure.Watt
	Line  int
}

// ParsePower reads a table of powers: a header; a column of names, the first
// unless one is called so; a column of watts. AccelWattch's is one.
func ParsePower(r io.Reader, file string) (out []Power, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("%s: %w", file, err)
		}
	}()
	lines, _, err := records(r, Plain)
	if err != nil {
		return nil, err
	}
	if len(lines) < 2 {
		return nil, fmt.Errorf("%w: want a header and rows", ErrFormat)
	}
	head := lines[0]
	name, _ := roles[1].find(head.fields, "")
	name = max(name, 0)
	at, scale := roles[0].find(head.fields, "")
	if at < 0 {
		at = slices.IndexFunc(head.fields, func(f string) bool { return strings.Contains(logfile.Plain(f), "power") })
	}
	if at < 0 || at == name {
		return nil, head.fault("no column of powers: call it power_w")
	}
	seen := map[string]int{}
	for _, l := range lines[1:] {
		if err := l.width(len(head.fields)); err != nil {
			return nil, err
		}
		v, err := l.value(at, head.fields[at])
		if err != nil {
			return nil, err
		}
		p := Power{Name: l.fields[name], Power: measure.Watt(v * scale), Line: l.no}
		if first := seen[p.Name]; first > 0 {
			return nil, l.fault("%q has a power in line %d already: leave one", p.Name, first)
		}
		if !(p.Power > 0) {
			return nil, l.fault("a power of %v: want more than 0 W", p.Power)
		}
		seen[p.Name] = l.no
		out = append(out, p)
	}
	return out, nil
}

// JoinPower gives rows their powers by name: that of the kernel, then that of the application where it has one row
// alone. Letters and digits count; an application's name may go on behind that of the power ("kmeans-rodinia-3.1",
// "kmeans_k1"), where only one fits best. Rows without a power are an error; powers without a row are noted.
func (t *Table) JoinPower(file string, list []Power) error {
	used := make([]bool, len(list))
	apps := t.byApp()
	var missing []string
	for i := range t.Runs {
		r := &t.Runs[i]
		at := find(list, r.Name, r.App, len(apps[r.App]) == 1)
		if at < 0 {
			missing = append(missing, r.Name)
			continue
		}
		if used[at] {
			return fmt.Errorf("%s: line %d: %w: the power of %q fits several rows, %q too: give each its name", file,
				list[at].Line, ErrFormat, list[at].Name, r.Name)
		}
		used[at], r.Power = true, list[at].Power
	}
	if len(missing) > 0 {
		return fmt.Errorf("%s: %w: no power for %s: add it, or remove these rows", file, ErrFormat, quoted(missing))
	}
	for i, p := range list {
		if !used[i] {
			t.note("%s has a power and no counters", p.Name)
		}
	}
	return nil
}

// find returns the power that fits a row best, −1 for none: by the exact name of the
// kernel, or of the application if it has one row alone; else the longest name that the
// kernel's begins with, with the same number.
func find(list []Power, name, app string, alone bool) int {
	// An exact name wins, that of the application only where no other row could claim it.
	for _, want := range []string{name, app} {
		if want == "" || want == app && !alone {
			continue
		}
		if i := slices.IndexFunc(list, func(p Power) bool { return p.Name == want }); i >= 0 {
			return i
		}
	}
	// Names of benchmarks vary by suffixes: compare letters and digits alone.
	base, number := stem(name)
	best, length := -1, 0
	for i, p := range list {
		b, n := stem(p.Name)
		if n == number && b != "" && strings.HasPrefix(base, b) && len(b) > length {
			best, length = i, len(b)
		}
	}
	return best
}

// stem parts "parboil-mri-q_k1" into "parboilmriq" and "1".
func stem(name string) (base, number string) {
	if m := ownNumber().FindStringSubmatch(name); m != nil {
		name, number = m[1], m[2]
	}
	return strings.ReplaceAll(logfile.Plain(name), "_", ""), number
}

// blocksOf multiplies a grid's sides: "(128, 2, 1)" is 256; NaN without any.
func blocksOf(grid string) float64 {
	n := nan
	for i, s := range digits().FindAllString(grid, -1) {
		v, _ := strconv.ParseFloat(s, 64)
		if n *= v; i == 0 {
			n = v
		}
	}
	return n
}

// combine makes rows of launches: counts and times are summed, rates averaged by
// time.
func (t *Table) combine(launches []*launch, o Options) error {
	var groups lists.Groups[string, *launch]
	grids := map[string]int{} // groups of a kernel
	for i, l := range launches {
		// Launches of one kernel with the same grid and blocks do the same work.
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
		if groups.Of[key] == nil {
			grids[l.app+"\x00"+l.kernel]++
		}
		groups.Add(key, l)
	}
	for _, key := range groups.Keys {
		g := groups.Of[key]
		r := t.together(g)
		r.Name, r.App, r.Line = g[0].kernel, g[0].app, g[0].line
		switch {
		case o.By == ByApp && g[0].app != "":
			r.Name = g[0].app
		case o.By == ByLaunch:
			r.Name = fmt.Sprintf("%s #%s", r.Name, key)
		case grids[g[0].app+"\x00"+g[0].kernel] > 1 && o.By != ByApp:
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
		// A rate of two launches is their mean over the time, a count their sum.
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
	var none []string
	for c := len(t.Columns) - 1; c >= 0; c-- {
		if slices.ContainsFunc(t.Runs, func(r Run) bool { return !math.IsNaN(r.Values[c]) }) {
			continue
		}
		none = append(none, t.Columns[c].Name)
		t.Columns = slices.Delete(t.Columns, c, c+1)
		for i := range t.Runs {
			t.Runs[i].Values = slices.Delete(t.Runs[i].Values, c, c+1)
		}
	}
	if len(none) > 0 {
		slices.Reverse(none)
		t.note("left out, for they hold no number: %s", quoted(none))
	}
}

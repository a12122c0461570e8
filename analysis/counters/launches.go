package counters

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"

	"wattmark/measure"
)

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

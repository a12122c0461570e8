package counters

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/wattmark/wattmark/measure/logfile"
)

// role is a use of a column of a plain table beside that of a counter.
type role struct {
	what  string
	names []string
}

var roles = []role{
	{"power", []string{"power_w", "power", "watts", "power_watts", "mean_power_w", "mean_power", "power_mw"}},
	{"name", []string{"kernel", "kernel_name", "name", "run", "row"}},
	{"app", []string{"app", "application", "group", "benchmark", "program", "process_name"}},
	{"time", []string{
		"time_s", "time", "duration_s", "duration", "seconds", "runtime_s", "time_ms", "time_us", "time_ns", gputime,
	}},
	{"blocks", []string{"blocks", "num_blocks", "thread_blocks", "grid_blocks"}},
	{"task", []string{"task", "task_id"}},
}

// gputime is nvprof's column of time, in µs.
const gputime = "gputime"

// scale returns the factor to SI units of a column, by its plain name.
func (r role) scale(name string) float64 {
	if !slices.Contains(r.names, name) {
		return 1
	}
	if name == gputime {
		return 1e-6
	}
	return logfile.ParseColumn(name, false).Unit.Scale()
}

// usual returns a column's name as the roles have it: "Power [W]" is power_w.
func usual(name string) string { return logfile.Plain(name) }

// place is where the columns of a plain table are.
type place struct {
	at       map[string]int // by role; −1 for none
	scale    map[string]float64
	counters []int
}

// columns finds out what each column of a plain table is.
func (o Options) columns(head line) (*place, error) {
	p := &place{at: map[string]int{}, scale: map[string]float64{}}
	given := map[string]string{
		"power": o.Power, "name": o.Name, "app": o.App, "time": o.Time, "blocks": o.Blocks, "task": o.Task,
	}
	taken := map[int]bool{}
	for _, r := range roles {
		at, scale := r.find(head.fields, given[r.what])
		if at < 0 && given[r.what] != "" {
			flag := map[bool]string{true: "group", false: r.what}[r.what == "app"]
			return nil, head.fault("no column %q for --%s-column: there are %s", given[r.what], flag, quoted(head.fields))
		}
		if p.at[r.what], p.scale[r.what] = at, scale; at >= 0 {
			taken[at] = true
		}
	}
	for _, name := range append(slices.Clone(o.Ignore), o.Rates...) {
		if !slices.Contains(head.fields, name) {
			return nil, head.fault("no column %q: there are %s", name, quoted(head.fields))
		}
	}
	for i, name := range head.fields {
		switch {
		case taken[i] || slices.Contains(o.Ignore, name):
		case name == "":
			return nil, head.fault("column %d has no name: is the first line a header?", i+1)
		default:
			p.counters = append(p.counters, i)
		}
	}
	if len(p.counters) == 0 {
		return nil, head.fault("no column of a counter in %s", quoted(head.fields))
	}
	return p, nil
}

// find returns the column of a role and its scale: the one that is given, or the first of
// the role's names; −1 where there is none.
func (r role) find(fields []string, given string) (int, float64) {
	if given != "" {
		return slices.Index(fields, given), r.scale(usual(given))
	}
	for _, name := range r.names {
		if i := slices.IndexFunc(fields, func(f string) bool { return usual(f) == name }); i >= 0 {
			return i, r.scale(name)
		}
	}
	return -1, 1
}

// quoted lists names for an error, at most 20 of them.
func quoted(names []string) string {
	const most = 20
	var out []string
	for _, n := range names[:min(most, len(names))] {
		out = append(out, strconv.Quote(n))
	}
	if len(names) > most {
		out = append(out, fmt.Sprintf("and %d more", len(names)-most))
	}
	return strings.Join(out, ", ")
}

// plain reads a header and a row a kernel.
func (t *Table) plain(lines []line, o Options) error {
	head := lines[0]
	if err := header(head); err != nil {
		return err
	}
	p, err := o.columns(head)
	if err != nil {
		return err
	}
	for _, i := range p.counters {
		c := Column{Name: head.fields[i], Kind: Count}
		if p.at["time"] < 0 && !events[c.Name] || slices.Contains(o.Rates, c.Name) {
			c.Kind = Rate
		}
		t.Columns = append(t.Columns, c)
	}
	for _, l := range lines[1:] {
		if err := t.plainRow(l, head, p); err != nil {
			return err
		}
	}
	return nil
}

// plainRow adds the run of a row.
func (t *Table) plainRow(l, head line, p *place) error {
	if err := l.width(len(head.fields)); err != nil {
		return err
	}
	r := blank(len(p.counters))
	r.Line = l.no
	text := func(what string) string {
		if i := p.at[what]; i >= 0 {
			return l.fields[i]
		}
		return ""
	}
	r.Name, r.App, r.Task = text("name"), text("app"), text("task")
	if r.Name == "" {
		r.Name, r.unnamed = fmt.Sprintf("row %d", len(t.Runs)+1), true
	}
	values := map[string]*float64{"power": (*float64)(&r.Power), "time": (*float64)(&r.Time), "blocks": &r.Blocks}
	for what, to := range values {
		i := p.at[what]
		if i < 0 || what == "power" && l.fields[i] == "" && r.Task != "" {
			continue
		}
		v, err := l.value(i, head.fields[i])
		if err != nil {
			return err
		}
		*to = v * p.scale[what]
	}
	r.Measured = r.Time
	var err error
	r.Values, err = l.values(head, p.counters)
	t.Runs = append(t.Runs, r)
	return err
}

package counters

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// role is what a column of a plain table can be beside a counter.
type role struct {
	what  string
	names []string
	scale map[string]float64 // of names whose unit is another
}

var roles = []role{
	{"power", []string{"power_w", "power", "watts", "power_watts", "mean_power_w", "mean_power", "power_mw"}, map[string]float64{"power_mw": 1e-3}},
	{"name", []string{"kernel", "kernel_name", "name", "run", "row"}, nil},
	{"app", []string{"app", "application", "group", "benchmark", "program", "process_name"}, nil},
	{
		"time",
		[]string{"time_s", "time", "duration_s", "duration", "seconds", "runtime_s", "time_ms", "time_us", "time_ns", "gputime"},
		map[string]float64{"time_ms": 1e-3, "time_us": 1e-6, "time_ns": 1e-9, "gputime": 1e-6},
	},
	{"blocks", []string{"blocks", "num_blocks", "thread_blocks", "grid_blocks"}, nil},
	{"task", []string{"task", "task_id"}, nil},
}

var notWord = regexp.MustCompile(`[^a-z0-9]+`)

// usual writes a column's name as the roles do: "Power [W]" is "power_w".
func usual(name string) string {
	return strings.Trim(notWord.ReplaceAllString(strings.ToLower(name), "_"), "_")
}

// place is where the columns of a plain table are.
type place struct {
	at       map[string]int // by role; −1 for none
	scale    map[string]float64
	counters []int
}

// columns finds out what each column of a plain table is.
func (o Options) columns(head line) (*place, error) {
	p := &place{at: map[string]int{}, scale: map[string]float64{}}
	given := map[string]string{"power": o.Power, "name": o.Name, "app": o.App, "time": o.Time, "blocks": o.Blocks, "task": o.Task}
	taken := map[int]bool{}
	for _, r := range roles {
		at, scale := r.find(head.fields, given[r.what])
		if at < 0 && given[r.what] != "" {
			return nil, fmt.Errorf("line %d: %w: no column %q for --%s-column: there are %s", head.no, ErrFormat, given[r.what], r.flag(), quoted(head.fields))
		}
		if p.at[r.what], p.scale[r.what] = at, scale; at >= 0 {
			taken[at] = true
		}
	}
	for _, name := range append(slices.Clone(o.Ignore), o.Rates...) {
		if !slices.Contains(head.fields, name) {
			return nil, fmt.Errorf("line %d: %w: no column %q: there are %s", head.no, ErrFormat, name, quoted(head.fields))
		}
	}
	for i, name := range head.fields {
		switch {
		case taken[i] || slices.Contains(o.Ignore, name):
		case name == "":
			return nil, fmt.Errorf("line %d: %w: column %d has no name: is the first line a header?", head.no, ErrFormat, i+1)
		default:
			p.counters = append(p.counters, i)
		}
	}
	if len(p.counters) == 0 {
		return nil, fmt.Errorf("line %d: %w: no column of a counter in %s", head.no, ErrFormat, quoted(head.fields))
	}
	return p, nil
}

func (r role) flag() string {
	if r.what == "app" {
		return "group"
	}
	return r.what
}

func (r role) find(fields []string, given string) (int, float64) {
	if given != "" {
		i := slices.Index(fields, given)
		s := 1.0
		if f, ok := r.scale[usual(given)]; ok {
			s = f
		}
		return i, s
	}
	for _, name := range r.names {
		if i := slices.IndexFunc(fields, func(f string) bool { return usual(f) == name }); i >= 0 {
			if f, ok := r.scale[name]; ok {
				return i, f
			}
			return i, 1
		}
	}
	return -1, 1
}

func quoted(names []string) string {
	const most = 20
	var out []string
	for i, n := range names {
		if i == most {
			out = append(out, fmt.Sprintf("and %d more", len(names)-most))
			break
		}
		out = append(out, fmt.Sprintf("%q", n))
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
	for what, to := range map[string]*float64{"power": (*float64)(&r.Power), "time": (*float64)(&r.Time), "blocks": &r.Blocks} {
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
	for k, i := range p.counters {
		var err error
		if r.Values[k], err = l.value(i, head.fields[i]); err != nil {
			return err
		}
	}
	t.Runs = append(t.Runs, r)
	return nil
}

package counters

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/wattmark/wattmark/internal/lazy"
	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/logfile"
)

// line is one record of a CSV file.
type line struct {
	no     int
	fields []string
}

// fault returns an error about a record that wraps ErrFormat.
func (l line) fault(format string, a ...any) error {
	return fmt.Errorf("line %d: %w: %w", l.no, ErrFormat, fmt.Errorf(format, a...))
}

// Parse reads a table of counters. file names it in errors, which wrap ErrFormat. Names that
// cannot be printed, and powers and times that are not positive, are errors too.
func Parse(file string, r io.Reader, o Options) (*Table, error) {
	t, err := parse(r, o)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	t.File = file
	if o.Kernel != nil {
		t.Drop(func(r Run) bool { return !o.Kernel.MatchString(r.Name) })
	}
	if len(t.Runs) == 0 {
		return nil, fmt.Errorf("%s: %w: no rows in it", file, ErrFormat)
	}
	for i := range t.Runs {
		r := &t.Runs[i]
		r.File = file
		if o.AppName != "" {
			r.App = o.AppName
			if o.By == ByApp {
				r.Name = o.AppName
			}
		}
		const what = "the name"
		err := cmp.Or(measure.CheckText(what, r.Name), measure.CheckText(what, r.App), measure.CheckText(what, r.Task))
		switch {
		case err != nil:
		case r.Power <= 0:
			err = fmt.Errorf("a power of %v: want more than 0 W", r.Power)
		case r.Time <= 0:
			err = fmt.Errorf("a time of %v: want more than 0 s", r.Time)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: line %d: %w: %w", file, r.Line, ErrFormat, err)
		}
	}
	return t, nil
}

// parse reads the records, detects the form unless it is given, and lets its reader
// fill a table.
func parse(r io.Reader, o Options) (*Table, error) {
	if o.Form != "" && !slices.Contains(Forms(), o.Form) {
		return nil, fmt.Errorf("%w: no form %q: want one of %v", ErrFormat, o.Form, Forms())
	}
	lines, head, err := records(r, o.Form)
	if err != nil {
		return nil, err
	}
	if len(lines) == 0 {
		return nil, fmt.Errorf("%w: it is empty", ErrFormat)
	}
	form := o.Form
	if form == "" {
		form = detect(lines, head)
	}
	t := &Table{Form: form}
	switch form {
	case Utilisation:
		return t, t.utilisation(lines)
	case NsightLong:
		return t, t.nsightLong(lines, o)
	case NsightWide:
		return t, t.nsightWide(lines, o)
	case AccelWattch:
		return t, t.accelwattch(lines, o)
	}
	return t, t.plain(lines, o)
}

// mostBytes is more than any profiler's table of a day.
const mostBytes = 256 << 20

// records reads the records of a file that is not too large. Of one by Nsight Compute, whose
// header head reports, it leaves out output of the profiled program and the profiler before
// the header and between rows.
func records(r io.Reader, form Form) (lines []line, head bool, err error) {
	data, err := io.ReadAll(io.LimitReader(r, mostBytes+1))
	if err != nil {
		return nil, false, err
	}
	if len(data) > mostBytes {
		return nil, false, fmt.Errorf("%w: larger than 256 MiB: cut out the kernels that are wanted", ErrFormat)
	}
	rows := strings.Split(strings.TrimPrefix(string(data), "\ufeff"), "\n")
	i := slices.IndexFunc(rows, func(row string) bool {
		return strings.Contains(row, "Kernel Name") && (strings.HasPrefix(row, `"ID"`) || strings.HasPrefix(row, "ID,"))
	})
	if head = i >= 0 && (form == "" || form == NsightLong || form == NsightWide); head {
		// Emptied rows rather than deleted ones keep the numbers of lines in errors.
		heading := strings.TrimSpace(rows[i])
		for j := range rows {
			repeated := j > i && strings.TrimSpace(rows[j]) == heading
			if j < i || strings.HasPrefix(rows[j], "==") || repeated {
				rows[j] = ""
			}
		}
	}
	t, err := logfile.Open(strings.NewReader(strings.Join(rows, "\n")), logfile.Options{Kind: ErrFormat, Ragged: true})
	if err != nil {
		return nil, false, err
	}
	lines = append(lines, line{t.Heading.Line, t.Heading.Fields})
	for row, err := range t.Rows() {
		if err != nil {
			return nil, false, err
		}
		if !strings.HasPrefix(row.Fields[0], "#") {
			lines = append(lines, line{row.Line, slices.Clone(row.Fields)})
		}
	}
	return lines, head, nil
}

// detect returns the form by the headings: the columns that only one tool writes, or
// three lines of clock domains.
func detect(lines []line, nsight bool) Form {
	first := lines[0].fields
	switch {
	case nsight && slices.Contains(first, "Metric Name"):
		return NsightLong
	case nsight:
		return NsightWide
	case slices.Contains(first, "Elapsed_Cycles") && slices.Contains(first, "Benchmark"):
		return AccelWattch
	case len(first) == 1 && len(lines) > 3:
		if n, err := strconv.Atoi(first[0]); err == nil && n == len(lines[1].fields) && n == len(lines[2].fields) {
			return Utilisation
		}
	}
	return Plain
}

// header checks that names of columns are there once each.
func header(l line) error {
	seen := map[string]int{}
	for i, name := range l.fields {
		if err := measure.CheckText("a column's name", name); err != nil {
			return l.fault("%w", err)
		}
		if first, twice := seen[name]; twice && name != "" {
			return l.fault("columns %d and %d are both %q: rename or remove one", first+1, i+1, name)
		}
		seen[name] = i
	}
	return nil
}

// width checks that a record is as long as the header.
func (l line) width(want int) error {
	if len(l.fields) != want {
		return l.fault("%d fields, the header has %d", len(l.fields), want)
	}
	return nil
}

// value reads a number of a record; it must be finite.
func (l line) value(i int, column string) (float64, error) {
	v, err := number(l.fields[i])
	if err != nil {
		return 0, fmt.Errorf("line %d: column %q: %w", l.no, column, err)
	}
	return v, nil
}

// grouped is a number with a comma between thousands.
var (
	grouped    = lazy.Regexp(`^[+-]?\d{1,3}(,\d{3})+(\.\d+)?$`)
	foreign    = lazy.Regexp(`^[+-]?\d{1,3}(\.\d{3}){2,}(,\d+)?$|^[+-]?\d+(\.\d{3})*,\d+$`)
	foreignSum = lazy.Regexp(`^\d{1,3}\.\d{3}$`)
)

// number reads a finite number, with or without commas between thousands.
func number(s string) (float64, error) {
	if grouped().MatchString(s) {
		s = strings.ReplaceAll(s, ",", "")
	} else if foreign().MatchString(s) {
		return 0, fmt.Errorf("%w: %q is written in the manner of another country: "+
			"export again with LC_ALL=C", ErrFormat, s)
	}
	v, err := strconv.ParseFloat(s, 64)
	switch {
	case s == "":
		return 0, fmt.Errorf("%w: the field is empty: fill it, remove the row, "+
			"or leave the column out with --ignore", ErrFormat)
	case err != nil:
		return 0, fmt.Errorf("%w: %q is no number: correct it, or leave the column out with --ignore", ErrFormat, s)
	case math.IsNaN(v) || math.IsInf(v, 0):
		return 0, fmt.Errorf("%w: %q is not finite: correct it, remove the row, "+
			"or leave the column out with --ignore", ErrFormat, s)
	}
	return v, nil
}

// Parts of units as Nsight Compute scales and writes them. Its prefixes are
// decimal.
var (
	prefixes = map[string]float64{"": 1, "K": 1e3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
	unitRE   = lazy.Regexp(`^([KkMGTP]?)` +
		`(bytes?|hz|Hz|bit|inst|sectors?|requests?|cycles?|warps?|threads?|blocks?|registers?)$`)
)

// unit returns what to multiply a value by to have it in the base unit, and that
// unit: ("Kbyte/ms") is (1e6, "byte/second").
func unit(s string) (scale float64, base string) {
	num, den, ratio := strings.Cut(strings.TrimSpace(s), "/")
	scale, base = part(num)
	if ratio {
		d, b := part(den)
		return scale / d, base + "/" + b
	}
	return scale, base
}

func part(s string) (float64, string) {
	if u, _ := logfile.ParseUnit(s); u.Of == logfile.Second {
		return u.Scale(), "second"
	}
	if m := unitRE().FindStringSubmatch(s); m != nil {
		return prefixes[m[1]], strings.ToLower(m[2])
	}
	return 1, s
}

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

// place is where the columns of a plain table are.
type place struct {
	at       map[string]int // by role; −1 for none
	scale    map[string]float64
	counters []int
}

// columns finds out what each column of a plain table is.
func (o Options) columns(head line) (*place, error) {
	p := &place{at: map[string]int{}, scale: map[string]float64{}}
	// Columns that the caller names take precedence over those found by their usual names.
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
		return slices.Index(fields, given), r.scale(logfile.Plain(given))
	}
	for _, name := range r.names {
		if i := slices.IndexFunc(fields, func(f string) bool { return logfile.Plain(f) == name }); i >= 0 {
			return i, r.scale(name)
		}
	}
	return -1, 1
}

// quoted lists names for an error, at most 20 of them.
func quoted(names []string) string {
	const most = 20
	out := lists.Map(names[:min(most, len(names))], strconv.Quote)
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
	// A row that names a task may leave its power empty: the task has it.
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
	for k, i := range p.counters {
		var err error
		if r.Values[k], err = l.value(i, head.fields[i]); err != nil {
			return err
		}
	}
	t.Runs = append(t.Runs, r)
	return nil
}

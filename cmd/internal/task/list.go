package task

import (
	"cmp"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/out"
	"github.com/wattmark/wattmark/cmd/internal/report"
	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/store"
)

// column is a column of the list of tasks.
type column struct {
	name string   // for --columns and --sort
	keys []string // its fields in the JSON of a task, which are the columns of CSV
	// order is the order of the store's list by this column; 0 for none.
	order store.Order
	value func(*store.Row) any // nil where the task has none
}

// figure is the value of a column of results.
func figure(of func(*measure.Result) any) func(*store.Row) any {
	return func(t *store.Row) any {
		if t.Result == nil {
			return nil
		}
		return of(t.Result)
	}
}

// columns are all columns that files, servers and hosts list, by rank. The first nine are those of the
// table; group only where a task has one. Values are of a row's Brief, and none of Driver, Instrument, Bench,
// CalibrationID and Clock, which a host's list lacks (cli.RowOf): such a column would be empty over a host.
var columns = []column{
	{"task", []string{"task_id"}, store.ByID, func(t *store.Row) any { return t.ID }},
	{"launched", []string{"launched"}, store.ByLaunched, func(t *store.Row) any { return t.Launched }},
	{"user", []string{"user"}, 0, func(t *store.Row) any { return t.User }},
	{"name", []string{"name"}, store.ByName, func(t *store.Row) any { return t.Name }},
	{"state", []string{"state"}, 0, func(t *store.Row) any { return t.State.String() }},
	{"duration", []string{"duration_s"}, store.ByDuration, figure(func(f *measure.Result) any { return f.To - f.From })},
	{"energy", []string{"energy_j", "energy_u_j"}, store.ByEnergy, figure(func(f *measure.Result) any { return f.Total })},
	{"mean", []string{"mean_w"}, 0, figure(func(f *measure.Result) any { return f.Mean })},
	{"group", []string{"group_id"}, 0, func(t *store.Row) any { return known(t.Group) }},
	{"peak", []string{"peak_w"}, 0, figure(func(f *measure.Result) any { return f.Peak })},
	{"nvml", []string{"nvml_j"}, 0, func(t *store.Row) any {
		if t.NVML == nil {
			return nil
		}
		return *t.NVML
	}},
	{"gpu", []string{"gpu"}, 0, func(t *store.Row) any { return t.GPU }},
	{"job", []string{"job"}, 0, func(t *store.Row) any { return t.Job }},
	{"samples", []string{"samples"}, 0, figure(func(f *measure.Result) any { return f.Samples })},
	{"gaps", []string{"gaps"}, 0, figure(func(f *measure.Result) any { return f.Gaps })},
	{"lost", []string{"samples_lost"}, 0, figure(func(f *measure.Result) any { return f.Lost })},
	{"reason", []string{"reason"}, 0, func(t *store.Row) any { return t.Reason }},
	{"tags", []string{"tags"}, 0, func(t *store.Row) any { return t.Tags }},
	{"pinned", []string{"pinned"}, 0, func(t *store.Row) any { return known(t.Pinned) }},
}

// usual is how many of columns the table shows without --columns.
const usual = 9

// known returns v, or nil for its zero value.
func known[T comparable](v T) any {
	if v == *new(T) {
		return nil
	}
	return v
}

// columnNames returns the names of all columns.
func columnNames() []string {
	return lists.Map(columns, func(c column) string { return c.name })
}

// columnOf returns the column of a name; one that is not there is a usage error with all names.
func columnOf(name string) (column, error) {
	i := slices.IndexFunc(columns, func(c column) bool { return c.name == name })
	if i < 0 {
		return column{}, cli.Usagef("there is no column %q: there are %s", name, strings.Join(columnNames(), ", "))
	}
	return columns[i], nil
}

// look is how a list is printed and ordered.
type look struct {
	format, sort string
	columns      []string
}

// flags adds --format, --columns and --sort to the command of a list.
func (l *look) flags(c *cobra.Command) {
	names := columnNames()
	c.Flags().StringVar(&l.format, "format", "table", "how to print it: table, csv, markdown or json")
	c.Flags().StringSliceVar(&l.columns, "columns", nil, "print these columns: "+strings.Join(names, ", "))
	c.Flags().StringVar(&l.sort, "sort", "", "order by this column, the least first; -COLUMN: the greatest first "+
		"(default -task)")
	_ = c.RegisterFlagCompletionFunc("columns", func(_ *cobra.Command, _ []string, begun string) ([]string,
		cobra.ShellCompDirective,
	) {
		before := begun[:strings.LastIndex(begun, ",")+1]
		return lists.Map(names, func(name string) string { return before + name }), cobra.ShellCompDirectiveNoFileComp |
			cobra.ShellCompDirectiveNoSpace
	})
	var orders []string
	for _, name := range names {
		orders = append(orders, name, "-"+name)
	}
	_ = c.RegisterFlagCompletionFunc("sort", cobra.FixedCompletions(orders, cobra.ShellCompDirectiveNoFileComp))
}

// check returns a usage error for flags that do not go together, and for columns that do not exist.
func (l *look) check(a *cli.App, watch bool) error {
	if !slices.Contains([]string{"table", "csv", "markdown", "json"}, l.format) {
		return cli.Usagef("there is no format %q: there are table, csv, markdown and json", l.format)
	}
	if a.JSON && l.format != "table" && l.format != "json" {
		return cli.Usagef("--json and --format %s: keep one of them", l.format)
	}
	if watch && (l.format != "table" || l.sort != "" || l.columns != nil) {
		return cli.Usagef("--watch prints a line for each change: leave out --format, --columns and --sort")
	}
	if l.sort != "" {
		if _, err := columnOf(strings.TrimPrefix(l.sort, "-")); err != nil {
			return err
		}
	}
	_, err := l.chosen()
	return err
}

// chosen returns the columns of --columns; nil without it.
func (l *look) chosen() (out []column, err error) {
	for _, name := range l.columns {
		c, err := columnOf(strings.TrimSpace(name))
		if err != nil {
			return nil, err
		}
		out = append(out, c)
	}
	return out, nil
}

// list reads the tasks that q selects in the order of --sort. By a column that the store has no order of, all
// tasks of q are read, and the first q.Limit are kept.
func (l *look) list(ctx context.Context, a *cli.App, q store.Query) ([]store.Row, error) {
	name, descending := strings.CutPrefix(l.sort, "-")
	if l.sort == "" {
		return a.List(ctx, q)
	}
	by, err := columnOf(name)
	if err != nil {
		return nil, err
	}
	if q.Before != 0 {
		return nil, cli.Usagef("--before continues the list of the newest: leave out --sort")
	}
	if by.order != 0 {
		q.Order, q.Ascending = by.order, !descending
		return a.List(ctx, q)
	}
	most := cmp.Or(max(q.Limit, 0), 100)
	var kept []store.Row
	err = inPages(ctx, q, a.List, func(page []store.Row) {
		kept = append(kept, page...)
		slices.SortStableFunc(kept, func(x, y store.Row) int { return compared(by.value(&x), by.value(&y), descending) })
		kept = kept[:min(len(kept), most)]
	})
	return kept, err
}

// compared orders two values of a column. Those that are not known come last in either direction.
func compared(a, b any, descending bool) int {
	x, xs, xok := ranked(a)
	y, ys, yok := ranked(b)
	c := cmp.Or(cmp.Compare(x, y), cmp.Compare(xs, ys))
	switch {
	case xok && !yok:
		return -1
	case yok && !xok:
		return 1
	case descending:
		return -c
	}
	return c
}

// ranked returns the number or the text to order a value by; false for an empty one.
func ranked(v any) (number float64, text string, ok bool) {
	switch x := v.(type) {
	case measure.Watt:
		return float64(x), "", measure.Known(x)
	case measure.Joule:
		return float64(x), "", measure.Known(x)
	case uint64:
		return float64(x), "", true
	case store.GroupID:
		return float64(x), "", true
	case bool:
		return 1, "", x
	}
	text = cell(v)
	return 0, text, text != ""
}

// cell returns a value as the table shows it.
func cell(v any) string {
	switch x := v.(type) {
	case nil:
		return ""
	case time.Time:
		return x.Local().Format("2006-01-02 15:04:05")
	case measure.Estimate:
		return out.Energy(x)
	case bool:
		return "pinned"
	case map[string]string:
		words := lists.Map(slices.Sorted(maps.Keys(x)), func(k string) string { return k + "=" + x[k] })
		return strings.Join(words, ", ")
	}
	return fmt.Sprint(v)
}

// print prints a list in its format. q is the query that it answers.
func (l *look) print(a *cli.App, tasks []store.Row, q store.Query) error {
	chosen, err := l.chosen()
	if err != nil {
		return err
	}
	switch {
	case a.JSON || l.format == "json":
		return printJSON(a, tasks, chosen)
	case l.format == "csv":
		return printCSV(a, tasks, chosen)
	case l.format == "markdown":
		t := table.NewWriter()
		t.AppendHeader(heads(chosen))
		for i := range tasks {
			t.AppendRow(cells(&tasks[i], chosen))
		}
		_, err := fmt.Fprintln(cli.Raw(a.Out), t.RenderMarkdown())
		return err
	case len(tasks) == 0:
		fmt.Fprintln(a.Out, "No such tasks in", a.DB)
		if q.Name != "" && !strings.HasSuffix(q.Name, "*") {
			a.Hintf("wattmark tasks --name %s lists those whose names begin so.\n", cli.ShellWords([]string{q.Name + "*"}))
		}
	case len(chosen) > 0:
		out.Table(a.Out, heads(chosen), tasks, func(t store.Row) out.Row { return cells(&t, chosen) })
	default:
		fmt.Fprintln(a.Out, taskTable(tasks, out.Room(a.Out)))
	}
	if q.Limit > 0 && len(tasks) == q.Limit && l.sort == "" {
		a.Hintf("\nOlder ones: wattmark tasks --before %d\n", tasks[len(tasks)-1].ID)
	}
	return nil
}

// orUsual returns chosen, or the columns that are shown without a choice.
func orUsual(chosen []column) []column {
	if len(chosen) == 0 {
		return columns[:usual]
	}
	return chosen
}

// heads returns the header of columns.
func heads(chosen []column) (row out.Row) {
	for _, c := range orUsual(chosen) {
		if c.name == "energy" {
			c.name += " (k = 2)"
		}
		row = append(row, c.name)
	}
	return row
}

// cells returns a task's row of columns.
func cells(t *store.Row, chosen []column) out.Row {
	return lists.Map(orUsual(chosen), func(c column) any { return cell(c.value(t)) })
}

// fieldsOf returns the JSON fields of a task in a list by their names.
func fieldsOf(a *cli.App, t *store.Row) (map[string]json.RawMessage, error) {
	text, err := json.Marshal(report.NewListedReport(t, a.DB))
	if err != nil {
		return nil, err
	}
	fields := map[string]json.RawMessage{}
	return fields, json.Unmarshal(text, &fields)
}

// printJSON prints a list as JSON: of chosen columns their fields alone.
func printJSON(a *cli.App, tasks []store.Row, chosen []column) error {
	list := []any{} // never null
	for i := range tasks {
		if len(chosen) == 0 {
			list = append(list, report.NewListedReport(&tasks[i], a.DB))
			continue
		}
		all, err := fieldsOf(a, &tasks[i])
		if err != nil {
			return err
		}
		some := map[string]json.RawMessage{}
		for _, c := range chosen {
			for _, k := range c.keys {
				if v, ok := all[k]; ok {
					some[k] = v
				}
			}
		}
		list = append(list, some)
	}
	return a.PrintJSON(map[string]any{"tasks": list})
}

// printCSV prints a list as CSV: fields of the JSON, empty where a task has none.
func printCSV(a *cli.App, tasks []store.Row, chosen []column) error {
	var keys []string
	for _, c := range orUsual(chosen) {
		keys = append(keys, c.keys...)
	}
	w := csv.NewWriter(cli.Raw(a.Out))
	err := w.Write(keys)
	for i := range tasks {
		fields, ferr := fieldsOf(a, &tasks[i])
		if err = errors.Join(err, ferr); err != nil {
			return err
		}
		row := make([]string, len(keys))
		for k, key := range keys {
			if json.Unmarshal(fields[key], &row[k]) != nil { // a text has quotes, a number has none
				row[k] = string(fields[key])
			}
		}
		err = w.Write(row)
	}
	w.Flush()
	return errors.Join(err, w.Error())
}

// narrowings are the steps in which the table becomes narrow, the least important information left out first: a
// column and its width from then on, 0 to leave it out.
var narrowings = []struct {
	column string
	width  int
}{
	{"launched", len("2026-01-31 15:04")},
	{"name", 24},
	{"user", 12},
	{"name", 12},
	{"user", 8},
	{"mean", 0},
	{"duration", 0},
	{"launched", len("2026-01-31")},
	{"state", 0},
	{"launched", 0},
}

// taskTable returns the table of tasks, at most width terminal columns wide; 0 for no limit.
// If all narrowings do not suffice, the lines are cut with an ellipsis.
func taskTable(tasks []store.Row, width int) string {
	grouped := slices.ContainsFunc(tasks, func(t store.Row) bool { return t.Group != 0 })
	shown := lists.Filter(columns[:usual], func(c *column) bool { return c.name != "group" || grouped })
	widths := map[string]int{}
	text := drawTasks(tasks, shown, widths)
	for _, n := range narrowings {
		if width <= 0 || out.Widest(text) <= width {
			return text
		}
		if widths[n.column] = n.width; n.width == 0 {
			shown = lists.Filter(shown, func(c *column) bool { return c.name != n.column })
		}
		text = drawTasks(tasks, shown, widths)
	}
	lines := strings.Split(text, "\n")
	return strings.Join(lists.Map(lines, func(l string) string { return ansi.Truncate(l, width, "…") }), "\n")
}

// drawTasks returns a table of columns, those with a width cut to it.
func drawTasks(tasks []store.Row, shown []column, widths map[string]int) string {
	head := heads(shown)
	head[0] = ">task"
	t := out.NewTable(io.Discard, head...)
	for i := range tasks {
		row := cells(&tasks[i], shown)
		for k, c := range shown {
			if w := widths[c.name]; w > 0 {
				tail := map[bool]string{false: "…"}[c.name == "launched"]
				row[k] = ansi.Truncate(row[k].(string), w, tail)
			}
		}
		t.AppendRow(row)
	}
	return t.Render()
}

package main

import (
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/charmbracelet/x/ansi"

	"wattmark/store"
)

// taskRow is one line of the list of tasks.
type taskRow struct {
	id                                                   store.TaskID
	launched, user, name, state, duration, energy, group string
	mean                                                 string
}

func newTaskRow(x *store.Row) taskRow {
	row := taskRow{id: x.ID, launched: x.Launched.Local().Format("2006-01-02 15:04:05"), user: x.User, name: x.Name, state: stateNames[x.State]}
	if x.Result != nil {
		row.duration = (x.Result.To - x.Result.From).String()
		row.energy, row.mean = energyText(float64(x.Result.Total.Energy), float64(x.Result.Total.U)), x.Result.Mean.String()
	}
	if x.Group != 0 {
		row.group = strconv.FormatInt(int64(x.Group), 10)
	}
	return row
}

// squeeze are the ways to make the list narrower, taken one after the other
// until it fits: what a reader misses least goes first.
var squeeze = []func(rows []taskRow) (columns []string){
	nil, // as it is
	func(rows []taskRow) []string { cutLaunched(rows, len("2006-01-02 15:04")); return taskColumns },
	func(rows []taskRow) []string { cutNames(rows, 24, 12); return taskColumns },
	func(rows []taskRow) []string { cutNames(rows, 12, 8); return taskColumns },
	func([]taskRow) []string { return without("mean") },
	func([]taskRow) []string { return without("mean", "duration") },
	func(rows []taskRow) []string {
		cutLaunched(rows, len("2006-01-02"))
		return without("mean", "duration")
	},
	func([]taskRow) []string { return without("mean", "duration", "state") },
	func([]taskRow) []string { return without("mean", "duration", "state", "launched") },
}

var taskColumns = []string{"task", "launched", "user", "name", "state", "duration", "energy (k = 2)", "mean", "group"}

func without(names ...string) []string {
	return slices.DeleteFunc(slices.Clone(taskColumns), func(c string) bool { return slices.Contains(names, c) })
}

func cutLaunched(rows []taskRow, n int) {
	for i := range rows {
		rows[i].launched = rows[i].launched[:min(n, len(rows[i].launched))]
	}
}

func cutNames(rows []taskRow, name, user int) {
	for i := range rows {
		rows[i].name, rows[i].user = ansi.Truncate(rows[i].name, name, "…"), ansi.Truncate(rows[i].user, user, "…")
	}
}

// taskTable lists tasks in at most so many columns of a terminal; 0 for as many
// as they take. What does not fit in any case is cut with an ellipsis.
func taskTable(rows []taskRow, width int) string {
	rows = slices.Clone(rows)
	columns, text := taskColumns, ""
	for _, narrower := range squeeze {
		if narrower != nil {
			columns = narrower(rows)
		}
		if text = drawTasks(rows, columns); width <= 0 || widest(text) <= width {
			return text
		}
	}
	lines := strings.Split(text, "\n")
	for i, l := range lines {
		lines[i] = ansi.Truncate(l, width, "…")
	}
	return strings.Join(lines, "\n")
}

func drawTasks(rows []taskRow, columns []string) string {
	if !slices.ContainsFunc(rows, func(r taskRow) bool { return r.group != "" }) {
		columns = slices.DeleteFunc(slices.Clone(columns), func(c string) bool { return c == "group" })
	}
	t := newTable(io.Discard)
	var head []any
	for _, c := range columns {
		head = append(head, c)
	}
	t.AppendHeader(head)
	for _, r := range rows {
		cells := map[string]any{
			"task": r.id, "launched": r.launched, "user": r.user, "name": r.name, "state": r.state,
			"duration": r.duration, "energy (k = 2)": r.energy, "mean": r.mean, "group": r.group,
		}
		var row []any
		for _, c := range columns {
			row = append(row, cells[c])
		}
		t.AppendRow(row)
	}
	return t.Render()
}

// widest is the width of the widest line, in columns of a terminal.
func widest(text string) (n int) {
	for l := range strings.SplitSeq(text, "\n") {
		n = max(n, ansi.StringWidth(l))
	}
	return n
}

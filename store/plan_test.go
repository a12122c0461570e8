package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// asked returns the statements that a call really ran, in SQLite's own words.
func asked(t *testing.T, d *DB, call func()) (texts []string) {
	t.Helper()
	kept := func(f func(*keeper)) {
		conn := must(d.reader.Conn(t.Context()))(t)
		defer conn.Close()
		ok(t, conn.Raw(func(c any) error { f(c.(*shadowConn).keeper); return nil }))
	}
	kept(func(k *keeper) { k.close() })
	call()
	kept(func(k *keeper) {
		for text := range k.kept {
			texts = append(texts, text)
		}
	})
	slices.Sort(texts)
	return texts
}

// planned are filters, with whether an index finds their tasks, and whether it finds
// them in every order.
var planned = []struct {
	Filter
	found, inOrder bool
}{
	{Filter{}, false, true},
	{Filter{User: "ada"}, true, true},
	{Filter{Name: "gemm"}, true, false},
	{Filter{Name: "gemm*"}, true, false},
	{Filter{Name: "*mm"}, false, true},
	{Filter{User: "ada", Name: "gemm"}, true, false},
	{Filter{User: "ada", Name: "gemm*"}, true, false},
	{Filter{User: "ada", Name: "*mm*"}, true, true},
	{Filter{Job: "j1"}, true, false},
	{Filter{Group: 1}, true, false},
	{Filter{GPU: "h200"}, false, true},
	{Filter{States: []State{Complete}}, false, true},
	{Filter{States: []State{Running, Untrimmed}}, true, false},
	{Filter{Since: epoch}, true, false},
	{Filter{Since: epoch, Until: epoch.Add(time.Hour), User: "ada"}, true, false},
	{Filter{MinEnergy: 5, MaxEnergy: 12}, true, false},
	{Filter{MinDuration: 2}, true, false},
}

// Every list in every order is answered out of an index: no page reads a table from
// one end to the other, and none sorts but what an index found.
func TestEveryListHasAnIndex(t *testing.T) {
	noRaces(t)
	d := open(t)
	all := many(t, d, 400, 7)
	d.reader.SetMaxOpenConns(1)
	for _, analysed := range []bool{false, true} { // a database has no statistics unless somebody made them
		if analysed {
			_, err := d.writer.Exec("ANALYZE")
			ok(t, err)
			ok(t, d.reader.Close())
			d.openReaders(dsn(d.path, "rw"))
			d.reader.SetMaxOpenConns(1)
		}
		for _, p := range planned {
			for order := ByID; order <= ByName; order++ {
				for _, after := range []*Position{nil, {ID: all[200].ID, Nanos: epoch.UnixNano(), Number: 3, Text: "gemm"}} {
					q := ListQuery{Filter: p.Filter, Order: order, Ascending: order == ByEnergy, After: after, Limit: 10}
					what := fmt.Sprintf("analysed %v, %+v", analysed, q)
					for _, text := range asked(t, d, func() { must(d.List(t.Context(), q))(t) }) {
						checkPlan(t, d, what, text, order == ByID, p.inOrder && !analysed) // with statistics, sorting a few is fine
					}
				}
			}
		}
	}
}

// checkPlan looks at one statement; a list by id may walk the table, which is the
// index of ids.
func checkPlan(t *testing.T, d *DB, what, text string, byID, inOrder bool) {
	t.Helper()
	lines := plan(t, d, text, make([]any, strings.Count(text, "?"))...)
	found := slices.ContainsFunc(lines, func(l string) bool { return strings.HasPrefix(l, "SEARCH t USING") })
	for _, l := range lines {
		walks := strings.HasPrefix(l, "SCAN t") && !strings.Contains(l, "INDEX") && !strings.HasPrefix(text, "SELECT s.n,") && !strings.HasPrefix(text, "SELECT n FROM") // of the newest few
		sorts := strings.HasPrefix(l, "USE TEMP B-TREE FOR ORDER BY") || strings.HasPrefix(l, "USE TEMP B-TREE FOR RIGHT PART")
		if walks && !byID || sorts && (inOrder || !found) {
			t.Errorf("%s: %s\n%s\n%s", what, l, text, strings.Join(lines, "\n"))
		}
	}
}

// Sums read the tasks of their filter alone, where an index finds those.
func TestSumsUseIndexes(t *testing.T) {
	noRaces(t)
	d := open(t)
	many(t, d, 400, 8)
	d.reader.SetMaxOpenConns(1)
	for _, p := range planned {
		if !p.found {
			continue // all tasks are added up
		}
		var texts []string
		for by := ByUser; by <= ByJob; by++ {
			texts = append(texts, asked(t, d, func() { must(d.Aggregate(t.Context(), AggregateQuery{Filter: p.Filter, By: by}))(t) })...)
		}
		texts = append(texts, asked(t, d, func() { must(d.Totals(t.Context(), p.Filter))(t) })...)
		texts = append(texts, asked(t, d, func() { must(d.Selected(t.Context(), p.Filter, []TaskID{1, 2}))(t) })...)
		for _, text := range texts {
			for _, l := range plan(t, d, text, make([]any, strings.Count(text, "?"))...) {
				if l == "SCAN t" || l == "SCAN task" || l == "SCAN budget" || strings.HasPrefix(l, "SCAN k") && !strings.Contains(text, "WITH s AS") {
					t.Errorf("%+v: %s\n%s", p.Filter, l, text)
				}
			}
		}
	}
}

// A task is asked for by its id alone.
func TestOneTaskUsesIndexes(t *testing.T) {
	noRaces(t)
	d := open(t)
	id := begin(t, d, threeRails(evenly))
	d.reader.SetMaxOpenConns(1)
	texts := asked(t, d, func() {
		must(d.TaskResult(t.Context(), id, 0))(t)
		_, _, _, err := d.Window(t.Context(), id)
		ok(t, err)
		for range d.Chunks(t.Context(), id, 0) {
			t.Error("a chunk of nothing")
		}
	})
	if len(texts) < 8 {
		t.Errorf("only %d statements were seen", len(texts))
	}
	for _, text := range texts {
		for _, l := range plan(t, d, text, make([]any, strings.Count(text, "?"))...) {
			if strings.HasPrefix(l, "SCAN ") && !strings.Contains(l, "INDEX") && l != "SCAN CONSTANT ROW" && l != "SCAN h" {
				t.Errorf("%s\n%s", l, text)
			}
		}
	}
}

// A statement that a caller has not finished with is left alone, and one that is kept
// sees what was written since.
func TestKeptStatements(t *testing.T) {
	d := open(t)
	many(t, d, 20, 3)
	conn := must(d.reader.Conn(t.Context()))(t)
	defer conn.Close()
	const text = "SELECT task_id FROM task WHERE task_id>? ORDER BY task_id"
	count := func(q string, from, behind15 int) (n int) {
		t.Helper()
		outer := must(conn.QueryContext(t.Context(), q, from))(t)
		defer outer.Close()
		for outer.Next() {
			n++
			if n == 3 {
				inner := must(conn.QueryContext(t.Context(), q, 15))(t)
				m := 0
				for inner.Next() {
					m++
				}
				if ok(t, inner.Err()); m != behind15 {
					t.Errorf("%d inner rows", m)
				}
			}
		}
		ok(t, outer.Err())
		return n
	}
	for i := range 100 {
		if n := count(fmt.Sprintf("%s LIMIT %d", text, 20+i), 10, 5); n != 10 {
			t.Fatalf("%d rows, want 10", n)
		}
	}
	must(d.BeginTask(t.Context(), newTask("late", "ada")))(t)
	if n := count(text+" LIMIT 119", 10, 6); n != 11 {
		t.Errorf("%d rows after another was added, want 11", n)
	}
	ok(t, conn.Raw(func(c any) error {
		if n := len(c.(*shadowConn).keeper.kept); n == 0 || n > keptStatements {
			return fmt.Errorf("%d statements are kept", n)
		}
		return nil
	}))
	var no sql.NullInt64
	if err := conn.QueryRowContext(t.Context(), "SELECT nonsense").Scan(&no); err == nil {
		t.Error("nonsense was answered")
	}
}

// What is asked without a way to interrupt it takes a moment whatever it is asked for.
func TestBoundedPages(t *testing.T) {
	for _, c := range []struct {
		f    Filter
		want Planning
	}{
		{Filter{}, PlanOnce},
		{Filter{User: "ada", Name: "gemm-*"}, PlanOnce},
		{Filter{Name: `a\*b`}, PlanOnce},
		{Filter{Job: "train"}, PlanOnce},
		{Filter{States: []State{Incomplete}}, PlanOnce},
		{Filter{Name: "*-fp16"}, PlanEach},
		{Filter{User: "ada", States: []State{Incomplete}}, PlanEach},
		{Filter{Job: "train", States: []State{Incomplete}}, PlanEach},
		{Filter{GPU: "h200"}, PlanEach},
		{Filter{Search: "gemm"}, PlanEach},
		{Filter{Since: epoch}, PlanEach},
		{Filter{Tags: []Tag{{"node", "a3"}}}, PlanEach},
		{Filter{MinEnergy: 1}, PlanEach},
	} {
		q := ListQuery{Filter: c.f}
		if got := q.planning(must(q.names())(t)); got != c.want {
			t.Errorf("%+v: %v", c.f, got)
		}
	}
	q := ListQuery{Filter: Filter{Name: "gemm-*"}}
	if got := q.planning(namePattern{prefix: "gemm-", onlyLow: true, onlyHigh: true}); got != PlanInOrder {
		t.Errorf("common names: %v", got)
	}
}

// A page that nobody waits for any more is not asked for.
func TestPageOfNobody(t *testing.T) {
	d := open(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := d.List(ctx, ListQuery{}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

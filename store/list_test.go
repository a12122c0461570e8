package store

import (
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// plan is what SQLite says of how it will answer.
func plan(t testing.TB, d *DB, q string, args ...any) []string {
	t.Helper()
	return must(collect(t.Context(), d.reader, func(rows *sql.Rows, s *string) error {
		var a, b, c int
		return rows.Scan(&a, &b, &c, s)
	}, "EXPLAIN QUERY PLAN "+q, args...))(t)
}

// Every question for a list is answered out of an index, never by reading all tasks.
func TestListsUseIndexes(t *testing.T) {
	noRaces(t)
	d := open(t)
	crowd(t, d, 3000, 30)
	_, err := d.writer.Exec("ANALYZE")
	ok(t, err)
	for _, analysed := range []bool{true, false} { // a database has no statistics unless somebody made them
		if !analysed {
			_, err := d.writer.Exec("DROP TABLE sqlite_stat1")
			ok(t, err)
			ok(t, d.reader.Close())
			d.openReaders(dsn(d.path, "rw"))
		}
		for _, q := range []Query{
			{},
			{Before: 500},
			{User: "user 3"},
			{User: "user 3", Before: 500},
			{Name: "gemm-5"},
			{Name: "gemm-5*"},
			{Name: "gemm-5*", Before: 900},
			{User: "user 3", Name: "gemm-5*"},
			{User: "user 3", Name: "gemm-5"},
			{Job: "train"},
			{Since: epoch, Until: epoch.Add(time.Hour)},
			{Search: "gemm 7"},
			{Tags: map[string]string{"node": "a3"}},
			{Tags: map[string]string{"node": ""}},
			{Tags: map[string]string{"node": "a3"}, Search: "gemm", User: "user 3"},
		} {
			for _, how := range []namePattern{{}, {few: true}, {few: true, reach: 1000}} {
				if how.few && !strings.HasSuffix(q.Name, "*") {
					continue
				}
				l := q.list()
				text, args := pickOf(t, &l, how)
				if bad := unindexed(plan(t, d, text, args...), q.User != "" || q.Name != "" || q.Job != "" || q.Search != "" || q.Tags != nil); bad != "" {
					t.Errorf("analysed %v, %+v, %+v: %s", analysed, how, q, bad)
				}
			}
		}
	}
}

// unindexed returns the line of a plan that reads without an index.
func unindexed(plan []string, selective bool) string {
	for _, line := range plan {
		indexed := strings.Contains(line, "INDEX") || strings.Contains(line, "PRIMARY KEY")
		if line == "SEARCH task" { // the first or the last of all
			continue
		}
		if !indexed && (strings.HasPrefix(line, "SEARCH") || strings.HasPrefix(line, "SCAN t") && selective) {
			return line
		}
	}
	return ""
}

// All ways to answer for a prefix give the same.
func TestCommonAndRareNames(t *testing.T) {
	noRaces(t)
	d := open(t)
	crowd(t, d, 6000, 20)
	_, err := d.writer.Exec("UPDATE task SET name='rare-' || task_id WHERE task_id<=40")
	ok(t, err)
	for _, f := range []Filter{{Name: "gemm-*"}, {Name: "gemm-1*"}, {Name: "gemm-1*", User: "user 3"}, {Name: "gemm-77*"}, {Name: "rare-*"}, {Name: "none*"}} {
		for _, after := range []*Position{nil, {ID: 3000}, {ID: 20}} {
			for _, ascending := range []bool{false, true} {
				q := ListQuery{Filter: f, Order: ByID, After: after, Ascending: ascending, Limit: 50}
				var answers [5][]TaskID
				for i, how := range []namePattern{{}, {onlyLow: true, onlyHigh: true}, {few: true}, {few: true, reach: 6000}, {few: true, reach: 600}} {
					text, args := pickOf(t, &q, how)
					answers[i] = must(collect(t.Context(), d.reader, func(rows *sql.Rows, id *TaskID) error { var key any; return rows.Scan(id, &key) }, text, args...))(t)
				}
				list := must(d.List(t.Context(), q))(t).Tasks
				same := len(list) == len(answers[0])
				for i := 0; i < len(list) && same; i++ {
					same = list[i].ID == answers[0][i]
				}
				for _, a := range answers[1:4] {
					same = same && slices.Equal(a, answers[0])
				}
				short := answers[4] // begins as the others, and ends where 600 ids do
				if !same || len(short) > len(answers[0]) || !slices.Equal(short, answers[0][:len(short)]) {
					t.Errorf("%+v: %v, listed %d", q, answers, len(list))
				}
			}
		}
	}
	for prefix, want := range map[string]commonness{"gemm-": commonNames, "gemm-7": commonNames, "gemm-77": fewNames, "rare-": rareNames, "none": fewNames} {
		if how := must(d.commonness(t.Context(), hinted{prefix: prefix, byName: true}))(t); how != want {
			t.Errorf("%s: %d, want %d", prefix, how, want)
		}
	}
}

// What was learned of where few names lie makes no page another one, however they lie by
// then.
func TestFewNamesElsewhere(t *testing.T) {
	d := open(t)
	crowd(t, d, 6000, 20)
	q := ListQuery{Filter: Filter{Name: "gemm-77*"}, Limit: 20}
	of := hinted{prefix: "gemm-77", byName: true}
	check := func(what string) {
		t.Helper()
		for range 2 {
			for _, q.Ascending = range []bool{false, true} {
				direction := " DESC"
				if q.Ascending {
					direction = ""
				}
				want := must(collect(t.Context(), d.reader, func(rows *sql.Rows, id *TaskID) error { return rows.Scan(id) },
					`SELECT task_id FROM task WHERE name GLOB 'gemm-77*' ORDER BY task_id`+direction))(t)
				var got []TaskID
				for q.After = nil; ; {
					p := must(d.List(t.Context(), q))(t)
					for _, x := range p.Tasks {
						got = append(got, x.ID)
					}
					if q.After = p.Next; p.Next == nil {
						break
					}
				}
				if !slices.Equal(got, want) {
					t.Errorf("%s, ascending %v: listed %v, want %v", what, q.Ascending, got, want)
				}
			}
		}
	}
	check("strewn")
	if h := d.hints.of[of]; h.how != fewNames || h.apart < 50 || h.apart > 150 { // 66 of 6000
		t.Errorf("learned %+v", h)
	}
	if near, far := reachOf(91, 50), reachOf(1000, 50); near < 51*91 || far != 0 {
		t.Errorf("reaches %d and %d", near, far)
	}
	for what, change := range map[string]string{ // in any order
		"at the beginning": `UPDATE task SET name=CASE WHEN task_id<=100 THEN 'gemm-77'||(task_id%3) ELSE 'other' END`,
		"in two places":    `UPDATE task SET name=CASE WHEN task_id<=30 OR task_id>5970 THEN 'gemm-77'||(task_id%3) ELSE 'other' END`,
		"none":             `UPDATE task SET name='other'`,
	} {
		_, err := d.writer.Exec(change)
		ok(t, err)
		check(what)
	}
}

// pickOf is how the tasks of a question are picked, found by their names in one way.
func pickOf(t testing.TB, q *ListQuery, how namePattern) (string, []any) {
	t.Helper()
	p := must(q.names())(t)
	p.onlyLow, p.onlyHigh, p.few, p.reach = how.onlyLow, how.onlyHigh, how.few, how.reach
	return q.parts(p)[0].pick(q.Limit, false)
}

// crowd makes many tasks of many users, in a few statements.
func crowd(t testing.TB, d *DB, tasks, users int) {
	t.Helper()
	_, err := d.writer.Exec(fmt.Sprintf(`WITH RECURSIVE s(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM s WHERE i<%d) INSERT INTO user SELECT i, 'user ' || i FROM s`, users))
	ok(t, err)
	for at := 0; at < tasks; at += 100000 {
		_, err := d.writer.Exec(fmt.Sprintf(`WITH RECURSIVE s(i) AS (SELECT %d UNION ALL SELECT i+1 FROM s WHERE i<%d)
			INSERT INTO task(task_id,user_id,name,launched_ns,launched,state,monitor,capture_id,gpu,gpu_uuid,driver,marker_code,marker_chip_s,marker_guard,marker_tag_bits,marker_tag)
			SELECT i, 1+(i*7919)%%%d, 'gemm-' || ((i*31)%%1000), %d+i*1000000000, '2026-03-04T05:06:07.000000Z', 2, 'bench:7000', 'c-' || i, 'H200', 'GPU-1', '570.1', 1, 0.002, 4, 8, 1 FROM s`,
			at+1, min(at+100000, tasks), users, epoch.UnixNano()))
		ok(t, err)
	}
	_, err = d.writer.Exec(`INSERT INTO task_tag SELECT task_id, 'node', CASE WHEN task_id%10=0 THEN 'a3' ELSE 'b' || task_id%10 END FROM task WHERE task_id%5=0`)
	ok(t, err)
}

// BenchmarkList lists tasks out of a million of a thousand users.
func BenchmarkList(b *testing.B) {
	d := open(b)
	const tasks, users = 1_000_000, 1000
	begun := time.Now()
	crowd(b, d, tasks, users)
	b.Logf("%d tasks of %d users made in %v", tasks, users, time.Since(begun).Round(time.Second))
	page := func(q Query, pages int) Query { // what page 5000 asks: keyset, not offset
		q.Limit, q.Before = 50, 0
		if pages > 1 {
			q.Before = TaskID(tasks - 50*(pages-1) + 1)
		}
		return q
	}
	for _, c := range []struct {
		name string
		q    Query
	}{
		{"all, page 1", page(Query{}, 1)},
		{"all, page 5000", page(Query{}, 5000)},
		{"user, page 1", page(Query{User: "user 77"}, 1)},
		{"user, page 5000", page(Query{User: "user 77"}, 5000)},
		{"prefix of all, page 1", page(Query{Name: "gemm-*"}, 1)},
		{"prefix of all, page 5000", page(Query{Name: "gemm-*"}, 5000)},
		{"prefix of 11 %, page 1", page(Query{Name: "gemm-7*"}, 1)},
		{"prefix of 11 %, page 5000", page(Query{Name: "gemm-7*"}, 5000)},
		{"name of 0.1 %, page 1", page(Query{Name: "gemm-77"}, 1)},
		{"user and prefix", page(Query{User: "user 77", Name: "gemm-7*"}, 1)},
		{"the newer half", page(Query{Since: epoch.Add(500000 * time.Second)}, 1)},
		{"the oldest 0.1 %", page(Query{Until: epoch.Add(1000 * time.Second)}, 1)},
		{"the older half", page(Query{Until: epoch.Add(500000 * time.Second)}, 1)},
		{"the older half of a user", page(Query{User: "user 77", Until: epoch.Add(500000 * time.Second)}, 1)},
		{"search of 0.1 %", page(Query{Search: "gemm 77"}, 1)},
		{"tag of 10 %", page(Query{Tags: map[string]string{"node": "a3"}}, 1)},
	} {
		b.Run(c.name, func(b *testing.B) {
			var took []time.Duration
			for b.Loop() {
				at := time.Now()
				must(d.Tasks(b.Context(), c.q))(b)
				took = append(took, time.Since(at))
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds())/1e3, "p50-ms")
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1e3, "p99-ms")
		})
	}
}

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
			text, args := q.pick(false)
			bad := ""
			for _, line := range plan(t, d, text, args...) {
				indexed := strings.Contains(line, "INDEX") || strings.Contains(line, "PRIMARY KEY")
				if strings.HasPrefix(line, "SCAN t") && !indexed && (q.User != "" || q.Name != "" || q.Job != "" || q.Search != "" || q.Tags != nil) {
					bad = line
				}
				if strings.HasPrefix(line, "SEARCH") && !indexed {
					bad = line
				}
			}
			if bad != "" {
				t.Errorf("analysed %v, %+v: %s", analysed, q, bad)
			}
		}
	}
}

// Both ways to answer for a prefix give the same.
func TestCommonAndRareNames(t *testing.T) {
	noRaces(t)
	d := open(t)
	crowd(t, d, 6000, 20)
	for _, q := range []Query{{Name: "gemm-*", Limit: 50}, {Name: "gemm-1*", Limit: 50, Before: 3000}, {Name: "gemm-*", User: "user 3", Limit: 50}} {
		var answers [2][]TaskID
		for i, many := range []bool{false, true} {
			text, args := q.pick(many)
			answers[i] = must(collect(t.Context(), d.reader, func(rows *sql.Rows, id *TaskID) error { return rows.Scan(id) }, text, args...))(t)
		}
		list := must(d.Tasks(t.Context(), q))(t)
		if !slices.Equal(answers[0], answers[1]) || len(list) != 50 || list[0].ID != answers[0][0] {
			t.Errorf("%+v: %d and %d tasks, listed %d", q, len(answers[0]), len(answers[1]), len(list))
		}
	}
	if many := must(d.manyNamed(t.Context(), Query{Name: "gemm-*"}))(t); !many {
		t.Error("6000 names count as rare")
	}
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

package store

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/wattmark/wattmark/internal/coverage"
	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/store/internal/data"
)

// plan is what SQLite says of how it will answer.
func plan(t testing.TB, d *DB, q string, args ...any) []string {
	t.Helper()
	return must(collect(t.Context(), d, "", func(rows *sql.Rows, s *string) error {
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
			l := q.list()
			p := must(l.parts(t.Context(), d))(t)[0]
			selective := q.User != "" || q.Name != "" || q.Job != "" || q.Search != "" || q.Tags != nil
			if bad := unindexed(plan(t, d, p.pick(), p.arguments()...), selective); bad != "" {
				t.Errorf("analysed %v, %+v: %s", analysed, q, bad)
			}
		}
	}
}

// unindexed returns the line of a plan that reads without an index.
func unindexed(plan []string, selective bool) string {
	for _, line := range plan {
		indexed := strings.Contains(line, "INDEX") || strings.Contains(line, "PRIMARY KEY")
		if !indexed && (strings.HasPrefix(line, "SEARCH") || strings.HasPrefix(line, "SCAN t") && selective) {
			return line
		}
	}
	return ""
}

// A common prefix is walked, a rare one collected; both ways answer the same.
func TestCommonAndRareNames(t *testing.T) {
	noRaces(t)
	d := open(t)
	crowd(t, d, 6000, 20)
	_, err := d.writer.Exec("UPDATE task SET name='rare-' || task_id WHERE task_id<=40")
	ok(t, err)
	for _, c := range []struct {
		Filter
		common bool
	}{
		{Filter{Name: "gemm-*"}, true},
		{Filter{Name: "gemm-1*"}, false},
		{Filter{Name: "gemm-1*", User: "user 3"}, false},
		{Filter{Name: "gemm-77*"}, false},
		{Filter{Name: "rare-*"}, false},
		{Filter{Name: "none*"}, false},
	} {
		names := must(c.names())(t)
		ok(t, d.placeNames(t.Context(), &ListQuery{Filter: c.Filter, Order: ByID}, &names))
		if names.noLow != c.common || names.noHigh != c.common {
			t.Errorf("%+v: %+v", c, names)
		}
		for order := ByID; order <= ByName; order++ {
			for _, after := range []*Position{nil, {ID: 3000, Nanos: epoch.UnixNano() + 3e12, Text: "gemm-17"}, {ID: 20, Text: "gemm-999"}} {
				for _, ascending := range []bool{false, true} {
					q := ListQuery{Filter: c.Filter, Order: order, After: after, Ascending: ascending, Limit: 50}
					var want []TaskID
					for i, x := range must(d.List(t.Context(), q))(t).Tasks {
						if want = append(want, x.ID); i > 50 {
							t.Fatalf("%+v: a page of %d", q, i)
						}
					}
					parts := must(q.parts(t.Context(), d))(t)
					for _, walk := range []bool{false, true} {
						var got []TaskID
						for _, p := range parts {
							p.conditions = &conditions{slices.Clone(p.where), slices.Clone(p.args)}
							for i, cond := range p.where { // the other way to look for names
								p.where[i] = strings.NewReplacer("t.name>=?", "(t.name<?) IS NOT TRUE", "t.name<?", "(t.name>=?) IS NOT TRUE").Replace(cond)
								if !walk || !strings.HasPrefix(cond, "t.name") || order == ByName {
									p.where[i] = cond
								}
							}
							if walk && p.few != nil { // by one range of names
								prefix := strings.TrimSuffix(c.Name, "*")
								p.add("t.name>=?", prefix)
								p.add("t.name<?", prefix+lastRune)
								p.few = nil
							}
							for _, x := range must(d.listed(t.Context(), p, true))(t) {
								got = append(got, x.ID)
							}
						}
						if got = got[:min(len(got), 50)]; !slices.Equal(got, want) {
							t.Errorf("%+v, walked %v: got %v, want %v", q, walk, got, want)
						}
					}
				}
			}
		}
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

// many makes n tasks of all sorts straight in the table; what they are follows
// from the seed.
func many(t testing.TB, d *DB, n int, seed uint64) []Row {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 5))
	names := []string{"gemm", "gemm-fp16", "axpy", "ядро", "核 [1]", "a*b", "a?b", `c\d`, "O'Hara\"; DROP TABLE task;--", "[abc]", "%_"}
	for _, u := range []string{"ada", "bob", "ひろ"} {
		_, err := d.writer.Exec(`INSERT INTO user(login) VALUES(?)`, u)
		ok(t, err)
	}
	tx := must(d.writer.Begin())(t)
	for i := range n {
		var launched, from, to, energy, job any
		result := rng.IntN(4) > 0
		if rng.IntN(8) > 0 {
			launched = epoch.Add(time.Duration(rng.IntN(50)) * time.Hour).UnixNano()
		}
		if result {
			from, to, energy = 1.0, 1.0+float64(1+rng.IntN(5)), float64(rng.IntN(20))
		}
		if rng.IntN(2) == 0 {
			job = "j" + fmt.Sprint(rng.IntN(3))
		}
		_, err := tx.Exec(`INSERT INTO task(user_id,name,launched_ns,state,monitor,capture_id,gpu,gpu_uuid,driver,marker_code,marker_chip_s,
			marker_guard,marker_tag_bits,marker_tag,has_result,from_s,to_s,energy_j,job,samples) VALUES(?,?,?,?,'',?,?,?,'',0,0,0,0,0,?,?,?,?,?,7)`,
			1+rng.IntN(3), names[rng.IntN(len(names))], launched, 1+rng.IntN(4), fmt.Sprint("c-", i), []string{"NVIDIA H200", "Tesla V100"}[rng.IntN(2)],
			fmt.Sprintf("GPU-%d", rng.IntN(2)), result, from, to, energy, job)
		ok(t, err)
	}
	// A number from the tasks' own, so that what the seed makes stays as it was.
	_, err := tx.Exec(`INSERT INTO task_tag SELECT task_id, 'node', CASE task_id%3 WHEN 0 THEN 'a3' ELSE 'b'';--' END FROM task WHERE task_id%4>0`)
	ok(t, err)
	_, err = tx.Exec(`INSERT INTO task_tag SELECT task_id, 'охлаждение', 'вода' FROM task WHERE task_id%5=0`)
	ok(t, err)
	ok(t, tx.Commit())
	s := d.reading(t.Context())
	out := s.taskRows("NULL, NULL", "task t JOIN", "ORDER BY t.task_id")
	for i := range out {
		out[i].Tags = readTags(s, out[i].ID)
	}
	ok(t, s.err)
	return lists.Map(out, func(t row) Row { return t.Row() })
}

// selects is the filter in plain Go. Names have no character that path.Match
// takes for more than SQLite's GLOB does, but the slash.
func selects(f Filter, t *Row) bool {
	glob := f.Name == "" || matches(f.Name, t.Name)
	window := f.MinEnergy == 0 && f.MaxEnergy == 0 && f.MinDuration == 0 && f.MaxDuration == 0
	if t.Result != nil {
		e, l := t.Result.Total.Energy, t.Result.To-t.Result.From
		window = e >= f.MinEnergy && (f.MaxEnergy == 0 || e <= f.MaxEnergy) && l >= f.MinDuration && (f.MaxDuration == 0 || l <= f.MaxDuration)
	}
	return glob && window && (f.User == "" || f.User == t.User) && (f.Job == "" || f.Job == t.Job) &&
		(f.Since.IsZero() || !t.Launched.IsZero() && !t.Launched.Before(f.Since)) &&
		(f.Until.IsZero() || !t.Launched.IsZero() && t.Launched.Before(f.Until)) &&
		(f.GPU == "" || f.GPU == t.GPUUUID || strings.Contains(strings.ToLower(t.GPU), strings.ToLower(f.GPU))) &&
		(len(f.States) == 0 || slices.Contains(f.States, t.State)) &&
		!slices.ContainsFunc(f.Tags, func(x Tag) bool { return !bears(t, x) }) &&
		!slices.ContainsFunc(f.Without, func(x Tag) bool { return bears(t, x) }) && found(t, f.Search)
}

func bears(t *Row, x Tag) bool {
	v, some := t.Tags[x.Key]
	return some && (x.Value == "" || v == x.Value)
}

// found is the search in plain Go, for words without signs.
func found(t *Row, search string) bool {
	text := t.Name
	for k, v := range t.Tags {
		text += " " + k + " " + v
	}
	have := strings.FieldsFunc(strings.ToLower(text), func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })
	for _, w := range strings.Fields(strings.ToLower(search)) {
		if !slices.ContainsFunc(have, func(h string) bool { return strings.HasPrefix(h, w) }) {
			return false
		}
	}
	return true
}

// matches asks path.Match, in which a set stands for what must be itself.
func matches(pattern, name string) bool {
	okay, err := path.Match(strings.ReplaceAll(pattern, "[", `\[`), name)
	return err == nil && okay
}

var someFilters = []Filter{
	{},
	{User: "ada"},
	{User: "ひろ"},
	{User: "nobody"},
	{Tags: []Tag{{"node", "a3"}}},
	{Tags: []Tag{{"node", ""}, {"охлаждение", "вода"}}, Without: []Tag{{"node", "b';--"}}},
	{Without: []Tag{{"node", "a3"}, {"node", "b';--"}}},
	{Without: []Tag{{"охлаждение", ""}}, Search: "gem", User: "ada"},
	{Search: "ВОДА a3"},
	{Search: "b a"},
	{Tags: []Tag{{"node", "x"}}, Search: "nothing"},
	{User: "' OR 1=1 --"},
	{Name: "gemm"},
	{Name: "gemm*"},
	{Name: "*mm*"},
	{Name: "??ро"},
	{Name: "核*"},
	{Name: "a\\*b"},
	{Name: "a\\?b"},
	{Name: "a?b"},
	{Name: "[abc]"},
	{Name: "*[1]"},
	{Name: "O'Hara\"; DROP TABLE task;--"},
	{Name: "*;--"},
	{Name: "%*"},
	{Name: "*"},
	{Name: "???"},
	{Job: "j1"},
	{GPU: "h200"},
	{GPU: "GPU-1"},
	{GPU: "GPU-"},
	{States: []State{Complete, Untrimmed}},
	{Since: epoch.Add(10 * time.Hour)},
	{Until: epoch.Add(10 * time.Hour), User: "bob"},
	{MinEnergy: 5, MaxEnergy: 12},
	{MinDuration: 2},
	{MaxDuration: 3, Name: "g*"},
	{MaxEnergy: 0.5},
}

// The pages of every filter in every order hold each task that it selects once,
// in that order, whatever the size of a page.
func TestListIsTheFilterInItsOrder(t *testing.T) {
	d := open(t)
	all := many(t, d, 150, 1)
	filters := someFilters
	if testing.Short() {
		filters = filters[:8] // SQLite takes long under the race detector
	}
	for _, f := range filters {
		var want []Row
		for _, x := range all {
			if selects(f, &x) {
				want = append(want, x)
			}
		}
		for order := ByID; order <= ByName; order++ {
			for _, ascending := range []bool{false, true} {
				sorted(want, order, ascending)
				for _, limit := range []int{1000, 9} {
					checkPages(t, d, ListQuery{Filter: f, Order: order, Ascending: ascending, Limit: limit}, want)
				}
			}
		}
		if n := must(d.Totals(t.Context(), f))(t).Tasks; n != uint64(len(want)) {
			t.Errorf("%+v: totals of %d tasks, want %d", f, n, len(want))
		}
	}
}

func sorted(tasks []Row, o Order, ascending bool) {
	key := func(t *Row) (none bool, number float64, text string) {
		switch {
		case o == ByName:
			return false, 0, t.Name
		case o == ByLaunched:
			return t.Launched.IsZero(), float64(t.Launched.Sub(epoch)), ""
		case o == ByID:
			return false, 0, ""
		case t.Result == nil:
			return true, 0, ""
		case o == ByEnergy:
			return false, float64(t.Result.Total.Energy), ""
		}
		return false, float64(t.Result.To - t.Result.From), ""
	}
	slices.SortFunc(tasks, func(a, b Row) int {
		na, xa, sa := key(&a)
		nb, xb, sb := key(&b)
		if na != nb { // always last
			return map[bool]int{true: 1, false: -1}[na]
		}
		if na {
			xa, xb = 0, 0
		}
		c := cmp.Or(cmp.Compare(xa, xb), cmp.Compare(sa, sb), cmp.Compare(a.ID, b.ID))
		if !ascending {
			c = -c
		}
		return c
	})
}

func checkPages(t *testing.T, d *DB, q ListQuery, want []Row) {
	t.Helper()
	var got, expect []TaskID
	for {
		p := must(d.List(t.Context(), q))(t)
		for _, x := range p.Tasks {
			got = append(got, x.ID)
		}
		if len(p.Tasks) > q.Limit || p.Next != nil && len(p.Tasks) < q.Limit {
			t.Fatalf("%+v: a page of %d", q, len(p.Tasks))
		}
		if q.After = p.Next; q.After == nil {
			break
		}
	}
	for _, x := range want {
		expect = append(expect, x.ID)
	}
	if !slices.Equal(got, expect) {
		t.Errorf("%+v: got %v\nwant %v", q, got, expect)
	}
}

// What is added or deleted between two pages moves nothing.
func TestPagesHoldStillUnderInserts(t *testing.T) {
	d := open(t)
	all := many(t, d, 60, 2)
	for order := ByID; order <= ByName; order++ {
		q := ListQuery{Order: order, Ascending: true, Limit: 20}
		want := slices.Clone(all)
		sorted(want, order, true)
		first := must(d.List(t.Context(), q))(t)
		gone := first.Tasks[19].ID // the place itself
		added := must(d.BeginTask(t.Context(), newTask("aaa", "ada")))(t)
		ok(t, d.DeleteTask(t.Context(), gone))
		q.After, q.Limit = first.Next, 1000
		var got []TaskID
		for _, x := range must(d.List(t.Context(), q))(t).Tasks {
			if x.ID != added {
				got = append(got, x.ID)
			}
		}
		var expect []TaskID
		for _, x := range want[20:] {
			expect = append(expect, x.ID)
		}
		if !slices.Equal(got, expect) {
			t.Errorf("order %d: got %v\nwant %v", order, got, expect)
		}
		ok(t, d.DeleteTask(t.Context(), added))
		all = slices.DeleteFunc(all, func(x Row) bool { return x.ID == gone })
	}
}

// BenchmarkListFirstPage lists the first hundred of 20 000 tasks.
func BenchmarkListFirstPage(b *testing.B) {
	d := open(b)
	many(b, d, 20000, 3)
	for _, q := range []struct {
		name  string
		query ListQuery
	}{
		{"newest", ListQuery{}},
		{"newest20", ListQuery{Limit: 20}},
		{"user", ListQuery{Filter: Filter{User: "ada"}}},
		{"prefix", ListQuery{Filter: Filter{Name: "gemm*"}}},
		{"glob", ListQuery{Filter: Filter{Name: "*fp16"}}},
		{"launched", ListQuery{Order: ByLaunched}},
		{"energy", ListQuery{Order: ByEnergy}},
		{"name", ListQuery{Order: ByName, Ascending: true}},
	} {
		b.Run(q.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				must(d.List(b.Context(), q.query))(b)
			}
		})
	}
	b.Run("totals", func(b *testing.B) {
		for b.Loop() {
			must(d.Totals(b.Context(), Filter{User: "ada"}))(b)
		}
	})
}

// recorder opens connections that note the statements that they run.
type recorder struct {
	driver.Connector
	texts *[]string
}

func (r recorder) Connect(ctx context.Context) (driver.Conn, error) {
	c, err := r.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return recorded{c.(queryConn), r.texts}, nil
}

type queryConn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
}

type recorded struct {
	queryConn
	texts *[]string
}

func (r recorded) QueryContext(ctx context.Context, text string, args []driver.NamedValue) (driver.Rows, error) {
	*r.texts = append(*r.texts, text)
	return r.queryConn.QueryContext(ctx, text, args)
}

// asked returns the statements that a call really ran, in SQLite's own words.
func asked(t *testing.T, d *DB, call func()) (texts []string) {
	t.Helper()
	was := d.reader
	d.reader = sql.OpenDB(recorder{data.Reader(d.readDSN, nil), &texts})
	d.reader.SetMaxOpenConns(1)
	call()
	ok(t, d.reader.Close())
	d.reader = was
	slices.Sort(texts)
	return slices.Compact(texts)
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
	coverage.Long(t)
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
		walks := strings.HasPrefix(l, "SCAN t") && !strings.Contains(l, "INDEX")
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

// A list ends with its context, also while SQLite works on it.
func TestListEndsWithItsContext(t *testing.T) {
	coverage.Long(t)
	d := open(t)
	crowd(t, d, 3000, 2)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := d.List(ctx, ListQuery{}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled before: %v", err)
	}
	// Names of 5000 letters against seven stars take a fifth of a second.
	_, err := d.writer.Exec("UPDATE task SET name=replace(hex(zeroblob(2500)), '0', 'a') || task_id")
	ok(t, err)
	ctx, cancel = context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	begun := time.Now()
	if _, err := d.List(ctx, ListQuery{Filter: Filter{Name: strings.Repeat("*a", 8) + "b"}}); !errors.Is(err, context.DeadlineExceeded) || time.Since(begun) > 30*time.Second {
		t.Errorf("cancelled while it runs: %v after %v", err, time.Since(begun))
	}
}

func TestPatterns(t *testing.T) {
	for _, c := range []struct {
		pattern, prefix, glob string
		exact                 bool
	}{
		{"gemm", "gemm", "gemm", true},
		{"gemm*", "gemm", "", false},
		{"*", "", "", false},
		{"***", "", "", false},
		{"g*m", "g", "g*m", false},
		{"g?*", "g", "g?*", false},
		{`a\*b`, "a*b", "a[*]b", true},
		{`a\*b*`, "a*b", "", false},
		{`a\b`, `a\b`, `a\b`, true},
		{`a\\*`, `a\`, "", false},
		{`x\`, `x\`, `x\`, true},
		{"[a]*b", "[a]", "[[]a]*b", false},
		{`\?*\*`, "?", "[?]*[*]", false},
	} {
		p := must(parsePattern(c.pattern))(t)
		if p.prefix != c.prefix || p.glob != c.glob || p.exact != c.exact {
			t.Errorf("%s: %+v, want %+v", c.pattern, p, c)
		}
	}
	d := open(t)
	for _, bad := range []string{strings.Repeat("*a", maxStars+1)} {
		_, errs := d.List(t.Context(), ListQuery{Filter: Filter{Name: bad}})
		_, errs2 := d.Totals(t.Context(), Filter{Name: bad})
		_, errs3 := d.Aggregate(t.Context(), AggregateQuery{Filter: Filter{Name: bad}, By: ByUser})
		_, errs4 := d.Selected(t.Context(), Filter{Name: bad}, nil)
		for _, err := range []error{errs, errs2, errs3, errs4} {
			if !errors.Is(err, ErrPattern) {
				t.Errorf("%s: %v, want ErrPattern", bad, err)
			}
		}
	}
	if _, err := d.List(t.Context(), ListQuery{Order: 9}); err == nil {
		t.Error("an order that there is not was taken")
	}
}

// FuzzPattern: a pattern selects what a matcher of our own says, and whatever it
// is it cannot break out of its place.
func FuzzPattern(f *testing.F) {
	for _, s := range []string{"gemm*", "*mm?", `a\*b`, "[a-z]", "';--", `\`, "**?**"} {
		f.Add(s, "gemm-fp16")
	}
	f.Add("?", "я")
	f.Add("[*]", "[]]")
	d := open(f)
	f.Fuzz(func(t *testing.T, pattern, name string) {
		p, err := parsePattern(pattern)
		if err != nil || len(pattern) > 64 || len(name) > 64 || !utf8.ValidString(pattern) || !utf8.ValidString(name) || strings.ContainsRune(pattern+name, 0) {
			return
		}
		var c conditions
		p.where(&c)
		var got bool
		ok(t, d.SQL().QueryRow("SELECT count(*) FROM (SELECT ? AS name) t "+c.sql(), append([]any{name}, c.args...)...).Scan(&got))
		if want := glob([]rune(pattern), []rune(name)); got != want {
			t.Errorf("pattern %q, name %q: %v, want %v (%+v)", pattern, name, got, want, p)
		}
	})
}

// glob is the meaning of a pattern, by definition.
func glob(p, s []rune) bool {
	switch {
	case len(p) == 0:
		return len(s) == 0
	case p[0] == '*':
		return glob(p[1:], s) || len(s) > 0 && glob(p, s[1:])
	case len(s) == 0:
		return false
	case p[0] == '?':
		return glob(p[1:], s[1:])
	case p[0] == '\\' && len(p) > 1 && strings.ContainsRune(`*?\`, p[1]):
		return p[1] == s[0] && glob(p[2:], s[1:])
	}
	return p[0] == s[0] && glob(p[1:], s[1:])
}

func TestTagsOfAnObject(t *testing.T) {
	for object, want := range map[string]map[string]string{
		`{}`:                        {},
		`{"a":"b"}`:                 {"a": "b"},
		`{ "a" : "b", "c" : "" }`:   {"a": "b", "c": ""},
		`{"a":"say \"b\"","c":"d"}`: {"a": `say "b"`, "c": "d"},
		`{"a":"1\n2"}`:              {"a": "1 2"},
		`{"я":"\\"}`:                {"я": `\`},
	} {
		if got := must(tagsOf(object))(t); !maps.Equal(got, want) {
			t.Errorf("%s: %v, want %v", object, got, want)
		}
	}
	if _, err := tagsOf(`{"a":"b`); err == nil {
		t.Error("half an object was read")
	}
}

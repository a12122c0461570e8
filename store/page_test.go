package store

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"
)

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
	out := must(d.tasks(t.Context(), "", "ORDER BY t.task_id"))(t)
	ok(t, tagAll(t.Context(), d.reader, out))
	return out
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

package postgres_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"wattmark/store"
	"wattmark/store/postgres/pgtest"
)

// TestEveryListHasAnIndex asks the server for the plans that it really used. It is
// told to read no table from one end to the other and to sort nothing where there is
// any other way, as it would of a million tasks.
func TestEveryListHasAnIndex(t *testing.T) {
	c := pgtest.Own(t, "fsync=off", "session_preload_libraries=auto_explain", "auto_explain.log_min_duration=0",
		"enable_seqscan=off", "enable_sort=off", "enable_incremental_sort=off", "enable_bitmapscan=off", "jit=off")
	c.Make(t, "w")
	d := openAt(t, c.URL("w"))
	conn := must(pgx.Connect(t.Context(), c.URL("w")))(t)
	defer conn.Close(t.Context())
	for _, q := range []string{
		`INSERT INTO "user"(user_id, login) SELECT i, 'user ' || i FROM generate_series(1, 20) i`,
		`INSERT INTO task(user_id,name,launched_ns,launched,state,monitor,capture_id,gpu,gpu_uuid,driver,job,marker_code,marker_chip_s,marker_guard,marker_tag_bits,marker_tag,
			has_result,from_s,to_s,energy_j) SELECT 1+i%20, 'gemm-' || i%97, i*1000000000::bigint, '', 2+i%50/49, 'm', 'c-' || i, 'H200', 'GPU-1', '', 'job-' || i%40, 1, 0.002, 4, 8, 1,
			1, 0.5, 1+i%31, i%113 FROM generate_series(1, 3000) i`,
		"ANALYZE",
	} {
		_, err := conn.Exec(t.Context(), q)
		ok(t, err)
	}
	for _, f := range []store.Filter{{Name: "none*"}, {Name: "none*", User: "user 7"}} { // of no names there is no share
		for _, up := range []bool{false, true} {
			if page, err := d.List(t.Context(), store.ListQuery{Filter: f, Ascending: up}); err != nil || len(page.Tasks) != 0 {
				t.Errorf("%+v: %d tasks, %v", f, len(page.Tasks), err)
			}
		}
	}
	marks := 0
	plans := func() string { // of what was asked since
		marks++
		mark := fmt.Sprintf("mark %d", marks)
		_, err := conn.Exec(t.Context(), "SELECT '"+mark+"'")
		ok(t, err)
		var log strings.Builder
		for end := time.Now().Add(time.Minute); !strings.Contains(log.String(), mark); {
			if time.Now().After(end) {
				t.Fatalf("the server logs no plans:\n%s", &log)
			}
			log.WriteString(c.Log())
			<-time.After(time.Millisecond) // the log comes over a pipe
		}
		return log.String()
	}
	plans()
	for _, p := range []struct {
		store.Filter
		inOrder bool // in any order without sorting
	}{
		{store.Filter{}, true},
		{store.Filter{User: "user 7"}, true},
		{store.Filter{Name: "gemm-5"}, false},
		{store.Filter{Name: "gemm-5*"}, false},
		{store.Filter{User: "user 7", Name: "gemm-5*"}, false},
		{store.Filter{Job: "job-3"}, false},
		{store.Filter{States: []store.State{store.Incomplete}}, false},
		{store.Filter{GPU: "h200"}, true},
		{store.Filter{Since: time.Unix(100, 0), Until: time.Unix(900, 0)}, false},
	} {
		for order := store.ByID; order <= store.ByName; order++ {
			for _, after := range []*store.Position{nil, {ID: 1500, Nanos: 15e11, Number: 7, Text: "gemm-51"}} {
				q := store.ListQuery{Filter: p.Filter, Order: order, After: after, Limit: 10}
				if len(must(d.List(t.Context(), q))(t).Tasks) == 0 {
					t.Errorf("%+v: nothing", q)
				}
				said := plans()
				if !strings.Contains(said, "using task_") {
					t.Errorf("%+v: no index of tasks is used:\n%s", q, said)
				}
				if strings.Contains(said, "Seq Scan on task") || p.inOrder && strings.Contains(said, "Sort Key") {
					t.Errorf("%+v:\n%s", q, said)
				}
			}
		}
		must(d.Totals(t.Context(), p.Filter))(t)
		for by := store.ByUser; by <= store.ByJob; by++ {
			must(d.Aggregate(t.Context(), store.AggregateQuery{Filter: p.Filter, By: by}))(t)
		}
		if said := plans(); p.User != "" && strings.Contains(said, "Seq Scan on task") {
			t.Errorf("sums of %+v:\n%s", p.Filter, said)
		}
	}
}

// What depends on its values alone is planned for them: a list by names is planned once,
// one of a time by how much of all that is.
func TestListsArePlannedOnce(t *testing.T) {
	c := pgtest.Own(t, "fsync=off", "session_preload_libraries=auto_explain", "auto_explain.log_min_duration=0")
	c.Make(t, "w")
	d := openAt(t, c.URL("w"))
	makeTasks(t, c.URL("w"), 2000)
	for range 2 {
		for _, p := range []struct {
			f      store.Filter
			values bool // stand in the plan
		}{
			{store.Filter{States: []store.State{store.Running}}, false},
			{store.Filter{Job: "job500"}, false},
			{store.Filter{Job: "job500", GPU: "H200"}, true},
			{store.Filter{Name: "kernel5*", User: "user7"}, false},
			{store.Filter{Since: epoch.AddDate(-10, 0, 0)}, true},
			{store.Filter{User: "user7"}, false},
		} {
			c.Log()
			must(d.List(t.Context(), store.ListQuery{Filter: p.f}))(t)
			pgtest.Psql(t, c.URL("w"), "SELECT 1") // what comes behind in the log
			said := c.Log()
			_, plan, _ := strings.Cut(said[strings.Index(said, "FROM (SELECT t.task_id AS id"):], "Limit  (cost=")
			if values := !strings.Contains(plan, "= $1") && !strings.Contains(plan, "ANY (ARRAY[$"); plan == "" || values != p.values {
				t.Errorf("%+v: values %v:\n%s", p.f, values, said)
			}
		}
	}
}

// A page of common names is read along its order: a server that takes each user for an
// average one would, by how large its indexes happen to be, rather sort all tasks of one
// who has a third of them.
func TestCommonNamesAreNotSorted(t *testing.T) {
	c := pgtest.Own(t, "fsync=off", "session_preload_libraries=auto_explain", "auto_explain.log_min_duration=0", "auto_explain.log_settings=on")
	c.Make(t, "w")
	d := openAt(t, c.URL("w"))
	makeTasks(t, c.URL("w"), 20000)
	for _, q := range []struct {
		store.Filter
		inOrder bool
	}{
		{store.Filter{User: "user7", Name: "kernel*"}, true},
		{store.Filter{User: "user7"}, false},
		{store.Filter{Name: "kernel*"}, true},
		{store.Filter{Name: "kernel996 *"}, false}, // rare: collected, and sorted
	} {
		c.Log()
		if page := must(d.List(t.Context(), store.ListQuery{Filter: q.Filter, Limit: 20}))(t); len(page.Tasks) != 20 {
			t.Fatalf("%+v: %d tasks", q.Filter, len(page.Tasks))
		}
		pgtest.Psql(t, c.URL("w"), "SELECT 1") // what comes behind in the log
		_, said, _ := strings.Cut(c.Log(), "FROM (SELECT t.task_id AS id")
		said, _, _ = strings.Cut(said, "Query Text")
		if got := strings.Contains(said, "enable_sort = 'off'"); got != q.inOrder || q.inOrder && strings.Contains(said, "Sort Key: t_1") {
			t.Errorf("%+v:\n%s", q.Filter, said)
		}
	}
}

package postgres_test

import (
	"context"
	"crypto/rand"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"wattmark/store"
	"wattmark/store/postgres/pgtest"
)

// dial is a connection beside the store's.
func dial(t *testing.T, address string) *pgx.Conn {
	t.Helper()
	conn := must(pgx.Connect(t.Context(), address))(t)
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) }) // the server ends with the test
	return conn
}

// plans are those that the server logged since it was last asked for them. They come over a
// pipe: what conn asks now is behind them.
func plans(t *testing.T, c *pgtest.Cluster, conn *pgx.Conn) string {
	t.Helper()
	mark := "mark " + rand.Text()
	_, err := conn.Exec(t.Context(), "SELECT '"+mark+"'")
	ok(t, err)
	var log strings.Builder
	for end := time.Now().Add(time.Minute); !strings.Contains(log.String(), mark); {
		if time.Now().After(end) {
			t.Fatalf("the server logs no plans:\n%s", &log)
		}
		log.WriteString(c.Log())
		<-time.After(time.Millisecond)
	}
	return log.String()
}

// TestEveryListHasAnIndex asks the server for the plans that it really used. It is
// told to read no table from one end to the other and to sort nothing where there is
// any other way, as it would of a million tasks.
func TestEveryListHasAnIndex(t *testing.T) {
	c := pgtest.Own(t, "fsync=off", "session_preload_libraries=auto_explain", "auto_explain.log_min_duration=0",
		"enable_seqscan=off", "enable_sort=off", "enable_incremental_sort=off", "enable_bitmapscan=off", "jit=off")
	c.Make(t, "w")
	d := openAt(t, c.URL("w"))
	conn := dial(t, c.URL("w"))
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
	plans(t, c, conn)
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
				said := plans(t, c, conn)
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
		if said := plans(t, c, conn); p.User != "" && strings.Contains(said, "Seq Scan on task") {
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
	conn := dial(t, c.URL("w"))
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
			plans(t, c, conn)
			must(d.List(t.Context(), store.ListQuery{Filter: p.f}))(t)
			said := plans(t, c, conn)
			_, plan, _ := strings.Cut(said, "FROM (SELECT t.task_id AS id")
			_, plan, _ = strings.Cut(plan, "Limit  (cost=")
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
	conn := dial(t, c.URL("w"))
	for _, q := range []struct {
		store.Filter
		inOrder bool
	}{
		{store.Filter{User: "user7", Name: "kernel*"}, true},
		{store.Filter{User: "user7"}, false},
		{store.Filter{Name: "kernel*"}, true},
		{store.Filter{Name: "kernel996 *"}, false}, // rare: collected, and sorted
	} {
		plans(t, c, conn)
		if page := must(d.List(t.Context(), store.ListQuery{Filter: q.Filter, Limit: 20}))(t); len(page.Tasks) != 20 {
			t.Fatalf("%+v: %d tasks", q.Filter, len(page.Tasks))
		}
		_, said, _ := strings.Cut(plans(t, c, conn), "FROM (SELECT t.task_id AS id")
		said, _, _ = strings.Cut(said, "Query Text")
		if got := strings.Contains(said, "enable_sort = 'off'"); got != q.inOrder || q.inOrder && strings.Contains(said, "Sort Key: t_1") {
			t.Errorf("%+v:\n%s", q.Filter, said)
		}
	}
}

package postgres_test

import (
	"context"
	"crypto/rand"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/wattmark/wattmark/store"
	"github.com/wattmark/wattmark/store/postgres/pgtest"
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

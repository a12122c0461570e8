package postgres_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"

	"wattmark/store"
	"wattmark/store/postgres/pgtest"
)

// Tasks of an older version get the pyramid that they would have had, once.
func TestBuildPyramids(t *testing.T) {
	ctx := t.Context()
	address := pgtest.Database(t)
	d := openAt(t, address)
	for i := range 3 {
		id, chunks := stream(t, d, "gemm", 60)
		ok(t, d.AppendChunks(ctx, id, chunks, nil))
		if i < 2 { // the last one still runs
			ok(t, d.Finish(ctx, id, store.Outcome{State: store.Untrimmed, Reason: "no marker"}))
		}
	}
	c := must(pgx.Connect(ctx, address))(t)
	defer c.Close(ctx)
	stored := func() (out []string) {
		t.Helper()
		for _, table := range []string{"pyramid", "pyramid_whole"} {
			rows := must(c.Query(ctx, "SELECT x::text FROM "+table+" x WHERE task_id<3 ORDER BY 1"))(t)
			out = append(out, must(pgx.CollectRows(rows, pgx.RowTo[string]))(t)...)
		}
		return out
	}
	want := stored()
	if len(want) < 4 {
		t.Fatalf("two tasks have %d rows of pyramids", len(want))
	}
	for _, table := range []string{"pyramid", "pyramid_whole"} {
		must(c.Exec(ctx, "DELETE FROM "+table))(t)
	}
	var told []string
	tell := func(id store.TaskID, err error) { told = append(told, fmt.Sprint(id, " ", err)) }
	for range 2 { // the second time nothing is left to do
		ok(t, openAt(t, address).BuildPyramids(ctx, tell))
	}
	if made := []string{"2 <nil>", "1 <nil>"}; !slices.Equal(told, made) {
		t.Errorf("made %q, want %q", told, made)
	}
	if got := stored(); !slices.Equal(got, want) {
		t.Errorf("%d rows instead of %d, or others", len(got), len(want))
	}
}

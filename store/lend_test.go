package store

import (
	"database/sql/driver"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
)

// What is lent comes as it is, to whoever asked for it.
func TestLend(t *testing.T) {
	d, ctx := open(t), t.Context()
	var wg sync.WaitGroup
	for n := range 4 {
		wg.Go(func() {
			for range 50 {
				var got []int64
				err := d.lend(ctx, d.reader, func(row []driver.Value) error {
					r := lentRow{row: row}
					got = append(got, r.integer(), int64(len(r.blob())), r.integer())
					if last := r.next(); last != nil {
						t.Errorf("NULL is lent as %v", last)
					}
					return r.err
				}, "i, CASE WHEN i<>2 THEN zeroblob(i) END, ?1, NULL", "(SELECT 1 AS i UNION ALL SELECT 2 UNION ALL SELECT 3) s ORDER BY i", n)
				if want := []int64{1, 1, int64(n), 2, 0, int64(n), 3, 3, int64(n)}; err != nil || !slices.Equal(got, want) {
					t.Errorf("lent %v, want %v (%v)", got, want, err)
				}
			}
		})
	}
	wg.Wait()
	held := 0
	borrowers.Range(func(any, any) bool { held++; return true })
	if held != 0 {
		t.Errorf("%d borrowers are kept", held)
	}
}

func TestLendFails(t *testing.T) {
	d, ctx := open(t), t.Context()
	mine, rows := errors.New("mine"), 0
	err := d.lend(ctx, d.reader, func([]driver.Value) error { rows++; return mine }, "i", "(SELECT 1 AS i UNION ALL SELECT 2) s")
	if err != mine || rows != 1 {
		t.Errorf("after %d rows: %v", rows, err)
	}
	for _, c := range []struct{ columns, want string }{
		{"'x', x'00'", "string in place of an integer"},
		{"NULL, x'00'", "<nil> in place of an integer"},
		{"1, 2", "int64 in place of bytes"},
		{"1", "end within a value"},
	} {
		err := d.lend(ctx, d.reader, func(row []driver.Value) error {
			r := lentRow{row: row}
			r.integer()
			r.blob()
			return r.err
		}, c.columns, "(SELECT 1) s")
		if !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.columns, err)
		}
	}
	if err := d.lend(ctx, d.reader, nil, "nothing", "nowhere"); err == nil {
		t.Error("a table that is not there was read")
	}
	var v any
	if err := d.reader.QueryRow("SELECT " + lendName + "(1, 2)").Scan(&v); err == nil || !strings.Contains(err.Error(), "own use") {
		t.Errorf("anybody borrows: %v", err)
	}
}

// A chunk whose first column is gone is damaged: the others do not take its place.
func TestLostColumn(t *testing.T) {
	d, ctx := open(t), t.Context()
	id, _, chunks := long(t, d, 20_000)
	ok(t, d.AppendChunks(ctx, id, chunks, nil))
	_, err := d.writer.Exec("DELETE FROM chunk_column WHERE task_id=? AND chunk_no=1 AND col=0", id)
	ok(t, err)
	for _, err = range d.Chunks(ctx, id, 1) {
	}
	if !errors.Is(err, ErrCorrupt) {
		t.Errorf("a chunk without its first column: %v", err)
	}
}

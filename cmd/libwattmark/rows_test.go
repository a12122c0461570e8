//go:build cgo

package main

import (
	"context"
	"database/sql"
	"fmt"
	"math"
	"path/filepath"
	"testing"
	"time"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/chunk"
	"github.com/wattmark/wattmark/store"
)

// The rows are those of the view data: of one rail a role, of several, of one that reads watts, of a window that cuts
// chunks, of one with a gap in it, and without a window.
func TestRowsAreThoseOfTheView(t *testing.T) {
	db, err := store.Open(t.Context(), filepath.Join(t.TempDir(), "x.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	first := measure.Rail{Name: "a", Role: measure.RolePSU, Wiring: measure.WiringClamp, X: 0, Y: 1}
	clamp := measure.Rail{Name: "b", Role: measure.RolePCIe12V, Wiring: measure.WiringClamp, X: 2, Y: 3}
	watts := measure.Rail{Name: "c", Role: measure.RolePCIe3V3, Wiring: measure.WiringPower, X: 4, Y: -1}
	assumed := measure.Rail{Name: "d", Role: measure.RolePSU, Wiring: measure.WiringAssumed, X: 5, Y: -1, Assumed: 12}
	for i, rails := range [][]measure.Rail{{first, clamp}, {first, watts, clamp}, {first, clamp, assumed}, {assumed}} {
		for k, window := range []*measure.Result{nil, {FirstScan: 1700, Samples: 900}, {FirstScan: 2600, Samples: 10}, {FirstScan: 1}} {
			name := fmt.Sprintf("task*%d", i)
			id := paperTask(t, db, name, rails, window)
			want, got := viewRows(t, db, id), []row(nil)
			if err := eachRow(t.Context(), db, id, func(r *row) error { got = append(got, *r); return nil }); err != nil {
				t.Fatal(err)
			}
			if len(want) != len(got) || (len(got) == 0) != (k == 3) {
				t.Fatalf("rails %d, window %d: %d rows, the view has %d", i, k, len(got), len(want))
			}
			for j, w := range want {
				g := got[j]
				for c := range w.v {
					if math.IsNaN(w.v[c]) && math.IsNaN(g.v[c]) || math.Abs(w.v[c]-g.v[c]) <= 1e-12*math.Abs(w.v[c]) {
						g.v[c] = 0
						w.v[c] = 0
					}
				}
				if g != w {
					t.Fatalf("rails %d, window %d, row %d: %+v, the view has %+v", i, k, j, got[j], want[j])
				}
			}
			ids, err := tasksNamed(t.Context(), db, name)
			if err != nil || len(ids) != k+1 || ids[k] != id {
				t.Errorf("tasks %v of name %s: %v", ids, name, err)
			}
		}
	}
}

// paperTask stores a task over two stretches of samples with a gap between them.
func paperTask(t *testing.T, db *store.DB, name string, rails []measure.Rail, window *measure.Result) store.TaskID {
	t.Helper()
	ctx, tb := t.Context(), measure.Timebase{TickHz: 1e6, TicksPerScan: 50}
	setup := measure.Setup{Timebase: tb, Rails: rails}
	units := []measure.Unit{
		measure.UnitAmpere, measure.UnitVolt, measure.UnitAmpere, measure.UnitVolt, measure.UnitWatt, measure.UnitAmpere,
	}
	for i, unit := range units {
		setup.Channels = append(setup.Channels, measure.Channel{
			Name: fmt.Sprintf("c%d", i), Unit: unit, Gain: 0.001 + 0.0007*float64(i), Offset: 0.3,
			Skew: measure.Seconds(i) * 1e-6,
		})
	}
	id, err := db.BeginTask(ctx, store.NewTask{
		Name: name, User: "lab", Launched: time.Date(2026, 3, 4, 5, 6, 7, 89000, time.UTC),
	})
	if err == nil {
		err = db.PutHeader(ctx, id, store.Header{Bench: "b", CalibrationID: "k", Setup: setup})
	}
	if err == nil {
		err = db.AppendChunks(ctx, id, paperChunks(t, tb, len(units)), nil)
	}
	if err == nil {
		err = db.Finish(ctx, id, store.Outcome{State: store.Complete, Result: window})
	}
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// paperChunks are scans 1000 to 1999 and 2500 to 3499.
func paperChunks(t *testing.T, tb measure.Timebase, channels int) (out []*chunk.Chunk) {
	t.Helper()
	e, err := chunk.NewEncoder(tb, channels, 600)
	for _, part := range [][2]uint64{{1000, 600}, {1600, 400}, {2500, 600}, {3100, 400}} {
		first, n := part[0], int(part[1])
		b := measure.Block{FirstScan: first, FirstTick: int64(first) * 50}
		for c := range channels {
			b.Counts = append(b.Counts, nil)
			for i := range n {
				b.Counts[c] = append(b.Counts[c], measure.Count((i+7*c)*(37+c)%4096-100*(c%2)))
			}
		}
		if err == nil {
			_, err = e.Append(&b)
		}
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, e.Flush(uint64(len(out))).Clone())
	}
	return out
}

// viewRows reads a task's rows from the view.
func viewRows(t *testing.T, db *store.DB, id store.TaskID) (out []row) {
	t.Helper()
	rows, err := db.SQL().QueryContext(context.Background(), `SELECT taskID, taskName, "user", power, current1, current2,
		current3, voltage1, voltage2, voltage3, taskTime, seqNum FROM data WHERE taskID=? ORDER BY seqNum`, id)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var r row
		var v [7]sql.Null[float64]
		if err := rows.Scan(&r.task, &r.name, &r.user, &v[0], &v[1], &v[2], &v[3], &v[4], &v[5], &v[6], &r.at,
			&r.seq); err != nil {
			t.Fatal(err)
		}
		for i := range v {
			if r.v[i] = math.NaN(); v[i].Valid {
				r.v[i] = v[i].V
			}
		}
		out = append(out, r)
	}
	if rows.Err() != nil {
		t.Fatal(rows.Err())
	}
	return out
}

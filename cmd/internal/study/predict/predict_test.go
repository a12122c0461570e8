package predict

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/wattmark/wattmark/store"
)

// A task that was recorded knows its grid.
func TestPredictGridOfLaunches(t *testing.T) {
	t.Parallel()
	db, err := store.Open(t.Context(), filepath.Join(t.TempDir(), "p.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	put := func(grids ...uint32) *store.Task {
		t.Helper()
		id, err := db.BeginTask(t.Context(), store.NewTask{Name: "x", User: "u", Launched: time.Now()})
		if err != nil {
			t.Fatal(err)
		}
		if err := db.PutLaunchTables(t.Context(), id, store.LaunchTables{
			Processes: []store.LaunchProcess{{Whole: true}}, Names: []string{"k"},
			Devices: []store.LaunchDevice{{Measured: true}, {Ordinal: 1}},
		}); err != nil {
			t.Fatal(err)
		}
		launches := []store.Launch{{Device: 1, Grid: [3]uint32{99, 1, 1}}} // another GPU's
		for i, g := range grids {
			launches = append(launches, store.Launch{Start: int64(i + 1), End: int64(i + 2), Grid: [3]uint32{g, 2, 1}})
		}
		if err := db.PutLaunches(t.Context(), id, 0, launches); err != nil {
			t.Fatal(err)
		}
		x, err := db.Task(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		return &x
	}
	if g, err := gridOf(t.Context(), db, put(70, 70, 70)); err != nil || g != (grid{140, 3}) {
		t.Errorf("got %+v, %v", g, err)
	}
	if _, err := gridOf(t.Context(), db, put(70, 71)); err == nil ||
		!strings.Contains(err.Error(), "140 and of 142 blocks") {
		t.Error(err)
	}
}

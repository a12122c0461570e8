package store

import (
	"encoding/json"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestAnalysesKeepTheirVersions(t *testing.T) {
	db, err := Open(t.Context(), filepath.Join(t.TempDir(), "power.db"))
	ok(t, err)
	defer db.Close()
	made := time.Unix(1_700_000_000, 5)
	put := func(kind, name, content string, tasks ...TaskID) int {
		t.Helper()
		v, err := db.PutAnalysis(t.Context(), Analysis{Kind: kind, Name: name, Made: made, Maker: "wattmark test", Content: json.RawMessage(content), Tasks: tasks})
		ok(t, err)
		return v
	}
	for i, c := range []string{`{"a":1}`, `{"a":2}`} {
		if v := put("sensor-profile", "GPU-1", c, 7, 3, 7); v != i+1 {
			t.Errorf("version %d, want %d", v, i+1)
		}
	}
	put("counter-model", "GPU-1", `[]`)

	got, err := db.Analysis(t.Context(), "sensor-profile", "GPU-1", 0)
	ok(t, err)
	want := &Analysis{Kind: "sensor-profile", Name: "GPU-1", Version: 2, Made: made, Maker: "wattmark test", Content: json.RawMessage(`{"a":2}`), Tasks: []TaskID{3, 7}}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	first, err := db.Analysis(t.Context(), "sensor-profile", "GPU-1", 1)
	ok(t, err)
	if string(first.Content) != `{"a":1}` {
		t.Errorf("version 1: %s", first.Content)
	}
	for kind, n := range map[string]int{"": 3, "sensor-profile": 2, "none": 0} {
		if list, err := db.Analyses(t.Context(), kind); err != nil || len(list) != n {
			t.Errorf("%q: %d analyses (%v), want %d", kind, len(list), err, n)
		}
	}

	if n, err := db.DeleteAnalysis(t.Context(), "sensor-profile", "GPU-1", 0); err != nil || n != 2 {
		t.Errorf("deleted %d: %v", n, err)
	}
	if _, err := db.DeleteAnalysis(t.Context(), "sensor-profile", "GPU-1", 0); !errors.Is(err, ErrNotFound) {
		t.Errorf("deleted again: %v", err)
	}
	if _, err := db.Analysis(t.Context(), "sensor-profile", "GPU-1", 0); !errors.Is(err, ErrNotFound) {
		t.Errorf("read after: %v", err)
	}
	for _, bad := range []Analysis{{Name: "x", Content: json.RawMessage(`1`)}, {Kind: "x", Content: json.RawMessage(`1`)}, {Kind: "x", Name: "y", Content: json.RawMessage(`{`)}} {
		if _, err := db.PutAnalysis(t.Context(), bad); err == nil {
			t.Errorf("%+v was taken", bad)
		}
	}
}

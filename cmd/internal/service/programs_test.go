package service

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/wattmark/wattmark/api/metrics"
	"github.com/wattmark/wattmark/hostagent/live"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/session"
)

// A moment can come before the monitor has answered what its bench is: the bench has one name all the same.
func TestBenchesAreCountedOnce(t *testing.T) {
	seen := map[metrics.Bench]int{}
	view := named(func(b metrics.Bench, _ session.Moment) { seen[b]++ })
	bench := session.Bench{Name: "riser", GPU: "GPU-1", Instrument: measure.Identity{Kind: "powersensor3"}}
	for _, n := range []live.News{
		{State: &live.State{}, Moment: &live.Moment{}},
		{Moment: &live.Moment{}},
		{State: &live.State{Bench: bench}, Moment: &live.Moment{}},
		{Moment: &live.Moment{}},
	} {
		n.Address = "127.0.0.1:7551"
		if err := view(n); err != nil {
			t.Fatal(err)
		}
	}
	if want := (metrics.Bench{Name: "riser", GPU: "GPU-1"}); len(seen) != 1 || seen[want] != 2 {
		t.Errorf("got %v, want 2 of %v", seen, want)
	}
}

// The spool is in the state folder; captures that an earlier version left in the cache folder are used on.
func TestDefaultSpool(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("XDG_STATE_HOME", filepath.Join(dir, "state"))
	t.Setenv("XDG_CACHE_HOME", filepath.Join(dir, "cache"))
	state, cache := filepath.Join(dir, "state/wattmark/monitor-spool"), filepath.Join(dir, "cache/wattmark/spool")
	for _, c := range []struct{ file, want string }{{"", state}, {"lock", state}, {"capture/header.json", cache}} {
		if c.file != "" {
			path := filepath.Join(cache, c.file)
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if got := DefaultSpool(); got != c.want {
			t.Errorf("with %q: %s, want %s", c.file, got, c.want)
		}
	}
}

package main

import (
	"path/filepath"
	"testing"

	"github.com/wattmark/wattmark/internal/coverage"
	"github.com/wattmark/wattmark/store"
)

// openThere makes the database of a store, and reads it while the store writes.
func openThere(t *testing.T, path string) *store.DB {
	t.Helper()
	db, err := store.Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// Of three nodes one is killed while tasks are published and started again, then
// another is cut off; a store is killed too. Every sample arrives once.
func TestTasksArriveOnceThroughFailures(t *testing.T) {
	coverage.Long(t)
	if testing.Short() {
		t.Skip("elections take their time")
	}
	t.Parallel()
	l := newLab(t, true)
	bus := l.dial()
	relay := l.run("relay", "--db", l.host, "--cluster", l.servers(), "--every", "100ms")
	path := filepath.Join(l.dir, "there.db")
	there := openThere(t, path)
	taking := func() *process { return l.run("store", "--db", path, "--cluster", l.servers(), "--name", "lab") }
	store := taking()

	l.measured(20, 4)
	l.some(3)
	killed := l.leader(bus, 0)
	l.nodes[killed].kill(t)
	store.kill(t)
	l.published(2 * patience)
	l.start(killed)
	l.whole(bus)

	taking()
	l.measured(20, 4)
	l.some(23)
	gone := l.leader(bus, 0)
	l.cut(gone)
	l.published(2 * patience)
	l.mend(gone)
	l.arrived(2*patience, there)
	select {
	case <-relay.ended:
		t.Error("the relay has ended")
	default:
	}
}

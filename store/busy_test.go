package store

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"
)

// lock takes the file's write lock as another program would.
func lock(t *testing.T, d *DB) (release func()) {
	t.Helper()
	other := sql.OpenDB(newConnector(dsn(d.path, "rw", "_txlock=immediate"), false))
	tx := must(other.BeginTx(t.Context(), nil))(t)
	return func() {
		ok(t, tx.Rollback())
		ok(t, other.Close())
	}
}

func TestWriterWaitsForAnotherProgram(t *testing.T) {
	d := open(t)
	release := lock(t, d)
	done := make(chan error)
	go func() {
		_, err := d.BeginTask(t.Context(), newTask("a", "b"))
		done <- err
	}()
	must(d.Tasks(t.Context(), Query{}))(t) // readers do not wait
	release()
	ok(t, <-done)
}

func TestWaitingEndsWithTheContext(t *testing.T) {
	d := open(t)
	release := lock(t, d)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := d.BeginTask(ctx, newTask("a", "b")); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("after the deadline: %v", err)
	}
	release()
	must(d.BeginTask(t.Context(), newTask("a", "b")))(t)
}

func TestLockHeldTooLong(t *testing.T) {
	d := open(t)
	defer lock(t, d)()
	_, err := d.writer.Exec("PRAGMA busy_timeout=10")
	ok(t, err)
	if _, err := d.BeginTask(t.Context(), newTask("a", "b")); !errors.Is(err, ErrBusy) {
		t.Errorf("behind a lock that stays: %v", err)
	}
}

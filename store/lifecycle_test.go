package store

import (
	"errors"
	"testing"
)

// A task is ended once; what is looked at anew may change it, and it never runs again.
func TestATaskEndsOnce(t *testing.T) {
	d := open(t)
	begin(t, d, threeRails(evenly))
	finish := func(o Outcome) error { return d.Finish(t.Context(), 1, o) }
	ok(t, finish(Outcome{State: Running, Reason: "the transfer stopped"}))
	ok(t, finish(Outcome{State: Complete, Once: true}))
	for _, o := range []Outcome{{State: Incomplete, Reason: "gone", Once: true}, {State: Complete, Once: true}, {State: Running}} {
		if err := finish(o); !errors.Is(err, ErrEnded) {
			t.Errorf("%+v: %v", o, err)
		}
	}
	if x := must(d.Task(t.Context(), 1))(t); x.State != Complete || x.Reason != "" {
		t.Errorf("state %d: %s", x.State, x.Reason)
	}
	ok(t, finish(Outcome{State: Incomplete, Reason: "window set by hand"}))
	if x := must(d.Task(t.Context(), 1))(t); x.State != Incomplete {
		t.Errorf("state %d", x.State)
	}
	if err := finish(Outcome{State: 9}); err == nil {
		t.Error("state 9 was taken")
	}
}

// A database is tried without leaving anything in it.
func TestTryTask(t *testing.T) {
	d := open(t)
	if err := d.TryTask(t.Context()); err != nil {
		t.Fatal(err)
	}
	var tasks, users int
	if err := d.reader.QueryRowContext(t.Context(), `SELECT (SELECT count(*) FROM task), (SELECT count(*) FROM user)`).Scan(&tasks, &users); err != nil || tasks+users != 0 {
		t.Errorf("%d tasks and %d users are left (%v)", tasks, users, err)
	}
	if _, err := d.writer.ExecContext(t.Context(), `ALTER TABLE task RENAME TO gone`); err != nil {
		t.Fatal(err)
	}
	if err := d.TryTask(t.Context()); err == nil {
		t.Error("a database without tasks takes them")
	}
}

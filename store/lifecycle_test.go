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

// An end that was made in place of the process that measured gives way to that process's
// own, once; one that was made by hand, or by another process, does not.
func TestOwnersEndReplacesARecoveredOne(t *testing.T) {
	d := open(t)
	n := newTask("gemm", "lab")
	n.Owner = "pid=1"
	id := must(d.BeginTask(t.Context(), n))(t)
	finish := func(o Outcome) error { return d.Finish(t.Context(), id, o) }
	ok(t, finish(Outcome{State: Incomplete, Reason: "the end of the work is not known", Once: true, Recovered: true}))
	for _, o := range []Outcome{{State: Complete, Once: true}, {State: Complete, Once: true, Owner: "pid=2"}, {State: Running, Once: true, Owner: "pid=1"}} {
		if err := finish(o); !errors.Is(err, ErrEnded) {
			t.Errorf("%+v: %v", o, err)
		}
	}
	ok(t, finish(Outcome{State: Failed, Reason: "the work failed", Once: true, Owner: "pid=1"}))
	if x := must(d.Task(t.Context(), id))(t); x.State != Failed || x.Reason != "the work failed" || x.Owner != "" {
		t.Errorf("state %d: %s; owner %q", x.State, x.Reason, x.Owner)
	}
	if err := finish(Outcome{State: Complete, Once: true, Owner: "pid=1"}); !errors.Is(err, ErrEnded) {
		t.Errorf("a second end by the owner: %v", err)
	}
}

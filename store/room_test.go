package store

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestLimits(t *testing.T) {
	path := filepath.Join(t.TempDir(), "power.db")
	db, err := Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	begin := func() error {
		_, err := db.BeginTask(t.Context(), NewTask{Name: "gemm", User: "ada", Launched: time.Unix(1e9, 0)})
		return err
	}
	for _, l := range []Limits{{}, {Bytes: 1 << 40}, {Free: 1}} {
		db.SetLimits(l)
		if err := begin(); err != nil {
			t.Errorf("%+v: %v", l, err)
		}
	}
	for want, l := range map[string]Limits{"its limit is 10 kB": {Bytes: 10_000}, "a task needs 1.0 EB": {Free: 1e18}} {
		db.SetLimits(l)
		if err := begin(); !errors.Is(err, ErrFull) || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v", l, err)
		}
	}
	// What was begun goes on.
	if err := db.Finish(t.Context(), 1, Outcome{State: Incomplete, Reason: "x"}); err != nil {
		t.Error(err)
	}
}

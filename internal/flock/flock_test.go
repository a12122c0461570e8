package flock

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// A lock that was released is free at once, even while a process that is being started still
// has a copy of its descriptor.
func TestReleasedAtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	open := func() *os.File {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	first, second := open(), open()
	if err := Try(first); err != nil {
		t.Fatal(err)
	}
	if err := Try(second); !errors.Is(err, ErrHeld) {
		t.Errorf("%v, want ErrHeld", err)
	}
	inherited, err := unix.Dup(int(first.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(inherited)
	if err := Close(first); err != nil {
		t.Error(err)
	}
	if err := Try(second); err != nil {
		t.Errorf("a released lock: %v", err)
	}
	if err := Close(second); err != nil {
		t.Error(err)
	}
	if err := Wait(open()); err != nil {
		t.Error(err)
	}
}

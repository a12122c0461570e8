package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/wattmark/wattmark/store"
)

// A disk that fills up under the database while samples come in: nothing that was
// acknowledged is lost, the program says what is wrong and what to do, and once there
// is room the rest is fetched from the monitor. What the host alone knew, when the work
// ran, could not be kept, and the task says so.
func TestFullDiskDuringTheTransfer(t *testing.T) {
	t.Parallel()
	noRaces(t)
	dir := t.TempDir()
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", dir).CombinedOutput(); err != nil {
		t.Skipf("cannot mount a small disk here; the store's tests fill a database: %s", strings.TrimSpace(string(out)))
	}
	t.Cleanup(func() { _ = exec.Command("umount", dir).Run() }) // nothing to be done about it
	r := newRig(t)
	r.db = filepath.Join(dir, "power.db")
	p, end := r.measuring(2)
	filler := filepath.Join(dir, "filler")
	fill(t, filler)
	before := chunks(t, r.db, 1)
	end()
	if code := p.wait(t); code == 0 {
		t.Error("a measurement onto a full disk succeeded")
	}
	if said := p.err.String() + p.out.String(); !strings.Contains(said, "disk full") || !strings.Contains(said, "free some space") ||
		!strings.Contains(said, "task 1 is running: its samples are at the monitor; wattmark tasks") {
		t.Errorf("the disk is full, and the program says\n%s", said)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	h := start(t, "host", "--db", r.db, "--listen", "127.0.0.1:0", "--socket", "none")
	h.await(t, `msg="finished a task that was interrupted" task=1`)
	x, _ := onlyTask(t, r.db, 1)
	if x.State != store.Incomplete || x.Result == nil || x.Result.Gaps != 0 || !strings.Contains(x.Reason, "not known when the work ran") {
		t.Fatalf("state %v: %s; result %+v", x.State, x.Reason, x.Result)
	}
	all := chunks(t, r.db, 1)
	if len(all) <= len(before) || !slices.Equal(all[:len(before)], before) {
		t.Errorf("before %v, after %v", before, all)
	}
	if stop := r.captures(); len(stop) != 0 || len(x.Markers) != 2 {
		t.Errorf("captures left on the monitor: %+v; markers: %+v", stop, x.Markers)
	}
	if code := h.stop(t); code != 0 {
		t.Errorf("the host ended with %d\n%s", code, &h.err)
	}
	inside(t, "db", "check", "--db", r.db).ok(t)
	r.free()
}

// fill writes a file until there is no room.
func fill(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for size := 1 << 20; size > 0; {
		_, err := f.Write(make([]byte, size))
		switch {
		case errors.Is(err, syscall.ENOSPC):
			size /= 2
		case err != nil:
			t.Fatal(err)
		}
	}
}

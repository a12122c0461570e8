package store

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// What a killed process left in the folder for temporary files goes when the next one
// needs some; what others have there stays.
func TestTemporaryFoldersOfTheDeadAreRemoved(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	if Owner() == "" {
		t.Skip("this system does not tell")
	}
	mine := must(TempDir())(t)
	c := exec.Command("sleep", "60")
	ok(t, c.Start())
	o, _ := own(c.Process.Pid)
	machine, sure := machineHash(&o)
	name := func(machine string, change func(*owner)) string {
		was := o
		change(&was)
		return filepath.Join(os.TempDir(), tempName(machine, &was)+"1")
	}
	alive, earlier := name(machine, func(*owner) {}), name(machine, func(o *owner) { o.start = "1" })
	container := name(machine, func(o *owner) { o.space, o.start = "pid:[1]", "1" })
	boot := name(machine, func(o *owner) { o.boot = "x" })
	// Of another machine that uses this folder too: the first namespaces have the same
	// numbers on all.
	foreign, rebooted := name(shortHash("x"), func(o *owner) { o.start = "1" }), name(shortHash("x"), func(o *owner) { o.boot = "x" })
	unnamed := filepath.Join(os.TempDir(), tempPrefix+spaceNumber(o.space)+"-999999-12345-4711")
	other := filepath.Join(os.TempDir(), tempPrefix+"x")
	stay := []string{mine, container, foreign, rebooted, unnamed, other}
	for _, dir := range append([]string{alive, earlier, boot}, stay[1:]...) {
		ok(t, os.MkdirAll(filepath.Join(dir, "task.db"), 0o700))
	}
	there := func(want map[string]bool) {
		t.Helper()
		must(TempDir())(t)
		for _, dir := range stay {
			want[dir] = true
		}
		for dir, want := range want {
			if exists(dir) != want {
				t.Errorf("%s: there %v, want %v", filepath.Base(dir), !want, want)
			}
		}
	}
	there(map[string]bool{alive: true, earlier: false, boot: !sure})
	ok(t, c.Process.Kill())
	_ = c.Wait()
	there(map[string]bool{alive: false})
}

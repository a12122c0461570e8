package store

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
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
	name := func(space, start string) string {
		return filepath.Join(os.TempDir(), tempPrefix+space+"-"+strconv.Itoa(c.Process.Pid)+"-"+start+"-1")
	}
	here := spaceNumber(o.space)
	alive, elsewhere, earlier, other := name(here, o.start), name("1", "1"), name(here, "1"), filepath.Join(os.TempDir(), tempPrefix+"x")
	for _, dir := range []string{alive, elsewhere, earlier, other} {
		ok(t, os.MkdirAll(filepath.Join(dir, "task.db"), 0o700))
	}
	there := func(want map[string]bool) {
		t.Helper()
		must(TempDir())(t)
		for dir, want := range want {
			if exists(dir) != want {
				t.Errorf("%s: there %v, want %v", filepath.Base(dir), !want, want)
			}
		}
	}
	there(map[string]bool{mine: true, alive: true, elsewhere: true, earlier: false, other: true})
	ok(t, c.Process.Kill())
	_ = c.Wait()
	there(map[string]bool{mine: true, alive: false, elsewhere: true, other: true})
}

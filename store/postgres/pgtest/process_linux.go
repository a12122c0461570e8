package pgtest

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// attributes runs a process as another user, and ends it with the test.
func attributes(as *syscall.Credential) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: as, Pdeathsig: syscall.SIGQUIT, Setpgid: true}
}

// Freeze lets the server and all of its processes stand still, as a machine that swaps or a
// line that is cut does, until the returned function is called, or the test ends.
func (c *Cluster) Freeze(t testing.TB) (thaw func()) {
	t.Helper()
	main := c.process.Process.Pid
	// The one that starts others stands still first.
	pids := []int{main}
	if err := syscall.Kill(main, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range stats {
		raw, _ := os.ReadFile(path) // it may have ended
		_, rest, _ := strings.Cut(string(raw), ") ")
		var state string
		var parent int
		if n, _ := fmt.Sscan(rest, &state, &parent); n == 2 && parent == main {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			pids = append(pids, pid)
			_ = syscall.Kill(pid, syscall.SIGSTOP) // it may have ended
		}
	}
	thaw = func() {
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGCONT) // it may have ended
		}
	}
	t.Cleanup(thaw)
	return thaw
}

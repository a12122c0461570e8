package postgres_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/wattmark/wattmark/store/postgres/pgtest"
)

// shared is the cluster of a test program.
// One server for a package: starting one takes a second. Each test gets a database of its own.
var shared struct {
	once    sync.Once
	cluster *pgtest.Cluster
	err     error
	number  int
	sync.Mutex
}

// runShared runs a package's tests and removes the cluster that they shared. TestMain calls it.
func runShared(m *testing.M) int {
	code := m.Run()
	if c := shared.cluster; c != nil {
		if err := c.Remove(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return code
}

// database returns the address of a new, empty database on a server that the
// package's tests share; TestMain must call runShared. Without PostgreSQL the test is
// skipped, or fails where WATTMARK_REQUIRE_TOOLS=1 asks for it.
func database(t testing.TB) string {
	t.Helper()
	// fsync=off: the machine does not crash in these tests.
	shared.once.Do(func() { shared.cluster, shared.err = pgtest.New("fsync=off") })
	pgtest.Need(t, shared.cluster, shared.err)
	shared.Lock()
	shared.number++
	name := fmt.Sprintf("w%d", shared.number)
	shared.Unlock()
	shared.cluster.Make(t, name)
	return shared.cluster.URL(name)
}

// psql runs a query in the stock client and returns its output, a row a
// line and | between columns. The test is skipped where psql is absent.
func psql(t testing.TB, address, query string) string {
	t.Helper()
	program := filepath.Join(pgtest.Programs(), "psql")
	cmd := exec.Command(program, "-X", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-c", query, address)
	out, err := cmd.Output()
	if err != nil {
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			err = fmt.Errorf("%w %s", err, exit.Stderr)
		}
		t.Fatalf("psql: %v", err)
	}
	return string(bytes.TrimSpace(out))
}

// freeze lets a server of a process, and all that it started, stand still, as a machine that swaps or a
// line that is cut does, until the returned function is called, or the test ends.
func freeze(t testing.TB, main int) (thaw func()) {
	t.Helper()
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

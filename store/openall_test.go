//go:build linux

package store

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// filesOf counts the descriptors of this process that are of a database.
func filesOf(t *testing.T, path string) (n int) {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	ok(t, err)
	for _, f := range fds {
		if at, err := os.Readlink(filepath.Join("/proc/self/fd", f.Name())); err == nil && strings.HasPrefix(at, path) {
			n++
		}
	}
	return n
}

// However many ask at once, no more files are open than were from the start.
func TestOpenAllOpensWhatReadersWillNeed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "power.db")
	d := must(Open(t.Context(), path))(t)
	defer d.Close()
	few := filesOf(t, path)
	ok(t, d.OpenAll(t.Context()))
	all := filesOf(t, path)
	if all <= few {
		t.Fatalf("%d files before, %d after", few, all)
	}
	connections := d.reader.Stats().MaxOpenConnections
	var ready, done sync.WaitGroup
	ready.Add(connections)
	for range connections {
		done.Go(func() {
			c, err := d.reader.Conn(t.Context())
			ready.Done()
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			ready.Wait() // all of them at once
			var tasks int
			if err := c.QueryRowContext(t.Context(), "SELECT count(*) FROM task").Scan(&tasks); err != nil {
				t.Error(err)
			}
		})
	}
	done.Wait()
	if n := filesOf(t, path); n != all {
		t.Errorf("%d files with readers, %d before", n, all)
	}
}

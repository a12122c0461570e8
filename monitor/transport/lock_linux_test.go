package transport

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A lock file that another user keeps to itself is named with what to do, and none is made
// that others may not read.
func TestLockFilesOfOthers(t *testing.T) {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path, made := filepath.Join(dir, "theirs.lock"), filepath.Join(dir, "made.lock")
	if err := errors.Join(os.Chmod(dir, 0o755), os.WriteFile(path, nil, 0)); err != nil {
		t.Fatal(err)
	}
	opened := make(chan error)
	go func() {
		if os.Geteuid() == 0 { // who may read all: this thread, which ends with the function
			runtime.LockOSThread()
			_, _ = unix.SetfsuidRetUid(65534)
		}
		_, err := openLock(path)
		opened <- err
	}()
	err = <-opened
	whose := "belongs to user " + userName(uint32(os.Geteuid())) + ","
	if !errors.Is(err, fs.ErrPermission) || !strings.Contains(err.Error(), whose) ||
		!strings.Contains(err.Error(), "chmod a+r "+path) {
		t.Errorf("theirs: %v", err)
	}
	was := unix.Umask(0o077)
	f, err := openLock(made)
	unix.Umask(was)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || info.Mode().Perm() != 0o644 {
		t.Errorf("made: %v, %v", info.Mode(), err)
	}
}

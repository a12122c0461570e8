//go:build unix

package transport

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// portLock is an advisory lock on a port. The kernel's own exclusive mode does
// not bind root, and two readers of one device each get half of its bytes.
type portLock struct{ f *os.File }

// lockPath names the lock of a port by the device behind its links.
func lockPath(port string) string {
	if real, err := filepath.EvalSymlinks(port); err == nil {
		port = real
	}
	if abs, err := filepath.Abs(port); err == nil {
		port = abs
	}
	return lockFile(port)
}

// lockFile names the lock of anything that has a name.
func lockFile(of string) string {
	name := "wattmark" + strings.NewReplacer("/", "-", "\\", "-", ":", "-").Replace(of) + ".lock"
	dir := "/run/lock"
	if unix.Access(dir, unix.W_OK) != nil {
		dir = os.TempDir()
	}
	return filepath.Join(dir, name)
}

// openLock opens a lock file that may belong to another user; flock works on a
// file that is open for reading alone.
func openLock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		f, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o666)
	}
	if errors.Is(err, fs.ErrPermission) {
		f, err = os.Open(path)
	}
	return f, err
}

func lockPort(port string) (*portLock, error) { return lock(lockPath(port)) }

func lockAddress(target string) (*portLock, error) { return lock(lockFile("-tcp-" + target)) }

func lock(path string) (*portLock, error) {
	f, err := openLock(path)
	if err != nil {
		return nil, fmt.Errorf("lock the port: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		who := holderOf(path)
		_ = f.Close()
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("lock the port (%s): %w", path, err)
		}
		return nil, fmt.Errorf("%w: %s has it (%s); stop that one first", ErrBusy, who, path)
	}
	// The number helps people; the lock itself is the kernel's and dies with us.
	_ = f.Truncate(0)
	_, _ = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	return &portLock{f}, nil
}

// holderOf names who wrote itself into a lock file.
func holderOf(path string) string {
	text, _ := os.ReadFile(path)
	if pid, err := strconv.Atoi(strings.TrimSpace(string(text))); err == nil {
		return fmt.Sprintf("process %d", pid)
	}
	return "another program"
}

// release lets go. The file stays: removing it would let two programs lock two
// files of one name.
func (l *portLock) release() {
	_ = l.f.Truncate(0)
	_ = l.f.Close()
}

// gone tells the errors of a device that is not there, or no more.
func gone(err error) bool {
	for _, e := range []error{unix.ENOENT, unix.ENODEV, unix.ENXIO, unix.EIO, unix.EBADF, unix.ENOTTY} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

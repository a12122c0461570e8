package hostsocket

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// ErrTaken: another daemon serves the socket.
var ErrTaken = errors.New("another host daemon serves this socket")

const (
	// longest is what a socket's address holds (unix(7)), less its NUL and what
	// the name is longer by while the socket is being made.
	longest = 107 - len("/.wattmark-0123456789/s") + len("/host.sock")
	// patience is how long somebody who may listen has to answer.
	patience = 2 * time.Second
)

// Listener is a unix socket that is this process's alone.
type Listener struct {
	*net.UnixListener
	path string
	made fs.FileInfo // the socket as this process made it
	lock *os.File
}

// Listen makes the socket with a mode of 0600, or 0660 for a group, and its folder
// where that is missing. A socket that a dead daemon left is replaced; where
// somebody listens it is ErrTaken, and nothing is touched.
func Listen(path string, mode fs.FileMode) (*Listener, error) {
	if mode != 0o600 && mode != 0o660 {
		return nil, fmt.Errorf("socket %s: mode %#o: want 0600 for this user alone, or 0660 for its group too", path, uint32(mode))
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("socket: %w", err)
	}
	if len(path) > longest {
		return nil, fmt.Errorf("socket %s: a path of %d bytes: at most %d; choose a shorter one", path, len(path), longest)
	}
	if err := makeFolder(filepath.Dir(path), mode); err != nil {
		return nil, fmt.Errorf("socket %s: %w", path, err)
	}
	l := &Listener{path: path}
	if l.lock, err = take(path); err != nil {
		return nil, fmt.Errorf("socket %s: %w", path, err)
	}
	if err := l.listen(mode); err != nil {
		return nil, fmt.Errorf("socket %s: %w", path, errors.Join(err, l.lock.Close()))
	}
	return l, nil
}

// makeFolder makes what is missing; one in a folder for all must be this user's.
func makeFolder(dir string, mode fs.FileMode) error {
	own := fs.FileMode(0o700)
	if mode == 0o660 {
		own = 0o750
	}
	if err := os.MkdirAll(dir, own); err != nil {
		return err
	}
	if dir == filepath.Dir(temporary()) && !ours(dir) {
		return fmt.Errorf("the folder %s is somebody else's, or others may write there: remove it, or choose another --socket", dir)
	}
	return nil
}

// take locks the socket's name for as long as this process lives.
func take(path string) (*os.File, error) {
	f, err := os.OpenFile(path+".lock", os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, errors.Join(err, f.Close())
		}
		pid, _ := io.ReadAll(io.LimitReader(f, 32)) // a number for the eye
		return nil, errors.Join(fmt.Errorf("%w: process %s", ErrTaken, bytes.TrimSpace(pid)), f.Close())
	}
	if text, err := io.ReadAll(io.LimitReader(f, 32)); err != nil || !isPID(text) {
		foreign := fmt.Errorf("%s is no lock of a host: remove it, or choose another --socket", f.Name())
		return nil, errors.Join(foreign, err, f.Close())
	}
	if err := write(f, fmt.Sprintln(os.Getpid())); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// isPID tells what take wrote earlier: nothing, or the number of a process.
func isPID(text []byte) bool {
	text = bytes.TrimSpace(text)
	_, err := strconv.ParseUint(string(text), 10, 31)
	return len(text) == 0 || err == nil
}

func write(f *os.File, text string) error {
	if err := f.Truncate(0); err != nil {
		return err
	}
	_, err := f.WriteAt([]byte(text), 0)
	return err
}

// listen makes the socket in a folder of its own, where nobody can reach it before
// it has its mode, and moves it to its place.
func (l *Listener) listen(mode fs.FileMode) error {
	if err := vacant(l.path); err != nil {
		return err
	}
	dir, err := os.MkdirTemp(filepath.Dir(l.path), ".wattmark-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	made := filepath.Join(dir, "s")
	if l.UnixListener, err = net.ListenUnix("unix", &net.UnixAddr{Name: made, Net: "unix"}); err != nil {
		return err
	}
	l.SetUnlinkOnClose(false) // its name is another by then
	if err = os.Chmod(made, mode); err == nil {
		l.made, err = os.Lstat(made)
	}
	if err == nil {
		err = os.Rename(made, l.path)
	}
	if err != nil {
		return errors.Join(err, l.UnixListener.Close())
	}
	return nil
}

// vacant reports what is in the way of a new socket: one that somebody listens on,
// or a file that is no socket.
func vacant(path string) error {
	s, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if s.Mode().Type() != fs.ModeSocket {
		return errors.New("there is a file of this name which is no socket; remove it, or choose another --socket")
	}
	c, err := net.DialTimeout("unix", path, patience)
	if errors.Is(err, unix.ECONNREFUSED) {
		return nil // its daemon is dead
	}
	if err != nil {
		return fmt.Errorf("there is a socket already: %w", err)
	}
	return errors.Join(ErrTaken, c.Close())
}

// Path is where the socket is.
func (l *Listener) Path() string { return l.path }

// Addr is the socket's address by its own name.
func (l *Listener) Addr() net.Addr { return &net.UnixAddr{Name: l.path, Net: "unix"} }

// Close removes the socket and stops listening.
func (l *Listener) Close() error {
	if l.lock == nil {
		return nil
	}
	now, err := os.Lstat(l.path)
	switch {
	case errors.Is(err, fs.ErrNotExist): // somebody cleaned up
		err = nil
	case err == nil && os.SameFile(now, l.made):
		err = os.Remove(l.path)
	}
	err = errors.Join(err, l.UnixListener.Close(), l.lock.Close())
	l.lock = nil
	return err
}

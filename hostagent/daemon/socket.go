package daemon

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/wattmark/wattmark/internal/flock"
	"golang.org/x/sys/unix"
)

// SocketEnv names the daemon's socket, or none.
const SocketEnv = "WATTMARK_HOST"

// none, as a place, disables the daemon.
const none = "none"

const (
	folder = "wattmark"
	file   = "host.sock"
)

// shared is the folder of a daemon that serves several users.
var shared = "/run/" + folder

// ErrPlace: the place of the daemon's socket is malformed.
var ErrPlace = errors.New("no place of a host daemon")

// DefaultSocket returns the path of the socket that the daemon makes by default.
func DefaultSocket() string {
	if dir := runtimeDir(); dir != "" {
		return filepath.Join(dir, folder, file)
	}
	if unix.Access(shared, unix.W_OK) == nil {
		return filepath.Join(shared, file)
	}
	return temporary()
}

// runtimeDir is the user's own folder for sockets; empty for none. A relative one
// is to be passed over (XDG Base Directory Specification).
func runtimeDir() string {
	if dir := os.Getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(dir) {
		return dir
	}
	return ""
}

// temporary is the last of the default places, in the folder for temporary files.
func temporary() string {
	return filepath.Join(os.TempDir(), folder+"-"+strconv.Itoa(os.Getuid()), file)
}

// FindSocket returns the path of the socket of the daemon to measure through: place, else
// WATTMARK_HOST, else the first default place with a socket. It is empty where there is no
// daemon. The place for temporary files counts only where its folder is this user's alone. It
// does not connect: a daemon that does not answer shows at the first call. Errors wrap ErrPlace.
func FindSocket(place string) (string, error) {
	from := "host"
	if place == "" {
		place, from = os.Getenv(SocketEnv), SocketEnv
	}
	switch place {
	case none:
		return "", nil
	case "":
		var places []string
		if dir := runtimeDir(); dir != "" {
			places = append(places, filepath.Join(dir, folder, file))
		}
		places = append(places, filepath.Join(shared, file))
		if t := temporary(); ours(filepath.Dir(t)) {
			places = append(places, t)
		}
		if at := slices.IndexFunc(places, isSocket); at >= 0 {
			return places[at], nil
		}
		return "", nil
	}
	path, ok := strings.CutPrefix(place, "unix:")
	if !ok || path == "" {
		return "", fmt.Errorf("%w: %s is %q: want unix:PATH, or none to measure without a daemon", ErrPlace, from,
			place)
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("%w: %s is %q: %w", ErrPlace, from, place, err)
	}
	return path, nil
}

// ours reports whether a folder belongs to this user and only this user may write there: in
// a shared folder any user could have placed a socket of that name.
func ours(dir string) bool {
	var s unix.Stat_t
	return unix.Lstat(dir, &s) == nil && s.Mode&unix.S_IFMT == unix.S_IFDIR && int(s.Uid) == os.Getuid() &&
		s.Mode&0o022 == 0
}

// isSocket reports whether there is a socket at a path.
func isSocket(path string) bool {
	s, err := os.Stat(path)
	return err == nil && s.Mode().Type() == fs.ModeSocket
}

// ErrTaken: another daemon serves the socket.
var ErrTaken = errors.New("another host daemon serves this socket")

const (
	// longest is the length of a socket's address (unix(7)) without its NUL, less the part
	// by which the temporary name is longer while the socket is being made.
	longest = 107 - len("/.wattmark-0123456789/s") + len("/host.sock")
	// patience is how long a process behind an existing socket has to answer.
	patience = 2 * time.Second
)

// Listener is a unix socket that is this process's alone: a lock on PATH.lock guards the name
// for the process's life, so that two daemons never replace each other's socket.
type Listener struct {
	*net.UnixListener
	path string
	made fs.FileInfo // the socket as this process made it: Close removes no other
	lock *os.File    // locked; nil once closed
}

// Listen makes the socket with a mode of 0600, or 0660 for a group, and its folder where that
// is missing. A socket that a dead daemon left is replaced; where a live one listens it is
// ErrTaken, and nothing is changed.
func Listen(path string, mode fs.FileMode) (*Listener, error) {
	if mode != 0o600 && mode != 0o660 {
		return nil, fmt.Errorf("socket %s: mode %#o: want 0600 for this user alone, or 0660 for its group too", path,
			uint32(mode))
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("socket: %w", err)
	}
	if len(path) > longest {
		return nil, fmt.Errorf("socket %s: a path of %d bytes: at most %d; choose a shorter one", path, len(path),
			longest)
	}
	dir, own := filepath.Dir(path), fs.FileMode(0o700)
	if mode == 0o660 {
		own = 0o750
	}
	if err := os.MkdirAll(dir, own); err != nil {
		return nil, fmt.Errorf("socket %s: %w", path, err)
	}
	if dir == filepath.Dir(temporary()) && !ours(dir) {
		return nil, fmt.Errorf("socket %s: the folder %s is somebody else's, or others may write there: remove it, or "+
			"choose another --socket", path, dir)
	}
	l := &Listener{path: path}
	if l.lock, err = take(path); err != nil {
		return nil, fmt.Errorf("socket %s: %w", path, err)
	}
	if err := l.listen(mode); err != nil {
		return nil, fmt.Errorf("socket %s: %w", path, errors.Join(err, flock.Close(l.lock)))
	}
	return l, nil
}

// take locks the socket's name for as long as this process lives, and writes its number into
// the lock file. ErrTaken, with the owner's number, where another process holds the lock. A
// file of other content than such a number is left alone: it is no lock.
func take(path string) (*os.File, error) {
	f, err := os.OpenFile(path+".lock", os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	// The kernel drops the lock when the process ends, however it ends.
	lockErr := flock.Try(f)
	if lockErr != nil && !errors.Is(lockErr, flock.ErrHeld) {
		return nil, errors.Join(lockErr, f.Close())
	}
	text, err := io.ReadAll(io.LimitReader(f, 32))
	text = bytes.TrimSpace(text)
	if lockErr != nil {
		return nil, errors.Join(fmt.Errorf("%w: process %s", ErrTaken, text), f.Close())
	}
	if _, notPID := strconv.ParseUint(string(text), 10, 31); err != nil || len(text) > 0 && notPID != nil {
		foreign := fmt.Errorf("%s is no lock of a host: remove it, or choose another --socket", f.Name())
		return nil, errors.Join(foreign, err, f.Close())
	}
	if err = f.Truncate(0); err == nil {
		_, err = f.WriteAt(fmt.Appendln(nil, os.Getpid()), 0)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// listen makes the socket in a folder of its own, where no other process can reach it before
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

// vacant returns an error for an obstacle to a new socket: one that a daemon listens on, or
// a file of another kind.
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
	// A dead daemon's socket refuses at once; one that does not answer in time is in the way.
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
	// Another daemon may have replaced the socket meanwhile: only this one's is removed.
	now, err := os.Lstat(l.path)
	switch {
	case errors.Is(err, fs.ErrNotExist): // removed by another process
		err = nil
	case err == nil && os.SameFile(now, l.made):
		err = os.Remove(l.path)
	}
	err = errors.Join(err, l.UnixListener.Close(), flock.Close(l.lock))
	l.lock = nil
	return err
}

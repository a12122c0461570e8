package daemon

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

func listen(t *testing.T, path string) *Listener {
	t.Helper()
	l, err := Listen(path, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// place is a folder whose path is short enough for a socket.
func place(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "hs")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func TestListen(t *testing.T) {
	path := filepath.Join(place(t), "new", "host.sock")
	l := listen(t, path)
	s, err := os.Stat(path)
	if err != nil || s.Mode() != fs.ModeSocket|0o600 || l.Addr().String() != path || l.Path() != path {
		t.Fatalf("%v, %v, %v", s, err, l.Addr())
	}
	if d, err := os.Stat(filepath.Dir(path)); err != nil || d.Mode().Perm() != 0o700 {
		t.Errorf("its folder: %v, %v", d.Mode(), err)
	}
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	_ = c.Close()
	if _, err := Listen(path, 0o600); !errors.Is(err, ErrTaken) || !strings.Contains(err.Error(), "process ") {
		t.Errorf("a second one: %v", err)
	}
	if err := errors.Join(l.Close(), l.Close()); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the socket is still there: %v", err)
	}
	group, err := Listen(path, 0o660)
	if err != nil {
		t.Fatal(err)
	}
	if s, err := os.Stat(path); err != nil || s.Mode().Perm() != 0o660 {
		t.Errorf("%v, %v", s.Mode(), err)
	}
	if err := group.Close(); err != nil {
		t.Error(err)
	}
	left, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(left) != 1 { // the lock alone
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// A socket that nobody listens on is replaced; one that somebody listens on is
// not touched, though nobody holds its lock.
func TestWhatIsInTheWay(t *testing.T) {
	path := filepath.Join(place(t), "host.sock")
	other, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	other.SetUnlinkOnClose(false)
	if _, err := Listen(path, 0o600); !errors.Is(err, ErrTaken) {
		t.Errorf("somebody listens: %v", err)
	}
	if !isSocket(path) {
		t.Fatal("the other's socket is gone")
	}
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	if err := listen(t, path).Close(); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(path, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(path, 0o600); err == nil || !strings.Contains(err.Error(), "no socket") {
		t.Errorf("a file of that name: %v", err)
	}
	if b, err := os.ReadFile(path); string(b) != "mine" {
		t.Errorf("the file is %q, %v", b, err)
	}
	if _, err := Listen(filepath.Join(t.TempDir(), strings.Repeat("x", 120)), 0o600); err == nil ||
		!strings.Contains(err.Error(), "at most") {
		t.Errorf("a long path: %v", err)
	}
	if _, err := Listen(path, 0o666); err == nil || !strings.Contains(err.Error(), "0660") {
		t.Errorf("a mode for all: %v", err)
	}
}

// Of many that begin at once, over a dead one's socket, one serves.
func TestManyAtOnce(t *testing.T) {
	path := filepath.Join(place(t), "host.sock")
	dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	dead.SetUnlinkOnClose(false)
	if err := dead.Close(); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	got := make(chan *Listener, 16)
	for range cap(got) {
		wg.Go(func() {
			l, err := Listen(path, 0o600)
			if err != nil && !errors.Is(err, ErrTaken) {
				t.Error(err)
			}
			if err == nil {
				got <- l
			}
		})
	}
	wg.Wait()
	if len(got) != 1 {
		t.Fatalf("%d serve", len(got))
	}
	if err := (<-got).Close(); err != nil {
		t.Error(err)
	}
}

func TestFind(t *testing.T) {
	dir := place(t)
	t.Setenv("XDG_RUNTIME_DIR", filepath.Join(dir, "run"))
	t.Setenv("TMPDIR", dir)
	t.Setenv(SocketEnv, "")
	defer func(was string) { shared = was }(shared)
	shared = filepath.Join(dir, "shared")
	find := func(given, want string) {
		t.Helper()
		if got, err := FindSocket(given); got != want || err != nil {
			t.Errorf("%q: got %q, %v, want %q", given, got, err, want)
		}
	}
	find("", "")
	if got, want := DefaultSocket(), filepath.Join(dir, "run", "wattmark", "host.sock"); got != want {
		t.Errorf("the default is %s, want %s", got, want)
	}
	l := listen(t, temporary())
	find("", temporary())
	if err := os.Chmod(filepath.Dir(temporary()), 0o777); err != nil {
		t.Fatal(err)
	}
	find("", "") // anybody could have put it there
	if _, err := Listen(temporary(), 0o600); err == nil || !strings.Contains(err.Error(), "somebody else's") {
		t.Errorf("made in a folder for all: %v", err)
	}
	_ = l.Close()
	listen(t, filepath.Join(shared, file))
	find("", filepath.Join(shared, file))
	listen(t, DefaultSocket())
	find("", DefaultSocket())
	find("none", "")
	find("unix:/a/b", "/a/b")
	t.Setenv(SocketEnv, "unix:/c")
	find("", "/c")
	find("none", "")
	t.Setenv(SocketEnv, "none")
	find("", "")
	t.Setenv("XDG_RUNTIME_DIR", "relative")
	if got := DefaultSocket(); !filepath.IsAbs(got) {
		t.Errorf("the default is %s", got)
	}
	for _, wrong := range []string{"unix:", "tcp:127.0.0.1:1", "/a/b"} {
		if _, err := FindSocket(wrong); !errors.Is(err, ErrPlace) {
			t.Errorf("%q: %v", wrong, err)
		}
	}
}

// What is somebody else's, and bears a name of ours, stays as it is.
func TestForeignFilesStay(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "poetry")
	const theirs = "[[package]]\nname = 7\n"
	if err := os.WriteFile(path+".lock", []byte(theirs), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(path, 0o600); err == nil || !strings.Contains(err.Error(), "poetry.lock is no lock") {
		t.Error(err)
	}
	if b, err := os.ReadFile(path + ".lock"); err != nil || string(b) != theirs {
		t.Errorf("%q, %v", b, err)
	}
	path = filepath.Join(dir, "host.sock")
	l, err := Listen(path, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	err = errors.Join(os.Remove(path), os.WriteFile(path, []byte(theirs), 0o644), l.Close())
	if b, rerr := os.ReadFile(path); err != nil || rerr != nil || string(b) != theirs {
		t.Errorf("%q, %v, %v", b, rerr, err)
	}
}

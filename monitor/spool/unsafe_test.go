//go:build unix

package spool

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// sealed makes a spool with one capture that has ended, and closes it.
func sealed(t *testing.T) (dir, capture string) {
	t.Helper()
	dir = t.TempDir()
	s := openStore(t, dir, Options{})
	l, err := s.Create(testHeader("c1"))
	if err == nil {
		err = errors.Join(l.State(State{State: 4, Final: true}), l.Close(), s.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir, filepath.Join(dir, "c1")
}

// A link, a pipe or a file of everybody's in place of what the monitor wrote is
// refused, told, and neither followed nor changed.
func TestPlantedInTheSpool(t *testing.T) {
	const secret = "not to be read, cut or deleted"
	for name, plant := range map[string]func(t *testing.T, dir, victim string){
		"link for the log":     func(t *testing.T, dir, victim string) { swap(t, filepath.Join(dir, logName), victim) },
		"link for the header":  func(t *testing.T, dir, victim string) { swap(t, filepath.Join(dir, headerName), victim) },
		"link for the capture": func(t *testing.T, dir, victim string) { move(t, dir, dir+"-elsewhere"); link(t, dir+"-elsewhere", dir) },
		"pipe for the log": func(t *testing.T, dir, _ string) {
			remove(t, filepath.Join(dir, logName))
			if err := syscall.Mkfifo(filepath.Join(dir, logName), 0o600); err != nil {
				t.Fatal(err)
			}
		},
		"pipe for the header": func(t *testing.T, dir, _ string) {
			remove(t, filepath.Join(dir, headerName))
			if err := syscall.Mkfifo(filepath.Join(dir, headerName), 0o600); err != nil {
				t.Fatal(err)
			}
		},
		"log for everybody":     func(t *testing.T, dir, _ string) { mode(t, filepath.Join(dir, logName), 0o666) },
		"capture for everybody": func(t *testing.T, dir, _ string) { mode(t, dir, 0o777) },
	} {
		t.Run(name, func(t *testing.T) {
			dir, capture := sealed(t)
			victim := filepath.Join(t.TempDir(), "victim")
			if err := os.WriteFile(victim, []byte(secret), 0o644); err != nil {
				t.Fatal(err)
			}
			plant(t, capture, victim)
			found, err := openStore(t, dir, Options{}).Captures()
			if err == nil || len(found) > 1 {
				t.Fatalf("%d captures, %v", len(found), err)
			}
			for _, f := range found {
				if f.Log.Header().CaptureID == "c1" && name != "link for the capture" {
					t.Error("the capture is taken")
				}
			}
			if b, err := os.ReadFile(victim); err != nil || string(b) != secret {
				t.Errorf("the victim holds %q, %v", b, err)
			}
		})
	}
}

// A new capture is not written through a link that waits for it.
func TestLinkThatWaits(t *testing.T) {
	dir := t.TempDir()
	victim := filepath.Join(t.TempDir(), "victim")
	s := openStore(t, dir, Options{})
	link(t, victim, filepath.Join(dir, "c1"))
	if _, err := s.Create(testHeader("c1")); err == nil {
		t.Error("a capture is made through a link")
	}
	if _, err := os.Lstat(victim); !os.IsNotExist(err) {
		t.Errorf("the link was followed: %v", err)
	}
	lockDir := t.TempDir()
	link(t, victim, filepath.Join(lockDir, ".lock"))
	if _, err := Open(lockDir, Options{}); err == nil {
		t.Error("a lock that is a link is taken")
	}
}

func TestSpoolForEverybody(t *testing.T) {
	dir := t.TempDir()
	mode(t, dir, 0o777)
	if _, err := Open(dir, Options{}); !errors.Is(err, ErrUnsafe) {
		t.Errorf("taken: %v", err)
	}
	mode(t, dir, 0o700)
	real := openStore(t, dir, Options{})
	if err := real.Close(); err != nil {
		t.Fatal(err)
	}
	there := filepath.Join(t.TempDir(), "spool")
	link(t, dir, there) // the administrator's own way to another disk
	openStore(t, there, Options{})
}

// What no monitor put into the spool stays there, whatever its name.
func TestForeignDirectoriesStay(t *testing.T) {
	const id = "20261123-033444-f9c1c273"
	dir := t.TempDir()
	var log bytes.Buffer
	s := openStore(t, dir, Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
	put := func(path string) {
		must(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, path)), 0o755))
		must(t, os.WriteFile(filepath.Join(dir, path), []byte("mine"), 0o644))
	}
	keep := []string{
		"thesis/chapters/one.tex", ".ssh/id", "lost+found/#12", "notes.released/a.txt",
		id + "/thesis.tex", id + ".released/data.csv", "20261123-033444-f9c1c274/log",
	}
	for _, path := range keep {
		put(path)
	}
	must(t, os.Mkdir(filepath.Join(dir, "empty"), 0o755))
	for _, path := range []string{"20261123-033444-f9c1c275/reserve", "20261123-033444-f9c1c276.released/log"} {
		put(path)
	}
	found, err := s.Captures()
	if len(found) != 0 || !errors.Is(err, ErrUnsafe) {
		t.Errorf("%d captures, %v", len(found), err)
	}
	for _, path := range append(keep, "empty") {
		if _, err := os.Lstat(filepath.Join(dir, path)); err != nil {
			t.Error(err)
		}
	}
	for _, gone := range []string{"20261123-033444-f9c1c275", "20261123-033444-f9c1c276.released"} {
		if _, err := os.Lstat(filepath.Join(dir, gone)); !os.IsNotExist(err) || !strings.Contains(log.String(), gone) {
			t.Errorf("%s: %v; the log:\n%s", gone, err, &log)
		}
	}
	if strings.Contains(err.Error(), lostAndFound) {
		t.Error(err)
	}
}

// A directory with somebody's files does not become a spool; one of a file system's own does.
func TestDirectoryInUseIsNoSpool(t *testing.T) {
	dir := t.TempDir()
	must(t, os.Mkdir(filepath.Join(dir, lostAndFound), 0o700))
	s, err := Open(dir, Options{})
	must(t, err)
	must(t, s.Close())
	must(t, os.WriteFile(filepath.Join(dir, "mine.txt"), nil, 0o644))
	s, err = Open(dir, Options{}) // it is a spool by now
	must(t, err)
	must(t, s.Close())
	must(t, os.Remove(filepath.Join(dir, lockName)))
	must(t, os.WriteFile(filepath.Join(dir, waitsName), []byte("{}"), 0o644))
	s, err = Open(dir, Options{}) // still, though a power cut took the lock's name
	must(t, err)
	must(t, s.Close())
	dir = t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "mine.txt"), nil, 0o644))
	if _, err := Open(dir, Options{}); !errors.Is(err, ErrForeign) || !strings.Contains(err.Error(), "mine.txt") {
		t.Error(err)
	}
	if _, err := os.Lstat(filepath.Join(dir, lockName)); !os.IsNotExist(err) {
		t.Error("it was changed")
	}
}

func swap(t *testing.T, path, victim string) {
	t.Helper()
	remove(t, path)
	link(t, victim, path)
}

func link(t *testing.T, to, path string) { t.Helper(); must(t, os.Symlink(to, path)) }
func move(t *testing.T, from, to string) { t.Helper(); must(t, os.Rename(from, to)) }
func remove(t *testing.T, path string)   { t.Helper(); must(t, os.Remove(path)) }

func mode(t *testing.T, path string, m os.FileMode) { t.Helper(); must(t, os.Chmod(path, m)) }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// another is the description of a file of another user.
type another struct{ os.FileInfo }

func (another) Sys() any { return &syscall.Stat_t{Uid: 4242} }

func TestAnothersSpoolSaysHowToGetIt(t *testing.T) {
	dir := t.TempDir()
	info, err := os.Stat(dir)
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("chown -R %d %s, or run the monitor as user 4242", os.Geteuid(), dir)
	if err := safeInfo(dir, another{info}, os.ModeDir); !errors.Is(err, ErrUnsafe) || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}
}

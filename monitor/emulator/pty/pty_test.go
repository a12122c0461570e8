package pty

import (
	"bytes"
	"errors"
	"io"
	"os"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// slave opens the driver's end with a deadline, so that no fault can hang a test.
func slave(t *testing.T, path string) *os.File {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

func TestEveryByteValuePassesBothWays(t *testing.T) {
	p, err := OpenPort()
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	s := slave(t, p.Path())
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	for name, way := range map[string][2]io.ReadWriter{"device to driver": {p, s}, "driver to device": {s, p}} {
		if _, err := way[0].Write(all); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		got := make([]byte, len(all))
		if _, err := io.ReadFull(way[1], got); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if !bytes.Equal(got, all) {
			t.Errorf("%s: bytes changed: % x", name, got)
		}
	}
}

func TestDriversComeAndGo(t *testing.T) {
	p, err := OpenPort()
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	for range 3 {
		s := slave(t, p.Path())
		if _, err := s.Write([]byte("hi")); err != nil {
			t.Fatal(err)
		}
		var b [2]byte
		if _, err := io.ReadFull(p, b[:]); err != nil {
			t.Fatalf("the device loses its line when a driver leaves: %v", err)
		}
		_ = s.Close()
	}
}

func TestUnreadCountsWhatWaits(t *testing.T) {
	p, err := OpenPort()
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	s := slave(t, p.Path())
	if _, err := p.Write(make([]byte, 100)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(s, make([]byte, 40)); err != nil {
		t.Fatal(err)
	}
	if n, err := p.Unread(); err != nil || n != 60 {
		t.Errorf("%d bytes wait (%v), want 60", n, err)
	}
}

func TestUnplugEndsBothEnds(t *testing.T) {
	p, err := OpenPort()
	if err != nil {
		t.Fatal(err)
	}
	s := slave(t, p.Path())
	device, driver := make(chan error, 1), make(chan error, 1)
	go func() { _, err := p.Read(make([]byte, 1)); device <- err }()
	go func() { _, err := s.Read(make([]byte, 1)); driver <- err }()
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if err := p.Close(); err != nil {
		t.Errorf("a second close: %v", err)
	}
	if err := <-device; !errors.Is(err, os.ErrClosed) {
		t.Errorf("the device's read ends with %v", err)
	}
	if err := <-driver; err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the driver's read ends with %v", err)
	}
}

// A driver that was killed leaves a port that the next one can open.
func TestExclusiveUseEndsWithItsDriver(t *testing.T) {
	p, err := OpenPort()
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	fd := int(slave(t, p.Path()).Fd())
	if err := unix.IoctlSetInt(fd, unix.TIOCEXCL, 0); err != nil {
		t.Fatal(err)
	}
	end := time.Now().Add(time.Minute)
	for exclusive := 1; exclusive != 0; runtime.Gosched() {
		if exclusive, err = unix.IoctlGetInt(fd, unix.TIOCGEXCL); err != nil || time.Now().After(end) {
			t.Fatalf("still exclusive: %v", err)
		}
	}
}

//go:build linux

package transport

import (
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"wattmark/monitor/emulator/pty"
	"wattmark/monitor/instrument"
)

// line opens a pty with a driver's Conn on it.
func line(t *testing.T) (*pty.Port, Conn) {
	t.Helper()
	p, err := pty.OpenPort()
	if err != nil {
		t.Skip("no ptys here: ", err)
	}
	t.Cleanup(func() { _ = p.Close() })
	c, err := Dial(t.Context(), "serial:"+p.Path()+"?baud=921600", Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return p, c
}

// socket is a TCP connection with a driver's Conn on it.
func socket(t *testing.T) (net.Conn, Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	peers := make(chan net.Conn, 1)
	go func() {
		p, _ := l.Accept()
		peers <- p
	}()
	c, err := Dial(t.Context(), "tcp:"+l.Addr().String(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	p := <-peers
	t.Cleanup(func() { _ = p.Close() })
	return p, c
}

type peer interface {
	Read([]byte) (int, error)
	Write([]byte) (int, error)
	Close() error
}

// links runs a test over each transport.
func links(t *testing.T, test func(t *testing.T, p peer, c Conn)) {
	t.Run("serial", func(t *testing.T) { p, c := line(t); test(t, p, c) })
	t.Run("tcp", func(t *testing.T) { p, c := socket(t); test(t, p, c) })
}

func TestBytesPassBothWays(t *testing.T) {
	links(t, func(t *testing.T, p peer, c Conn) {
		all := make([]byte, 256)
		for i := range all {
			all[i] = byte(i)
		}
		if n, err := c.Write(t.Context(), all); n != len(all) || err != nil {
			t.Fatalf("Write = %d, %v", n, err)
		}
		got := make([]byte, 256)
		for n := 0; n < len(got); {
			k, err := p.Read(got[n:])
			if err != nil {
				t.Fatal(err)
			}
			n += k
		}
		if string(got) != string(all) {
			t.Errorf("to the device: bytes changed")
		}
		if _, err := p.Write(all); err != nil {
			t.Fatal(err)
		}
		clear(got)
		if _, err := ReadFull(t.Context(), c, got); err != nil || string(got) != string(all) {
			t.Errorf("from the device: bytes changed (%v)", err)
		}
	})
}

func TestReadEndsWithItsContext(t *testing.T) {
	links(t, func(t *testing.T, p peer, c Conn) {
		short, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
		defer cancel()
		begin := time.Now()
		n, err := c.Read(short, make([]byte, 8))
		if n != 0 || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("deadline: Read = %d, %v", n, err)
		}
		if d := time.Since(begin); d > 2*time.Second {
			t.Errorf("deadline: took %v", d)
		}
		cancelled, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { _, err := c.Read(cancelled, make([]byte, 8)); done <- err }()
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) || errors.Is(err, instrument.ErrDisconnected) {
			t.Errorf("cancel: %v", err)
		}
		// The link survives both.
		_, _ = p.Write([]byte("x"))
		if n, err := ReadWithin(t.Context(), c, make([]byte, 8), time.Second); n != 1 || err != nil {
			t.Errorf("afterwards: %d, %v", n, err)
		}
		if n, err := ReadWithin(t.Context(), c, make([]byte, 8), 5*time.Millisecond); n != 0 || err != nil {
			t.Errorf("quiet line: ReadWithin = %d, %v, want 0, nil", n, err)
		}
	})
}

func TestVanishedPeerIsDisconnected(t *testing.T) {
	links(t, func(t *testing.T, p peer, c Conn) {
		_ = p.Close()
		if _, err := c.Read(t.Context(), make([]byte, 8)); !errors.Is(err, instrument.ErrDisconnected) {
			t.Errorf("Read: %v", err)
		}
	})
	p, c := line(t)
	_ = p.Close()
	if _, err := c.Write(t.Context(), []byte("x")); !errors.Is(err, instrument.ErrDisconnected) {
		t.Errorf("Write: %v", err)
	}
}

func TestCloseEndsABlockedRead(t *testing.T) {
	links(t, func(t *testing.T, _ peer, c Conn) {
		done := make(chan error, 1)
		go func() { _, err := c.Read(t.Context(), make([]byte, 8)); done <- err }()
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if err := <-done; !errors.Is(err, ErrClosed) || errors.Is(err, instrument.ErrDisconnected) {
			t.Errorf("Read: %v, want ErrClosed", err)
		}
		if _, err := c.Write(t.Context(), []byte("x")); !errors.Is(err, ErrClosed) {
			t.Errorf("Write: %v, want ErrClosed", err)
		}
		if err := c.Close(); err != nil {
			t.Errorf("second Close: %v", err)
		}
	})
}

// A device that takes no bytes must not hang the driver.
func TestBlockedWriteEndsWithItsContext(t *testing.T) {
	_, c := line(t)
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := c.Write(short, make([]byte, 1<<20)); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("Write: %v", err)
	}
	if _, err := c.Write(t.Context(), []byte("x")); !errors.Is(err, instrument.ErrDisconnected) {
		t.Errorf("a second Write: %v, want ErrDisconnected", err)
	}
}

func TestDrainWaitsForQuiet(t *testing.T) {
	links(t, func(t *testing.T, p peer, c Conn) {
		_, _ = p.Write(make([]byte, 700))
		n, err := c.Drain(t.Context(), 40*time.Millisecond)
		if n != 700 || err != nil {
			t.Errorf("Drain = %d, %v", n, err)
		}
	})
}

func TestPortIsOpenedOnce(t *testing.T) {
	p, first := line(t)
	_, err := Dial(t.Context(), p.Path(), Options{})
	if !errors.Is(err, ErrBusy) || !strings.Contains(err.Error(), "process ") {
		t.Fatalf("second Dial: %v, want ErrBusy with the process", err)
	}
	if errors.Is(err, instrument.ErrDisconnected) {
		t.Error("a busy port must not be tried again and again")
	}
	_ = first.Close()
	again, err := Dial(t.Context(), p.Path(), Options{})
	if err != nil {
		t.Fatalf("after Close: %v", err)
	}
	_ = again.Close()
}

func TestDialErrors(t *testing.T) {
	for name, tc := range map[string]struct {
		address string
		want    error
	}{
		"no port":    {"serial:/dev/does-not-exist", instrument.ErrDisconnected},
		"no host":    {"tcp:127.0.0.1:1", instrument.ErrDisconnected},
		"no address": {"", ErrAddress},
	} {
		if _, err := Dial(t.Context(), tc.address, Options{}); !errors.Is(err, tc.want) {
			t.Errorf("%s: %v, want %v", name, err, tc.want)
		}
	}
	notTTY := t.TempDir() + "/file"
	if err := os.WriteFile(notTTY, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Dial(t.Context(), notTTY, Options{}); err == nil {
		t.Error("a plain file was opened as a serial port")
	}
}

func TestAsk(t *testing.T) {
	links(t, func(t *testing.T, p peer, c Conn) {
		go func() {
			b := make([]byte, 1)
			_, _ = p.Read(b)
			_, _ = p.Write([]byte("answer"))
		}()
		reply := make([]byte, 6)
		if err := Ask(t.Context(), c, []byte("?"), reply, 5*time.Second); err != nil || string(reply) != "answer" {
			t.Errorf("%q, %v", reply, err)
		}
		if err := Ask(t.Context(), c, []byte("?"), reply, 30*time.Millisecond); !errors.Is(err, instrument.ErrSilent) {
			t.Errorf("silent device: %v", err)
		}
	})
}

// Over net.Pipe the transport works in virtual time.
func TestNetInVirtualTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := net.Pipe()
		c := NewNet(a)
		go func() {
			time.Sleep(time.Hour)
			_, _ = b.Write([]byte("late"))
		}()
		if n, err := ReadWithin(t.Context(), c, make([]byte, 8), time.Minute); n != 0 || err != nil {
			t.Errorf("early: %d, %v", n, err)
		}
		if n, err := c.Read(t.Context(), make([]byte, 8)); n != 4 || err != nil {
			t.Errorf("late: %d, %v", n, err)
		}
		_ = b.Close()
		if _, err := c.Read(t.Context(), make([]byte, 8)); !errors.Is(err, instrument.ErrDisconnected) {
			t.Errorf("closed: %v", err)
		}
		_ = c.Close()
	})
}

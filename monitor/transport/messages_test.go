//go:build linux

package transport

import (
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"wattmark/monitor/instrument"
)

// seqpacket is a pair of sockets that keep messages whole, as a usbtmc device
// does: ours behind a Conn, and the instrument's.
func seqpacket(t *testing.T) (Conn, int) {
	t.Helper()
	p, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Skip("no SOCK_SEQPACKET here:", err)
	}
	// The kernel's driver ends a read after its own time-out.
	if err := unix.SetsockoptTimeval(p[0], unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 20_000}); err != nil {
		t.Fatal(err)
	}
	for _, fd := range p {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, 4<<20)
	}
	c := NewMessages(os.NewFile(uintptr(p[0]), "usbtmc"), "usbtmc:test")
	t.Cleanup(func() { _ = c.Close(); _ = unix.Close(p[1]) })
	return c, p[1]
}

func TestMessagesAreReadWhole(t *testing.T) {
	c, device := seqpacket(t)
	if _, err := c.Write(t.Context(), []byte("*IDN?\n")); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 64)
	if n, err := unix.Read(device, buf); err != nil || string(buf[:n]) != "*IDN?\n" {
		t.Fatalf("%q, %v", buf[:n], err)
	}
	long := strings.Repeat("x", 50_000)
	for _, m := range []string{long, "next"} {
		if _, err := unix.Write(device, []byte(m)); err != nil {
			t.Fatal(err)
		}
	}
	// A short read must not lose the rest of the message.
	got := make([]byte, len(long)+4)
	for n := 0; n < len(got); {
		k, err := c.Read(t.Context(), got[n:min(n+777, len(got))])
		if err != nil {
			t.Fatal(err)
		}
		n += k
	}
	if string(got) != long+"next" {
		t.Error("the messages are not what was sent")
	}
}

func TestAMessageThatComesLateIsDrained(t *testing.T) {
	c, device := seqpacket(t)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := c.Read(ctx, make([]byte, 9)); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("got %v", err)
	}
	if _, err := unix.Write(device, []byte("late")); err != nil {
		t.Fatal(err)
	}
	if n, err := c.Drain(t.Context(), time.Millisecond); n != 4 || err != nil {
		t.Errorf("drained %d, %v", n, err)
	}
	if n, err := c.Drain(t.Context(), time.Millisecond); n != 0 || err != nil {
		t.Errorf("a second drain takes %d, %v", n, err)
	}
}

func TestMessagesEndWithTheDevice(t *testing.T) {
	c, device := seqpacket(t)
	_ = unix.Shutdown(device, unix.SHUT_RDWR)
	if _, err := c.Read(t.Context(), make([]byte, 9)); !errors.Is(err, instrument.ErrDisconnected) {
		t.Errorf("got %v", err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if err := c.Close(); err != nil {
		t.Error("a second close:", err)
	}
	if _, err := c.Read(t.Context(), make([]byte, 9)); !errors.Is(err, ErrClosed) {
		t.Errorf("got %v", err)
	}
	if _, err := c.Write(t.Context(), []byte("x")); !errors.Is(err, ErrClosed) {
		t.Errorf("got %v", err)
	}
}

func TestUSBTMCAddresses(t *testing.T) {
	for s, want := range map[string]Address{
		"usbtmc:/dev/usbtmc0": {Scheme: "usbtmc", Target: "/dev/usbtmc0"},
		"/dev/usbtmc1":        {Scheme: "usbtmc", Target: "/dev/usbtmc1"},
	} {
		if got, err := ParseAddress(s); err != nil || got != want {
			t.Errorf("%s: %+v, %v", s, got, err)
		}
	}
	if _, err := Dial(t.Context(), "usbtmc:/dev/usbtmc987", Options{}); !errors.Is(err, instrument.ErrDisconnected) || !strings.Contains(err.Error(), "plugged in") {
		t.Errorf("got %v", err)
	}
}

func TestATCPAddressIsLocked(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	address := "tcp:" + l.Addr().String()
	c, err := Dial(t.Context(), address, Options{Exclusive: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Dial(t.Context(), address, Options{Exclusive: true}); !errors.Is(err, ErrBusy) {
		t.Errorf("a second program gets %v", err)
	}
	for range 2 {
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
	again, err := Dial(t.Context(), address, Options{Exclusive: true})
	if err != nil {
		t.Fatal("the lock outlives the link:", err)
	}
	_ = again.Close()
}

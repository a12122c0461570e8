package network

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"testing"
	"time"
)

// made makes a network that runs; a test without the right to is skipped, or fails
// where WATTMARK_REQUIRE_TOOLS=1 asks for it.
func made(t *testing.T, name string) *Network {
	t.Helper()
	n, err := New(fmt.Sprintf("wmtest%d-%s", os.Getpid(), name))
	if errors.Is(err, ErrUnavailable) && os.Getenv("WATTMARK_REQUIRE_TOOLS") != "1" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- n.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := errors.Join(<-done, n.Close()); err != nil {
			t.Error(err)
		}
	})
	return n
}

// echo serves on the monitor's machine and returns a connection of the host's.
func echo(t *testing.T, n *Network) net.Conn {
	t.Helper()
	var l net.Listener
	if err := inside(n.of(Monitor), func() (err error) {
		l, err = net.Listen("tcp4", Monitor.Address()+":0")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, _ = io.Copy(c, c)
			}()
		}
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	c, err := n.Dial(ctx, Host, l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// through sends bytes there and back and compares them.
func through(t *testing.T, c net.Conn, size int) {
	t.Helper()
	sent := make([]byte, size)
	_, _ = rand.Read(sent)
	if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = c.Write(sent) }()
	got := make([]byte, size)
	if _, err := io.ReadFull(c, got); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, sent) {
		t.Error("other bytes came back")
	}
}

// In any weather TCP delivers all bytes, unless no frame gets through.
func TestWeather(t *testing.T) {
	for name, w := range map[string]Weather{
		"fine": {}, "late": {Delay: 3 * time.Millisecond}, "overtaking": {Jitter: 2 * time.Millisecond},
		"losing": {Lose: 0.05}, "twice": {Twice: 0.3}, "garbled": {Garble: 0.05},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := made(t, name)
			c := echo(t, n)
			n.SetWeather(w)
			through(t, c, 200<<10)
		})
	}
}

// A plug that was pulled, and a line that is cut in one direction, let nothing
// through; a connection lives on when they are back.
func TestCut(t *testing.T) {
	n := made(t, "cut")
	c := echo(t, n)
	for name, cut := range map[string]func(bool) error{
		"the monitor's plug": func(on bool) error { return n.SetLink(Monitor, on) },
		"the host's plug":    func(on bool) error { return n.SetLink(Host, on) },
		"a deaf host": func(on bool) error {
			n.SetWeather(Weather{Deaf: [2]bool{Host: !on}})
			return nil
		},
	} {
		through(t, c, 1000)
		if err := cut(false); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Write([]byte("x")); err != nil {
			t.Fatal(name, err)
		}
		if err := c.SetReadDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: %v came through", name, err)
		}
		if err := cut(true); err != nil {
			t.Fatal(err)
		}
		if err := c.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Each kind of weather changes a frame in its way.
func TestSend(t *testing.T) {
	frame := bytes.Repeat([]byte{7}, 60)
	for name, c := range map[string]struct {
		w    Weather
		want int
	}{
		"fine": {Weather{}, 1}, "lost": {Weather{Lose: 1}, 0}, "twice": {Weather{Twice: 1}, 2},
		"deaf": {Weather{Deaf: [2]bool{Host: true}}, 0}, "the other is deaf": {Weather{Deaf: [2]bool{Monitor: true}}, 1},
	} {
		n := 0
		send(c.w, Monitor, bytes.Clone(frame), func(b []byte) {
			if n++; !bytes.Equal(b, frame) {
				t.Errorf("%s: changed", name)
			}
		})
		if n != c.want {
			t.Errorf("%s: %d frames, want %d", name, n, c.want)
		}
	}
	send(Weather{Garble: 1}, Monitor, bytes.Clone(frame), func(b []byte) {
		if bytes.Equal(b, frame) || !bytes.Equal(b[:ethernetHead], frame[:ethernetHead]) {
			t.Error("a frame is to be garbled behind its head")
		}
	})
}

//go:build linux

package transport

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wattmark/wattmark/monitor/emulator/pty"
	"golang.org/x/sys/unix"
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
		if err := <-done; !errors.Is(err, context.Canceled) || errors.Is(err, ErrDisconnected) {
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
		if _, err := c.Read(t.Context(), make([]byte, 8)); !errors.Is(err, ErrDisconnected) {
			t.Errorf("Read: %v", err)
		}
	})
	p, c := line(t)
	_ = p.Close()
	if _, err := c.Write(t.Context(), []byte("x")); !errors.Is(err, ErrDisconnected) {
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
		if err := <-done; !errors.Is(err, ErrClosed) || errors.Is(err, ErrDisconnected) {
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
	if _, err := c.Write(t.Context(), []byte("x")); !errors.Is(err, ErrDisconnected) {
		t.Errorf("a second Write: %v, want ErrDisconnected", err)
	}
}

func TestDrainWaitsForQuiet(t *testing.T) {
	links(t, func(t *testing.T, p peer, c Conn) {
		_, _ = p.Write(make([]byte, 700))
		n, err := Drain(t.Context(), c, 40*time.Millisecond)
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
	if errors.Is(err, ErrDisconnected) {
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
		"no port":    {"serial:/dev/does-not-exist", ErrDisconnected},
		"no host":    {"tcp:127.0.0.1:1", ErrDisconnected},
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
		if err := Ask(t.Context(), c, []byte("?"), reply, 30*time.Millisecond); !errors.Is(err, ErrSilent) {
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
		if _, err := c.Read(t.Context(), make([]byte, 8)); !errors.Is(err, ErrDisconnected) {
			t.Errorf("closed: %v", err)
		}
		_ = c.Close()
	})
}

// seqpacket is a pair of sockets that keep messages whole, as a usbtmc device
// does: ours behind a Conn, and the instrument's.
func seqpacket(t *testing.T, timeout time.Duration) (Conn, int) {
	t.Helper()
	p, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Skip("no SOCK_SEQPACKET here:", err)
	}
	// The kernel's driver ends a read after its own time-out.
	if err := unix.SetsockoptTimeval(p[0], unix.SOL_SOCKET, unix.SO_RCVTIMEO,
		new(unix.NsecToTimeval(timeout.Nanoseconds()))); err != nil {
		t.Fatal(err)
	}
	for _, fd := range p {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, 4<<20)
	}
	c := NewMessages(os.NewFile(uintptr(p[0]), "usbtmc"), "usbtmc:test", nil)
	t.Cleanup(func() { _ = c.Close(); _ = unix.Close(p[1]) })
	return c, p[1]
}

func TestMessagesAreReadWhole(t *testing.T) {
	c, device := seqpacket(t, 20*time.Millisecond)
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
	c, device := seqpacket(t, time.Minute) // one read is under way all the time
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := c.Read(ctx, make([]byte, 9)); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("got %v", err)
	}
	if _, err := unix.Write(device, []byte("late")); err != nil {
		t.Fatal(err)
	}
	if n, err := Drain(t.Context(), c, time.Millisecond); n != 4 || err != nil {
		t.Errorf("drained %d, %v", n, err)
	}
	if n, err := Drain(t.Context(), c, time.Millisecond); n != 0 || err != nil {
		t.Errorf("a second drain takes %d, %v", n, err)
	}
}

func TestMessagesEndWithTheDevice(t *testing.T) {
	c, device := seqpacket(t, 20*time.Millisecond)
	_ = unix.Shutdown(device, unix.SHUT_RDWR)
	if _, err := c.Read(t.Context(), make([]byte, 9)); !errors.Is(err, ErrDisconnected) {
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
	if _, err := Dial(t.Context(), "usbtmc:/dev/usbtmc987", Options{}); !errors.Is(err, ErrDisconnected) ||
		!strings.Contains(err.Error(), "plugged in") {
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

func TestHintNamesTheGroupToJoin(t *testing.T) {
	hint := hintOf("/dev/ttyACM0", 0o660, 0, 4294967000)
	if !strings.Contains(hint, "usermod -aG 4294967000") {
		t.Errorf("%q: want the group to join", hint)
	}
	if hint := hintOf("/dev/usbtmc0", 0o600, 0, 0); !strings.Contains(hint, "udev") {
		t.Errorf("%q: want a udev rule for a node that is root's alone", hint)
	}
	if hint := AccessHint(filepath.Join(t.TempDir(), "none")); !strings.Contains(hint, "ls -l") {
		t.Errorf("%q", hint)
	}
}

// Who may not open a device cannot keep others from it: what counts is a lock of the
// device itself, and the kernel says who holds it.
func TestHolderOfAPort(t *testing.T) {
	p, err := pty.OpenPort()
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	stranger, err := openLock(filepath.Join("/run/lock", "wattmark"+strings.ReplaceAll(p.Path(), "/", "-")+".lock"))
	if err == nil {
		defer os.Remove(stranger.Name())
		defer stranger.Close()
		if err := unix.Flock(int(stranger.Fd()), unix.LOCK_EX); err != nil {
			t.Fatal(err)
		}
	}
	if who, held := Holder(p.Path()); held {
		t.Errorf("%s has a port that nobody opened", who)
	}
	c, err := Dial(t.Context(), p.Path(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if who, held := Holder(p.Path()); !held || !strings.HasPrefix(who, fmt.Sprintf("process %d (", os.Getpid())) ||
		!strings.Contains(who, " of user ") {
		t.Errorf("%q, %v: want this process", who, held)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if who, held := Holder(p.Path()); held {
		t.Errorf("%s has a port that was released", who)
	}
}

// A lock of an address is a file that anybody may make: a link or a pipe in its place
// harms nothing, and a number in it is believed by nobody.
func TestLockOfAnAddress(t *testing.T) {
	dir := t.TempDir()
	victim, path := filepath.Join(dir, "victim"), filepath.Join(dir, "lock")
	if err := errors.Join(os.WriteFile(victim, []byte("1\n"), 0o644), os.Symlink(victim, path)); err != nil {
		t.Fatal(err)
	}
	if _, err := openLock(path); err == nil {
		t.Error("a link was followed")
	}
	var locks [2]*os.File
	var errs [2]error
	for i := range locks {
		f, err := openLock(victim)
		if err != nil {
			t.Fatal(err)
		}
		locks[i], errs[i] = lock(f)
	}
	if errs[0] != nil || !errors.Is(errs[1], ErrBusy) || strings.Contains(errs[1].Error(), "process 1 ") {
		t.Errorf("%v", errs)
	}
	release(locks[0])
	if b, err := os.ReadFile(victim); err != nil || string(b) != "1\n" {
		t.Errorf("%q, %v", b, err)
	}
}

// A pseudo-terminal that has gone leaves its number to another, which is nobody's meter:
// it is not opened until the link is made anew.
func TestANumberThatIsAnothers(t *testing.T) {
	link := filepath.Join(t.TempDir(), "meter")
	first, err := pty.OpenPort()
	if err == nil {
		err = os.Symlink(first.Path(), link)
	}
	if err != nil {
		t.Fatal(err)
	}
	dial := Dialer(link, Options{})
	for range 2 { // the same one, again and again
		c, err := dial(t.Context())
		if err == nil {
			err = c.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	was := lineAt(first.Path())
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	var other *pty.Port
	for range 1 << 16 { // until the kernel's coarse clock has moved on
		p, err := pty.OpenPort()
		if err != nil {
			t.Fatal(err)
		}
		if p.Path() == first.Path() && lineAt(p.Path()) != was {
			other = p
			defer p.Close()
			break
		}
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if other == nil {
		t.Skip("another program has the number")
	}
	if c, err := dial(t.Context()); !errors.Is(err, ErrDisconnected) || !strings.Contains(err.Error(), "another's") {
		t.Errorf("%v, %v", c, err)
	}
	if who, held := Holder(other.Path()); held {
		t.Errorf("%s has it", who)
	}
	if err := errors.Join(os.Remove(link), os.Symlink(other.Path(), link)); err != nil {
		t.Fatal(err)
	}
	c, err := dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

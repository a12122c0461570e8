package trial

import (
	"bytes"
	"context"
	cryptorand "crypto/rand"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// nic is the network interface of each machine.
const nic = "eth0"

// Network is two machines and the line between them.
type Network struct {
	name string
	ends [2]*os.File // of the line, as packet sockets

	mu      sync.Mutex
	weather Weather
}

// NewNetwork makes the namespaces name-monitor, name-host and name-line, which Close removes.
// Both machines' links are up; frames are carried while Run runs. It wants root, or
// CAP_NET_ADMIN and CAP_SYS_ADMIN, and the program ip.
func NewNetwork(name string) (n *Network, err error) {
	n = &Network{name: name}
	defer func() {
		if err != nil {
			_ = n.Close()
			n, err = nil, fmt.Errorf("%w: %w", ErrNoNetwork, err)
		}
	}()
	for _, part := range n.parts() {
		if err := ip("", "netns add "+part); err != nil {
			return n, err
		}
	}
	for _, s := range []Side{MonitorSide, HostSide} {
		if err := n.join(s); err != nil {
			return n, fmt.Errorf("the %v's link: %w", s, err)
		}
	}
	return n, nil
}

func (n *Network) of(s Side) string { return n.name + "-" + s.String() }
func (n *Network) line() string     { return n.name + "-line" }
func (n *Network) parts() []string  { return []string{n.of(MonitorSide), n.of(HostSide), n.line()} }

// join gives a machine its interface and opens the line's end of it.
func (n *Network) join(s Side) error {
	pair := fmt.Sprintf("link add %s netns %s type veth peer name %v netns %s", nic, n.of(s), s, n.line())
	if err := ip("", pair); err != nil {
		return err
	}
	if err := inside(n.of(s), func() error { return whole(nic) }); err != nil {
		return err
	}
	up := []string{"link set lo up", "addr add " + s.Address() + "/24 dev " + nic, "link set " + nic + " up"}
	if err := ip(n.of(s), up...); err != nil {
		return err
	}
	if err := ip(n.line(), fmt.Sprintf("link set %v up", s)); err != nil {
		return err
	}
	return inside(n.line(), func() (err error) {
		n.ends[s], err = listen(s.String())
		return err
	})
}

// ip runs commands of iproute2 in a namespace, or in this one when it is empty.
func ip(namespace string, commands ...string) error {
	args := []string{"-batch", "-"}
	if namespace != "" {
		args = append([]string{"-n", namespace}, args...)
	}
	c := exec.Command("ip", args...)
	c.Stdin = strings.NewReader(strings.Join(commands, "\n") + "\n")
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("ip %s: %w: %s", strings.Join(commands, "; "), err, strings.TrimSpace(string(out)))
	}
	return nil
}

// inside calls f on a thread that is in a namespace, and that ends with it.
func inside(namespace string, f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: so the thread ends here
		done <- func() error {
			ns, err := os.Open(filepath.Join("/run/netns", namespace))
			if err != nil {
				return err
			}
			defer ns.Close()
			if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
				return fmt.Errorf("enter %s: %w", namespace, err)
			}
			return f()
		}()
	}()
	return <-done
}

// Command is a program on one of the machines. Its process is the program's own:
// signals reach it.
func (n *Network) Command(s Side, program string, args ...string) *exec.Cmd {
	return exec.Command("ip", append([]string{"netns", "exec", n.of(s), program}, args...)...)
}

// Dial connects to a TCP address as one of the machines does.
func (n *Network) Dial(ctx context.Context, s Side, address string) (c net.Conn, err error) {
	err = inside(n.of(s), func() (err error) {
		var d net.Dialer
		c, err = d.DialContext(ctx, "tcp4", address)
		return err
	})
	return c, err
}

// SetLink pulls a machine's plug, or puts it in again.
func (n *Network) SetLink(s Side, up bool) error {
	return ip(n.of(s), "link set "+nic+map[bool]string{true: " up", false: " down"}[up])
}

// SetWeather changes the line's behaviour for frames that arrive from now on.
func (n *Network) SetWeather(w Weather) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.weather = w
}

func (n *Network) now() Weather {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.weather
}

// Close removes the namespaces. What runs in them keeps them until it ends.
func (n *Network) Close() error {
	var all []error
	for _, f := range n.ends {
		if f != nil {
			_ = f.Close() // Run may have
		}
	}
	for _, part := range n.parts() {
		if _, err := os.Stat(filepath.Join("/run/netns", part)); err == nil {
			all = append(all, ip("", "netns del "+part))
		}
	}
	return errors.Join(all...)
}

// Run carries frames until ctx ends.
func (n *Network) Run(ctx context.Context) error {
	over := context.AfterFunc(ctx, func() {
		for _, f := range n.ends {
			_ = f.SetReadDeadline(time.Unix(1, 0))
		}
	})
	defer over()
	var both sync.WaitGroup
	var errs [2]error
	for _, s := range []Side{MonitorSide, HostSide} {
		both.Go(func() { errs[s] = n.carry(ctx, s) })
	}
	both.Wait()
	return errors.Join(errs[:]...)
}

const (
	ethernetHead = 14
	frameRoom    = 1 << 16
)

// carry takes the frames that a machine sends to the other one.
func (n *Network) carry(ctx context.Context, from Side) error {
	room := make([]byte, frameRoom)
	in, out := n.ends[from], n.ends[from.other()]
	for {
		size, err := in.Read(room)
		switch {
		case ctx.Err() != nil || errors.Is(err, os.ErrClosed):
			return nil
		case errors.Is(err, unix.ENETDOWN):
			continue // reported once, when the plug is pulled
		case err != nil:
			return fmt.Errorf("the line from the %v: %w", from, err)
		}
		send(n.now(), from, room[:size], func(frame []byte) {
			_, _ = out.Write(frame) // a machine without its plug takes none
		})
	}
}

// send passes a frame on to put, late, twice, garbled or never, as the weather asks.
func send(w Weather, from Side, frame []byte, put func([]byte)) {
	if w.Deaf[from.other()] || rand.Float64() < w.Lose {
		return
	}
	if len(frame) > ethernetHead && rand.Float64() < w.Garble {
		frame[ethernetHead+rand.IntN(len(frame)-ethernetHead)] ^= 1 << rand.IntN(8)
	}
	times := 1
	if rand.Float64() < w.Twice {
		times = 2
	}
	for range times {
		late := w.Delay
		if w.Jitter > 0 {
			late += rand.N(w.Jitter)
		}
		if late == 0 {
			put(frame)
			continue
		}
		own := append([]byte(nil), frame...)
		time.AfterFunc(late, func() { put(own) })
	}
}

// listen opens a packet socket on an interface: reads return incoming frames, writes send frames out.
func listen(name string) (*os.File, error) {
	link, err := net.InterfaceByName(name)
	if err != nil {
		return nil, err
	}
	all := uint16(unix.ETH_P_ALL)
	all = all<<8 | all>>8 // in the order of the network
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, int(all))
	if err != nil {
		return nil, fmt.Errorf("a packet socket: %w", err)
	}
	err = errors.Join(
		unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1),
		unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: link.Index}),
	)
	if err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	return os.NewFile(uintptr(fd), name), nil
}

// whole makes an interface send frames as they go over a real cable, with their
// checksums and no longer than its MTU: between veth pairs the kernel leaves both out.
func whole(name string) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	value := struct{ command, data uint32 }{unix.ETHTOOL_STXCSUM, 0}
	request := struct {
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [16]byte // of the kernel's union, of which the pointer is a part
	}{data: unsafe.Pointer(&value)} // #nosec G103 -- the kernel takes an address
	copy(request.name[:unix.IFNAMSIZ-1], name)
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL,
		uintptr(unsafe.Pointer(&request))) // #nosec G103 -- as above; converted in the call, which keeps it alive
	if errno != 0 {
		return fmt.Errorf("checksums of %s: %w", name, errno)
	}
	return nil
}

// made makes a network that runs; a test without the right to is skipped, or fails
// where WATTMARK_REQUIRE_TOOLS=1 asks for it.
func made(t *testing.T, name string) *Network {
	t.Helper()
	n, err := NewNetwork(fmt.Sprintf("wmtest%d-%s", os.Getpid(), name))
	if errors.Is(err, ErrNoNetwork) && os.Getenv("WATTMARK_REQUIRE_TOOLS") != "1" {
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
	if err := inside(n.of(MonitorSide), func() (err error) {
		l, err = net.Listen("tcp4", MonitorSide.Address()+":0")
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
	c, err := n.Dial(ctx, HostSide, l.Addr().String())
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
	_, _ = cryptorand.Read(sent)
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
		"the monitor's plug": func(on bool) error { return n.SetLink(MonitorSide, on) },
		"the host's plug":    func(on bool) error { return n.SetLink(HostSide, on) },
		"a deaf host": func(on bool) error {
			n.SetWeather(Weather{Deaf: [2]bool{HostSide: !on}})
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
		"deaf": {Weather{Deaf: [2]bool{HostSide: true}}, 0}, "the other is deaf": {Weather{Deaf: [2]bool{MonitorSide: true}}, 1},
	} {
		n := 0
		send(c.w, MonitorSide, bytes.Clone(frame), func(b []byte) {
			if n++; !bytes.Equal(b, frame) {
				t.Errorf("%s: changed", name)
			}
		})
		if n != c.want {
			t.Errorf("%s: %d frames, want %d", name, n, c.want)
		}
	}
	send(Weather{Garble: 1}, MonitorSide, bytes.Clone(frame), func(b []byte) {
		if bytes.Equal(b, frame) || !bytes.Equal(b[:ethernetHead], frame[:ethernetHead]) {
			t.Error("a frame is to be garbled behind its head")
		}
	})
}

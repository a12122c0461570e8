package network

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"

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

// New makes the namespaces name-monitor, name-host and name-line, which Close removes.
// Both machines' links are up; frames are carried while Run runs. It wants root, or
// CAP_NET_ADMIN and CAP_SYS_ADMIN, and the program ip.
func New(name string) (n *Network, err error) {
	n = &Network{name: name}
	defer func() {
		if err != nil {
			_ = n.Close()
			n, err = nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
		}
	}()
	for _, part := range n.parts() {
		if err := ip("", "netns add "+part); err != nil {
			return n, err
		}
	}
	for _, s := range []Side{Monitor, Host} {
		if err := n.join(s); err != nil {
			return n, fmt.Errorf("the %v's link: %w", s, err)
		}
	}
	return n, nil
}

func (n *Network) of(s Side) string { return n.name + "-" + s.String() }
func (n *Network) line() string     { return n.name + "-line" }
func (n *Network) parts() []string  { return []string{n.of(Monitor), n.of(Host), n.line()} }

// join gives a machine its interface and opens the line's end of it.
func (n *Network) join(s Side) error {
	if err := ip("", fmt.Sprintf("link add %s netns %s type veth peer name %v netns %s", nic, n.of(s), s, n.line())); err != nil {
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

// SetWeather changes what the line does to frames that come from now on.
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

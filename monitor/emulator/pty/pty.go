// Package pty opens pseudo-terminals with the kernel's ioctls alone: a serial
// line in software, one end for an emulated device, the other a path that a
// driver opens like any port.
package pty

import (
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/wattmark/wattmark/internal/backoff"
	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// Open returns the master end of a new pseudo-terminal and the path of its
// slave. The line is raw: eight bits, no echo, no translation. The master works
// with deadlines, and closing it ends a blocked Read or Write.
func Open() (master *os.File, slavePath string, err error) {
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, "", fmt.Errorf("pty: open /dev/ptmx: %w (is /dev/pts mounted?)", err)
	}
	fail := func(what string, err error) (*os.File, string, error) {
		_ = unix.Close(fd)
		return nil, "", fmt.Errorf("pty: %s: %w", what, err)
	}
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		return fail("unlock the slave", err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		return fail("number of the slave", err)
	}
	// Raw mode clears everything that the line discipline would do to bytes. On Linux the ioctl on the
	// master sets the slave's attributes.
	if _, err := term.MakeRaw(fd); err != nil {
		return fail("raw mode", err)
	}
	return os.NewFile(uintptr(fd), "/dev/ptmx"), fmt.Sprintf("/dev/pts/%d", n), nil
}

// Port is the device's end of a serial line. It holds the slave open itself, so
// that drivers may come and go as they do on a device that stays plugged in.
type Port struct {
	*os.File
	path   string
	slave  *os.File
	closed chan struct{}
	once   sync.Once
	err    error
}

// OpenPort makes a serial line.
func OpenPort() (*Port, error) {
	master, path, err := Open()
	if err != nil {
		return nil, err
	}
	slave, err := os.OpenFile(path, os.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK, 0)
	if err != nil {
		_ = master.Close()
		return nil, fmt.Errorf("pty: hold the slave open: %w", err)
	}
	p := &Port{File: master, path: path, slave: slave, closed: make(chan struct{})}
	go p.share()
	return p, nil
}

// share takes back, until Close, the exclusive use (TIOCEXCL) that drivers ask for. The
// kernel keeps it while the slave is open anywhere; as the Port has it open for good, the
// port of a driver that was killed would stay busy to all but root.
func (p *Port) share() {
	raw, err := p.slave.SyscallConn()
	for range backoff.Every(p.closed, 100*time.Millisecond) {
		if err == nil {
			err = raw.Control(func(fd uintptr) { _ = unix.IoctlSetInt(int(fd), unix.TIOCNXCL, 0) })
		}
		if err != nil {
			return
		}
	}
}

// Path is the path for a driver to open.
func (p *Port) Path() string { return p.path }

// Close unplugs the device: the driver's reads end and its writes fail. It is
// safe to call twice and from any goroutine.
func (p *Port) Close() error {
	p.once.Do(func() {
		close(p.closed)
		_ = p.slave.Close()
		p.err = p.File.Close()
	})
	return p.err
}

// Unread is the number of bytes that the device has sent and no driver has read.
func (p *Port) Unread() (int, error) {
	n, err := unix.IoctlGetInt(int(p.slave.Fd()), unix.TIOCINQ)
	if err != nil {
		return 0, fmt.Errorf("pty: count unread bytes: %w", err)
	}
	return n, nil
}

package transport

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/wattmark/wattmark/internal/flock"
	"go.bug.st/serial"
	"golang.org/x/sys/unix"
)

// slice bounds one wait inside the serial library, which knows deadlines but no
// contexts: a cancelled read returns within this time.
const slice = 20 * time.Millisecond

// serialConn is a Conn over a serial port.
type serialConn struct {
	writer
	port serial.Port
	lock *os.File
}

// openSerial locks and opens a port: eight bits, no parity, one stop bit.
func openSerial(path string, baud int) (Conn, error) {
	address := "serial:" + path
	lock, err := lockPort(path)
	var port serial.Port
	if err == nil {
		// No modem lines: pseudo-terminals have none and the devices ignore them.
		port, err = serial.Open(path, &serial.Mode{BaudRate: baud})
	}
	if err != nil {
		release(lock)
		return nil, openError(path, address, "is the device plugged in?", err)
	}
	s := &serialConn{writer: newWriter(address, "bytes"), port: port, lock: lock}
	go s.run(func(p []byte) (n int, err error) {
		for n < len(p) && err == nil {
			var k int
			k, err = port.Write(p[n:])
			n += k
		}
		return n, err
	})
	return s, nil
}

// openError adds the remedy to the error of a device that does not open; absent is the one for
// a device that is not there.
func openError(path, address, absent string, err error) error {
	code := serial.PortErrorCode(-1)
	if pe, ok := errors.AsType[*serial.PortError](err); ok {
		code = pe.Code()
	}
	switch {
	case code == serial.PortBusy:
		return fmt.Errorf("open %s: %w: %w (close the other program)", address, ErrBusy, err)
	case code == serial.PermissionDenied:
		return fmt.Errorf("open %s: %w: %w (%s)", address, fs.ErrPermission, err, AccessHint(path))
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("open %s: %w (%s)", address, err, AccessHint(path))
	case code == serial.PortNotFound || gone(err):
		return fmt.Errorf("%w (%s)", disconnected("open", address, err), absent)
	}
	return fmt.Errorf("open %s: %w", address, err)
}

// Read implements Conn; a cancelled one returns within a slice of 20 ms.
func (s *serialConn) Read(ctx context.Context, p []byte) (int, error) {
	for {
		if err := ctx.Err(); err != nil {
			return 0, fmt.Errorf("read %s: %w", s.address, err)
		}
		d := slice
		if deadline, ok := ctx.Deadline(); ok {
			d = min(d, max(0, time.Until(deadline)))
		}
		if err := s.port.SetReadTimeout(d); err != nil {
			return 0, s.fail("set the read time-out of", err)
		}
		n, err := s.port.Read(p)
		if n > 0 {
			return n, nil
		}
		if err != nil {
			return 0, s.fail("read", err)
		}
		// 0, nil is the library's time-out.
	}
}

// SetBaud changes the line's speed; eight bits, no parity, one stop bit stay.
func (s *serialConn) SetBaud(baud int) error {
	if err := s.port.SetMode(&serial.Mode{BaudRate: baud}); err != nil {
		return s.fail(fmt.Sprintf("set %d baud on", baud), err)
	}
	return nil
}

// Close implements Conn, and releases the port's lock.
func (s *serialConn) Close() error {
	if s.closed.Swap(true) {
		return nil
	}
	close(s.done)
	err := s.port.Close()
	release(s.lock)
	if err != nil && !gone(err) {
		return fmt.Errorf("close %s: %w", s.address, err)
	}
	return nil
}

// result is the outcome of one call of the system.
type result struct {
	n   int
	err error
}

// writer is the sending half of a link whose writes block and cannot be ended: they are made on
// a goroutine of their own. One that is given up leaves that goroutine behind until the kernel
// lets go, and breaks the link.
type writer struct {
	address string
	takes   string // what the device takes, for errors
	writes  chan []byte
	written chan result
	done    chan struct{} // closed by Close
	broken  bool          // a write was given up
	closed  *atomic.Bool
}

func newWriter(address, takes string) writer {
	return writer{
		address: address, takes: takes, writes: make(chan []byte), written: make(chan result, 1),
		done: make(chan struct{}), closed: new(atomic.Bool),
	}
}

// run makes the writes until Close.
func (w *writer) run(write func([]byte) (int, error)) {
	for {
		select {
		case <-w.done:
			return
		case p := <-w.writes:
			n, err := write(p)
			w.written <- result{n, err}
		}
	}
}

// Write implements Conn. One that was given up breaks the link.
func (w *writer) Write(ctx context.Context, p []byte) (int, error) {
	if w.closed.Load() {
		return 0, fmt.Errorf("write %s: %w", w.address, ErrClosed)
	}
	if w.broken {
		return 0, disconnected("write", w.address, errors.New("an earlier write never ended"))
	}
	if err := ctx.Err(); err != nil {
		return 0, fmt.Errorf("write %s: %w", w.address, err)
	}
	select {
	case w.writes <- bytes.Clone(p): // the caller's memory must not outlive the call
	case <-w.done:
		return 0, fmt.Errorf("write %s: %w", w.address, ErrClosed)
	}
	select {
	case r := <-w.written:
		if r.err != nil {
			return r.n, w.fail("write", r.err)
		}
		return r.n, nil
	case <-ctx.Done():
		w.broken = true
		return 0, fmt.Errorf("write %s: the device takes no %s: %w", w.address, w.takes, ctx.Err())
	}
}

// fail maps an error of the link: after this side's Close it is ErrClosed, else the device has gone.
func (w *writer) fail(op string, err error) error {
	if w.closed.Load() {
		return fmt.Errorf("%s %s: %w", op, w.address, ErrClosed)
	}
	return disconnected(op, w.address, err)
}

// lockPort takes an advisory lock on the device node itself, whatever its names: only a program that may
// open the device holds that lock. The kernel's own exclusive mode does not bind root, and two readers of
// one device each get half of its bytes. Errors are those of opening it, and ErrBusy with the holder.
func lockPort(port string) (*os.File, error) {
	f, err := os.OpenFile(port, os.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK, 0)
	if errors.Is(err, unix.EBUSY) { // the kernel's exclusive mode
		return nil, busy(port)
	}
	if err != nil {
		return nil, err
	}
	return lock(f)
}

// lockAddress locks a file that stands for an address, which has no node.
func lockAddress(target string) (*os.File, error) {
	dir := "/run/lock"
	if unix.Access(dir, unix.W_OK) != nil {
		dir = os.TempDir()
	}
	f, err := openLock(filepath.Join(dir,
		"wattmark-tcp-"+strings.NewReplacer("/", "-", ":", "-").Replace(target)+".lock"))
	if err != nil {
		return nil, fmt.Errorf("lock the port: %w", err)
	}
	return lock(f)
}

// openLock opens a lock file that may belong to another user, but no link, and does not
// wait for a pipe; flock works on a file that is open for reading alone. Others may read a
// file that it makes, whatever the umask. Errors name the owner of a file that may not be read.
func openLock(path string) (*os.File, error) {
	const safe = unix.O_NOFOLLOW | unix.O_NONBLOCK
	f, err := os.OpenFile(path, os.O_RDONLY|safe, 0)
	if errors.Is(err, fs.ErrNotExist) {
		if f, err = os.OpenFile(path, os.O_RDONLY|os.O_CREATE|safe, 0o666); err == nil {
			_ = f.Chmod(0o644) // the mode of a file that another program made stays
		}
	}
	var st unix.Stat_t
	if errors.Is(err, fs.ErrPermission) && unix.Lstat(path, &st) == nil {
		err = fmt.Errorf("%w: the lock file belongs to user %s, and others may not read it: have that user or root "+
			"run chmod a+r %s, or remove the file while no program uses the meter", err, userName(st.Uid), path)
	}
	return f, err
}

// lock takes the lock of an open file, which it closes on an error.
func lock(f *os.File) (*os.File, error) {
	switch err := flock.Try(f); {
	case err == nil:
		return f, nil
	case errors.Is(err, flock.ErrHeld):
		return nil, errors.Join(busy(f.Name()), f.Close())
	default:
		return nil, errors.Join(fmt.Errorf("lock the port (%s): %w", f.Name(), err), f.Close())
	}
}

// busy is ErrBusy with the holder's process, as far as the kernel shows it.
func busy(path string) error {
	who, _ := Holder(path)
	return fmt.Errorf("%w: %s has it (%s); stop that one first", ErrBusy, cmp.Or(who, "another program"), path)
}

// Holder names the process that has locked a port, as the kernel knows it; ok is false
// where none has, or none that this process may see. The port is not opened.
func Holder(port string) (who string, ok bool) {
	var st unix.Stat_t
	if unix.Stat(port, &st) != nil {
		return "", false
	}
	dev := uint64(st.Dev)
	file := fmt.Sprintf("%02x:%02x:%d", unix.Major(dev), unix.Minor(dev), st.Ino)
	locks, _ := os.ReadFile("/proc/locks") // not everywhere
	for line := range strings.Lines(string(locks)) {
		if f := strings.Fields(line); len(f) > 5 && f[1] == "FLOCK" && f[5] == file {
			pid := f[4]
			who = "process " + pid
			if name, err := os.ReadFile("/proc/" + pid + "/comm"); err == nil {
				who += fmt.Sprintf(" (%q)", strings.TrimSpace(string(name)))
			}
			if unix.Stat("/proc/"+pid, &st) == nil {
				who += " of user " + userName(st.Uid)
			}
			return who, true
		}
	}
	return "", false
}

// userName is a user's name, or number where it has none.
func userName(uid uint32) string {
	id := strconv.FormatUint(uint64(uid), 10)
	if u, err := user.LookupId(id); err == nil {
		return u.Username
	}
	return id
}

// release lets go; nil holds nothing. A lock file stays: removing it would let two programs lock
// two files of one name.
func release(lock *os.File) { _ = flock.Close(lock) }

// gone reports whether an error means a device that is absent.
func gone(err error) bool {
	return slices.ContainsFunc([]error{unix.ENOENT, unix.ENODEV, unix.ENXIO, unix.EIO, unix.EBADF, unix.ENOTTY},
		func(e error) bool { return errors.Is(err, e) })
}

// ptyLine is which pseudo-terminal a path names: the number of one that is gone is given to
// the next that is made. The zero value is any other device.
type ptyLine struct{ link, device string }

// lineAt identifies the pseudo-terminal behind a path; the zero value for any other device.
func lineAt(path string) ptyLine {
	real, err := filepath.EvalSymlinks(path)
	if err != nil || !strings.HasPrefix(real, "/dev/pts/") {
		return ptyLine{}
	}
	return ptyLine{link: made(path, unix.Lstat), device: made(real, unix.Stat)}
}

// made distinguishes files of one name by their numbers and times of change.
func made(path string, stat func(string, *unix.Stat_t) error) string {
	var st unix.Stat_t
	if stat(path, &st) != nil {
		return ""
	}
	return fmt.Sprint(st.Dev, " ", st.Ino, " ", st.Ctim)
}

// AccessHint returns the remedy for a device node that this user may not open.
func AccessHint(path string) string {
	var st unix.Stat_t
	if unix.Stat(path, &st) != nil {
		return "look at its owner and group with ls -l " + path
	}
	return hintOf(path, fs.FileMode(st.Mode).Perm(), st.Uid, st.Gid)
}

// hintOf is AccessHint for a node of that mode, owner and group.
func hintOf(path string, mode fs.FileMode, uid, gid uint32) string {
	group := strconv.FormatUint(uint64(gid), 10)
	if g, err := user.LookupGroupId(group); err == nil {
		group = g.Name
	}
	if mode&0o060 == 0o060 && gid != 0 {
		return fmt.Sprintf("it belongs to group %s: join it with sudo usermod -aG %s $USER, then log in again", group,
			group)
	}
	return fmt.Sprintf("it belongs to user %d and group %s alone: let a udev rule give it to a group of yours, for "+
		"example plugdev, MODE=\"0660\"", uid, group)
}

// Accessible reports whether this user may read and write a device node.
func Accessible(path string) bool { return unix.Access(path, unix.R_OK|unix.W_OK) == nil }

// timedOut reports the kernel's own time-out of a message read.
func timedOut(err error) bool {
	return errors.Is(err, unix.ETIMEDOUT) || errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) ||
		errors.Is(err, os.ErrDeadlineExceeded)
}

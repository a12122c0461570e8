// Package transport carries bytes between a driver and its device.
//
//	Dial ─▶ Conn (serial port, TCP socket, USBTMC device, any net.Conn)
//	Pump ─▶ reads a stream: the bytes that came, a quiet line, a silence
//	Backoff.Redial ─▶ the one place where a lost device is tried again
//
// Every call takes a context, and the context reaches the lowest I/O call: none
// blocks longer than its context allows. A link that is gone shows in an error
// that wraps ErrDisconnected, whatever the operating system called it.
package transport

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Address is the place where a device is connected.
type Address struct {
	// Scheme is "serial", "tcp" or "usbtmc".
	Scheme string
	// Target is the port's path or name, or host:port.
	Target string
	// Baud is the line's speed as the address states it; 0 where it does not.
	Baud int
}

// addressHint ends every error of ParseAddress.
const addressHint = "want serial:/dev/ttyACM0?baud=921600, a plain path such as /dev/ttyUSB0, tcp:host:port, or " +
	"usbtmc:/dev/usbtmc0"

// ParseAddress reads "serial:PATH[?baud=N]", "tcp:HOST:PORT", "usbtmc:PATH", or
// a plain path: of a serial port (or COMn), or /dev/usbtmcN. Errors wrap
// ErrAddress.
func ParseAddress(s string) (Address, error) {
	bad := func(why string) (Address, error) {
		return Address{}, fmt.Errorf("%w %q: %s (%s)", ErrAddress, s, why, addressHint)
	}
	scheme, rest, found := strings.Cut(s, ":")
	switch {
	case s == "":
		return bad("it is empty")
	case strings.ContainsAny(s, "\x00\n\r"):
		return bad("it contains control characters")
	case strings.HasPrefix(s, "/dev/usbtmc"): // as Linux names USB test instruments
		return Address{Scheme: "usbtmc", Target: s}, nil
	case found && scheme == "usbtmc":
		if rest == "" {
			return bad("the device's path is missing")
		}
		return Address{Scheme: "usbtmc", Target: rest}, nil
	case strings.HasPrefix(s, "/") || strings.HasPrefix(s, "./") || strings.HasPrefix(s, `\\.\`) || isCOM(s):
		return parseSerial(s, bad)
	case found && scheme == "serial":
		return parseSerial(rest, bad)
	case found && scheme == "tcp":
		host, port, err := net.SplitHostPort(rest)
		if err != nil || host == "" {
			return bad("host and port cannot be told apart")
		}
		if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
			return bad("the port must be 1 to 65535")
		}
		return Address{Scheme: "tcp", Target: rest}, nil
	case found:
		return bad(fmt.Sprintf("unknown scheme %q", scheme))
	}
	return bad("it is neither a path nor scheme:target; a device of this folder is ./" + s)
}

// parseSerial reads PATH[?baud=N].
func parseSerial(rest string, bad func(string) (Address, error)) (Address, error) {
	path, query, _ := strings.Cut(rest, "?")
	a := Address{Scheme: "serial", Target: path}
	if path == "" {
		return bad("the port's path is missing")
	}
	values, err := url.ParseQuery(query)
	if err != nil {
		return bad("what follows ? is not key=value")
	}
	for key, v := range values {
		if key != "baud" {
			return bad(fmt.Sprintf("unknown setting %q; baud is the only one", key))
		}
		n, err := strconv.Atoi(v[0])
		if err != nil || len(v) != 1 || n < 50 || n > 12_000_000 {
			return bad("baud must be one number from 50 to 12000000")
		}
		a.Baud = n
	}
	return a, nil
}

// isCOM reports whether s is a port's name under Windows.
func isCOM(s string) bool {
	rest, com := strings.CutPrefix(strings.ToUpper(s), "COM")
	number, _, _ := strings.Cut(rest, "?")
	_, err := strconv.Atoi(number)
	return com && err == nil
}

// Conn is a link to a device. One goroutine uses it; Close alone may be called
// from another, and ends a blocked Read.
type Conn interface {
	// Read waits for at least one byte and returns those that are there. It returns
	// n > 0 and a nil error, or n = 0 and an error that wraps ctx's, ErrClosed or
	// ErrDisconnected.
	Read(ctx context.Context, p []byte) (int, error)
	// Write sends all of p. When ctx ends first the link is unusable: the bytes
	// that the device got are unknown.
	Write(ctx context.Context, p []byte) (int, error)
	// Close releases the link. It is safe to call twice.
	Close() error
}

// BaudSetter is a Conn whose speed can be changed while it is open.
type BaudSetter interface {
	SetBaud(baud int) error
}

var (
	// ErrClosed: this side has closed the link.
	ErrClosed = errors.New("link closed")
	// ErrBusy: another program holds the port; the text names its process.
	ErrBusy = errors.New("port is in use")
	// ErrAddress: the address cannot be parsed.
	ErrAddress = errors.New("bad address")
	// ErrDisconnected: the link is gone; opening again may help.
	ErrDisconnected = errors.New("instrument disconnected")
	// ErrIdentity: another device than the wanted one answers; opening again does not help.
	ErrIdentity = errors.New("wrong instrument")
	// ErrSilent: the device is there, and sends nothing that can be understood.
	ErrSilent = errors.New("instrument does not answer")
)

// disconnected wraps the system's error of a link that is gone.
func disconnected(op, address string, err error) error {
	return fmt.Errorf("%s %s: %w: %w", op, address, ErrDisconnected, err)
}

// ReadWithin reads like Conn.Read for at most d. It returns 0 and a nil error
// when nothing came in that time and ctx has not ended.
func ReadWithin(ctx context.Context, c Conn, p []byte, d time.Duration) (int, error) {
	short, cancel := context.WithTimeout(ctx, d)
	n, err := c.Read(short, p)
	cancel()
	if end := ctx.Err(); n == 0 && errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, end) {
		return 0, end // d was over, even where ctx was cancelled just behind that
	}
	return n, err
}

// ReadFull fills p or returns an error; n describes how far it came.
func ReadFull(ctx context.Context, c Conn, p []byte) (n int, err error) {
	for n < len(p) {
		k, err := c.Read(ctx, p[n:])
		n += k
		if err != nil {
			return n, err
		}
		if k == 0 {
			return n, io.ErrNoProgress
		}
	}
	return n, nil
}

// Drain discards the bytes that arrive until nothing came for quiet, and returns how
// many bytes that were. A device that never falls quiet is an error when ctx ends.
func Drain(ctx context.Context, c Conn, quiet time.Duration) (total int, err error) {
	if m, ok := c.(*messageConn); ok {
		return m.drain(ctx)
	}
	var buf [512]byte
	for {
		n, err := ReadWithin(ctx, c, buf[:], quiet)
		total += n
		if err != nil {
			return total, fmt.Errorf("drain: %w", err)
		}
		if n == 0 {
			return total, nil
		}
	}
}

// Ended reports whether a context caused an error, not the link.
func Ended(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// Options are a driver's settings of the link where the address leaves it open.
type Options struct {
	// Baud is the speed of a serial line; default 115200. An address that states
	// one wins.
	Baud int
	// Exclusive takes an advisory lock on a TCP address, so that two programs on
	// this machine do not share an instrument unknowingly. Serial ports and
	// usbtmc devices are locked in any case.
	Exclusive bool
}

// Dialer returns Dial of one address, which remembers the line that it opened: of a
// pseudo-terminal that has gone, another that has its number by now is not touched,
// and the error wraps ErrDisconnected, until the link that names it is made
// anew. One goroutine at a time uses it.
func Dialer(address string, o Options) func(context.Context) (Conn, error) {
	var was ptyLine
	return func(ctx context.Context) (Conn, error) {
		var now ptyLine
		if a, err := ParseAddress(address); err == nil && a.Scheme == "serial" {
			now = lineAt(a.Target)
		}
		if was.device != "" && now.device != "" && now.device != was.device && now.link == was.link {
			return nil, disconnected("open", address,
				errors.New("the pseudo-terminal has gone, and its number is another's by now: make the link to it "+
					"anew"))
		}
		c, err := Dial(ctx, address, o)
		if err == nil {
			was = now
		}
		return c, err
	}
}

// Dial opens the link that an address names. A serial port is opened
// exclusively; ErrBusy names the process that has it. A port that is not there, or a host
// that does not answer, wraps ErrDisconnected, so that a device that
// is being plugged in again is tried again.
func Dial(ctx context.Context, address string, o Options) (Conn, error) {
	a, err := ParseAddress(address)
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("open %s: %w", address, err)
	}
	switch {
	case a.Scheme == "tcp":
		return dialTCP(ctx, a.Target, o.Exclusive)
	case a.Scheme == "usbtmc":
		return openMessages(a.Target)
	}
	return openSerial(a.Target, cmp.Or(a.Baud, o.Baud, 115200))
}

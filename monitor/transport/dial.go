package transport

import (
	"context"
	"errors"
	"fmt"
)

// Options are what a driver wants of the link where the address leaves it open.
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
// and the error wraps instrument.ErrDisconnected, until the link that names it is made
// anew. One goroutine at a time uses it.
func Dialer(address string, o Options) func(context.Context) (Conn, error) {
	var was ptyLine
	return func(ctx context.Context) (Conn, error) {
		var now ptyLine
		if a, err := ParseAddress(address); err == nil && a.Scheme == "serial" {
			now = lineAt(a.Target)
		}
		if was.device != "" && now.device != "" && now.device != was.device && now.link == was.link {
			return nil, disconnected("open", address, errors.New("the pseudo-terminal has gone, and its number is another's by now: make the link to it anew"))
		}
		c, err := Dial(ctx, address, o)
		if err == nil {
			was = now
		}
		return c, err
	}
}

const defaultBaud = 115200

// Dial opens the link that an address names. A serial port is opened
// exclusively; ErrBusy tells who has it. A port that is not there, or a host
// that does not answer, wraps instrument.ErrDisconnected, so that a device that
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
	case a.Scheme == "tcp" && o.Exclusive:
		return dialLocked(ctx, a.Target)
	case a.Scheme == "tcp":
		return dialTCP(ctx, a.Target)
	case a.Scheme == "usbtmc":
		return openMessages(a.Target)
	}
	baud := defaultBaud
	for _, b := range []int{o.Baud, a.Baud} {
		if b != 0 {
			baud = b
		}
	}
	return openSerial(a.Target, baud)
}

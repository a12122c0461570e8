package transport

import (
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
)

// Address says where a device is connected.
type Address struct {
	// Scheme is "serial", "tcp" or "usbtmc".
	Scheme string
	// Target is the port's path or name, or host:port.
	Target string
	// Baud is the line's speed as the address states it; 0 where it does not.
	Baud int
}

func (a Address) String() string {
	if a.Baud != 0 {
		return fmt.Sprintf("%s:%s?baud=%d", a.Scheme, a.Target, a.Baud)
	}
	return a.Scheme + ":" + a.Target
}

// usbtmcPath begins the names that Linux gives to USB test instruments.
const usbtmcPath = "/dev/usbtmc"

const addressHint = "want serial:/dev/ttyACM0?baud=921600, a plain path such as /dev/ttyUSB0, tcp:host:port, or usbtmc:/dev/usbtmc0"

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
	case strings.HasPrefix(s, usbtmcPath):
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
	return bad("it is neither a path nor scheme:target")
}

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

// isCOM tells Windows' port names.
func isCOM(s string) bool {
	rest, ok := strings.CutPrefix(strings.ToUpper(s), "COM")
	if !ok {
		return false
	}
	rest, _, _ = strings.Cut(rest, "?")
	_, err := strconv.Atoi(rest)
	return err == nil
}

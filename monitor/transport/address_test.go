package transport

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestParseAddress(t *testing.T) {
	for in, want := range map[string]Address{
		"serial:/dev/ttyACM0?baud=921600": {"serial", "/dev/ttyACM0", 921600},
		"serial:/dev/ttyACM0":             {"serial", "/dev/ttyACM0", 0},
		"/dev/pts/3":                      {"serial", "/dev/pts/3", 0},
		"/dev/ttyUSB0?baud=115200":        {"serial", "/dev/ttyUSB0", 115200},
		"COM7":                            {"serial", "COM7", 0},
		"serial:COM7?baud=9600":           {"serial", "COM7", 9600},
		"tcp:192.168.0.7:5025":            {"tcp", "192.168.0.7:5025", 0},
		"tcp:[::1]:5025":                  {"tcp", "[::1]:5025", 0},
	} {
		if got, err := ParseAddress(in); err != nil || got != want {
			t.Errorf("%q: %+v, %v; want %+v", in, got, err, want)
		}
	}
	for _, in := range []string{
		"", "ttyUSB0", "usb:1", "serial:", "serial:?baud=9600", "serial:/dev/x?baud=0", "serial:/dev/x?baud=a",
		"serial:/dev/x?baud=1200&baud=2400", "serial:/dev/x?parity=odd", "tcp:host", "tcp::80", "tcp:host:0",
		"tcp:host:99999", "/dev/x\n", "serial:/dev/x?baud=99999999",
	} {
		if got, err := ParseAddress(in); !errors.Is(err, ErrAddress) {
			t.Errorf("%q: %+v, %v; want ErrAddress", in, got, err)
		}
	}
}

func FuzzParseAddress(f *testing.F) {
	for _, s := range []string{"", "serial:/dev/ttyACM0?baud=921600", "tcp:[::1]:80", "COM3", "/dev/x", "tcp:a:b:c"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		a, err := ParseAddress(s)
		if err != nil {
			return
		}
		b, err := ParseAddress(text(a))
		if err != nil || a != b {
			t.Errorf("%q → %+v → %q → %+v, %v", s, a, text(a), b, err)
		}
	})
}

// pumped is what a pump did, in order.
func pumped(ctx context.Context, c Conn, take error) (did []string, err error) {
	err = Pump{
		Size: 4, Silence: 300 * time.Millisecond,
		Take: func(b []byte, full bool) error {
			if full {
				did = append(did, "full")
			}
			did = append(did, string(b))
			return take
		},
		Rest:   func() error { did = append(did, "rest"); return nil },
		Finish: func() error { did = append(did, "finish"); return nil },
	}.Run(ctx, c)
	return did, err
}

func TestPump(t *testing.T) {
	broken := errors.New("sink")
	for name, c := range map[string]struct {
		send func(net.Conn, context.CancelFunc)
		take error
		did  []string
		err  error
	}{
		"silence": {
			send: func(c net.Conn, _ context.CancelFunc) {
				_, _ = c.Write([]byte("abcdef"))
				<-time.After(150 * time.Millisecond)
				_, _ = c.Write([]byte("g"))
			},
			did: []string{"full", "abcd", "ef", "rest", "g", "rest", "rest"}, err: ErrSilent,
		},
		"unplugged": {
			send: func(c net.Conn, _ context.CancelFunc) { _, _ = c.Write([]byte("ab")); _ = c.Close() },
			did:  []string{"ab", "finish"}, err: ErrDisconnected,
		},
		"stopped": {
			send: func(c net.Conn, stop context.CancelFunc) { _, _ = c.Write([]byte("ab")); stop() },
			did:  []string{"ab"}, err: context.Canceled,
		},
		"refused": {
			send: func(c net.Conn, _ context.CancelFunc) { _, _ = c.Write([]byte("ab")) },
			take: broken, did: []string{"ab"}, err: broken,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				mine, device := net.Pipe()
				defer mine.Close()
				defer device.Close()
				go c.send(device, cancel)
				did, err := pumped(ctx, NewNet(mine), c.take)
				if !slices.Equal(did, c.did) || !errors.Is(err, c.err) {
					t.Errorf("did %q, ended with %v; want %q, %v", did, err, c.did, c.err)
				}
			})
		})
	}
}

func TestRedialWaitsLongerEachTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var waits []time.Duration
		last := time.Now()
		err := Backoff{First: time.Second, Max: 5 * time.Second}.Redial(t.Context(), func(context.Context) error {
			waits, last = append(waits, time.Since(last)), time.Now()
			if len(waits) < 6 {
				return fmt.Errorf("open: %w", ErrDisconnected)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff([]time.Duration{0, 1e9, 2e9, 4e9, 5e9, 5e9}, waits); d != "" {
			t.Error(d)
		}
	})
}

func TestRedialGivesUp(t *testing.T) {
	for name, fatal := range map[string]error{"identity": ErrIdentity, "address": ErrAddress} {
		n := 0
		err := Backoff{}.Redial(t.Context(), func(context.Context) error { n++; return fmt.Errorf("open: %w", fatal) })
		if !errors.Is(err, fatal) || n != 1 {
			t.Errorf("%s: %d attempts, %v", name, n, err)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		n := 0
		err := Backoff{}.Redial(ctx, func(ctx context.Context) error {
			if n++; n < 4 {
				return ErrSilent
			}
			<-ctx.Done() // the end of patience does not hide what was wrong
			return ctx.Err()
		})
		if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, ErrSilent) || n != 4 {
			t.Errorf("after %d attempts: %v", n, err)
		}
	})
}

// lateCancel is a quiet line whose reader is cancelled just as its time is over.
type lateCancel struct {
	Conn
	cancel func()
}

func (c lateCancel) Read(ctx context.Context, _ []byte) (int, error) {
	<-ctx.Done()
	err := ctx.Err()
	c.cancel()
	return 0, err
}

// A cancel between the end of a look and its return is a cancel, no deadline.
func TestReadWithinAndALateCancel(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	n, err := ReadWithin(ctx, lateCancel{cancel: cancel}, make([]byte, 1), time.Millisecond)
	if n != 0 || !errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%d, %v", n, err)
	}
	if n, err := ReadWithin(t.Context(), lateCancel{cancel: func() {}}, make([]byte, 1), time.Millisecond); n != 0 ||
		err != nil {
		t.Errorf("a quiet line: %d, %v", n, err)
	}
	own, stop := context.WithTimeout(t.Context(), time.Millisecond)
	defer stop()
	if n, err := ReadWithin(own, lateCancel{cancel: func() {}}, make([]byte, 1), time.Minute); n != 0 ||
		!errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the caller's own time is over: %d, %v", n, err)
	}
}

// text is an address in the form that ParseAddress reads.
func text(a Address) string {
	if a.Baud != 0 {
		return fmt.Sprintf("%s:%s?baud=%d", a.Scheme, a.Target, a.Baud)
	}
	return a.Scheme + ":" + a.Target
}

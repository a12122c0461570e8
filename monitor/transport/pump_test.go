package transport

import (
	"context"
	"errors"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"wattmark/monitor/instrument"
)

// pumped is what a pump did, in order.
func pumped(ctx context.Context, c Conn, take error) (did []string, err error) {
	err = Pump{
		Size: 4, Quiet: 100 * time.Millisecond, Silence: 300 * time.Millisecond,
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
			did: []string{"full", "abcd", "ef", "rest", "g", "rest", "rest"}, err: instrument.ErrSilent,
		},
		"unplugged": {
			send: func(c net.Conn, _ context.CancelFunc) { _, _ = c.Write([]byte("ab")); _ = c.Close() },
			did:  []string{"ab", "finish"}, err: instrument.ErrDisconnected,
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

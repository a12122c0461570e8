package line

import (
	"context"
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wattmark/wattmark/monitor/emulator/pace"
)

// A device that is behind obeys a command before it has sent all that is due.
func TestACommandGoesBeforeTheBacklog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const scans, atOnce = 1000, 10
		b := Beat{Pace: pace.Pace{Epoch: time.Now().Add(-time.Second)}, Step: 1e6}
		stopped := errors.New("stopped")
		mine, theirs := net.Pipe()
		go func() { _, _ = mine.Write([]byte{'T'}) }()
		sent := 0
		d := Device{
			Pace:    b.Pace,
			Start:   func() error { synctest.Wait(); return nil },
			Command: func(byte) error { return stopped },
			Next:    func() (time.Duration, bool) { return b.Now(), true },
			Batch: func(until time.Duration) error {
				return b.Send(until, atOnce, nil, func(n int) error {
					if n > atOnce {
						t.Errorf("%d scans at once", n)
					}
					sent, b.Next = sent+n, b.Next+uint64(n)
					return nil
				})
			},
		}
		if err := d.Run(context.WithoutCancel(t.Context()), theirs); !errors.Is(err, stopped) {
			t.Error(err)
		}
		if sent > scans/2 {
			t.Errorf("%d scans were sent before the command", sent)
		}
	})
}

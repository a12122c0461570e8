package transport

import (
	"context"
	"fmt"
	"time"

	"wattmark/monitor/instrument"
)

// silentRead is a silence after which what a driver holds is delivered.
const silentRead = 100 * time.Millisecond

// Pump reads a stream and hands it on until something ends it.
type Pump struct {
	Conn Conn
	Now  func() time.Time
	// Buffer is what one read may bring; a full one means that more may wait.
	Buffer int
	// Silence is how long the stream may bring nothing before it counts as lost.
	Silence time.Duration
	// Take gets what one read brought; Rest is called while the line is silent and,
	// once, when the link has ended.
	Take func(at time.Time, b []byte, full bool) error
	Rest func() error
}

// Run reads until ctx ends, the link is lost (an error that wraps
// instrument.ErrDisconnected), the line stays silent (instrument.ErrSilent), or
// Take or Rest fail. It returns nil where ctx ended.
func (p Pump) Run(ctx context.Context) error {
	buf := make([]byte, p.Buffer)
	silent := time.Duration(0)
	for {
		n, err := ReadWithin(ctx, p.Conn, buf, silentRead)
		if err != nil {
			if rerr := p.Rest(); rerr != nil {
				return rerr
			}
			if ctx.Err() != nil && Ended(err) {
				return nil
			}
			return err
		}
		if n > 0 {
			silent = 0
			if err := p.Take(p.Now(), buf[:n], n == len(buf)); err != nil {
				return err
			}
			continue
		}
		if silent += silentRead; silent >= p.Silence {
			return fmt.Errorf("%w: the stream fell silent for %v (unplugged? power?)", instrument.ErrSilent, silent)
		}
		if err := p.Rest(); err != nil {
			return err
		}
	}
}

// Stale discards what piled up on a line while nobody read, so that a stream
// begins with the present; at most limit bytes, for a line that never rests.
func Stale(ctx context.Context, c Conn, limit int) error {
	buf := make([]byte, 4096)
	for total := 0; total < limit; {
		n, err := ReadWithin(ctx, c, buf, time.Millisecond)
		if err != nil {
			return err
		}
		if total += n; n < len(buf) {
			return nil
		}
	}
	return nil
}

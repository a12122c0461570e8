package scpiface

import (
	"context"
	"time"
)

// pause waits, without the lock, until a command's Pause gives zero.
func (i *Instrument) pause(ctx context.Context, ask func() time.Duration) error {
	for {
		d := ask()
		if d <= 0 {
			return nil
		}
		i.mu.Unlock()
		t := time.NewTimer(d)
		select {
		case <-t.C:
		case <-ctx.Done():
		}
		t.Stop()
		i.mu.Lock()
		if err := ctx.Err(); err != nil {
			return err
		}
	}
}

package main

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"wattmark/hostagent/measurement"
	"wattmark/hostagent/monitorclient"
)

// whileOpen is how often unfinished tasks are looked at whose captures still run:
// those of a host that died go on until their leases end.
const whileOpen = 5 * time.Second

// recoverLoop finishes what interrupted runs left, now and then: as often as
// every said last.
func recoverLoop(ctx context.Context, db measurement.Store, dial measurement.Dial, log *slog.Logger, every <-chan time.Duration) error {
	usual := <-every
	for {
		pause := usual
		ids, err := measurement.Recover(ctx, db, dial)
		for _, id := range ids {
			log.Info("finished a task that was interrupted", "task", int64(id))
		}
		if err != nil && ctx.Err() == nil {
			log.Warn("could not finish all interrupted tasks", "error", err)
		} else if open, err := db.Unfinished(ctx); err == nil && len(open) > 0 {
			pause = min(pause, whileOpen)
		}
		select {
		case <-ctx.Done():
			return nil
		case usual = <-every:
		case <-time.After(pause):
		}
	}
}

// dialMonitor connects to a monitor, and refuses one that is not understood.
func dialMonitor(ctx context.Context, address string) (measurement.Monitor, func() error, error) {
	c, err := dialMeter(ctx, address, monitorclient.Options{Version: version()})
	if err != nil {
		return nil, nil, err
	}
	if _, err := c.GetBench(ctx); errors.Is(err, monitorclient.ErrVersion) {
		return nil, nil, errors.Join(err, c.Close())
	}
	return c, c.Close, nil
}

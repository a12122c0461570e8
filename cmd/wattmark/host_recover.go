package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"wattmark/hostagent/measurement"
	"wattmark/hostagent/monitorclient"
	"wattmark/store"
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

// sweepPartial deletes what programs that are gone left of tasks that they stored in parts,
// and tells of a log that they left damaged.
func sweepPartial(ctx context.Context, db *store.DB, log *slog.Logger) error {
	if loss := db.LogLoss(); loss != "" {
		log.Warn("the database's write-ahead log was damaged while no program had it open: wattmark db check says more", "loss", loss)
	}
	n, err := db.Sweep(ctx)
	if n > 0 {
		log.Info("deleted what interrupted imports left", "tasks", n)
	}
	return err
}

// leftOvers finishes the tasks of processes of this machine that are gone, as kill -9 or a
// power cut leave them, and frees their benches; it says so, and names what it cannot
// finish. Most databases have none, and then it reads one short list.
func (a *app) leftOvers(ctx context.Context, db *store.DB) {
	var gone []store.TaskID
	open, err := db.Unfinished(ctx)
	for i := range open {
		if t, err := db.Task(ctx, open[i].ID); err == nil && lives(&t) == store.Gone {
			gone = append(gone, t.ID)
		}
	}
	if err != nil || len(gone) == 0 {
		return // that the list cannot be read, the command itself says
	}
	w, err := store.Open(ctx, a.db)
	if err != nil {
		fmt.Fprintf(a.err, "wattmark: unfinished: %s, whose process is gone: %v\n", taskNumbers(gone), err)
		return
	}
	defer w.Close()
	done, err := measurement.RecoverGone(ctx, w, func(ctx context.Context, address string) (measurement.Monitor, func() error, error) {
		return dialPatiently(ctx, w, address)
	})
	for _, id := range done {
		if t, err := w.Task(ctx, id); err == nil {
			fmt.Fprintf(a.err, "wattmark: task %d was left by a process that is gone: finished (%s)\n", id, stateNames[t.State])
		}
	}
	if err != nil {
		fmt.Fprintf(a.err, "wattmark: not finished, though its process is gone: %v\nwattmark host finishes such tasks once their monitors answer\n", err)
	}
}

// patienceForOthers is how long a monitor may take to answer for somebody else's task.
const patienceForOthers = 2 * time.Second

// dialPatiently connects to the monitor of a task that is left over. Where a cluster is to
// have the capture, who publishes it releases it.
func dialPatiently(ctx context.Context, db *store.DB, address string) (measurement.Monitor, func() error, error) {
	c, err := dialMeter(ctx, address, monitorclient.Options{Version: version(), Patience: patienceForOthers})
	if err != nil {
		return nil, nil, err
	}
	if cluster := os.Getenv("WATTMARK_CLUSTER"); cluster != "" && cluster != "none" {
		return measurement.Held{Monitor: c, DB: db}, c.Close, nil
	}
	return c, c.Close, nil
}

func lives(t *store.Task) store.Liveness {
	l, _ := store.Lives(t.Owner)
	return l
}

// unfinished says of a task that is not finished who may do that.
func unfinished(t *store.Task) string {
	const remedy = "wattmark host finishes it once the monitor at %s answers"
	switch life, pid := store.Lives(t.Owner); {
	case t.State != store.Running:
		return ""
	case life == store.Alive:
		return fmt.Sprintf("process %d measures it", pid)
	case life == store.Gone:
		return fmt.Sprintf("its process is gone: "+remedy, t.Monitor)
	}
	return fmt.Sprintf("this machine does not know who measures it; if nobody does, "+remedy, t.Monitor)
}

func taskNumbers(ids []store.TaskID) string {
	var out []string
	for _, id := range ids {
		out = append(out, fmt.Sprintf("task %d", id))
	}
	return strings.Join(out, ", ")
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

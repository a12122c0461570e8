package session

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/hostagent/measurement"
	"github.com/wattmark/wattmark/hostagent/monitorclient"
	"github.com/wattmark/wattmark/store"
)

// LeftOvers finishes the tasks of processes of this machine that no longer exist, as after
// kill -9 or a power cut, and releases their benches. It reports on standard error the tasks
// finished and those that it cannot finish. Without unfinished tasks, which is usual, the
// cost is one query. db may be read-only: changes go through a connection of their own.
func LeftOvers(ctx context.Context, a *cli.App, db *store.DB) {
	var gone []string
	open, err := db.Unfinished(ctx)
	for i := range open {
		if t, err := db.Task(ctx, open[i].ID); err == nil {
			if state, _ := store.Lives(t.Owner); state == store.Gone {
				gone = append(gone, fmt.Sprintf("task %d", t.ID))
			}
		}
	}
	if err != nil || len(gone) == 0 {
		return // the command itself reports a database that cannot be read
	}
	w, err := store.Open(ctx, a.DB)
	if err != nil {
		fmt.Fprintf(a.Err, "wattmark: unfinished: %s, whose process is gone: %v\n", strings.Join(gone, ", "), err)
		return
	}
	defer w.Close()
	// With a cluster the capture is held instead of released: the publisher of the task releases it.
	dial := func(ctx context.Context, address string) (measurement.Monitor, func() error, error) {
		o := monitorclient.Options{Version: cli.Version(), Patience: 2 * time.Second}
		c, end, err := dialKept(ctx, address, o, true)
		if err != nil {
			return nil, nil, err
		}
		if cluster := os.Getenv("WATTMARK_CLUSTER"); cluster != "" && cluster != "none" {
			return measurement.Held{Monitor: c, DB: w}, end, nil
		}
		return c, end, nil
	}
	done, err := measurement.RecoverGone(ctx, w, dial)
	for _, id := range done {
		if t, err := w.Task(ctx, id); err == nil {
			fmt.Fprintf(a.Err, "wattmark: task %d was left by a process that is gone: finished (%s)\n", id, t.State.String())
		}
	}
	if err != nil {
		fmt.Fprintf(a.Err, "wattmark: not finished, though its process is gone: %v\nwattmark host finishes such "+
			"tasks once their monitors answer\n", err)
	}
}

// Unfinished returns, for a running task, the state of its process and the way to finish it;
// empty for an ended task.
func Unfinished(t *store.Task) string {
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

// DialMonitor connects to a monitor; one of an incompatible version is an error. A monitor
// that does not answer is none: the client connects again on each call.
func DialMonitor(ctx context.Context, address string) (measurement.Monitor, func() error, error) {
	c, end, err := dialKept(ctx, address, monitorclient.Options{Version: cli.Version()}, false)
	if err != nil {
		return nil, nil, err
	}
	if _, err := c.GetBench(ctx); errors.Is(err, monitorclient.ErrVersion) {
		return nil, nil, errors.Join(err, end())
	}
	return c, end, nil
}

// DefaultFree is the free disk space in bytes below which no task or capture begins; wattmark
// doctor calls such a disk full.
const DefaultFree = 200_000_000

// DatabaseFlags are the flags for the disk space of a task database.
type DatabaseFlags struct {
	quota, free cli.Size
	offered     bool // the command has these flags; else Limits returns the default
}

// AddTo adds the flags to fl.
func (f *DatabaseFlags) AddTo(fl *pflag.FlagSet) {
	f.free, f.offered = DefaultFree, true
	fl.Var(&f.quota, "db-quota", "size of the database from which it takes no new tasks; 0 for no limit")
	fl.Var(&f.free, "db-free", "what must be free on the database's disk for a new task")
}

// Limits returns the limits beyond which the database refuses new tasks.
func (f *DatabaseFlags) Limits() store.Limits {
	if !f.offered {
		return store.Limits{Free: DefaultFree}
	}
	return store.Limits{Bytes: int64(f.quota), Free: int64(f.free)}
}

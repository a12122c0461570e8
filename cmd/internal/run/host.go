package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/wattmark/wattmark/api/client"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/report"
	"github.com/wattmark/wattmark/cmd/internal/session"
	"github.com/wattmark/wattmark/cmd/internal/task"
	"github.com/wattmark/wattmark/hostagent/measurement"
	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/store"
)

// handOver sends the tasks of a measurement to a host. They are measured into a database of
// this machine, the outbox, and leave it once the host has stored them; captures are released
// only then. The methods of a nil handOver do nothing.
type handOver struct {
	host     *cli.App // DB names the host
	outbox   string
	keepUser bool
	ids      []store.TaskID // not yet sent
	sent     []store.TaskID // numbers at the host
	warned   bool           // of earlier tasks in the outbox
	err      error

	mu      sync.Mutex
	release []func(context.Context) error
}

// lateMonitor is a monitor whose captures are released by handOver.send.
type lateMonitor struct {
	measurement.Monitor
	hand *handOver
}

func (m lateMonitor) Release(_ context.Context, capture string) error {
	m.hand.mu.Lock()
	defer m.hand.mu.Unlock()
	m.hand.release = append(m.hand.release, func(ctx context.Context) error { return m.Monitor.Release(ctx, capture) })
	return nil
}

// monitor returns a monitor whose captures are released once the host has their tasks. One
// within this process has nothing that the outbox beside its spool has not: it is returned as
// it is.
func (h *handOver) monitor(m measurement.Monitor) measurement.Monitor {
	if h == nil || strings.HasPrefix(m.Address(), cli.SpoolScheme) {
		return m
	}
	return lateMonitor{m, h}
}

// interrupted returns the error of an interrupted measurement with the number that its last
// task has at the host, in place of err, which has that of the outbox.
func (h *handOver) interrupted(ctx context.Context, err error) error {
	if h.err != nil || len(h.sent) == 0 {
		return err
	}
	i := cli.Interrupted(ctx, fmt.Sprintf("stored as task %d of %s", h.sent[len(h.sent)-1], h.host.DB))
	return cmp.Or(i, err)
}

// send stores the noted tasks at the host, then deletes them here and releases their captures.
// After an error they stay, and the error names their file.
func (h *handOver) send(ctx context.Context, db *store.DB) {
	if h == nil || len(h.ids) == 0 {
		return
	}
	if ctx.Err() != nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
	}
	stored, err := h.host.Send(ctx, db, h.keepUser, h.ids...)
	if err != nil {
		h.err = fmt.Errorf("%w\nThe measurement is kept in %s: wattmark db copy %s %s sends it", err, h.outbox,
			cli.ShellWords([]string{h.outbox}), h.host.DB)
		return
	}
	for _, id := range h.ids {
		h.sent = append(h.sent, store.TaskID(stored[id].Task))
	}
	for _, release := range h.release {
		err = errors.Join(err, release(ctx))
	}
	err = errors.Join(err, db.DeleteTasks(ctx, h.ids, store.DeleteOptions{Pinned: true}))
	h.ids, h.release = nil, nil
	if rest, rerr := db.Tasks(ctx, store.Query{}); rerr == nil && len(rest) > 0 && !h.warned {
		h.warned = true
		fmt.Fprintf(h.host.Err, "wattmark: %s has %s to send: wattmark tasks --db lists them, "+
			"and db copy sends them\n", h.outbox, measure.Plural(len(rest), "earlier task"))
	}
	h.err = err
}

func (h *handOver) sendGroup(ctx context.Context, db *store.DB, id store.GroupID) error {
	tasks, err := tasksOf(ctx, db, id)
	if err != nil {
		return err
	}
	h.ids = append(h.ids, tasks...)
	interrupted := cli.Interrupted(ctx, keptGroup(ctx, db, id)) // before the tasks leave
	h.send(ctx, db)
	return interrupted
}

// runForHost measures as measureRun does, stores the tasks at the host, and prints them as the
// host has them. A host that would not store them is an error before the measurement.
func runForHost(ctx context.Context, a *cli.App, f RunFlags, args []string) error {
	address, _ := a.OnHost()
	path, err := session.Outbox(address)
	if err != nil {
		return err
	}
	err = a.AskHost(ctx, func(c *client.Client) error {
		_, err := c.Store(ctx, strings.NewReader(""), false)
		return err
	})
	if err != nil {
		return fmt.Errorf("%w\nNothing was measured", err)
	}
	f.hand = &handOver{host: a, outbox: path, keepUser: f.User != ""}
	local := *a
	local.DB = path
	err = errors.Join(measureRun(ctx, &local, f, args), f.hand.err)
	switch {
	case len(f.hand.sent) == 0 || f.wanted(): // a series prints its comparison
		return err
	case ctx.Err() != nil:
		return f.hand.interrupted(ctx, err)
	}
	return errors.Join(err, showSent(ctx, a, f))
}

// showSent prints the tasks, or their group, that the host has stored.
func showSent(ctx context.Context, a *cli.App, f RunFlags) error {
	numbers := lists.Map(f.hand.sent, func(id store.TaskID) string { return fmt.Sprint(id) })
	db, err := a.OpenDB(ctx, numbers...)
	if err != nil {
		return err
	}
	defer db.Close()
	a.Keep("") // the host has them: OpenDB's text would deny it
	t, err := a.Task(ctx, db, numbers[0])
	if err != nil {
		return err
	}
	if id := t.Group.Group; id != 0 {
		return task.ShowGroup(ctx, a, db, id, true)
	}
	if f.auto {
		return showKernels(ctx, a, db, t.ID)
	}
	return report.ShowTask(a, ctx, db, t.ID, nil)
}

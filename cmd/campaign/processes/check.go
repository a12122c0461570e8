package processes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"google.golang.org/grpc"

	"wattmark/cmd/campaign/examine"
	"wattmark/cmd/campaign/network"
	"wattmark/hostagent/monitorclient"
	"wattmark/store"
)

var states = map[store.State]string{
	store.Running: "half done", store.Complete: "complete", store.Incomplete: "incomplete", store.Untrimmed: "untrimmed",
	store.Failed: "failed",
}

// noTask is the outcome of a run that never had a task.
const noTask = "no task"

// check holds database and monitor against what must be, and returns how the task
// ended.
func (p *place) check(ctx context.Context) (outcome string) {
	outcome = noTask
	tasks := map[string]store.Task{} // by capture
	err := p.look(ctx, func(db *store.DB) error {
		list, err := db.Tasks(ctx, store.Query{})
		for i := range list {
			t, terr := db.Task(ctx, list[i].ID)
			if terr != nil {
				return terr
			}
			outcome, tasks[t.CaptureID] = states[t.State], t
			p.task(ctx, db, &t)
		}
		p.told(list)
		return err
	})
	if err != nil && exists(p.path("power.db")) == nil {
		p.fail("%v", err)
	}
	// The daemon releases what a dead run left behind at its next look.
	if err := p.until(ctx, "release", func() error { return p.released(ctx, tasks) }); err != nil {
		p.fail("%v", err)
	}
	return outcome
}

// task holds a task against itself, and against what was there before.
func (p *place) task(ctx context.Context, db *store.DB, t *store.Task) {
	have := examine.Task(ctx, db, t, nil, p.fail).CRCs
	for no, crc := range p.stored[int64(t.ID)] {
		if got, there := have[no]; !there || got != crc {
			p.fail("task %d: chunk %d was stored when a fault struck, and is not there as it was", t.ID, no)
		}
	}
}

// untouched holds the folders that the services use against what was there before.
func (p *place) untouched() {
	for _, f := range p.planted {
		for _, c := range f.Changed() {
			p.fail("another program's file: %s", c)
		}
	}
	left, err := os.ReadDir(p.path("tmp"))
	if err != nil {
		p.fail("%v", err)
	}
	for _, e := range left {
		if !p.planted[len(p.planted)-1].Own(e.Name()) {
			p.fail("%s is left in the folder of temporary files", e.Name())
		}
	}
}

// told holds the database against what the run told its user.
func (p *place) told(tasks []store.Row) {
	b, err := os.ReadFile(p.path("run.json"))
	var said struct {
		TaskID store.TaskID `json:"task_id"`
		State  string       `json:"state"`
	}
	if err != nil || json.Unmarshal(b, &said) != nil || said.TaskID == 0 {
		return // it was given up before it could say anything
	}
	for i := range tasks {
		if tasks[i].ID == said.TaskID && states[tasks[i].State] == said.State {
			return
		}
	}
	p.fail("the run said that task %d is %s; the database does not", said.TaskID, said.State)
}

// released fails while the monitor keeps a capture whose task has all of it, or one
// that has not ended.
func (p *place) released(ctx context.Context, tasks map[string]store.Task) error {
	return p.ask(func(c *monitorclient.Client) error {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		all, err := c.Captures(ctx)
		for _, x := range all {
			if !x.State.Ended() {
				return fmt.Errorf("capture %s has not ended", x.ID)
			}
			if t, known := tasks[x.ID]; known && t.State != store.Incomplete {
				return fmt.Errorf("the monitor keeps capture %s of a task that is %s", x.ID, states[t.State])
			}
		}
		return err
	})
}

// free fails while somebody has the bench.
func (p *place) free(ctx context.Context) error {
	return p.ask(func(c *monitorclient.Client) error {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		b, err := c.GetBench(ctx)
		if err == nil && b.Holder != "" {
			err = fmt.Errorf("the bench is held by %s", b.Holder)
		}
		return err
	})
}

// ended fails while a task is half done.
func (p *place) ended(ctx context.Context) error {
	return p.look(ctx, func(db *store.DB) error {
		open, err := db.Unfinished(ctx)
		if err == nil && len(open) > 0 {
			err = fmt.Errorf("task %d is half done: %s", open[0].ID, open[0].Reason)
		}
		return err
	})
}

// ask asks the monitor on its own machine, whatever the line does.
func (p *place) ask(f func(*monitorclient.Client) error) error {
	c, err := monitorclient.Dial("passthrough:///"+p.monitor, monitorclient.Options{Patience: time.Nanosecond, Dial: []grpc.DialOption{
		grpc.WithContextDialer(func(ctx context.Context, a string) (net.Conn, error) { return p.dial(ctx, network.Monitor, a) }),
	}})
	if err != nil {
		return err
	}
	return errors.Join(f(c), c.Close())
}

func (p *place) dial(ctx context.Context, s network.Side, address string) (net.Conn, error) {
	if p.net != nil {
		return p.net.Dial(ctx, s, address)
	}
	var d net.Dialer
	return d.DialContext(ctx, "tcp", address)
}

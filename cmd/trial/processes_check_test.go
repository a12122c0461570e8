package trial

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/wattmark/wattmark/hostagent/monitorclient"
	"github.com/wattmark/wattmark/store"
	"google.golang.org/grpc"
)

// noTask is the outcome of a run that never had a task.
const noTask = "no task"

// check checks database and monitor, and returns the state in which the task
// ended.
func (p *processPlace) check(ctx context.Context) (outcome string) {
	outcome = noTask
	tasks := map[string]store.Task{} // by capture
	err := p.look(ctx, func(db *store.DB) error {
		list, err := db.Tasks(ctx, store.Query{})
		for i := range list {
			t, terr := db.Task(ctx, list[i].ID)
			if terr != nil {
				return terr
			}
			outcome, tasks[t.CaptureID] = t.State.String(), t
			p.task(ctx, db, &t)
		}
		p.told(list)
		return err
	})
	if err != nil && exists(p.path("power.db")) == nil {
		p.fail("%v", err)
	}
	// The daemon releases a dead run's captures at its next look.
	if err := p.until(ctx, "release", func() error { return p.released(ctx, tasks) }); err != nil {
		p.fail("%v", err)
	}
	return outcome
}

// task compares a task with itself, and with its chunks at the last fault.
func (p *processPlace) task(ctx context.Context, db *store.DB, t *store.Task) {
	have := Examine(ctx, db, t, nil, p.fail).CRCs
	for no, crc := range p.stored[int64(t.ID)] {
		if got, there := have[no]; !there || got != crc {
			p.fail("task %d: chunk %d was stored when a fault struck, and is not there as it was", t.ID, no)
		}
	}
}

// untouched compares the services' folders with their content before the start.
func (p *processPlace) untouched() {
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

// told compares the database with the run's output.
func (p *processPlace) told(tasks []store.Row) {
	b, err := os.ReadFile(p.path("run.json"))
	var said struct {
		TaskID store.TaskID `json:"task_id"`
		State  string       `json:"state"`
	}
	if err != nil || json.Unmarshal(b, &said) != nil || said.TaskID == 0 {
		return // it ended before it had a result
	}
	for i := range tasks {
		if tasks[i].ID == said.TaskID && tasks[i].State.String() == said.State {
			return
		}
	}
	p.fail("the run said that task %d is %s; the database does not", said.TaskID, said.State)
}

// released fails while the monitor keeps a capture whose task has all of it, or one
// that has not ended.
func (p *processPlace) released(ctx context.Context, tasks map[string]store.Task) error {
	return p.ask(func(c *monitorclient.Client) error {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		all, err := c.Captures(ctx)
		for _, x := range all {
			if !x.State.Ended() {
				return fmt.Errorf("capture %s has not ended", x.ID)
			}
			if t, known := tasks[x.ID]; known && t.State != store.Incomplete {
				return fmt.Errorf("the monitor keeps capture %s of a task that is %s", x.ID, t.State)
			}
		}
		return err
	})
}

// free fails while somebody has the bench.
func (p *processPlace) free(ctx context.Context) error {
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
func (p *processPlace) ended(ctx context.Context) error {
	return p.look(ctx, func(db *store.DB) error {
		open, err := db.Unfinished(ctx)
		if err == nil && len(open) > 0 {
			err = fmt.Errorf("task %d is half done: %s", open[0].ID, open[0].Reason)
		}
		return err
	})
}

// ask asks the monitor on its own machine, whatever the line does.
func (p *processPlace) ask(f func(*monitorclient.Client) error) error {
	c, err := monitorclient.Dial("passthrough:///"+p.monitor,
		monitorclient.Options{Patience: time.Nanosecond, Dial: []grpc.DialOption{
			grpc.WithContextDialer(func(ctx context.Context, a string) (net.Conn,
				error,
			) {
				return p.dial(ctx, MonitorSide, a)
			}),
		}})
	if err != nil {
		return err
	}
	return errors.Join(f(c), c.Close())
}

func (p *processPlace) dial(ctx context.Context, s Side, address string) (net.Conn, error) {
	if p.net != nil {
		return p.net.Dial(ctx, s, address)
	}
	var d net.Dialer
	return d.DialContext(ctx, "tcp", address)
}

// holding is the resources of an idle process.
type holding struct {
	goroutines, sockets int
	stacks              string   // of the goroutines
	captures            []string // files of captures in the spool
}

// looks is the number of looks at a service: its periodic work comes and goes.
const looks = 5

// remember looks at the services before anything happens.
func (p *processPlace) remember(ctx context.Context) error {
	for _, name := range []string{"monitor", "host"} {
		if p.all[name] == nil {
			continue
		}
		for range looks {
			err := p.until(ctx, "the state of "+name, func() error {
				h, err := p.holds(ctx, name)
				if h.goroutines > p.rest[name].goroutines {
					p.rest[name] = h
				}
				return err
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// leaks fails when a service, also one that was started anew, comes to hold more than
// such a one did before anything happened.
func (p *processPlace) leaks(ctx context.Context) {
	for name, before := range p.rest {
		var now holding
		err := p.until(ctx, "the release of what "+name+" holds", func() (err error) {
			now, err = p.holds(ctx, name)
			switch {
			case err != nil:
				return err
			case now.goroutines > before.goroutines:
				return fmt.Errorf("%d goroutines, %d before", now.goroutines, before.goroutines)
			case now.sockets > before.sockets:
				return fmt.Errorf("%d sockets, %d before", now.sockets, before.sockets)
			case len(now.captures) > 0:
				return fmt.Errorf("open files of captures: %v", now.captures)
			}
			return nil
		})
		if err != nil {
			stacks := "before:\n" + before.stacks + "\nafter:\n" + now.stacks
			p.fail("%v", errors.Join(err, os.WriteFile(p.path(name+".goroutines"), []byte(stacks), 0o600)))
		}
	}
}

// holds looks at a service now.
func (p *processPlace) holds(ctx context.Context, name string) (h holding, err error) {
	if h.goroutines, h.stacks, err = p.goroutines(ctx, name); err != nil {
		return h, err
	}
	all, err := Descriptors(p.all[name].Cmd.Process.Pid)
	for _, to := range all {
		switch {
		case strings.HasPrefix(to, "socket:"):
			h.sockets++
		case strings.HasPrefix(to, p.path("spool")) && filepath.Base(to) != ".lock" && to != p.path("spool"):
			h.captures = append(h.captures, to)
		}
	}
	return h, err
}

// goroutines returns the number of a service's goroutines, and their stacks.
func (p *processPlace) goroutines(ctx context.Context, name string) (n int, stacks string, err error) {
	if stacks, err = p.get(ctx, name, "/debug/pprof/goroutine?debug=1"); err != nil {
		return 0, "", err
	}
	if _, err := fmt.Sscanf(stacks, "goroutine profile: total %d", &n); err != nil {
		return 0, "", fmt.Errorf("%s tells no number of goroutines: %w", name, err)
	}
	return n, stacks, nil
}

// get reads a page of a service's web address, on its own machine.
func (p *processPlace) get(ctx context.Context, name, path string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	side := machines[name]
	address := map[Side]string{MonitorSide: p.monitorWeb, HostSide: p.hostWeb}[side]
	c := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, a string) (net.Conn, error) {
			return p.dial(ctx, side, a)
		},
	}}
	return Get(ctx, &c, "http://"+address+path)
}

package processes

import (
	"context"
	"errors"
	"net"
	"os"
	"syscall"

	"wattmark/cmd/campaign/crowd"
	"wattmark/cmd/campaign/network"
	"wattmark/hostagent/monitorclient"
	"wattmark/store"
)

// strike makes a fault happen, and mends it when it is over.
func (p *place) strike(ctx context.Context, f Fault) error {
	if err := p.snapshot(ctx); err != nil {
		return err
	}
	if f.target != "" {
		return p.signal(ctx, f)
	}
	if f.crowded {
		return p.crowd(ctx)
	}
	pull := func(up bool) (err error) {
		for _, s := range f.plug {
			err = errors.Join(err, p.net.SetLink(s, up))
		}
		return err
	}
	if err := pull(false); err != nil {
		return err
	}
	p.net.SetWeather(f.weather)
	wait(ctx, f.Hold)
	p.net.SetWeather(network.Weather{})
	return pull(true)
}

// signal signals a process, and brings it back.
func (p *place) signal(ctx context.Context, f Fault) error {
	c := p.all[f.target]
	_ = c.Process.Signal(f.signal) // a run may have ended
	wait(ctx, f.Hold)
	if f.signal == syscall.SIGSTOP {
		_ = c.Process.Signal(syscall.SIGCONT)
		return nil
	}
	if f.target == "run" {
		return nil
	}
	if err := p.ends(ctx, f.target); err != nil {
		return err
	}
	if f.target == "meter" {
		// Its terminal is gone; the new one has another number, under the same name.
		_ = os.Remove(p.path("meter"))
		_ = os.Remove(p.path("gpu"))
	}
	return p.start(f.target)
}

// crowd lets idle connections come to every address of both services, from their own
// machines. While they stand, the services answer themselves and everybody else there.
func (p *place) crowd(ctx context.Context) error {
	for name, addresses := range map[string][]string{"monitor": {p.monitor, p.monitorWeb}, "host": {p.host, p.hostWeb}} {
		var dialers []func(context.Context) (net.Conn, error)
		for _, a := range addresses {
			dialers = append(dialers, func(ctx context.Context) (net.Conn, error) { return p.dial(ctx, machines[name], a) })
		}
		n := 0
		for range dialers { // as many to each
			c, err := crowd.Gather(ctx, func(phases int) int { n++; return n % phases }, dialers...)
			if err != nil {
				return err
			}
			defer c.Leave()
		}
	}
	for _, name := range []string{"monitor", "host"} {
		signs := p.all[name].signs.Load()
		err := p.until(ctx, "a sign of life of "+name+" in a crowd", func() error {
			if _, err := p.get(ctx, name, "/metrics"); err != nil {
				return err
			}
			if p.all[name].signs.Load() < signs+2 {
				return errors.New("it does not tell its service manager that it lives")
			}
			return nil
		})
		if err != nil {
			p.fail("%v", err)
		}
	}
	if err := p.until(ctx, "the bench's answer in a crowd", func() error {
		return p.ask(func(c *monitorclient.Client) error { _, err := c.GetBench(ctx); return err })
	}); err != nil {
		p.fail("%v", err)
	}
	return nil
}

// snapshot remembers which chunks the database has: they must stay.
func (p *place) snapshot(ctx context.Context) error {
	if exists(p.path("power.db")) != nil {
		return nil
	}
	err := p.look(ctx, func(db *store.DB) error {
		tasks, err := db.Tasks(ctx, store.Query{})
		if err != nil {
			return err
		}
		for i := range tasks {
			have := map[uint64]uint32{}
			for c, err := range db.Chunks(ctx, tasks[i].ID, 0) {
				if err != nil {
					return err
				}
				have[c.No] = c.CRC
			}
			p.stored[int64(tasks[i].ID)] = have
		}
		return nil
	})
	if err != nil && ctx.Err() == nil {
		return nil // it is being made: nothing was acknowledged yet
	}
	return err
}

func (p *place) look(ctx context.Context, f func(*store.DB) error) error {
	db, err := store.OpenReadOnly(ctx, p.path("power.db"))
	if err != nil {
		return err
	}
	return errors.Join(f(db), db.Close())
}

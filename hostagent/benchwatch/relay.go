package benchwatch

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// Relay watches the benches of a host. Its methods are safe for concurrent use.
type Relay struct {
	cfg     Config
	benches []*bench
	stopped chan struct{} // closed when Run ends
}

// New prepares a relay. Monitors of the same address are one bench.
func New(cfg Config) *Relay {
	r := &Relay{cfg: cfg.withDefaults(), stopped: make(chan struct{})}
	seen := map[string]bool{}
	for _, m := range cfg.Monitors {
		if a := m.Address(); !seen[a] {
			seen[a] = true
			r.benches = append(r.benches, newBench(&r.cfg, m))
		}
	}
	return r
}

func (r *Relay) String() string { return fmt.Sprintf("watch of %d benches", len(r.benches)) }

// Run watches for those who want it until ctx ends; then it ends their watches
// with ErrStopped, and returns nil.
func (r *Relay) Run(ctx context.Context) error {
	defer close(r.stopped)
	var g errgroup.Group
	for _, b := range r.benches {
		g.Go(func() error {
			b.run(ctx)
			return nil
		})
	}
	return g.Wait()
}

// States returns all benches in the order of the configuration. Those that nobody
// watches are asked, with their instruments, all at once and at most once a Poll.
func (r *Relay) States(ctx context.Context) []State {
	out := make([]State, len(r.benches))
	var wg sync.WaitGroup
	for i, b := range r.benches {
		wg.Go(func() { out[i] = b.stateNow(ctx) })
	}
	wg.Wait()
	return out
}

// State returns a bench, known by its address or, where only one has it, by its
// name. Errors wrap ErrUnknown.
func (r *Relay) State(ctx context.Context, name string) (State, error) {
	b, err := r.find(name)
	if err != nil {
		return State{}, err
	}
	return b.stateNow(ctx), nil
}

func (r *Relay) find(name string) (*bench, error) {
	var named []*bench
	var all []string
	for _, b := range r.benches {
		if b.address == name {
			return b, nil
		}
		if s := b.state(); s.Bench.Name == name {
			named = append(named, b)
		}
		all = append(all, b.address)
	}
	switch {
	case len(named) == 1:
		return named[0], nil
	case len(named) > 1:
		return nil, fmt.Errorf("%w: %d benches are called %q: use the address of the monitor", ErrUnknown, len(named), name)
	case len(all) == 0:
		return nil, fmt.Errorf("%w: %q: this host was told of none (wattmark host --monitor)", ErrUnknown, name)
	}
	return nil, fmt.Errorf("%w: %q: this host was told of %s (wattmark host --monitor)", ErrUnknown, name, strings.Join(all, ", "))
}

// Watch tells see what a bench is and measures, of all where name is empty, until
// ctx ends (its error), see fails (its error), or Run ends (ErrStopped). It begins
// with the state and the history of each. Errors also wrap ErrUnknown.
func (r *Relay) Watch(ctx context.Context, name string, o Options, see func(News) error) error {
	list := r.benches
	if name != "" {
		b, err := r.find(name)
		if err != nil {
			return err
		}
		list = []*bench{b}
	}
	box := newMailbox()
	for _, b := range list {
		b.join(box, o.Idle)
		defer b.leave(box)
	}
	told := map[*bench]time.Time{}
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		news, next := box.take(time.Now(), o.Every, told)
		for _, n := range news {
			if err := see(n); err != nil {
				return err
			}
		}
		wake := box.wake
		if !next.IsZero() {
			timer.Reset(time.Until(next))
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-r.stopped:
			return ErrStopped
		case <-wake:
		case <-timer.C:
		}
	}
}

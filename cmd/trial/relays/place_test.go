package relays

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wattmark/wattmark/cmd/trial/internal/harness"
	"github.com/wattmark/wattmark/cmd/trial/powercut"
	"github.com/wattmark/wattmark/store"
	"github.com/wattmark/wattmark/store/cluster"
	"github.com/wattmark/wattmark/store/relay"
)

// place is a host with a relay, a node, and a store.
type place struct {
	o   Options
	s   Schedule
	dir string
	rng *rand.Rand

	ctx   context.Context
	stop  context.CancelFunc
	runs  sync.WaitGroup // node and store
	errs  chan error
	bus   *relay.Bus
	url   string
	other *store.DB // of which tasks come
	store *store.DB

	mu   sync.Mutex // one look of the relay at a time
	path string     // of the host's database, as it is now
	disk *powercut.Disk
	host *store.DB // the relay's
	ship *relay.Shipper

	left       atomic.Int32 // syncs until the fault strikes
	strike     func()
	violations []string
}

func newPlace(ctx context.Context, o Options, s Schedule, dir string) (p *place, err error) {
	if o.Patience == 0 {
		o.Patience = time.Minute
	}
	p = &place{o: o, s: s, dir: dir, rng: rand.New(rand.NewPCG(s.Seed, 2)), errs: make(chan error, 2)}
	p.ctx, p.stop = context.WithCancel(ctx)
	defer func() {
		if err != nil {
			err = errors.Join(err, p.close())
		}
	}()
	n, err := cluster.Start(cluster.Config{
		Name: "n1", Dir: filepath.Join(dir, "node"), Listen: "127.0.0.1:0", Sync: time.Minute,
		Streams: relay.StreamOptions{Replicas: 1, Partitions: 1, Duplicates: time.Minute},
	})
	if err != nil {
		return p, err
	}
	p.runs.Go(func() { p.errs <- n.Run(p.ctx) })
	if err = n.Ready(ctx); err != nil {
		return p, err
	}
	p.url = n.URL()
	if p.bus, err = relay.Dial(ctx, relay.Options{Servers: n.URL(), Name: "campaign"}); err != nil {
		return p, err
	}
	if p.other, err = openFilled(ctx, filepath.Join(dir, "other.db")); err != nil {
		return p, err
	}
	if p.store, err = openEmpty(ctx, filepath.Join(dir, "store.db")); err != nil {
		return p, err
	}
	if err = writeEmpty(filepath.Join(dir, "host.db")); err != nil {
		return p, err
	}
	c := &relay.Consumer{Bus: p.bus, DB: p.store, Name: "store", Retry: 10 * time.Millisecond}
	if o.Broken == KeepTrying {
		c.Retry = time.Hour
	}
	p.runs.Go(func() { p.errs <- c.Run(p.ctx) })
	return p, p.enter(filepath.Join(dir, "host.db"))
}

// enter starts the relay on the host's database where it lies now.
func (p *place) enter(path string) (err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.path = path; p.s.deed != fileIn { // other processes' files are not watched
		if p.disk, err = powercut.Watch(path, powercut.Options{Sync: p.sync}); err != nil {
			return err
		}
	}
	if p.host, err = store.Open(p.ctx, path); err != nil {
		return err
	}
	p.ship = &relay.Shipper{Publisher: &relay.Publisher{DB: p.host, Bus: p.bus, Program: "campaign"}}
	return nil
}

// leave ends the relay.
func (p *place) leave() (err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.host != nil {
		err = p.host.Close()
	}
	if p.disk != nil {
		p.disk.Forget()
	}
	p.host, p.disk = nil, nil
	return err
}

func (p *place) close() error {
	err := p.leave()
	p.stop()
	p.runs.Wait()
	for range len(p.errs) {
		err = errors.Join(err, <-p.errs)
	}
	if p.bus != nil {
		p.bus.Close()
	}
	for _, d := range []*store.DB{p.other, p.store} {
		if d != nil {
			err = errors.Join(err, d.Close())
		}
	}
	return err
}

// sync comes before each sync of the host's database.
func (p *place) sync() powercut.Fault {
	if p.left.Add(-1) == 0 {
		p.strike()
	}
	return powercut.None
}

// look lets the relay publish what it finds, as it does every two seconds. What it cannot
// write while another writes, it writes the next time.
func (p *place) look(within time.Duration) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ship == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(p.ctx, within)
	defer cancel()
	return p.ship.All(ctx)
}

func (p *place) fail(format string, a ...any) {
	p.violations = append(p.violations, fmt.Sprintf(format, a...))
}

// play lives through the schedule, and returns the outcome of the tasks that came in.
func (p *place) play() (outcome string, err error) {
	if p.s.poison != 0 {
		return p.poisoned()
	}
	if err := p.do(p.s.end); err != nil {
		return "", err
	}
	if p.s.Again {
		if err := p.do(ends); err != nil {
			p.fail("it cannot be done again: %v", err)
		}
	}
	want, err := p.host.Tasks(p.ctx, store.Query{})
	if err != nil {
		return "", err
	}
	if (p.s.Again || p.s.end == ends) && len(want) < p.s.deed.tasks() {
		p.fail("%d of %d tasks have come in", len(want), p.s.deed.tasks())
	}
	if err := p.until("the relay to have nothing left", func() error {
		err := p.look(p.o.Patience)
		left, lerr := p.host.Untagged(p.ctx, relay.TagReplicated, 1)
		if err = errors.Join(err, lerr); err == nil && len(left) > 0 {
			err = fmt.Errorf("task %d is not published", left[0])
		}
		return err
	}); err != nil {
		p.fail("%v", err)
	}
	return p.check(want)
}

// check compares the store with the host: each task there is whole, and all that the host has
// is there, once.
func (p *place) check(want []store.Row) (outcome string, err error) {
	for i := range want {
		t, err := p.host.Task(p.ctx, want[i].ID)
		if err != nil {
			return "", err
		}
		here := harness.Examine(p.ctx, p.host, &t, nil, p.fail)
		if err := p.until("task "+t.Name, func() error { return p.arrived(&t, here) }); err != nil {
			p.fail("%v", err)
		}
	}
	list, err := p.store.Tasks(p.ctx, store.Query{})
	for i := range list {
		t, terr := p.store.Task(p.ctx, list[i].ID)
		if terr != nil {
			return "", terr
		}
		got := harness.Examine(p.ctx, p.store, &t, nil, p.fail)
		if t.State != store.Complete || got.Scans != p.s.deed.scans() {
			p.fail("the store has task %s of %s in state %d with %d of %d scans, for good: %s", t.Name, t.User, t.State,
				got.Scans, p.s.deed.scans(), t.Reason)
		}
	}
	outcome = outcomes[0]
	if len(list) == 0 {
		outcome = outcomes[1]
	}
	return outcome, err
}

// arrived fails until the store has a task exactly once, with the same samples.
func (p *place) arrived(t *store.Task, here harness.Samples) error {
	list, err := p.store.Tasks(p.ctx, store.Query{})
	if err != nil {
		return err
	}
	n := 0
	for i := range list {
		x, err := p.store.Task(p.ctx, list[i].ID)
		if err != nil {
			return err
		}
		if relay.IdentityOf(&x) != relay.IdentityOf(t) {
			continue
		}
		if n++; harness.Examine(p.ctx, p.store, &x, nil, func(string, ...any) {}).CRC != here.CRC {
			return fmt.Errorf("it has other samples at the store")
		}
	}
	if n != 1 {
		return fmt.Errorf("the store has it %d times", n)
	}
	return nil
}

// until waits until f is content.
func (p *place) until(event string, f func() error) error {
	return harness.Await(p.ctx, event, p.o.Patience, f)
}

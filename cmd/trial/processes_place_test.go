package trial

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/wattmark/wattmark/hostagent/monitorclient"
	"github.com/wattmark/wattmark/internal/freeport"
	"github.com/wattmark/wattmark/store"
)

// processPlace is one bench of processes.
type processPlace struct {
	program, dir                       string
	monitor, monitorWeb, host, hostWeb string     // addresses
	planted                            []*Planted // in every folder that the services use
	net                                *Network   // nil: all on this machine's loopback
	line                               sync.WaitGroup
	cut                                context.CancelFunc
	lineErr                            error

	all        map[string]*process
	rest       map[string]holding // of processes before anything happened
	stored     map[int64]map[uint64]uint32
	violations []string
}

// process is one that was started.
type process struct {
	*Process
	signs atomic.Int64 // of life, to its service manager
}

func newProcessPlace(ctx context.Context, o ProcessOptions, seed uint64) (*processPlace, error) {
	own, err := os.MkdirTemp(o.Dir, fmt.Sprintf("processes%d-", seed))
	if err != nil {
		return nil, err
	}
	p := &processPlace{
		program: o.Program, dir: own, all: map[string]*process{}, rest: map[string]holding{},
		stored:  map[int64]map[uint64]uint32{},
		monitor: MonitorSide.Address() + ":7551", monitorWeb: "127.0.0.1:7554", host: "127.0.0.1:7552",
		hostWeb: "127.0.0.1:7553",
	}
	for _, f := range []string{"", "spool", "sockets", "tmp"} {
		planted, err := Plant(p.path(f))
		if err != nil {
			return nil, err
		}
		p.planted = append(p.planted, planted)
	}
	if o.Together {
		for _, a := range []*string{&p.monitor, &p.monitorWeb, &p.host, &p.hostWeb} {
			if *a, err = freeport.Address(); err != nil {
				return nil, err
			}
		}
		return p, nil
	}
	if p.net, err = NewNetwork(fmt.Sprintf("wmcampaign%d-%d", os.Getpid(), seed)); err != nil {
		return nil, errors.Join(err, os.RemoveAll(own))
	}
	ctx, p.cut = context.WithCancel(context.WithoutCancel(ctx))
	p.line.Go(func() { p.lineErr = p.net.Run(ctx) })
	return p, nil
}

// open starts all but the run.
func (p *processPlace) open(ctx context.Context, daemon bool) error {
	if err := errors.Join(p.start("meter"), p.until(ctx, "the meter",
		func() error { return exists(p.path("meter"), p.path("gpu")) })); err != nil {
		return err
	}
	if err := errors.Join(p.start("monitor"), p.until(ctx, "the monitor",
		func() error { return p.free(ctx) })); err != nil {
		return err
	}
	if daemon {
		if err := p.start("host"); err != nil {
			return err
		}
	}
	return p.remember(ctx)
}

func (p *processPlace) path(name string) string { return filepath.Join(p.dir, name) }

// args are how each process is started.
func (p *processPlace) args(name string) []string {
	switch name {
	case "meter":
		return []string{"emulate", "powersensor3", "--link", p.path("meter"), "--gpu", p.path("gpu")}
	case "monitor":
		return []string{
			"monitor", "--instrument", "powersensor3", "--port", p.path("meter"), "--spool", p.path("spool"), "--listen",
			p.monitor,
			"--insecure", "--http", p.monitorWeb, "--pprof", "--drain", "1s",
		}
	case "run":
		return []string{
			"run", "--gpu", "sim:" + p.path("gpu"), "--monitor", p.monitor, "--db", p.path("power.db"), "--warm-up", "50ms",
			"--benchmark", "memory", "--duration", "300ms", "--name", "hit", "--lease", lease.String(), "--no-methods", "--json",
		}
	}
	return []string{
		"host", "--db", p.path("power.db"), "--monitor", p.monitor, "--listen", p.host, "--socket",
		p.path("sockets/host.sock"), "--recover-every", "200ms",
		"--http", p.hostWeb, "--pprof",
	}
}

// machines are where the processes run. The emulated meter and its card are beside
// the monitor; the card is driven through a file, as over a bus.
var machines = map[string]Side{
	"meter": MonitorSide, "monitor": MonitorSide, "run": HostSide,
	"host": HostSide,
}

func (p *processPlace) start(name string) error {
	c := exec.Command(p.program, p.args(name)...)
	if p.net != nil {
		c = p.net.Command(machines[name], p.program, p.args(name)...)
	}
	q := &process{}
	manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{
		Name: p.path(fmt.Sprintf("%s.%p", name, q)),
		Net:  "unixgram",
	})
	if err != nil {
		return err
	}
	c.Env = append(os.Environ(), "NOTIFY_SOCKET="+manager.LocalAddr().String(), "WATCHDOG_USEC=400000",
		"TMPDIR="+p.path("tmp"))
	if name == "run" {
		out, err := os.Create(p.path("run.json"))
		if err != nil {
			return err
		}
		defer out.Close()
		c.Stdout = out
	}
	if q.Process, err = Start(c, p.path(name+".log")); err != nil {
		return errors.Join(err, manager.Close())
	}
	go func() {
		b := make([]byte, 256)
		for n, err := manager.Read(b); err == nil; n, err = manager.Read(b) {
			if bytes.Contains(b[:n], []byte("WATCHDOG=1")) {
				q.signs.Add(1)
			}
		}
	}()
	go func() {
		<-q.Ended
		_ = manager.Close()
	}()
	p.all[name] = q
	return nil
}

// ends waits until a process has ended by itself.
func (p *processPlace) ends(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, processPatience)
	defer cancel()
	select {
	case <-p.all[name].Ended:
		delete(p.all, name)
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%s did not end within %v", name, processPatience)
	}
}

// end kills the remaining processes, and removes all files; with keep the folder stays
// for inspection.
func (p *processPlace) end(keep bool) error {
	for _, c := range p.all {
		c.Stop(syscall.SIGKILL)
	}
	var err error
	if p.net != nil {
		p.cut()
		p.line.Wait()
		err = errors.Join(p.lineErr, p.net.Close())
	}
	if keep {
		p.fail("the folder stays: %s", p.dir)
		return err
	}
	return errors.Join(err, os.RemoveAll(p.dir))
}

func (p *processPlace) fail(format string, a ...any) {
	p.violations = append(p.violations, fmt.Sprintf(format, a...))
}

// processPatience bounds each wait: far more than is ever needed, also on a busy machine.
const processPatience = 90 * time.Second

// until waits until f is content.
func (p *processPlace) until(ctx context.Context, event string, f func() error) error {
	return Await(ctx, event, processPatience, f)
}

func exists(paths ...string) (err error) {
	for _, p := range paths {
		_, e := os.Stat(p)
		err = errors.Join(err, e)
	}
	return err
}

// strike makes a fault happen, and mends it when it is over.
func (p *processPlace) strike(ctx context.Context, f ProcessFault) error {
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
	Wait(ctx, f.Hold)
	p.net.SetWeather(Weather{})
	return pull(true)
}

// signal signals a process, and brings it back.
func (p *processPlace) signal(ctx context.Context, f ProcessFault) error {
	c := p.all[f.target]
	_ = c.Cmd.Process.Signal(f.signal) // a run may have ended
	Wait(ctx, f.Hold)
	if f.signal == syscall.SIGSTOP {
		_ = c.Cmd.Process.Signal(syscall.SIGCONT)
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
func (p *processPlace) crowd(ctx context.Context) error {
	for name, addresses := range map[string][]string{"monitor": {p.monitor, p.monitorWeb}, "host": {p.host, p.hostWeb}} {
		var dialers []func(context.Context) (net.Conn, error)
		for _, a := range addresses {
			dialers = append(dialers, func(ctx context.Context) (net.Conn, error) { return p.dial(ctx, machines[name], a) })
		}
		n := 0
		for range dialers { // as many to each
			c, err := Gather(ctx, func(phases int) int { n++; return n % phases }, dialers...)
			if err != nil {
				return err
			}
			defer c.Leave()
		}
	}
	for _, name := range []string{"monitor", "host"} {
		signs := p.all[name].signs.Load()
		err := p.until(ctx, "a sign of life of "+name+" in a crowd", func() error {
			if _, err := p.get(ctx, name, "/debug/pprof/cmdline"); err != nil { // no scrape, which would watch the meter
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
func (p *processPlace) snapshot(ctx context.Context) error {
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

func (p *processPlace) look(ctx context.Context, f func(*store.DB) error) error {
	db, err := store.OpenReadOnly(ctx, p.path("power.db"))
	if err != nil {
		return err
	}
	return errors.Join(f(db), db.Close())
}

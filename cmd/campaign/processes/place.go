package processes

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
	"time"

	"wattmark/cmd/campaign/foreign"
	"wattmark/cmd/campaign/network"
)

// place is one bench of processes.
type place struct {
	program, dir                       string
	monitor, monitorWeb, host, hostWeb string             // addresses
	planted                            []*foreign.Planted // in every folder that the services use
	net                                *network.Network   // nil: all on this machine's loopback
	line                               sync.WaitGroup
	cut                                context.CancelFunc
	lineErr                            error

	all        map[string]*process
	rest       map[string]holding // of processes before anything happened
	stored     map[int64]map[uint64]uint32
	violations []string
}

// process is one that was started; ended is closed when it has.
type process struct {
	*exec.Cmd
	ended chan struct{}
	signs atomic.Int64 // of life, to its service manager
}

func newPlace(ctx context.Context, o Options, seed uint64) (*place, error) {
	own, err := os.MkdirTemp(o.Dir, fmt.Sprintf("processes%d-", seed))
	if err != nil {
		return nil, err
	}
	p := &place{
		program: o.Program, dir: own, all: map[string]*process{}, rest: map[string]holding{}, stored: map[int64]map[uint64]uint32{},
		monitor: network.Monitor.Address() + ":7551", monitorWeb: "127.0.0.1:7554", host: "127.0.0.1:7552", hostWeb: "127.0.0.1:7553",
	}
	for _, f := range []string{"", "spool", "sockets", "tmp"} {
		planted, err := foreign.Plant(p.path(f))
		if err != nil {
			return nil, err
		}
		p.planted = append(p.planted, planted)
	}
	if o.Together {
		for _, a := range []*string{&p.monitor, &p.monitorWeb, &p.host, &p.hostWeb} {
			if *a, err = freePort(); err != nil {
				return nil, err
			}
		}
		return p, nil
	}
	if p.net, err = network.New(fmt.Sprintf("wmcampaign%d-%d", os.Getpid(), seed)); err != nil {
		return nil, errors.Join(err, os.RemoveAll(own))
	}
	ctx, p.cut = context.WithCancel(context.WithoutCancel(ctx))
	p.line.Go(func() { p.lineErr = p.net.Run(ctx) })
	return p, nil
}

// open starts all but the run.
func (p *place) open(ctx context.Context, daemon bool) error {
	if err := errors.Join(p.start("meter"), p.until(ctx, "the meter", func() error { return exists(p.path("meter"), p.path("gpu")) })); err != nil {
		return err
	}
	if err := errors.Join(p.start("monitor"), p.until(ctx, "the monitor", func() error { return p.free(ctx) })); err != nil {
		return err
	}
	if daemon {
		if err := p.start("host"); err != nil {
			return err
		}
	}
	return p.remember(ctx)
}

func (p *place) path(name string) string { return filepath.Join(p.dir, name) }

// args are how each process is started.
func (p *place) args(name string) []string {
	switch name {
	case "meter":
		return []string{"emulate", "powersensor3", "--link", p.path("meter"), "--gpu", p.path("gpu")}
	case "monitor":
		return []string{
			"monitor", "--instrument", "powersensor3", "--port", p.path("meter"), "--spool", p.path("spool"), "--listen", p.monitor,
			"--insecure", "--http", p.monitorWeb, "--pprof", "--drain", "1s",
		}
	case "run":
		return []string{
			"run", "--gpu", "sim:" + p.path("gpu"), "--monitor", p.monitor, "--db", p.path("power.db"), "--warm-up", "50ms",
			"--benchmark", "memory", "--duration", "300ms", "--name", "hit", "--lease", lease.String(), "--no-methods", "--json",
		}
	}
	return []string{
		"host", "--db", p.path("power.db"), "--monitor", p.monitor, "--listen", p.host, "--socket", p.path("sockets/host.sock"), "--recover-every", "200ms",
		"--http", p.hostWeb, "--pprof",
	}
}

// machines are where the processes run. The emulated meter and its card are beside
// the monitor; the card is driven through a file, as over a bus.
var machines = map[string]network.Side{"meter": network.Monitor, "monitor": network.Monitor, "run": network.Host, "host": network.Host}

func (p *place) start(name string) error {
	c := exec.Command(p.program, p.args(name)...)
	if p.net != nil {
		c = p.net.Command(machines[name], p.program, p.args(name)...)
	}
	log, err := os.OpenFile(p.path(name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	c.Stderr = log
	q := &process{Cmd: c, ended: make(chan struct{})}
	manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: p.path(fmt.Sprintf("%s.%p", name, q)), Net: "unixgram"})
	if err != nil {
		return err
	}
	c.Env = append(os.Environ(), "NOTIFY_SOCKET="+manager.LocalAddr().String(), "WATCHDOG_USEC=400000", "TMPDIR="+p.path("tmp"))
	if name == "run" {
		out, err := os.Create(p.path("run.json"))
		if err != nil {
			return err
		}
		defer out.Close()
		c.Stdout = out
	}
	if err := c.Start(); err != nil {
		return errors.Join(fmt.Errorf("start %s: %w", name, err), manager.Close())
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
		_ = c.Wait() // how it ended is in the database, or was asked for
		_ = manager.Close()
		close(q.ended)
	}()
	p.all[name] = q
	return nil
}

// ends waits until a process has ended by itself.
func (p *place) ends(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	select {
	case <-p.all[name].ended:
		delete(p.all, name)
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%s did not end within %v", name, patience)
	}
}

// end kills what is left, and removes all that was made, but for the folder where
// it is to be looked at.
func (p *place) end(keep bool) error {
	for _, c := range p.all {
		_ = c.Process.Kill()
		<-c.ended
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

func (p *place) fail(format string, a ...any) {
	p.violations = append(p.violations, fmt.Sprintf(format, a...))
}

// patience bounds each wait: far more than is ever needed, also on a busy machine.
const patience = 90 * time.Second

// until asks again and again until f is content.
func (p *place) until(ctx context.Context, what string, f func() error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		err := f()
		if err == nil {
			return nil
		}
		if wait(ctx, 20*time.Millisecond); ctx.Err() != nil {
			return fmt.Errorf("%s did not come: %w", what, err)
		}
	}
}

func wait(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

func exists(paths ...string) (err error) {
	for _, p := range paths {
		_, e := os.Stat(p)
		err = errors.Join(err, e)
	}
	return err
}

func freePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

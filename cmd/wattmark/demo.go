package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"wattmark/hostagent"
	"wattmark/hostagent/measurement"
	"wattmark/hostagent/monitorclient"
	"wattmark/hostagent/nvml"
	"wattmark/monitor"
	"wattmark/store"
)

// demoFlags are the flags of demo.
type demoFlags struct {
	gpu, imperfect     bool
	instrument, port   string
	selector           string
	benchmark          string
	duration, pulse    time.Duration
	seed               uint64
	user, name, listen string
}

func (a *app) demoCmd() *cobra.Command {
	var f demoFlags
	c := &cobra.Command{
		Use: "demo", Short: "Measure one task, whole bench included", Args: cobra.NoArgs,
		Long: `Measure one task from end to end on this machine: a meter, a monitor and a host
agent that talk over TCP, markers, a kernel, and the task database.

Without flags everything is software: an emulated PowerSensor3 on a real
pseudo-terminal reads an emulated 300 W card that a simulated GPU loads. The
card knows the energy it drew, so the result can be compared with the truth.

With --gpu a real GPU runs the markers and the kernel, and its own sensor serves
as the meter (--instrument nvml), or a real one does (--instrument and --port).`,
		Example: `  wattmark demo
  wattmark demo --pulse 50ms                      # what NVML gets wrong
  wattmark demo --gpu --instrument nvml --benchmark memory --duration 5s
  wattmark demo --gpu --instrument powersensor3 --port /dev/ttyACM0`,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.demo(cmd.Context(), f) },
	}
	fl := c.Flags()
	fl.BoolVar(&f.gpu, "gpu", false, "use a real GPU")
	fl.StringVar(&f.selector, "device", "", "GPU by index, UUID or PCI bus id (default: the first)")
	fl.StringVar(&f.instrument, "instrument", "", "meter: powersensor3, pmd or nvml (default: emulated powersensor3; nvml with --gpu)")
	fl.StringVar(&f.port, "port", "", "where the meter is: /dev/ttyACM0 or tcp:host:port")
	fl.StringVar(&f.benchmark, "benchmark", "half", "kernel to measure: half, compute or memory")
	fl.DurationVar(&f.duration, "duration", time.Second, "length of the kernel")
	fl.DurationVar(&f.pulse, "pulse", 0, "alternate the kernel with rest, each for this long")
	fl.Uint64Var(&f.seed, "seed", 1, "seed of the emulated card and meter")
	fl.BoolVar(&f.imperfect, "imperfect", false, "give the emulated meter gain, offset and clock errors within its stated uncertainty")
	fl.StringVar(&f.user, "user", "", "user of the task (default: the login name)")
	fl.StringVar(&f.name, "name", "demo", "name of the task")
	fl.StringVar(&f.listen, "listen", "127.0.0.1:0", "address of the demo's monitor")
	return a.jsonFlag(c)
}

// demoBench is what a demo measures with, and how it ends.
type demoBench struct {
	bench  monitor.Bench
	device hostagent.Device
	sensor hostagent.PowerSensor
	soft   *softBench // nil with real parts
	close  func() error
}

func (a *app) demo(ctx context.Context, f demoFlags) (err error) {
	if err := errors.Join(checkBenchmark("--benchmark", f.benchmark), positive(span{"--duration", f.duration}), notNegative(span{"--pulse", f.pulse})); err != nil {
		return err
	}
	bench, err := a.demoParts(ctx, f)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, bench.close()) }()
	db, err := store.Open(ctx, a.db)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	spool, err := store.TempDir()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(spool)) }()

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	g, ctx := errgroup.WithContext(ctx)
	address, err := startMonitor(ctx, g, monitor.Config{Bench: bench.bench, Dir: spool, Version: version()}, f.listen)
	if err != nil {
		return err
	}
	if bench.soft != nil {
		g.Go(func() error { return bench.soft.Run(ctx) })
	}
	id, err := a.demoTask(ctx, f, bench, db, address)
	if id != 0 {
		err = errors.Join(err, a.demoResult(ctx, f, bench, db, id))
	}
	cancel()
	return errors.Join(err, g.Wait())
}

// startMonitor serves a monitor on a TCP address within g.
func startMonitor(ctx context.Context, g *errgroup.Group, cfg monitor.Config, listen string) (string, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", listen)
	if err != nil {
		return "", fmt.Errorf("monitor: %w: choose another --listen", err)
	}
	cfg.Listeners = []net.Listener{l}
	m, err := monitor.New(cfg)
	if err != nil {
		return "", errors.Join(err, l.Close())
	}
	g.Go(func() error { return m.Run(ctx) })
	return l.Addr().String(), nil
}

// demoParts opens the GPU and the meter, real or not.
func (a *app) demoParts(ctx context.Context, f demoFlags) (*demoBench, error) {
	if !f.gpu {
		if f.instrument != "" && f.instrument != "powersensor3" || f.port != "" {
			return nil, withCode(exitUsage, errors.New("a real meter sees nothing of an emulated card: add --gpu"))
		}
		return softParts(f)
	}
	dev, err := findCUDA(f.selector)
	if err == nil && dev.Info().PCIBusID == "" { // only the driver knows which one it is
		err = dev.Open(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("%w\nWithout --gpu the demo runs in software", err)
	}
	bus := dev.Info().PCIBusID
	sensor, err := nvml.Open(bus)
	if err != nil {
		return nil, errors.Join(err, dev.Close())
	}
	b, closeBench, err := openBench(benchFlags{instrument: firstOf(f.instrument, "nvml"), port: f.port, gpu: bus})
	if err != nil {
		return nil, errors.Join(err, sensor.Close(), dev.Close())
	}
	return &demoBench{bench: b, device: dev, sensor: sensor, close: func() error {
		return errors.Join(closeBench(), sensor.Close(), dev.Close())
	}}, nil
}

func softParts(f demoFlags) (*demoBench, error) {
	s, err := newSoftBench(f.seed, f.imperfect)
	if err != nil {
		return nil, err
	}
	b, closeBench, err := openBench(benchFlags{instrument: "powersensor3", port: s.port.Path()})
	if err != nil {
		return nil, errors.Join(err, s.port.Close())
	}
	dev, sensor, err := s.gpu()
	if err != nil {
		return nil, errors.Join(err, s.port.Close())
	}
	return &demoBench{bench: b, device: dev, sensor: sensor, soft: s, close: func() error {
		return errors.Join(dev.Close(), closeBench(), s.port.Close())
	}}, nil
}

// demoTask makes the measurement.
func (a *app) demoTask(ctx context.Context, f demoFlags, b *demoBench, db *store.DB, address string) (id store.TaskID, err error) {
	client, err := monitorclient.Dial(address, monitorclient.Options{Version: version()})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	work, _, err := a.work(b.device, runFlags{benchmark: f.benchmark, duration: f.duration, pulse: f.pulse}, nil)
	if err != nil {
		return 0, err
	}
	login, holder := whoami()
	return a.measure(ctx, measurement.Config{
		DB: db, Monitor: client, Device: b.device, Sensor: b.sensor, Name: f.name, User: firstOf(f.user, login), Holder: holder,
		WarmUp: 200 * time.Millisecond, Progress: newProgress(a.err).update,
		Open: func(ctx context.Context) (hostagent.PowerSensor, error) { return nil, openDevice(ctx, b.device) },
	}, work)
}

// demoResult prints the task, with the truth where the board knows it.
func (a *app) demoResult(ctx context.Context, f demoFlags, b *demoBench, db *store.DB, id store.TaskID) error {
	ks, err := db.Kernels(ctx, id)
	if err != nil {
		return err
	}
	var extra func(*report)
	if b.soft != nil && len(ks) > 0 {
		truth, err := b.soft.truth(ks[0].Start, ks[len(ks)-1].End)
		if err != nil {
			return err
		}
		extra = func(r *report) { r.setTruth(truth, f.imperfect) }
	}
	if err := a.showTask(ctx, db, id, extra); err != nil || a.json {
		return err
	}
	a.whatNext(f, id)
	return nil
}

// self is how to call this program again: by go run it has no name of its own.
func (a *app) self() string {
	self := "wattmark"
	if strings.Contains(os.Args[0], "go-build") {
		self = "go run ./cmd/wattmark"
	}
	switch {
	case store.OnServer(a.db):
		self += " --db '" + a.db + "'" // a shell would read the signs in it
	case a.db != defaultDB:
		self += " --db " + a.db
	}
	return self
}

func (a *app) whatNext(f demoFlags, id store.TaskID) {
	self := a.self()
	next := [][2]string{
		{fmt.Sprintf("%s show %d --budget", self, id), "this task again, with its uncertainties"},
		{fmt.Sprintf("%s validate %d --html report.html", self, id), "is what software says true? a report"},
		{self + " tasks", "all tasks"},
		a.samplesBySQL(id),
	}
	if f.pulse > 0 {
		next = append(next, [2]string{fmt.Sprintf("%s show %d --svg pulse.svg", self, id), "draw what each way to read the GPU's sensor says"})
	} else {
		next = append(next, [2]string{self + " demo --pulse 50ms", "what the GPU's own sensor gets wrong"})
	}
	if !f.gpu {
		next = append(next, [2]string{self + " demo --gpu --instrument nvml", "on a real GPU"})
	}
	width := 0
	for _, n := range next {
		width = max(width, len(n[0]))
	}
	fmt.Fprintln(a.out, "\nNext:")
	for _, n := range next {
		fmt.Fprintf(a.out, "  %-*s   %s\n", width, n[0], n[1])
	}
}

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"wattmark/hostagent"
	"wattmark/hostagent/measurement"
	"wattmark/hostagent/monitorclient"
	"wattmark/measure"
	"wattmark/store"
)

// runFlags are the flags of run.
type runFlags struct {
	monitor, user, name, gpu string
	job                      string
	gpus                     string // several
	benchmark                string
	pulse                    time.Duration
	duration, warmUp, wait   time.Duration
	lease                    time.Duration
	ptx, entry, grid, block  string
	shared                   uint32
	buffers                  []int64
	scalars                  []uint
	repeat                   int
	noSensor, noMethods      bool
	auto                     bool
	library                  string
	selectFlags
	labelFlags
	otlp    string
	cluster gateFlags
	room    databaseFlags
}

func (a *app) runCmd() *cobra.Command {
	var f runFlags
	c := &cobra.Command{
		Use: "run [flags] [-- program args]", Short: "Measure a program, a built-in benchmark or a PTX kernel",
		Long: `Measure work on this machine's GPU: start the monitor, play the start marker, do
the work, play the stop marker, fetch the samples into the task database.

The work is one of: a program after --, a built-in benchmark (--benchmark half,
compute or memory), or a kernel of a PTX file (--ptx with --entry and --grid).

Several GPUs are measured at once with --gpus and a monitor for each, whose bench
says which GPU it measures: a task for each GPU, and a group with their total. A
program runs once, between the markers of all; benchmarks and kernels run on each.`,
		Example: `  wattmark run --user lab --name gemm -- ./gemm 4096
  wattmark run --auto -- python3 train.py
  wattmark run --auto --kernel 'gemm|attention' --every 100 -- python3 train.py
  wattmark run --benchmark memory --duration 2s
  wattmark run --gpus all --monitor meters-a:7551,meters-b:7551 -- python train.py
  wattmark run --ptx kernel.ptx --entry vadd --grid 1024 --block 256 --buffer 4194304 --buffer 4194304`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.traced(cmd.Context(), f.otlp, "wattmark run", func(ctx context.Context) error { return a.measureRun(ctx, f, args) })
		},
	}
	fl := c.Flags()
	fl.StringVar(&f.monitor, "monitor", defaultMonitor, "address of the monitor; with --gpus several, with commas between them")
	f.room.addTo(c.Flags())
	f.cluster.addTo(fl)
	fl.StringVar(&f.user, "user", "", "user of the task (default: the login name)")
	fl.StringVar(&f.name, "name", "", "name of the task (default: of the program or benchmark)")
	fl.StringVar(&f.job, "job", os.Getenv("WATTMARK_JOB"), "job that the task is part of, on however many hosts: wattmark total adds them up (also WATTMARK_JOB)")
	fl.StringVar(&f.gpu, "gpu", "", "GPU by index, UUID or PCI bus id (default: the first); sim:SOCKET for that of wattmark emulate")
	fl.StringVar(&f.gpus, "gpus", "", "several GPUs: all, or indices, UUIDs or PCI bus ids with commas between them")
	fl.StringVar(&f.benchmark, "benchmark", "", "built-in benchmark: half, compute or memory")
	fl.DurationVar(&f.duration, "duration", time.Second, "length of the benchmark")
	fl.DurationVar(&f.pulse, "pulse", 0, "alternate the benchmark with rest, each for this long")
	fl.DurationVar(&f.warmUp, "warm-up", 200*time.Millisecond, "load the GPU for this long before the first marker; 0 for none")
	fl.DurationVar(&f.wait, "wait", 0, "how long to queue for a busy bench")
	fl.DurationVar(&f.lease, "lease", 0, "free the bench when this host is silent for so long, 1s to 24h (default 30s)")
	fl.StringVar(&f.ptx, "ptx", "", "PTX file")
	fl.StringVar(&f.entry, "entry", "", "kernel in the PTX file (default: the only one)")
	fl.StringVar(&f.grid, "grid", "1", "blocks of the PTX kernel: x[,y[,z]]")
	fl.StringVar(&f.block, "block", "1", "threads of a block of the PTX kernel: x[,y[,z]]")
	fl.Uint32Var(&f.shared, "shared", 0, "bytes of dynamic shared memory of the PTX kernel")
	fl.Int64SliceVar(&f.buffers, "buffer", nil, "allocate and zero a buffer of so many bytes, passed as the next parameter (repeatable)")
	fl.UintSliceVar(&f.scalars, "scalar", nil, "32-bit value passed after the buffers (repeatable)")
	fl.IntVar(&f.repeat, "repeat", 1, "launches of the PTX kernel")
	fl.BoolVar(&f.auto, "auto", false, "record the kernels of the program and share the energy among them, by name")
	fl.StringVar(&f.library, "library", "", "libwattmark.so for --auto (default: beside this program, or in ../lib)")
	f.selectFlags.register(c)
	f.labelFlags.register(fl)
	otlpFlag(fl, &f.otlp)
	fl.BoolVar(&f.noSensor, "no-nvml", false, "do not read the GPU's own sensor beside the meter")
	fl.BoolVar(&f.noMethods, "no-methods", false, "do not read it by every software method (docs/methods.md), which takes a quarter of a processor")
	return a.jsonFlag(c)
}

func (a *app) measureRun(ctx context.Context, f runFlags, args []string) error {
	if n := countTrue(len(args) > 0, f.benchmark != "", f.ptx != ""); n != 1 {
		return withCode(exitUsage, errors.New("name one piece of work: a program after --, --benchmark, or --ptx"))
	}
	if err := errors.Join(f.autoCheck(args), f.labelFlags.check(), f.check(args)); err != nil {
		return err
	}
	if err := positive(span{"--duration", f.duration}); f.benchmark != "" && err != nil {
		return err
	}
	switch {
	case f.gpus != "" && f.gpu != "":
		return withCode(exitUsage, errors.New("--gpu names one GPU and --gpus several: keep one of them"))
	case f.gpus != "" && f.auto:
		return withCode(exitUsage, errors.New("--auto shares one GPU's energy among kernels: run it with --gpu"))
	case f.gpus != "":
		return a.runGroup(ctx, f, args)
	case strings.Contains(f.monitor, ","):
		return withCode(exitUsage, errors.New("several monitors measure several GPUs: name those with --gpus"))
	case f.auto:
		return a.measureAuto(ctx, f, args)
	}
	gpu, err := findGPU(f.gpu)
	if err != nil {
		return err
	}
	defer gpu.Close()
	work, name, err := a.work(gpu.Device, f, args)
	if err != nil {
		return err
	}
	cfg, done, err := a.measureConfig(ctx, f, gpu, name)
	if err != nil {
		return err
	}
	defer done()
	id, err := a.measure(ctx, cfg, work)
	if id == 0 {
		return err
	}
	return errors.Join(err, a.showTask(ctx, cfg.DB.(*store.DB), id, nil))
}

// work builds what is to be measured and its name.
func (a *app) work(dev hostagent.Device, f runFlags, args []string) (measurement.Work, string, error) {
	switch {
	case len(args) > 0:
		return a.commandWork(args), baseName(args[0]), nil
	case f.benchmark != "":
		b := hostagent.Benchmark(f.benchmark)
		if f.pulse > 0 {
			return pulseWork(dev, b, f.pulse, f.pulse, f.duration), f.benchmark + "-pulse", nil
		}
		return benchmarkWork(dev, b, f.duration), f.benchmark, nil
	}
	launch, err := f.ptxLaunch()
	if err != nil {
		return nil, "", err
	}
	w, err := ptxWork(dev, launch)
	return w, baseName(f.ptx), err
}

func (f runFlags) ptxLaunch() (hostagent.PTXLaunch, error) {
	l := hostagent.PTXLaunch{Entry: f.entry, Shared: f.shared, Repeat: f.repeat}
	var err error
	if l.Source, err = os.ReadFile(f.ptx); err != nil {
		return l, err
	}
	if l.Grid, err = parseDims("grid", f.grid); err != nil {
		return l, err
	}
	if l.Block, err = parseDims("block", f.block); err != nil {
		return l, err
	}
	for _, b := range f.buffers {
		if b <= 0 {
			return l, withCode(exitUsage, fmt.Errorf("--buffer %d: want a positive number of bytes", b))
		}
		l.Buffers = append(l.Buffers, uint64(b))
	}
	for _, s := range f.scalars {
		if uint64(s) > 1<<32-1 {
			return l, withCode(exitUsage, fmt.Errorf("--scalar %d: does not fit 32 bits", s))
		}
		l.Scalars = append(l.Scalars, uint32(s))
	}
	return l, nil
}

// measureConfig opens the database and the monitor; the GPU and its sensor are opened
// when the bench is held.
func (a *app) measureConfig(ctx context.Context, f runFlags, gpu *foundGPU, name string) (measurement.Config, func(), error) {
	var closers []func() error
	done := func() {
		for i := len(closers) - 1; i >= 0; i-- {
			if err := closers[i](); err != nil {
				fmt.Fprintln(a.err, "wattmark:", err)
			}
		}
	}
	login, holder := whoami()
	progress := newProgress(a.err)
	cfg := measurement.Config{
		Device: gpu.Device, Name: firstOf(f.name, name), User: firstOf(f.user, login), Job: f.job, Holder: holder,
		WarmUp: f.warmUp, Wait: f.wait, Lease: f.lease, NoMethods: f.noMethods, Progress: progress.update, Warn: progress.warn,
		Tags: f.tags, Note: f.note, Provenance: a.provenance(ctx, f.redact),
	}
	db, err := store.Open(ctx, a.db)
	if err != nil {
		return cfg, done, err
	}
	cfg.DB, closers = db, append(closers, db.Close)
	a.leftOvers(ctx, db) // one may hold the bench
	db.SetLimits(f.room.limits())
	mon, err := dialMeter(ctx, f.monitor, monitorclient.Options{Version: version(), Dial: a.tracing.dial()})
	if err != nil {
		done()
		return cfg, done, err
	}
	gate := a.gate(ctx, f.cluster, db)
	cfg.Monitor, closers = gate.monitor(mon), append(closers, mon.Close, func() error { gate.close(); return nil })
	var sensor hostagent.PowerSensor
	cfg.Open = func(ctx context.Context) (hostagent.PowerSensor, error) {
		if err := gpu.open(ctx); err != nil || f.noSensor || sensor != nil {
			return sensor, err
		}
		opened, err := gpu.openSensor()
		if err != nil {
			fmt.Fprintln(a.err, "wattmark: the GPU's own sensor is left out:", err)
			return nil, nil
		}
		sensor, closers = opened, append(closers, opened.Close)
		return sensor, nil
	}
	return cfg, done, nil
}

// prepare does something more once the bench is held and the GPU is open.
func prepare(cfg *measurement.Config, more func(ctx context.Context) error) {
	open := cfg.Open
	cfg.Open = func(ctx context.Context) (hostagent.PowerSensor, error) {
		sensor, err := open(ctx)
		if err == nil {
			err = more(ctx)
		}
		return sensor, err
	}
}

// measure makes one measurement and translates its errors for the shell.
func (a *app) measure(ctx context.Context, cfg measurement.Config, work measurement.Work) (store.TaskID, error) {
	if cfg.Provenance == nil {
		cfg.Provenance = a.provenance(ctx, false)
	}
	cfg.Owner = store.Owner()
	if cfg.Warn == nil {
		cfg.Warn = newProgress(a.err).warn
	}
	id, err := measurement.Measure(ctx, cfg, work)
	if i := interrupted(ctx, kept(ctx, cfg.DB, id)); i != nil {
		return id, i
	}
	if errors.Is(err, monitorclient.ErrBusy) {
		err = withCode(exitBusy, err)
	}
	return id, err
}

// kept says in what state a task of an interrupted measurement was kept.
func kept(ctx context.Context, db measurement.Store, id store.TaskID) string {
	if id == 0 {
		return "no task was begun"
	}
	t, err := db.Task(context.WithoutCancel(ctx), id)
	switch {
	case err != nil:
		return fmt.Sprintf("task %d: %v", id, err)
	case t.State == store.Running:
		return fmt.Sprintf("task %d is unfinished: %s", id, firstOf(t.Reason, "wattmark host finishes it"))
	}
	return fmt.Sprintf("kept as task %d (%s)", id, stateNames[t.State])
}

// showTask prints a task after a measurement; the error says what is wrong
// with it. Of a measurement that was interrupted it shows nothing. extra adds to the report what only the caller knows.
func (a *app) showTask(ctx context.Context, db *store.DB, id store.TaskID, extra func(*report)) error {
	if ctx.Err() != nil {
		return nil // the measurement's error says what was kept
	}
	t, err := db.Task(ctx, id)
	if err != nil {
		return err
	}
	r := newReport(&t, a.db)
	if err := errors.Join(r.addSide(ctx, db), r.addTiny(ctx, db)); err != nil {
		return err
	}
	if extra != nil {
		extra(r)
	}
	if a.json {
		err = a.printJSON(r)
	} else {
		renderReport(a.out, r)
		if t.Scans > 0 {
			err = a.plotTask(ctx, db, &t, r)
		}
	}
	if err == nil && t.State != store.Complete && t.Failure == nil { // whose work failed, that error says it
		err = withCode(exitIncomplete, fmt.Errorf("task %d is %s: %s", id, r.State, t.Reason))
	}
	return err
}

func seconds(d time.Duration) measure.Seconds { return measure.SecondsOf(d) }

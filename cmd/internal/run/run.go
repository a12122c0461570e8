// Package run has the commands that measure: run (a program, a benchmark, PTX; several
// GPUs; kernels selected by name), demo and pulse.
//
//	flags → GPU and work (session) → measurement.Run → task → report
package run

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/cluster"
	"github.com/wattmark/wattmark/cmd/internal/out"
	"github.com/wattmark/wattmark/cmd/internal/report"
	"github.com/wattmark/wattmark/cmd/internal/session"
	"github.com/wattmark/wattmark/cmd/internal/task"
	"github.com/wattmark/wattmark/hostagent/experiment"
	"github.com/wattmark/wattmark/hostagent/gpu"
	"github.com/wattmark/wattmark/hostagent/gpu/kernels"
	"github.com/wattmark/wattmark/hostagent/gpu/sim"
	"github.com/wattmark/wattmark/hostagent/machine"
	"github.com/wattmark/wattmark/hostagent/measurement"
	"github.com/wattmark/wattmark/hostagent/monitorclient"
	"github.com/wattmark/wattmark/hostagent/witness"
	"github.com/wattmark/wattmark/store"
)

// RunFlags are the flags of run; pulse, sensor and other commands that measure fill a part
// of them. Durations are as parsed; Grid and Block are texts as in 64,2,1.
type RunFlags struct {
	Monitor, User, Name, GPU string
	job                      string
	// Several GPUs, each with a monitor; excludes GPU.
	gpus      string
	Benchmark string
	// On-time and off-time of the benchmark; 0 runs it without pauses.
	pulse                   time.Duration
	Duration, WarmUp, Wait  time.Duration
	PTX, Entry, Grid, Block string
	Shared                  uint32
	Buffers                 []int64
	Scalars                 []uint
	Repeat                  int
	NoSensor, NoMethods     bool
	// Record kernel launches through the injected library.
	auto    bool
	library string
	selectFlags
	seriesFlags
	meter   meterFlags
	marks   measurement.Marks
	keep    time.Duration
	witness string // the line to switch; empty for none
	quiet   bool   // one of a series, which reports its progress
	Program bool   // the work is a program, whose terminal is this one's
	task.LabelFlags
	Cluster cluster.GateFlags
	room    session.DatabaseFlags
	hand    *handOver // of tasks to a host; nil for none
}

// runCmd returns run, whose tasks go into the database of this machine or, with --host, to a host.
func runCmd(a *cli.App) *cobra.Command {
	var f RunFlags
	c := &cobra.Command{
		Use: "run [flags] [-- program args]", Short: "Measure a program, a built-in benchmark or a PTX kernel",
		RunE: func(cmd *cobra.Command, args []string) error {
			if n := len(a.Args) - len(args); len(args) > 0 && cmd.ArgsLenAtDash() < 0 {
				a.Args = slices.Insert(slices.Clone(a.Args), n, "--") // --redact hides what is behind it
			}
			if err := f.fitsRun(cmd.Flags()); err != nil {
				return err
			}
			if _, ok := a.OnHost(); ok {
				return runForHost(cmd.Context(), a, f, args)
			}
			return measureRun(cmd.Context(), a, f, args)
		},
	}
	f.register(a, c)
	c.Flags().SetInterspersed(false) // the program's flags are its own, without -- too
	return c
}

// register adds the flags of run, in sections of its help.
func (f *RunFlags) register(a *cli.App, c *cobra.Command) {
	fl := c.Flags()
	f.Duration = time.Second
	f.addBenchmark(fl)
	f.addGPU(fl)
	fl.StringVar(&f.gpus, "gpus", "", "several GPUs: all, or indices, UUIDs or PCI bus ids with commas between them")
	fl.StringVar(&f.Name, "name", "", "name of the task (default: of the program or benchmark)")
	a.JSONFlag(c)
	f.AddMeter(fl, cli.DefaultMonitor,
		"in place of these: the monitor that has the meter; with --gpus several, with commas between them")
	cli.Section(fl, "Several runs", func() { f.seriesFlags.register(fl) })
	cli.Section(fl, "Kernels of the program", func() {
		fl.BoolVar(&f.auto, "auto", false, "record the kernels of the program and share the energy among them, by name")
		fl.StringVar(&f.kernel, "kernel", "", "with --auto: play markers around the launches of kernels whose symbol "+
			"this regular expression matches (cuGraphLaunch: of graphs)")
		fl.IntVar(&f.every, "one-in", 1, "with --kernel: around every so many launches of a kernel")
		fl.IntVar(&f.atMost, "at-most", defaultAtMost, "with --kernel: around so many launches of a process")
		fl.StringVar(&f.library, "library", "", "libwattmark.so for --auto (default: beside this program, or in ../lib)")
	})
	cli.Section(fl, "A kernel of a PTX file", func() {
		f.AddPTX(fl)
		fl.IntVar(&f.Repeat, "repeat", 1, "launches of the PTX kernel")
	})
	cli.Section(fl, "How it is measured", func() {
		fl.DurationVar(&f.WarmUp, "warm-up", 200*time.Millisecond,
			"load the GPU for this long before the first marker; 0 for none")
		fl.DurationVar(&f.marks.Every, "mark-every", 0,
			"play a marker amid a program so often, once no process has used the GPU for 2.5 s: clocks stay related in long "+
				"captures; 0 for none")
		fl.BoolVar(&f.marks.Busy, "mark-busy", false, "with --mark-every: also while the GPU is used")
		fl.DurationVar(&f.keep, "keep", 0, "delete samples older than this while the work runs, once windows in them have "+
			"their energy (--mark-every); their sums stay; 0 keeps all")
		fl.StringVar(&f.witness, "witness", "", "switch a line beside the work that is wired to the meter's channel named "+
			"witness: PORT, PORT:rts or a GPIO's value file (docs/instruments.md)")
		fl.BoolVar(&f.NoSensor, "no-nvml", false, "do not read the GPU's own sensor beside the meter")
		fl.BoolVar(&f.NoMethods, "no-methods", false,
			"do not read it by every software method (docs/sensor.md), which takes a quarter of a processor")
	})
	cli.Section(fl, "How it is stored", func() {
		a.HostFlag(c)
		cli.UserFlag(fl, &f.User)
		fl.StringVar(&f.job, "job", os.Getenv("WATTMARK_JOB"),
			"job that the task is part of, on however many hosts: wattmark total adds them up (also WATTMARK_JOB)")
		f.LabelFlags.Register(fl)
		f.room.AddTo(fl)
		f.Cluster.AddTo(fl)
	})
}

// addBenchmark adds the flags of a built-in benchmark, with the present values as defaults.
func (f *RunFlags) addBenchmark(fl *pflag.FlagSet) {
	fl.StringVar(&f.Benchmark, "benchmark", f.Benchmark, "built-in benchmark: half, compute or memory")
	fl.DurationVar(&f.Duration, "duration", f.Duration, "length of the benchmark")
	fl.DurationVar(&f.pulse, "pulse", f.pulse, "alternate the benchmark with rest, each for this long")
}

// AddBench adds the flags that choose the GPU, wait for its bench, and name a cluster.
func (f *RunFlags) AddBench(fl *pflag.FlagSet) {
	f.Cluster.AddTo(fl)
	f.addGPU(fl)
}

// addGPU adds the flags that choose the GPU, and wait for its bench.
func (f *RunFlags) addGPU(fl *pflag.FlagSet) {
	cli.GPUFlag(fl, &f.GPU, "GPU by index, UUID or PCI bus id (default: the first); sim:SOCKET for that of wattmark emulate")
	fl.DurationVar(&f.Wait, "wait", 0, "how long to queue for a busy bench")
}

// AddPTX adds the flags of a PTX kernel, in a section of the help, but for the number of its launches.
func (f *RunFlags) AddPTX(fl *pflag.FlagSet) {
	cli.Section(fl, "A kernel of a PTX file", func() {
		fl.StringVar(&f.PTX, "ptx", "", "PTX file")
		fl.StringVar(&f.Entry, "entry", "", "kernel in the PTX file (default: the only one)")
		fl.StringVar(&f.Grid, "grid", "1", "blocks of the PTX kernel: x[,y[,z]]")
		fl.StringVar(&f.Block, "block", "1", "threads of a block of the PTX kernel: x[,y[,z]]")
		fl.Uint32Var(&f.Shared, "shared", 0, "bytes of dynamic shared memory of the PTX kernel")
		fl.Int64SliceVar(&f.Buffers, "buffer", nil,
			"allocate and zero a buffer of so many bytes, passed as the next parameter (repeatable)")
		fl.UintSliceVar(&f.Scalars, "scalar", nil, "32-bit value passed after the buffers (repeatable)")
	})
}

// measureRun checks the flags against each other and measures: one GPU in measureTask,
// several in runGroup, repeated runs in measureSeries. All
// checks precede the first contact with a GPU or a meter. It blocks until all is stored.
func measureRun(ctx context.Context, a *cli.App, f RunFlags, args []string) error {
	if len(f.with) == 0 {
		if n := session.CountTrue(len(args) > 0, f.Benchmark != "", f.PTX != ""); n != 1 {
			return cli.Usagef("name one piece of work: a program after --, --benchmark, or --ptx")
		}
	}
	err := errors.Join(f.autoCheck(args), f.LabelFlags.Check(), f.checkWork(args), f.checkMarks(), f.checkKeep())
	if err == nil && f.wanted() {
		_, err = f.versions(args)
	}
	switch {
	case err != nil:
		return err
	case f.gpus != "" && f.GPU != "":
		return cli.Usagef("--gpu names one GPU and --gpus several: keep one of them")
	case f.gpus != "" && f.witness != "":
		return cli.Usagef("--witness is of one GPU's meter: name it with --gpu")
	case f.gpus != "" && f.auto:
		return cli.Usagef("--auto shares one GPU's energy among kernels: run it with --gpu")
	case f.gpus == "" && !f.meter.chosen() && strings.Contains(f.Monitor, ","):
		return cli.Usagef("several monitors measure several GPUs: name those with --gpus")
	}
	return f.withMeter(ctx, a, func(ctx context.Context, f RunFlags) error {
		switch {
		case f.wanted():
			return measureSeries(ctx, a, f, args)
		case f.gpus != "":
			return runGroup(ctx, a, f, args)
		}
		return measureTask(ctx, a, f, args, func(db *store.DB, id store.TaskID) error {
			switch {
			case f.hand != nil: // it is shown as the host has it
				return nil
			case f.auto:
				return showKernels(ctx, a, db, id)
			}
			return report.ShowTask(a, ctx, db, id, nil)
		})
	})
}

// Fits refuses flags of fl that would have no effect: those of another kind of work.
func (f *RunFlags) Fits(fl *pflag.FlagSet) error {
	isBenchmark := func(with string) bool { return strings.HasPrefix(strings.TrimSpace(with), "-") }
	return cmp.Or(
		cli.GoesWith(fl, f.Benchmark != "" || slices.ContainsFunc(f.with, isBenchmark), "--benchmark", "duration pulse"),
		cli.GoesWith(fl, f.PTX != "", "--ptx", "entry grid block shared buffer scalar repeat"))
}

// fitsRun is Fits for the flags of run alone.
func (f *RunFlags) fitsRun(fl *pflag.FlagSet) error {
	return cmp.Or(f.Fits(fl),
		cli.GoesWith(fl, f.auto, "--auto", "kernel library"),
		cli.GoesWith(fl, f.kernel != "", "--kernel", "one-in at-most"),
		cli.GoesWith(fl, f.times != 0, "--times", "with until-u cool-down"),
		cli.GoesWith(fl, f.marks.Every != 0, "--mark-every", "mark-busy"),
		f.checkMeter())
}

// checkWork is Check, with the length of the benchmark.
func (f *RunFlags) checkWork(args []string) error {
	if err := f.Check(args); err != nil || f.Benchmark == "" {
		return err
	}
	return session.Positive("--duration", f.Duration)
}

// checkMarks refuses marks that cannot be played.
func (f *RunFlags) checkMarks() error {
	if f.marks.Every != 0 && (f.Benchmark != "" || f.PTX != "") {
		return cli.Usagef("--mark-every plays markers amid a program: name it after --")
	}
	return session.NotNegative("--mark-every", f.marks.Every)
}

// checkKeep refuses to delete samples that something needs.
func (f *RunFlags) checkKeep() error {
	switch {
	case f.keep != 0 && f.keep < measurement.LeastKeep:
		return cli.Usagef("--keep %v: want at least %v: windows need the samples around them", f.keep, measurement.LeastKeep)
	case f.keep != 0 && f.auto:
		return cli.Usagef("--keep does not go with --auto: energy by kernel needs all samples")
	case f.keep != 0 && f.witness != "":
		return cli.Usagef("--keep does not go with --witness: the line's changes are looked for in all samples")
	}
	return nil
}

// measureTask measures on one GPU, which it opens and closes, with the kernels of the program for --auto. Where a task
// was begun, it is given to show, also one that was interrupted or is incomplete, and then sent to its host.
func measureTask(ctx context.Context, a *cli.App, f RunFlags, args []string,
	show func(*store.DB, store.TaskID) error,
) (err error) {
	auto, err := f.recording()
	if err != nil {
		return err
	}
	if auto != nil { // its logs are in the database then
		defer func() { err = errors.Join(err, os.RemoveAll(auto.logs)) }()
	}
	find := session.FindGPU
	if len(args) > 0 && auto == nil {
		find = session.FindForProgram
	}
	gpu, err := find(f.GPU)
	if err != nil {
		return err
	}
	defer gpu.Close()
	if gpu.Unmarked && (f.marks.Every != 0 || f.keep != 0) {
		return cli.Usagef("--mark-every and --keep need markers, which %s plays none of: they need CUDA", gpu.Info().Name)
	}
	f.Program = len(args) > 0
	work, name, err := Work(a, gpu.Device, f, args)
	if err != nil {
		return err
	}
	cfg, done, err := MeasureConfig(a, ctx, f, gpu, name)
	if err != nil {
		return err
	}
	defer done()
	if auto != nil {
		if work, err = auto.work(ctx, a, &f, args, &cfg); err != nil {
			return err
		}
	}
	id, err := Measure(a, ctx, cfg, work)
	if id == 0 {
		return err
	}
	db := cfg.DB.(*store.DB)
	if auto != nil { // also after an interruption
		err = errors.Join(err, auto.store(context.WithoutCancel(ctx), db, id, gpu.Info()))
	}
	if f.hand != nil {
		f.hand.ids = append(f.hand.ids, id)
	}
	return errors.Join(err, show(db, id))
}

// Work returns the work to measure and a default name for its task: a program (args), a
// benchmark, optionally pulsed, or a PTX kernel, in this order. It reads the PTX file and
// runs nothing.
func Work(a *cli.App, dev gpu.Device, f RunFlags, args []string) (measurement.Work, string, error) {
	switch {
	case len(args) > 0:
		return session.CommandWork(a, args), filepath.Base(args[0]), nil
	case f.Benchmark != "":
		b := gpu.Benchmark(f.Benchmark)
		if f.pulse > 0 {
			return session.PulseWork(dev, b, f.pulse, f.pulse, f.Duration), f.Benchmark + "-pulse", nil
		}
		return session.BenchmarkWork(dev, b, f.Duration), f.Benchmark, nil
	}
	launch, err := f.PTXLaunch()
	if err != nil {
		return nil, "", err
	}
	w, err := session.PTXWork(dev, launch)
	return w, filepath.Base(f.PTX), err
}

// PTXLaunch reads the PTX file and parses its launch: grid and block in blocks and threads,
// buffers in bytes, scalars of 32 bits. It fails with ExitUsage for values out of range.
func (f RunFlags) PTXLaunch() (gpu.PTXLaunch, error) {
	l := gpu.PTXLaunch{Entry: f.Entry, Shared: f.Shared, Repeat: f.Repeat}
	var err error
	if l.Source, err = os.ReadFile(f.PTX); err != nil {
		return l, err
	}
	if l.Grid, err = session.ParseDims("grid", f.Grid); err == nil {
		l.Block, err = session.ParseDims("block", f.Block)
	}
	if err != nil {
		return l, err
	}
	for _, b := range f.Buffers {
		if b <= 0 {
			return l, cli.Usagef("--buffer %d: want a positive number of bytes", b)
		}
		l.Buffers = append(l.Buffers, uint64(b))
	}
	for _, s := range f.Scalars {
		if uint64(s) > 1<<32-1 {
			return l, cli.Usagef("--scalar %d: does not fit 32 bits", s)
		}
		l.Scalars = append(l.Scalars, uint32(s))
	}
	return l, nil
}

// MeasureConfig opens the database and the connection to the monitor and returns a
// configuration for Measure. The GPU and its sensor are opened by cfg.Open, once the bench
// is held. The returned function closes all but card, in reverse order; it is nil after an
// error.
func MeasureConfig(a *cli.App, ctx context.Context, f RunFlags, card *session.FoundGPU, name string,
) (measurement.Config, func(), error) {
	progress := out.NewProgress(a)
	progress.Program = f.Program
	cfg := f.task(a, ctx, name)
	cfg.Device, cfg.Warn = card.Device, progress.Warn
	if cfg.Unmarked = card.Unmarked; cfg.Unmarked {
		cfg.WarmUp = 0
	}
	if !f.quiet || out.IsTerminal(a.Err) { // else the lines of all phases would hide those of the series
		cfg.Progress = progress.Update
	}
	closeLine := func() error { return nil }
	if f.witness != "" {
		line, err := witness.Open(f.witness)
		if err != nil {
			return cfg, nil, cli.Usagef("--witness: %w", err)
		}
		cfg.Witness, closeLine = line, line.Close
	}
	db, err := store.Open(ctx, a.DB)
	if err != nil {
		return cfg, nil, errors.Join(err, closeLine())
	}
	// Tasks of processes that died are finished first: one of them may still hold the bench.
	session.LeftOvers(ctx, a, db)
	db.SetLimits(f.room.Limits())
	mon, err := cli.DialMeter(ctx, f.Monitor, monitorclient.Options{Version: cli.Version()})
	if err != nil {
		return cfg, nil, errors.Join(err, db.Close(), closeLine())
	}
	// The gate wraps the monitor: with a cluster, Release waits until the task is
	// replicated.
	gate := cluster.OpenGate(a, ctx, f.Cluster, db)
	cfg.DB, cfg.Monitor = db, f.hand.monitor(gate.Monitor(mon))
	cfg.Open = func(ctx context.Context) (gpu.PowerSensor, error) {
		return card.OpenToMeasure(ctx, a, f.NoSensor, "the GPU's own sensor")
	}
	return cfg, func() {
		progress.End()
		f.hand.send(ctx, db)
		gate.Close()
		if err := errors.Join(mon.Close(), db.Close(), closeLine()); err != nil {
			fmt.Fprintln(a.Err, "wattmark:", err)
		}
	}, nil
}

// task returns the configuration of a measurement as far as the flags hold it: the labels of
// its task, whose name is by default the one given, and the times.
func (f *RunFlags) task(a *cli.App, ctx context.Context, name string) measurement.Config {
	login, holder := cli.Whoami()
	return measurement.Config{
		Owner: store.Owner(), Name: cmp.Or(f.Name, name), User: cmp.Or(f.User, login), Job: f.job, Holder: holder,
		WarmUp: f.WarmUp, Wait: f.Wait, Tags: f.Tags, Note: f.Note, NoMethods: f.NoMethods,
		Machine: f.machine(), Marks: f.marks, Rolling: measurement.Rolling{Keep: f.keep},
		Provenance: report.Provenance(a, ctx, f.Redact),
	}
}

// machine returns the sensors of this machine that can be read: none beside a simulated GPU, unless they are named.
func (f *RunFlags) machine() []*machine.Sensor {
	if f.NoSensor || strings.HasPrefix(f.GPU, sim.Prefix) && os.Getenv(machine.EnvRoot) == "" {
		return nil
	}
	list, _ := machine.Find("") // doctor reports those that cannot be read
	return list
}

// NewBench returns the bench of an experiment on card: with the meter of f.Monitor, or
// alone without one. Its Run opens the GPU and, unless f.NoSensor, the GPU's own sensor,
// without which an experiment alone fails. The returned function closes what was opened,
// except card; it is nil after an error.
func NewBench(a *cli.App, ctx context.Context, f RunFlags, card *session.FoundGPU, name string,
) (*experiment.Bench, func(), error) {
	b := &experiment.Bench{Device: card.Device, WarmUp: f.WarmUp}
	if f.Monitor != "" {
		cfg, done, err := MeasureConfig(a, ctx, f, card, name)
		if err != nil {
			return nil, nil, err
		}
		b.Meter, b.Open = &cfg, cfg.Open
		b.Measure = func(ctx context.Context, cfg measurement.Config, work measurement.Work) (store.TaskID, error) {
			return Measure(a, ctx, cfg, work)
		}
		return b, done, nil
	}
	b.Open = func(ctx context.Context) (gpu.PowerSensor, error) {
		if err := card.Open(ctx); err != nil || f.NoSensor {
			return nil, err
		}
		return card.Sensor()
	}
	return b, func() {}, nil
}

// Measure makes one measurement and blocks until its task is stored. It returns the task's
// number, 0 where none was begun, with an error for the shell: an interruption names the
// state of the task, and a busy bench has ExitBusy.
func Measure(a *cli.App, ctx context.Context, cfg measurement.Config, work measurement.Work) (store.TaskID, error) {
	if cfg.Provenance == nil {
		cfg.Provenance = report.Provenance(a, ctx, false)
	}
	cfg.Owner = store.Owner()
	if cfg.Warn == nil {
		cfg.Warn = out.NewProgress(a).Warn
	}
	db, _ := cfg.DB.(*store.DB)
	var id store.TaskID
	err := withWindows(ctx, db, func(ctx context.Context) (tasks []store.TaskID, err error) {
		cfg.Rolling.Folder = session.WindowsIn(ctx)
		if id, err = measurement.Measure(ctx, cfg, work); id != 0 && db != nil {
			tasks = append(tasks, id)
		}
		return tasks, err
	})
	if i := cli.Interrupted(ctx, kept(ctx, cfg.DB, id)); i != nil {
		return id, i
	}
	if errors.Is(err, monitorclient.ErrBusy) {
		if cfg.Wait == 0 {
			err = fmt.Errorf("%w in line: --wait 10m", err)
		}
		err = cli.WithCode(cli.ExitBusy, err)
	}
	return id, err
}

// withWindows calls do with a folder in which programs write their windows, and stores these with each of the tasks,
// also when the measurement was cancelled.
func withWindows(ctx context.Context, db *store.DB, do func(context.Context) ([]store.TaskID, error)) error {
	dir, err := store.TempDir()
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	tasks, err := do(session.WithWindows(ctx, dir))
	files, _ := filepath.Glob(filepath.Join(dir, "*.jsonl"))
	for _, id := range tasks {
		err = errors.Join(err, measurement.StoreWindows(context.WithoutCancel(ctx), db, id, files))
	}
	return err
}

// kept describes the state of the task of an interrupted measurement. It reads the database
// although ctx has ended.
func kept(ctx context.Context, db measurement.Store, id store.TaskID) string {
	if id == 0 {
		return "no task was begun"
	}
	t, err := db.Task(context.WithoutCancel(ctx), id)
	switch {
	case err != nil:
		return fmt.Sprintf("task %d: %v", id, err)
	case t.State == store.Running:
		return fmt.Sprintf("task %d is unfinished: %s", id, cmp.Or(t.Reason, "wattmark host finishes it"))
	}
	return fmt.Sprintf("kept as task %d (%s)", id, t.State.String())
}

//go:embed help.md
var help string

// Commands returns the commands of this package.
func Commands(a *cli.App) []*cobra.Command {
	return cli.In(cli.Measure, help, runCmd(a), demoCmd(a), pulseCmd(a))
}

// Check validates, before a bench is taken, the flags common to the commands that measure,
// and that the program args[0] exists. It fails with ExitUsage.
func (f *RunFlags) Check(args []string) error {
	if err := cmp.Or(session.NotNegative("--warm-up", f.WarmUp), session.NotNegative("--wait", f.Wait),
		session.NotNegative("--pulse", f.pulse)); err != nil {
		return err
	}
	switch {
	case len(args) > 0:
		return session.FindProgram(args[0])
	case f.Benchmark != "":
		return session.CheckBenchmark("--benchmark", f.Benchmark)
	case f.PTX != "":
		return f.checkPTX()
	}
	return nil
}

// checkPTX reads the PTX file, finds the kernel, and compares its parameters with the
// buffers and scalars given. It needs no GPU.
func (f *RunFlags) checkPTX() error {
	if strings.HasPrefix(f.GPU, sim.Prefix) || strings.HasPrefix(f.gpus, sim.Prefix) {
		return cli.Usagef("--ptx needs a real GPU; the simulated one runs the built-in benchmarks")
	}
	if f.Repeat < 1 {
		return cli.Usagef("--repeat %d: want 1 at least", f.Repeat)
	}
	l, err := f.PTXLaunch()
	if err != nil {
		return err
	}
	e, err := kernels.Find(l.Source, l.Entry)
	if err == nil {
		err = e.CheckLaunch(len(l.Buffers), len(l.Scalars))
	}
	if err != nil {
		return cli.Usagef("--ptx %s: %w", f.PTX, err)
	}
	return nil
}

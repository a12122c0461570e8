package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/spf13/cobra"

	"wattmark/hostagent"
	"wattmark/hostagent/tiny"
	"wattmark/measure"
	"wattmark/measure/chunk"
	"wattmark/store"
)

// tinyFlags are the flags of tiny beside those that it shares with run.
type tinyFlags struct {
	runFlags
	method, carrier, simKernel string
	length                     time.Duration
	u                          float64
	energy, drift              float64
	slice, phase, settle       time.Duration
	blocks, launches, bins     int
	seed                       uint64
	dryRun                     bool
}

func (a *app) tinyCmd() *cobra.Command {
	var f tinyFlags
	c := &cobra.Command{
		Use: "tiny", Short: "Measure a kernel far shorter than the meter can bracket", Args: cobra.NoArgs,
		Long: `Measure the energy of one launch of a kernel that lasts microseconds, from many
launches of it:

  contrast  a steady carrier, in turn plain and with the kernel between its
            slices; the difference, divided by the launches (recommended)
  fold      thousands of launches laid over each other: a power profile finer
            than the meter's scans, for meters that sample without averaging
  repeat    launches back to back, divided by their number. Caches are warm and
            launches may overlap: not the energy of a single cold launch

The kernel is one of a PTX file (--ptx, as for run) or a built-in benchmark for a
time (--benchmark with --length). How often it is launched follows from --u, the
relative uncertainty (k = 2) that is wanted. See docs/tiny-kernels.md.`,
		Example: `  wattmark tiny --ptx kernel.ptx --entry vadd --grid 64 --block 256 --buffer 65536 --buffer 65536
  wattmark tiny --benchmark compute --length 10us --dry-run
  wattmark tiny --method fold --gpu sim:/tmp/gpu --sim-kernel 280W:120us,120W:80us`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("u") && !(f.u > 0) {
				return withCode(exitUsage, fmt.Errorf("--u %v: want more than 0", f.u))
			}
			return a.tiny(cmd.Context(), f)
		},
	}
	fl := c.Flags()
	f.cluster.addTo(fl)
	fl.StringVar(&f.method, "method", "contrast", "contrast, fold or repeat")
	fl.StringVar(&f.carrier, "carrier", "half", "benchmark that surrounds the launches: half, compute or memory")
	fl.StringVar(&f.monitor, "monitor", defaultMonitor, "address of the monitor")
	fl.StringVar(&f.user, "user", "", "user of the task (default: the login name)")
	fl.StringVar(&f.name, "name", "", "name of the task (default: of the kernel)")
	fl.StringVar(&f.gpu, "gpu", "", "GPU by index, UUID or PCI bus id (default: the first); sim:SOCKET for that of wattmark emulate")
	fl.StringVar(&f.simKernel, "sim-kernel", "", "kernel of a simulated GPU: POWER:TIME,… and, after a slash, the same once its data is cached")
	fl.StringVar(&f.benchmark, "benchmark", "", "built-in benchmark as the kernel: half, compute or memory")
	fl.DurationVar(&f.length, "length", 0, "how long the benchmark runs; of a PTX kernel, how long it is expected to (default: tried out)")
	fl.StringVar(&f.ptx, "ptx", "", "PTX file")
	fl.StringVar(&f.entry, "entry", "", "kernel in the PTX file (default: the only one)")
	fl.StringVar(&f.grid, "grid", "1", "blocks of the PTX kernel: x[,y[,z]]")
	fl.StringVar(&f.block, "block", "1", "threads of a block of the PTX kernel: x[,y[,z]]")
	fl.Uint32Var(&f.shared, "shared", 0, "bytes of dynamic shared memory of the PTX kernel")
	fl.Int64SliceVar(&f.buffers, "buffer", nil, "allocate and zero a buffer of so many bytes, passed as the next parameter (repeatable)")
	fl.UintSliceVar(&f.scalars, "scalar", nil, "32-bit value passed after the buffers (repeatable)")
	fl.Float64Var(&f.u, "u", 0, "relative uncertainty that is wanted, k = 2 (default: 0.02, or what the meter can reach if that is more)")
	fl.Float64Var(&f.energy, "expect-energy", 0, "joules of one launch, roughly, for the plan (default: what the carrier draws in that time)")
	fl.Float64Var(&f.drift, "drift", 0, "watts a second that the card's power wanders, for the plan")
	fl.DurationVar(&f.slice, "slice", 0, "carrier between two launches (default: 100 µs, or the kernel's length if that is more)")
	fl.DurationVar(&f.phase, "phase", 0, "contrast: length of a phase (default: planned)")
	fl.IntVar(&f.blocks, "blocks", 0, "contrast: number of blocks of four phases (default: planned)")
	fl.IntVar(&f.launches, "launches", 0, "fold and repeat: number of launches (default: planned)")
	fl.IntVar(&f.bins, "bins", 100, "fold: points of the profile")
	fl.DurationVar(&f.settle, "settle", 1500*time.Microsecond, "fold: how long the power may take to settle behind a launch")
	fl.Uint64Var(&f.seed, "seed", 1, "seed of the slices' dither")
	fl.DurationVar(&f.warmUp, "warm-up", 200*time.Millisecond, "load the GPU for this long before the first marker; 0 for none")
	fl.DurationVar(&f.wait, "wait", 0, "how long to queue for a busy bench")
	fl.BoolVar(&f.noSensor, "no-nvml", false, "do not read the GPU's own sensor beside the meter")
	fl.BoolVar(&f.dryRun, "dry-run", false, "show the plan and measure nothing")
	return a.jsonFlag(c)
}

func (a *app) tiny(ctx context.Context, f tinyFlags) (err error) {
	insert, kernel, err := f.insert()
	if err != nil {
		return err
	}
	if f.dryRun && f.length > 0 {
		return a.tinyDryRun(ctx, f, insert)
	}
	gpu, err := findTinyGPU(f.gpu, kernel)
	if err != nil {
		return err
	}
	defer gpu.Close()
	runner, ok := gpu.Device.(hostagent.TrainRunner)
	if !ok {
		return fmt.Errorf("%s cannot launch a kernel between slices of a carrier", gpu.Info().Name)
	}
	cfg, done, err := a.measureConfig(ctx, f.runFlags, gpu, insert.Name)
	if err != nil {
		return err
	}
	defer done()
	var plan tiny.Plan
	var length measure.Seconds
	prepare(&cfg, func(ctx context.Context) (err error) { // it tries the kernel out
		if plan, length, err = f.plan(ctx, cfg.Monitor, runner, insert); err != nil {
			return err
		}
		if f.dryRun {
			return errPlanned
		}
		fmt.Fprintln(a.err, planText(plan, length))
		return nil
	})
	var ran hostagent.Ran
	id, err := a.measure(ctx, cfg, func(ctx context.Context) (_ []hostagent.Kernel, err error) {
		ran, err = runner.RunTrain(ctx, plan.Train(hostagent.Benchmark(f.carrier), insert, f.seed))
		return tiny.Kernels(plan, ran, insert.Name), err
	})
	if errors.Is(err, errPlanned) {
		return a.printTinyPlan(plan, length)
	}
	if id == 0 {
		return err
	}
	db := cfg.DB.(*store.DB)
	if err == nil {
		err = f.result(ctx, db, id, plan, ran, insert.Name)
	}
	return errors.Join(err, a.showTask(ctx, db, id, nil))
}

// errPlanned ends a measurement that was only to be planned, before there is a task.
var errPlanned = errors.New("the plan was all that was asked for")

// result works the energy of a launch out of a stored task, and stores it.
func (f *tinyFlags) result(ctx context.Context, db *store.DB, id store.TaskID, p tiny.Plan, ran hostagent.Ran, name string) error {
	t, err := db.Task(ctx, id)
	if err != nil {
		return err
	}
	if t.Clock == nil {
		return withCode(exitIncomplete, fmt.Errorf("task %d: without markers that tell the meter's time the launches cannot be placed: %s", id, t.Reason))
	}
	out, err := tiny.Analyse(p, ran, tiny.Source{
		Setup: &t.Setup, Fit: *t.Clock, Blocks: chunk.DecodeAll(db.Chunks(ctx, id, 0), &t.Setup),
	})
	if err != nil {
		return err
	}
	if f.u == 0 {
		f.u = max(tiny.DefaultU, p.U)
	}
	out.Missed(f.u)
	plan, err := json.Marshal(p)
	if err != nil {
		return err
	}
	row := store.Tiny{
		Method: string(out.Method), Kernel: name, Launches: out.Launches, Energy: out.Energy, Budget: out.Budget,
		Length: out.Length, Gap: out.Gap, Carrier: out.Carrier, DOF: out.DOF, Residual: out.Residual,
		Above: measure.Estimate{Energy: measure.Joule(math.NaN()), U: measure.Joule(math.NaN())}, Plan: plan, Warnings: out.Warnings,
	}
	if out.Method == tiny.Repeat {
		row.Carrier, row.Gap = measure.Watt(math.NaN()), measure.Seconds(math.NaN())
	}
	if out.Profile != nil {
		row.Above = out.Profile.Above
		for _, b := range out.Profile.Bins {
			row.Profile = append(row.Profile, store.TinyBin{At: b.At, Power: b.Power, U: b.U, Readings: b.N})
		}
	}
	return db.PutTiny(ctx, id, row)
}

package roofline

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/wattmark/wattmark/analysis/roofline"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/run"
	"github.com/wattmark/wattmark/cmd/internal/session"
	"github.com/wattmark/wattmark/cmd/internal/study/stored"
	"github.com/wattmark/wattmark/hostagent/gpu"
	"github.com/wattmark/wattmark/hostagent/measurement"
	"github.com/wattmark/wattmark/store"
)

// rooflineSweepFlags are the flags of run that a sweep uses, and its own.
type rooflineSweepFlags struct {
	run.RunFlags
	rounds []uint
	repeat int
	seed   uint64
}

// sweepRounds are the default rounds, for 0.5 to 512 flop/byte: both sides of the
// balance of current GPUs, closest where it lies.
var sweepRounds = []uint{1, 2, 4, 8, 16, 24, 32, 48, 64, 128, 256, 1024}

func rooflineSweepCmd(a *cli.App) *cobra.Command {
	var f rooflineSweepFlags
	var r rooflineFlags
	c := cli.Command("sweep", "Measure the device by a kernel of many intensities, and fit its energy roofline",
		cobra.NoArgs, func(ctx context.Context, _ []string) error {
			if err := errors.Join(f.validate(), session.Free(r.svg)); err != nil {
				return err
			}
			return f.Metered(ctx, a, func(ctx context.Context) error { return runSweep(a, ctx, f, r) })
		})
	fl := c.Flags()
	f.Cluster.AddTo(fl)
	f.AddMeter(fl, cli.DefaultMonitor, "in place of these: the monitor that has the meter")
	cli.GPUFlag(fl, &f.GPU, "GPU by index, UUID or PCI bus id (default: the first); sim:SOCKET for that of wattmark emulate")
	cli.UserFlag(fl, &f.User)
	fl.StringVar(&f.Name, "name", "", "name of the tasks (default: roofline, with the time)")
	fl.UintSliceVar(&f.rounds, "rounds", sweepRounds, "rounds of 32 multiply-adds for 128 bytes: rounds/2 flop a byte")
	fl.DurationVar(&f.Duration, "duration", 3*time.Second, "length of each")
	fl.IntVar(&f.repeat, "times", 1, "how often each is measured")
	fl.Uint64Var(&f.seed, "seed", 1, "seed of the order")
	fl.DurationVar(&f.WarmUp, "warm-up", 500*time.Millisecond, "load the GPU for this long before each; 0 for none")
	fl.DurationVar(&f.Wait, "wait", 0, "how long to queue for a busy bench")
	r.add(c)
	return a.JSONFlag(c)
}

// validate refuses fewer than three different intensities: the model has three
// unknowns. Every error is wrong usage.
func (f *rooflineSweepFlags) validate() error {
	if err := f.Check(nil); err != nil {
		return err
	}
	// Repetitions of one intensity add no equation.
	distinct := slices.Compact(slices.Sorted(slices.Values(f.rounds)))
	if i := slices.IndexFunc(f.rounds, func(n uint) bool { return n < 1 || n > 1<<20 }); i >= 0 {
		return cli.Usagef("--rounds %d: want 1 to %d", f.rounds[i], 1<<20)
	}
	switch {
	case len(distinct) < 3:
		return cli.Usagef("--rounds: want three different numbers or more: the model has three unknowns")
	case f.Duration <= 0 || f.repeat < 1:
		return cli.Usagef("--duration %v, --times %d: both must be positive", f.Duration, f.repeat)
	}
	return nil
}

// runSweep measures every intensity with the meter, one task each, then fits and
// prints the roofline. It blocks for the whole sweep. Tasks measured before a
// failure are kept.
func runSweep(a *cli.App, ctx context.Context, f rooflineSweepFlags, r rooflineFlags) error {
	if f.Name == "" {
		f.Name = "roofline " + time.Now().Format("2006-01-02 15:04:05")
	}
	card, err := session.FindGPU(f.GPU)
	if err != nil {
		return err
	}
	defer card.Close()
	mixer, ok := card.Device.(gpu.MixRunner)
	if !ok {
		return fmt.Errorf("%s cannot run the kernel of a sweep", card.Info().Name)
	}
	// The GPU's own sensor is not compared here; the roofline uses the meter.
	f.NoMethods = true
	cfg, done, err := run.MeasureConfig(a, ctx, f.RunFlags, card, f.Name)
	if err != nil {
		return err
	}
	defer done()
	db := cfg.DB.(*store.DB)
	ids, err := sweepAll(a, ctx, f, cfg, db, mixer)
	if err != nil {
		return err
	}
	r.tasks = strings.Join(ids, ",")
	return runRoofline(a, ctx, db, r)
}

// sweepAll measures the intensities in random order, a new permutation per
// repetition, so that a drift of temperature does not correlate with intensity. It
// stores each task's work and returns the numbers of the tasks. A task without a
// result ends the sweep.
func sweepAll(a *cli.App, ctx context.Context, f rooflineSweepFlags, cfg measurement.Config, db *store.DB,
	mixer gpu.MixRunner,
) (ids []string, err error) {
	var plan []uint
	rng := rand.New(rand.NewPCG(f.seed, 0))
	for range f.repeat {
		for _, i := range rng.Perm(len(f.rounds)) { // a drift hits all alike
			plan = append(plan, f.rounds[i])
		}
	}
	for n, rounds := range plan {
		a.Stepf("%d of %d: %g flop/byte\n", n+1, len(plan), gpu.MixIntensity(uint32(rounds)))
		var ran gpu.MixRan
		id, err := run.Measure(a, ctx, cfg, func(ctx context.Context) ([]gpu.Kernel, error) {
			var err error
			ran, err = mixer.RunMix(ctx, uint32(rounds), f.Duration)
			return []gpu.Kernel{ran.Kernel}, err
		})
		if err != nil {
			return nil, err
		}
		t, err := db.Task(ctx, id)
		if err != nil {
			return nil, err
		}
		if t.Result == nil {
			return nil, cli.WithCode(cli.ExitIncomplete,
				fmt.Errorf("task %d is %s: %s: the sweep ends here, its tasks are kept as %q", id, t.State.String(),
					t.Reason, f.Name))
		}
		if err := KeepWork(ctx, db, id, roofline.Work{Flop: ran.Flops, Bytes: ran.Bytes}); err != nil {
			return nil, err
		}
		ids = append(ids, fmt.Sprint(id))
	}
	return ids, nil
}

// kept are the analyses that hold the work of tasks, workName the name of a task's.
var kept = stored.Kind{Kind: "work"}

func workName(id store.TaskID) string { return fmt.Sprintf("task %d", id) }

// KeepWork stores the flop and bytes of a task as an analysis that refers to it.
func KeepWork(ctx context.Context, db *store.DB, id store.TaskID, w roofline.Work) error {
	_, err := kept.Put(ctx, db, workName(id), w, []store.TaskID{id})
	return err
}

// keptWork returns the work that KeepWork stored. A task without any is wrong
// usage, with --work as the remedy.
func keptWork(ctx context.Context, db *store.DB, id store.TaskID) (w roofline.Work, err error) {
	x, err := db.Analysis(ctx, kept.Kind, workName(id), 0)
	if errors.Is(err, store.ErrNotFound) {
		return w, cli.Usagef("nobody kept how many flop and bytes task %d did: say it with --work %d:flop=…,byte=…", id, id)
	}
	if err != nil {
		return w, err
	}
	if err := json.Unmarshal(x.Content, &w); err != nil {
		return w, fmt.Errorf("the work of task %d: %w", id, err)
	}
	return w, nil
}

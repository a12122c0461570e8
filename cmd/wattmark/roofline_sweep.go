package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"wattmark/analysis/roofline"
	"wattmark/hostagent"
	"wattmark/hostagent/measurement"
	"wattmark/store"
)

// rooflineSweepFlags say what a sweep measures.
type rooflineSweepFlags struct {
	runFlags
	rounds []uint
	repeat int
	seed   uint64
}

// sweepRounds are the default rounds: 0.5 to 512 flop a byte.
var sweepRounds = []uint{1, 2, 4, 8, 16, 24, 32, 48, 64, 128, 256, 1024}

func (a *app) rooflineSweepCmd() *cobra.Command {
	var f rooflineSweepFlags
	var r rooflineFlags
	c := &cobra.Command{
		Use: "sweep", Short: "Measure the device by a kernel of many intensities, and fit its energy roofline", Args: cobra.NoArgs,
		Long: `Measure a kernel that streams memory and does rounds of single-precision multiply-adds
on what it reads, rounds/2 flop a byte, one task for each number of rounds, in a
random order, and fit the energy roofline. The tasks keep their work, so that
wattmark roofline NAME fits them again.`,
		Example: "  wattmark roofline sweep --duration 3s --svg h200.svg\n  wattmark roofline sweep --rounds 1,8,32,128,1024 --repeat 3 --monitor meters:7551",
		RunE:    func(cmd *cobra.Command, _ []string) error { return a.sweep(cmd.Context(), f, r) },
	}
	fl := c.Flags()
	f.cluster.addTo(fl)
	fl.StringVar(&f.monitor, "monitor", defaultMonitor, "address of the monitor")
	fl.StringVar(&f.gpu, "gpu", "", "GPU by index, UUID or PCI bus id (default: the first); sim:SOCKET for that of wattmark emulate")
	fl.StringVar(&f.user, "user", "", "user of the tasks (default: the login name)")
	fl.StringVar(&f.name, "name", "", "name of the tasks (default: roofline, with the time)")
	fl.UintSliceVar(&f.rounds, "rounds", sweepRounds, "rounds of 32 multiply-adds for 128 bytes: rounds/2 flop a byte")
	fl.DurationVar(&f.duration, "duration", 3*time.Second, "length of each")
	fl.IntVar(&f.repeat, "repeat", 1, "how often each is measured")
	fl.Uint64Var(&f.seed, "seed", 1, "seed of the order")
	fl.DurationVar(&f.warmUp, "warm-up", 500*time.Millisecond, "load the GPU for this long before each; 0 for none")
	fl.DurationVar(&f.wait, "wait", 0, "how long to queue for a busy bench")
	r.add(c)
	return a.jsonFlag(c)
}

func (f *rooflineSweepFlags) validate() error {
	if err := f.check(nil); err != nil {
		return err
	}
	distinct := map[uint]bool{}
	for _, n := range f.rounds {
		if n < 1 || n > 1<<20 {
			return withCode(exitUsage, fmt.Errorf("--rounds %d: want 1 to %d", n, 1<<20))
		}
		distinct[n] = true
	}
	switch {
	case len(distinct) < 3:
		return withCode(exitUsage, errors.New("--rounds: want three different numbers or more: the model has three unknowns"))
	case f.duration <= 0 || f.repeat < 1:
		return withCode(exitUsage, fmt.Errorf("--duration %v, --repeat %d: both must be positive", f.duration, f.repeat))
	}
	return nil
}

// sweep measures and fits.
func (a *app) sweep(ctx context.Context, f rooflineSweepFlags, r rooflineFlags) error {
	if err := errors.Join(f.validate(), free(r.svg)); err != nil {
		return err
	}
	if f.name == "" {
		f.name = "roofline " + time.Now().Format("2006-01-02 15:04:05")
	}
	gpu, err := findGPU(f.gpu)
	if err != nil {
		return err
	}
	defer gpu.Close()
	mixer, ok := gpu.Device.(hostagent.MixRunner)
	if !ok {
		return fmt.Errorf("%s cannot run the kernel of a sweep", gpu.Info().Name)
	}
	f.noMethods = true
	cfg, done, err := a.measureConfig(ctx, f.runFlags, gpu, f.name)
	if err != nil {
		return err
	}
	defer done()
	db := cfg.DB.(*store.DB)
	ids, err := a.sweepAll(ctx, f, cfg, db, mixer)
	if err != nil {
		return err
	}
	r.tasks = strings.Join(ids, ",")
	return a.roofline(ctx, db, r)
}

// sweepAll measures all intensities and keeps each task's work.
func (a *app) sweepAll(ctx context.Context, f rooflineSweepFlags, cfg measurement.Config, db *store.DB, mixer hostagent.MixRunner) (ids []string, err error) {
	var plan []uint
	rng := rand.New(rand.NewPCG(f.seed, 0))
	for range f.repeat {
		for _, i := range rng.Perm(len(f.rounds)) { // a drift hits all alike
			plan = append(plan, f.rounds[i])
		}
	}
	for n, rounds := range plan {
		fmt.Fprintf(a.err, "%d of %d: %g flop/byte\n", n+1, len(plan), hostagent.MixIntensity(uint32(rounds)))
		var ran hostagent.MixRan
		id, err := a.measure(ctx, cfg, func(ctx context.Context) ([]hostagent.Kernel, error) {
			var err error
			ran, err = mixer.RunMix(ctx, uint32(rounds), f.duration)
			return []hostagent.Kernel{ran.Kernel}, err
		})
		if err != nil {
			return nil, err
		}
		t, err := db.Task(ctx, id)
		if err != nil {
			return nil, err
		}
		if t.Result == nil {
			return nil, withCode(exitIncomplete, fmt.Errorf("task %d is %s: %s: the sweep ends here, its tasks are kept as %q", id, stateNames[t.State], t.Reason, f.name))
		}
		if err := keepWork(ctx, db, id, roofline.Work{Flop: ran.Flops, Bytes: ran.Bytes}); err != nil {
			return nil, err
		}
		ids = append(ids, strconv.FormatInt(int64(id), 10))
	}
	return ids, nil
}

// keepWork records what a task did.
func keepWork(ctx context.Context, db *store.DB, id store.TaskID, w roofline.Work) error {
	content, err := json.Marshal(w)
	if err != nil {
		return err
	}
	_, err = db.PutAnalysis(ctx, store.Analysis{
		Kind: workKind, Name: workName(id), Made: time.Now(), Maker: "wattmark " + version(), Content: content, Tasks: []store.TaskID{id},
	})
	return err
}

// keptWork is what keepWork recorded.
func keptWork(ctx context.Context, db *store.DB, id store.TaskID) (w roofline.Work, err error) {
	x, err := db.Analysis(ctx, workKind, workName(id), 0)
	if errors.Is(err, store.ErrNotFound) {
		return w, withCode(exitUsage, fmt.Errorf("nobody kept how many flop and bytes task %d did: say it with --work %d:flop=…,byte=…", id, id))
	}
	if err != nil {
		return w, err
	}
	if err := json.Unmarshal(x.Content, &w); err != nil {
		return w, fmt.Errorf("the work of task %d: %w", id, err)
	}
	return w, nil
}

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"wattmark/hostagent"
	"wattmark/hostagent/measurement"
	"wattmark/store"
)

// sensorLoadFlags are the flags of sensor load beside those that it shares with run.
type sensorLoadFlags struct {
	runFlags
	periods []time.Duration
	each    time.Duration
	every   time.Duration
	seed    uint64
	out     string
	svg     string
	save    bool
	plot    bool
}

func (a *app) sensorLoadCmd() *cobra.Command {
	var f sensorLoadFlags
	c := &cobra.Command{
		Use: "load", Short: "Load the GPU so that its sensor shows what it does, and identify it", Args: cobra.NoArgs,
		Long: `Alternate a kernel with rest on the GPU, in square waves of several periods that do
not fit into each other or into 100 ms, and long steps first, while the GPU's own
sensor is read; then identify the sensor from that. Waves longer than a window tell
its length, waves shorter than the time between renewals tell how much of that is
seen.

With --monitor the load is the external meter's trace, the task is stored, and gain
and offset are found too. Without one the load is known from the kernels' times.
--out keeps readings.csv and events.csv, which sensor identify reads.`,
		Example: `  wattmark sensor load --save
  wattmark sensor load --monitor 127.0.0.1:7551 --save --svg sensor.svg
  wattmark sensor load --periods 1s,230ms,70ms --each 2s --out recording`,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.sensorLoad(cmd.Context(), f) },
	}
	fl := c.Flags()
	f.cluster.addTo(fl)
	fl.DurationSliceVar(&f.periods, "periods", []time.Duration{
		3 * time.Second, 530 * time.Millisecond, 230 * time.Millisecond, 130 * time.Millisecond, 87 * time.Millisecond, 53 * time.Millisecond, 31 * time.Millisecond,
	}, "periods of the square waves, half on and half off")
	fl.DurationVar(&f.each, "each", 3*time.Second, "how long each of them lasts, at least one period")
	fl.DurationVar(&f.every, "every", 4*time.Millisecond, "distance of the readings, without a meter")
	fl.Uint64Var(&f.seed, "seed", 1, "seed of the random pauses between the waves")
	fl.StringVar(&f.benchmark, "benchmark", "memory", "kernel: half, compute or memory")
	fl.StringVar(&f.gpu, "gpu", "", "GPU by index, UUID or PCI bus id (default: the first); sim:SOCKET for that of wattmark emulate")
	fl.StringVar(&f.monitor, "monitor", "", "address of the monitor (default: measure without a meter)")
	fl.StringVar(&f.out, "out", "", "directory for readings.csv and events.csv")
	svgFlag(fl, &f.svg, "file to draw readings and models into; one for each field: NAME-FIELD.svg")
	fl.BoolVar(&f.save, "save", false, "keep the profiles in the database")
	fl.BoolVar(&f.plot, "plot", false, "draw readings and the model in the terminal")
	fl.DurationVar(&f.warmUp, "warm-up", 200*time.Millisecond, "load the GPU for this long before; 0 for none")
	fl.DurationVar(&f.wait, "wait", 0, "how long to queue for a busy bench")
	fl.StringVar(&f.user, "user", "", "user of the task (default: the login name)")
	fl.StringVar(&f.name, "name", "sensor-load", "name of the task")
	return a.jsonFlag(c)
}

func (f *sensorLoadFlags) validate() error {
	if err := errors.Join(f.check(nil), free(f.svg)); err != nil {
		return err
	}
	if len(f.periods) == 0 || f.each <= 0 || f.every <= 0 {
		return withCode(exitUsage, errors.New("--periods names at least one, --each and --every are positive"))
	}
	for _, p := range f.periods {
		if p < 2*time.Millisecond {
			return withCode(exitUsage, fmt.Errorf("--periods: %v: want at least 2ms", p))
		}
	}
	if f.out != "" {
		if i, err := os.Stat(f.out); err == nil && !i.IsDir() {
			return withCode(exitUsage, fmt.Errorf("--out %s is no folder", f.out))
		}
		for _, n := range []string{"readings.csv", "events.csv"} {
			if _, err := os.Stat(filepath.Join(f.out, n)); err == nil {
				return withCode(exitUsage, fmt.Errorf("%s exists: remove it first or name another directory", filepath.Join(f.out, n)))
			}
		}
	}
	return nil
}

func (a *app) sensorLoad(ctx context.Context, f sensorLoadFlags) error {
	if err := f.validate(); err != nil {
		return err
	}
	gpu, err := findGPU(f.gpu)
	if err != nil {
		return err
	}
	defer gpu.Close()
	work := wavesWork(gpu.Device, hostagent.Benchmark(f.benchmark), f.periods, f.each, f.seed)
	id := &sensorIdentifyFlags{save: f.save, svg: f.svg, plot: f.plot}
	if f.monitor != "" {
		return a.sensorLoadMetered(ctx, f, gpu, work, id)
	}
	if err := gpu.open(ctx); err != nil {
		return err
	}
	s, err := gpu.openSensor()
	if err != nil {
		return err
	}
	defer s.Close()
	if f.warmUp > 0 {
		if err := gpu.WarmUp(ctx, f.warmUp); err != nil {
			return err
		}
	}
	read, kernels, err := readDuring(ctx, s, f.every, work)
	if err != nil {
		return err
	}
	id.source, err = read.source(kernels, gpu.Info())
	if err != nil {
		return err
	}
	if err := f.write(id.source); err != nil {
		return err
	}
	var db *store.DB
	if f.save {
		if db, err = store.Open(ctx, a.db); err != nil {
			return err
		}
		defer db.Close()
	}
	return a.identifySource(ctx, db, id)
}

// sensorLoadMetered is with a monitor: an ordinary task, then its identification.
func (a *app) sensorLoadMetered(ctx context.Context, f sensorLoadFlags, gpu *foundGPU, work measurement.Work, id *sensorIdentifyFlags) error {
	f.noMethods = true
	cfg, done, err := a.measureConfig(ctx, f.runFlags, gpu, f.name)
	if err != nil {
		return err
	}
	defer done()
	task, err := a.measure(ctx, cfg, work)
	if err != nil {
		return err
	}
	db := cfg.DB.(*store.DB)
	if id.source, err = a.sensorTask(ctx, db, fmt.Sprint(task), false); err != nil {
		return err
	}
	if err := f.write(id.source); err != nil {
		return err
	}
	return a.identifySource(ctx, db, id)
}

// wavesWork alternates a kernel with rest in square waves, one period after the
// other. Pauses of a random length lie between them, so that no wave begins in step
// with the sensor.
func wavesWork(d hostagent.Device, b hostagent.Benchmark, periods []time.Duration, each time.Duration, seed uint64) measurement.Work {
	return func(ctx context.Context) ([]hostagent.Kernel, error) {
		rng := rand.New(rand.NewPCG(seed, 0x5e))
		var out []hostagent.Kernel
		next := time.Now()
		for _, p := range periods {
			for end := next.Add(each); next.Before(end); next = next.Add(p) {
				if err := pauseUntil(ctx, next); err != nil {
					return out, err
				}
				k, err := d.RunBenchmark(ctx, b, p/2)
				out = append(out, k...)
				if err != nil {
					return out, err
				}
			}
			next = next.Add(200*time.Millisecond + time.Duration(rng.Int64N(int64(150*time.Millisecond))))
			if now := time.Now(); next.Before(now) {
				next = now
			}
		}
		return out, nil
	}
}

// write keeps readings and events as files.
func (f *sensorLoadFlags) write(s *sensorSource) error {
	if f.out == "" {
		return nil
	}
	if err := os.MkdirAll(f.out, 0o777); err != nil {
		return err
	}
	err := writeFile(filepath.Join(f.out, "readings.csv"), func(w io.Writer) error {
		b := bufio.NewWriter(w)
		fmt.Fprintf(b, "time_us,%s_mw\n", strings.Join(s.fields, "_mw,"))
		for i, p := range s.polls[s.fields[0]] {
			fmt.Fprintf(b, "%.0f", float64(p.At)*1e6)
			for _, field := range s.fields {
				v := math.NaN()
				if i < len(s.polls[field]) {
					v = float64(s.polls[field][i].Power)
				}
				if math.IsNaN(v) {
					fmt.Fprint(b, ",")
				} else {
					fmt.Fprintf(b, ",%.0f", v*1e3)
				}
			}
			fmt.Fprintln(b)
		}
		return b.Flush()
	})
	if err != nil {
		return err
	}
	return writeFile(filepath.Join(f.out, "events.csv"), func(w io.Writer) error {
		b := bufio.NewWriter(w)
		fmt.Fprintln(b, "begin_s,end_s,name")
		for _, p := range s.phases {
			fmt.Fprintf(b, "%.9f,%.9f,%s\n", float64(p.From), float64(p.To), p.Name)
		}
		return b.Flush()
	})
}

package sensor

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
	"github.com/wattmark/wattmark/analysis/sensor"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/run"
	"github.com/wattmark/wattmark/cmd/internal/session"
	"github.com/wattmark/wattmark/hostagent/experiment"
	"github.com/wattmark/wattmark/hostagent/gpu"
	"github.com/wattmark/wattmark/hostagent/measurement"
	"github.com/wattmark/wattmark/internal/backoff"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/store"
)

// SensorLoadFlags are the flags of sensor load, beside those that it shares with run.
type SensorLoadFlags struct {
	run.RunFlags
	periods     []time.Duration
	each, every time.Duration
	seed        uint64
	Out, svg    string
	save, plot  bool
}

func sensorLoadCmd(a *cli.App) *cobra.Command {
	var f SensorLoadFlags
	c := cli.Command("load", "Load the GPU so that its sensor shows what it does, and identify it", cobra.NoArgs,
		func(ctx context.Context, _ []string) error {
			if err := f.validate(); err != nil {
				return err
			}
			return f.Metered(ctx, a, func(ctx context.Context) error { return sensorLoad(a, ctx, f) })
		})
	fl := c.Flags()
	f.AddBench(fl)
	// Long steps first, then periods that do not divide each other or 100 ms, the usual
	// period of a sensor, so that the phase between wave and register drifts.
	fl.DurationSliceVar(&f.periods, "periods", []time.Duration{
		3 * time.Second, 530 * time.Millisecond, 230 * time.Millisecond, 130 * time.Millisecond,
		87 * time.Millisecond, 53 * time.Millisecond, 31 * time.Millisecond,
	}, "periods of the square waves, half on and half off")
	fl.DurationVar(&f.each, "each", 3*time.Second, "how long each of them lasts, at least one period")
	fl.DurationVar(&f.every, "every", 4*time.Millisecond, "distance of the readings, without a meter")
	fl.Uint64Var(&f.seed, "seed", 1, "seed of the random pauses between the waves")
	fl.StringVar(&f.Benchmark, "benchmark", "memory", "kernel: half, compute or memory")
	f.AddMeter(fl, "", "address of the monitor (default: measure without a meter)")
	fl.StringVar(&f.Out, "output", "", "directory for readings.csv and events.csv")
	cli.SVGFlag(fl, &f.svg, "file to draw readings and models into; one for each field: NAME-FIELD.svg")
	fl.BoolVar(&f.save, "save", false, "keep the profiles in the database")
	fl.BoolVar(&f.plot, "plot", false, "draw readings and the model in the terminal")
	fl.DurationVar(&f.WarmUp, "warm-up", 200*time.Millisecond, "load the GPU for this long before; 0 for none")
	cli.UserFlag(fl, &f.User)
	fl.StringVar(&f.Name, "name", "sensor-load", "name of the task")
	return a.JSONFlag(c)
}

// validate returns a usage error for invalid flags, and refuses to overwrite existing
// files.
func (f *SensorLoadFlags) validate() error {
	if err := errors.Join(f.Check(nil), session.Free(f.svg)); err != nil {
		return err
	}
	if len(f.periods) == 0 || f.each <= 0 || f.every <= 0 {
		return cli.Usagef("--periods names at least one, --each and --every are positive")
	}
	for _, p := range f.periods {
		if p < 2*time.Millisecond {
			return cli.Usagef("--periods: %v: want at least 2ms", p)
		}
	}
	if f.Out != "" {
		if i, err := os.Stat(f.Out); err == nil && !i.IsDir() {
			return cli.Usagef("--output %s is no folder", f.Out)
		}
		for _, n := range []string{"readings.csv", "events.csv"} {
			if _, err := os.Stat(filepath.Join(f.Out, n)); err == nil {
				return cli.Usagef("%s exists: remove it first or name another directory", filepath.Join(f.Out, n))
			}
		}
	}
	return nil
}

// sensorLoad runs the designed load on the GPU and identifies its sensor. It blocks for
// the length of all waves, about half a minute by default.
func sensorLoad(a *cli.App, ctx context.Context, f SensorLoadFlags) error {
	card, err := session.FindGPU(f.GPU)
	if err != nil {
		return err
	}
	defer card.Close()
	work := WavesWork(card.Device, gpu.Benchmark(f.Benchmark), f.periods, f.each, f.seed)
	// No method runs beside the load: its reads would disturb the polls.
	f.NoMethods = true
	b, done, err := run.NewBench(a, ctx, f.RunFlags, card, f.Name)
	if err != nil {
		return err
	}
	defer done()
	var s *sensorSource
	b.Alone = func(ctx context.Context, own gpu.PowerSensor, work measurement.Work) (k []gpu.Kernel, err error) {
		s, k, err = ReadDuring(ctx, own, f.every, work)
		return k, err
	}
	ran, err := b.Run(ctx, work)
	if err != nil {
		return err
	}
	// With a meter the source is the stored task, with the meter's trace as the load.
	var db *store.DB
	if b.Meter == nil {
		err = s.LoadedBy(ran.Kernels, card.Info())
	} else {
		db = b.Meter.DB.(*store.DB)
		s, err = sensorTask(a, ctx, db, fmt.Sprint(ran.Task), false)
	}
	if err == nil {
		err = f.Write(s)
	}
	if err == nil && f.save && db == nil {
		if db, err = store.Open(ctx, a.DB); err == nil {
			defer db.Close()
		}
	}
	if err != nil {
		return err
	}
	return identifySource(a, ctx, db, s, &sensorIdentifyFlags{save: f.save, svg: f.svg, plot: f.plot})
}

// WavesWork returns work that alternates a kernel with rest in square waves, one period
// after the other, each for at least each. Random pauses of 200 to 350 ms separate the
// waves, so that no wave starts in step with the sensor.
func WavesWork(d gpu.Device, b gpu.Benchmark, periods []time.Duration, each time.Duration,
	seed uint64,
) measurement.Work {
	return func(ctx context.Context) ([]gpu.Kernel, error) {
		rng := rand.New(rand.NewPCG(seed, 0x5e))
		var out []gpu.Kernel
		next := time.Now()
		for _, p := range periods {
			k, end, err := session.Pulses(ctx, d, b, next, p/2, p, each)
			if out = append(out, k...); err != nil {
				return out, err
			}
			next = end.Add(200*time.Millisecond + time.Duration(rng.Int64N(int64(150*time.Millisecond))))
			// After an overrun the next wave starts now, without a burst to catch up.
			if now := time.Now(); next.Before(now) {
				next = now
			}
		}
		return out, nil
	}
}

// Write writes readings.csv (time in µs, power in mW) and events.csv (times in s) into
// f.Out, in the form that sensor identify reads. It does nothing without a folder.
func (f *SensorLoadFlags) Write(s *sensorSource) error {
	if f.Out == "" {
		return nil
	}
	if err := os.MkdirAll(f.Out, 0o777); err != nil {
		return err
	}
	err := cli.WriteFile(filepath.Join(f.Out, "readings.csv"), func(w io.Writer) error {
		b := bufio.NewWriter(w)
		fmt.Fprintf(b, "time_us,%s_mw\n", strings.Join(s.Fields, "_mw,"))
		// One row a poll: the fields are read at the same times.
		for i, p := range s.Polls[s.Fields[0]] {
			fmt.Fprintf(b, "%.0f", float64(p.At)*1e6)
			for _, field := range s.Fields {
				fmt.Fprint(b, ",")
				if i < len(s.Polls[field]) && !math.IsNaN(float64(s.Polls[field][i].Power)) {
					fmt.Fprintf(b, "%.0f", float64(s.Polls[field][i].Power)*1e3)
				}
			}
			fmt.Fprintln(b)
		}
		return b.Flush()
	})
	if err != nil {
		return err
	}
	return cli.WriteFile(filepath.Join(f.Out, "events.csv"), s.writePhases)
}

// writePhases writes the phases in the form that sensor identify reads.
func (s *sensorSource) writePhases(w io.Writer) error {
	b := bufio.NewWriter(w)
	fmt.Fprintln(b, "begin_s,end_s,name")
	for _, p := range s.Phases {
		fmt.Fprintf(b, "%.9f,%.9f,%s\n", float64(p.From), float64(p.To), p.Name)
	}
	return b.Flush()
}

// ReadDuring polls own at the interval every while work runs, from 1.2 s before it until
// 1.5 s after it, so that the sensor's rest levels are covered. It blocks until both have
// ended. The source has the readings, without those that are NaN of a register that the GPU
// lacks, and as yet no load; its origin is the first poll. No poll is an error.
func ReadDuring(ctx context.Context, own gpu.PowerSensor, every time.Duration,
	work measurement.Work,
) (*sensorSource, []gpu.Kernel, error) {
	const before, after = 1200 * time.Millisecond, 1500 * time.Millisecond
	var origin, last time.Time
	s := &sensorSource{place: func(t time.Time) measure.Seconds { return measure.SecondsOf(t.Sub(origin)) }}
	var failed error // of the last read that failed and was skipped
	kernels, err := experiment.Around(ctx, before, after, func(ctx context.Context) {
		for range backoff.Every(ctx.Done(), every) {
			x, err := own.Read()
			if err != nil {
				failed = err
				continue
			}
			if x.At.Before(last) {
				continue // the clock was set
			}
			if last = x.At; origin.IsZero() {
				origin = last
			}
			s.poll("instant", x.At, x.Instant)
			s.poll("average", x.At, x.Average)
			s.poll("usage", x.At, x.Usage)
		}
	}, work)
	if err == nil && origin.IsZero() {
		err = fmt.Errorf("the GPU's sensor gave no reading: %w", failed)
	}
	return s, kernels, err
}

// poll adds a reading of a register, unless it is NaN.
func (s *sensorSource) poll(field string, at time.Time, w measure.Watt) {
	if !math.IsNaN(float64(w)) {
		s.add(field, sensor.Poll{At: s.place(at), Power: w})
	}
}

// LoadedBy sets the load to kernels on a GPU.
func (s *sensorSource) LoadedBy(kernels []gpu.Kernel, info gpu.Info) error {
	s.gpu, s.uuid, s.driver, s.description = info.Name, info.UUID, info.Driver, "load on "+info.Name
	for _, k := range kernels {
		s.Phases = append(s.Phases, sensor.Phase{Name: k.Name, From: s.place(k.Span.Start), To: s.place(k.Span.End)})
	}
	return s.usePhases("the times of the kernels")
}

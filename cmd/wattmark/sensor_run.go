package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"wattmark/analysis/sensor"
	"wattmark/analysis/validate"
	"wattmark/measure"
	"wattmark/store"
)

// sensorRunFlags are the flags of sensor run beside those that it shares.
type sensorRunFlags struct {
	runFlags
	plan                         sensorPlanFlags
	trials, repetitions, segment int
	every                        time.Duration
	seed                         uint64
	planOnly                     bool
}

func (a *app) sensorRunCmd() *cobra.Command {
	var f sensorRunFlags
	c := &cobra.Command{
		Use: "run [flags] [-- program args]", Short: "Measure the energy of a kernel or program with the GPU's own sensor alone",
		Long: `Carry out the plan that wattmark sensor plan makes, for a built-in benchmark, a kernel
of a PTX file, or a program: trials after random delays, of many repetitions each,
with pauses that shift the phase where the sensor sees a part of the time only. The
rise is discarded, the static line undone, and the trials' scatter is the
uncertainty, beside that of the static line.

With --monitor an external meter measures the same repetitions, and its result stands
beside it. The profile is the stored one of the GPU, or told by --period and --window.`,
		Example: `  wattmark sensor run --benchmark memory --kernel 20ms --u 0.05
  wattmark sensor run --ptx kernel.ptx --entry vadd --grid 1024 --block 256 --kernel 3ms
  wattmark sensor run --period 100ms --window 1s --field average --kernel 2s -- ./gemm 4096`,
		RunE: func(cmd *cobra.Command, args []string) error { return a.sensorRun(cmd.Context(), f, args) },
	}
	fl := c.Flags()
	f.cluster.addTo(fl)
	f.plan.add(fl)
	fl.DurationVar(&f.plan.kernel, "kernel", 0, "how long one repetition lasts (a benchmark runs for it; else default: tried out)")
	fl.IntVar(&f.trials, "trials", 0, "trials (default: planned)")
	fl.IntVar(&f.repetitions, "repetitions", 0, "repetitions of a segment (default: planned)")
	fl.IntVar(&f.segment, "segments", 0, "segments of a trial (default: planned)")
	fl.DurationVar(&f.every, "every", 4*time.Millisecond, "distance of the readings")
	fl.BoolVar(&f.planOnly, "plan", false, "show the plan and measure nothing")
	fl.Uint64Var(&f.seed, "seed", 0, "seed of the random delays (default: by chance)")
	fl.StringVar(&f.benchmark, "benchmark", "", "built-in benchmark: half, compute or memory")
	fl.StringVar(&f.gpu, "gpu", "", "GPU by index, UUID or PCI bus id (default: the first); sim:SOCKET for that of wattmark emulate")
	fl.StringVar(&f.monitor, "monitor", "", "address of a monitor whose meter to hold it against (default: none)")
	fl.StringVar(&f.ptx, "ptx", "", "PTX file")
	fl.StringVar(&f.entry, "entry", "", "kernel in the PTX file (default: the only one)")
	fl.StringVar(&f.grid, "grid", "1", "blocks of the PTX kernel: x[,y[,z]]")
	fl.StringVar(&f.block, "block", "1", "threads of a block of the PTX kernel: x[,y[,z]]")
	fl.Uint32Var(&f.shared, "shared", 0, "bytes of dynamic shared memory of the PTX kernel")
	fl.Int64SliceVar(&f.buffers, "buffer", nil, "allocate and zero a buffer of so many bytes, passed as the next parameter (repeatable)")
	fl.UintSliceVar(&f.scalars, "scalar", nil, "32-bit value passed after the buffers (repeatable)")
	fl.DurationVar(&f.warmUp, "warm-up", 200*time.Millisecond, "load the GPU for this long before; 0 for none")
	fl.DurationVar(&f.wait, "wait", 0, "how long to queue for a busy bench")
	fl.StringVar(&f.user, "user", "", "user of the task (default: the login name)")
	fl.StringVar(&f.name, "name", "sensor-run", "name of the task")
	return a.jsonFlag(c)
}

// sensorRunReport is what sensor run prints.
type sensorRunReport struct {
	GPU     string           `json:"gpu"`
	Driver  string           `json:"driver,omitempty"`
	Field   string           `json:"field"`
	Work    string           `json:"work"`
	Plan    *sensor.Plan     `json:"plan"`
	Result  *sensor.Estimate `json:"result"`
	Meter   *meterTruth      `json:"meter,omitempty"`
	profile *sensor.Profile
}

// meterTruth is the same repetitions by the meter.
type meterTruth struct {
	TaskID   store.TaskID `json:"task_id"`
	EnergyJ  float64      `json:"energy_j"`
	EnergyUJ float64      `json:"energy_u_j"`
	MeanW    float64      `json:"mean_w"`
	ErrorPct float64      `json:"sensor_error_pct"`
	Within   *bool        `json:"within_u,omitempty"` // left out where the meter cannot judge
	Missing  []string     `json:"not_measured,omitempty"`
}

func (a *app) sensorRun(ctx context.Context, f sensorRunFlags, args []string) error {
	if countTrue(len(args) > 0, f.benchmark != "", f.ptx != "") != 1 {
		return withCode(exitUsage, errors.New("name one piece of work: a program after --, --benchmark, or --ptx"))
	}
	if f.benchmark != "" && f.plan.kernel <= 0 {
		return withCode(exitUsage, errors.New("--benchmark: say how long a repetition lasts with --kernel"))
	}
	if f.trials < 0 || f.trials == 1 || f.repetitions < 0 || f.segment < 0 || f.every <= 0 {
		return withCode(exitUsage, errors.New("--trials is at least 2, and --repetitions, --segments and --every are positive"))
	}
	if err := errors.Join(f.check(args), notNegative(span{"--kernel", f.plan.kernel})); err != nil {
		return err
	}
	gpu, err := findGPU(f.gpu)
	if err != nil {
		return err
	}
	defer gpu.Close()
	f.duration, f.repeat = f.plan.kernel, 1
	once, name, err := a.work(gpu.Device, f.runFlags, args)
	if err != nil {
		return err
	}
	r := &sensorRunReport{Work: name}
	s := &sensorTrials{once: once, seed: f.seed}
	if f.monitor != "" {
		err = a.sensorRunMetered(ctx, &f, gpu, s, r)
	} else if err = gpu.open(ctx); err == nil {
		if err = f.prepare(ctx, a, gpu, s, r); err == nil {
			err = a.sensorRunAlone(ctx, f, gpu.openSensor, s, r)
		}
	}
	if errors.Is(err, errPlanned) {
		return a.printPlan(r.profile, r.Plan, f.plan.kernel)
	}
	if err != nil {
		return err
	}
	return a.printSensorRun(r)
}

// prepare plans, for which it tries a repetition out on the open GPU.
func (f *sensorRunFlags) prepare(ctx context.Context, a *app, gpu *foundGPU, s *sensorTrials, r *sensorRunReport) (err error) {
	info := gpu.Info()
	if r.profile, err = f.plan.profile(ctx, a, info.UUID); err != nil {
		return err
	}
	if f.warmUp > 0 {
		if err := gpu.WarmUp(ctx, f.warmUp); err != nil {
			return err
		}
	}
	if f.plan.kernel == 0 {
		if f.plan.kernel, err = tryOut(ctx, s.once); err != nil {
			return err
		}
	}
	x, err := f.planned(r.profile)
	if err != nil {
		return err
	}
	r.GPU, r.Driver, r.Field, r.Plan, s.plan = info.Name, info.Driver, r.profile.Field, x, x
	if f.planOnly {
		return errPlanned
	}
	fmt.Fprintf(a.err, "plan: %d trials of %d segments of %d repetitions, %v in all\n", x.Trials, x.Segments, x.PerSegment, x.Total)
	return nil
}

// sensorRunAlone measures with nothing but the GPU's sensor.
func (a *app) sensorRunAlone(ctx context.Context, f sensorRunFlags, open func() (gpuSensor, error), s *sensorTrials, r *sensorRunReport) error {
	own, err := open()
	if err != nil {
		return err
	}
	defer own.Close()
	read, _, err := readDuring(ctx, own, f.every, s.work)
	if err != nil {
		return err
	}
	origin := read.at[0]
	w, ok := map[string][]measure.Watt{"instant": read.instant, "average": read.average, "usage": read.usage}[r.Field]
	polls := read.polls(w, origin)
	if !ok || len(polls) == 0 {
		return withCode(exitUsage, fmt.Errorf("--field %q: this GPU's sensor does not have it: want instant, average or usage", r.Field))
	}
	r.Result, err = r.profile.Evaluate(s.on(polls, func(t time.Time) measure.Seconds { return measure.SecondsOf(t.Sub(origin)) }))
	return err
}

// sensorRunMetered measures with a meter beside the sensor.
func (a *app) sensorRunMetered(ctx context.Context, f *sensorRunFlags, gpu *foundGPU, s *sensorTrials, r *sensorRunReport) error {
	f.noMethods = true
	cfg, done, err := a.measureConfig(ctx, f.runFlags, gpu, f.name)
	if err != nil {
		return err
	}
	defer done()
	prepare(&cfg, func(ctx context.Context) error { return f.prepare(ctx, a, gpu, s, r) })
	id, err := a.measure(ctx, cfg, s.work)
	if err != nil {
		return err
	}
	db := cfg.DB.(*store.DB)
	src, err := a.sensorTask(ctx, db, fmt.Sprint(id), false)
	if err != nil {
		return err
	}
	if len(src.polls[r.Field]) == 0 {
		return withCode(exitUsage, fmt.Errorf("--field %q: task %d holds no readings of it", r.Field, id))
	}
	trials := s.on(src.polls[r.Field], src.place)
	if r.Result, err = r.profile.Evaluate(trials); err != nil {
		return err
	}
	if src.load == nil {
		r.Result.Notes = append(r.Result.Notes, "no meter's truth: the monitor's meter is the sensor itself, or the clocks could not be related")
		return nil
	}
	t, err := db.Task(ctx, id)
	if err != nil {
		return err
	}
	r.Meter = truthOf(&t, src.load, trials, r.Result)
	return nil
}

// truthOf is the meter's energy of a repetition over the same segments.
func truthOf(t *store.Task, l *sensor.Load, trials []sensor.Trial, e *sensor.Estimate) *meterTruth {
	m := &meterTruth{TaskID: t.ID, Missing: t.Setup.Missing}
	var length measure.Seconds
	n := 0
	for _, x := range trials {
		for _, s := range x.Segments {
			m.EnergyJ += float64(l.Energy(s.From, s.To))
			length += s.To - s.From
			n += s.Repetitions
		}
	}
	m.MeanW = m.EnergyJ / float64(length)
	m.EnergyJ /= float64(n)
	if t.Result != nil && t.Result.Total.Energy > 0 {
		m.EnergyUJ = m.EnergyJ * float64(t.Result.Total.U/t.Result.Total.Energy)
	}
	m.ErrorPct = 100 * (float64(e.Energy)/m.EnergyJ - 1)
	_, most := validate.Unseen(t.Setup.Missing)
	meter := measure.Estimate{Energy: measure.Joule(m.EnergyJ), U: measure.Joule(m.EnergyUJ)}
	if a := (measure.Estimate{Energy: e.Energy, U: e.U}).Against(meter, measure.Joule(float64(most)*float64(length)/float64(n))); a != measure.Unknown {
		within := a == measure.Agrees
		m.Within = &within
	}
	return m
}

func (a *app) printSensorRun(r *sensorRunReport) error {
	if a.json {
		return a.printJSON(r)
	}
	e := r.Result
	fmt.Fprintf(a.out, "%s on %s, by the sensor's %s field alone\n", r.Work, joinNonEmpty(", driver ", r.GPU, r.Driver), r.Field)
	fmt.Fprintf(a.out, "  energy   %s of a repetition (95 %%: scatter %v, static line %v)\n", energyText(float64(e.Energy), float64(e.U)), e.UScatter, e.UStatic)
	fmt.Fprintf(a.out, "  mean     %.1f W over %v\n", float64(e.Mean), e.Length)
	if m := r.Meter; m != nil {
		within := ""
		if m.Within != nil {
			within = map[bool]string{true: ", within", false: ", outside of"}[*m.Within] + " both uncertainties"
		}
		fmt.Fprintf(a.out, "  meter    %s, task %d%s: the sensor is %s off%s\n", energyText(m.EnergyJ, m.EnergyUJ), m.TaskID, missingText(m.Missing), percent(m.ErrorPct), within)
	}
	for _, n := range e.Notes {
		fmt.Fprintf(a.out, "  note     %s\n", n)
	}
	t := newTable(a.out)
	t.AppendHeader(table.Row{"trial", "energy", "mean", "renewals"})
	for i, x := range e.Trials {
		t.AppendRow(table.Row{i + 1, x.Energy, fmt.Sprintf("%.1f W", float64(x.Mean)), x.Renewals})
	}
	t.Render()
	return nil
}

package sensor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/wattmark/wattmark/analysis/sensor"
	"github.com/wattmark/wattmark/analysis/validate"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/out"
	"github.com/wattmark/wattmark/cmd/internal/run"
	"github.com/wattmark/wattmark/cmd/internal/session"
	"github.com/wattmark/wattmark/hostagent/gpu"
	"github.com/wattmark/wattmark/hostagent/measurement"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/store"
)

// SensorRunFlags are the flags of sensor run, beside those that it shares with run.
type SensorRunFlags struct {
	run.RunFlags
	Plan                         SensorPlanFlags
	trials, repetitions, segment int // in place of the plan's where positive
	Every                        time.Duration
	seed                         uint64
	planOnly                     bool
}

func sensorRunCmd(a *cli.App) *cobra.Command {
	var f SensorRunFlags
	var fl *pflag.FlagSet
	c := cli.Command("run [flags] [-- program args]",
		"Measure the energy of a kernel or program with the GPU's own sensor alone", nil,
		func(ctx context.Context, args []string) error {
			if err := cmp.Or(f.Fits(fl), f.check(args)); err != nil {
				return err
			}
			return f.Metered(ctx, a, func(ctx context.Context) error { return sensorRun(a, ctx, f, args) })
		})
	fl = c.Flags()
	fl.SetInterspersed(false)
	f.AddBench(fl)
	cli.Section(fl, "The sensor, and the plan", func() { f.Plan.add(fl) })
	fl.DurationVar(&f.Plan.Kernel, "length", 0,
		"how long one repetition lasts (a benchmark runs for it; else default: tried out)")
	fl.IntVar(&f.trials, "trials", 0, "trials (default: planned)")
	fl.IntVar(&f.repetitions, "repetitions", 0, "repetitions of a segment (default: planned)")
	fl.IntVar(&f.segment, "segments", 0, "segments of a trial (default: planned)")
	fl.DurationVar(&f.Every, "every", 4*time.Millisecond, "distance of the readings")
	fl.BoolVar(&f.planOnly, "plan", false, "show the plan and measure nothing")
	fl.Uint64Var(&f.seed, "seed", 0, "seed of the random delays (default: by chance)")
	fl.StringVar(&f.Benchmark, "benchmark", "", "built-in benchmark: half, compute or memory")
	f.AddMeter(fl, "", "address of a monitor whose meter to hold it against (default: none)")
	f.AddPTX(fl)
	fl.DurationVar(&f.WarmUp, "warm-up", 200*time.Millisecond, "load the GPU for this long before; 0 for none")
	cli.UserFlag(fl, &f.User)
	fl.StringVar(&f.Name, "name", "sensor-run", "name of the task")
	return a.JSONFlag(c)
}

// SensorRunReport is the result of sensor run. Meter is nil where no external meter took
// part.
type SensorRunReport struct {
	GPU     string           `json:"gpu"`
	Driver  string           `json:"driver,omitempty"`
	Field   string           `json:"field"`
	Work    string           `json:"work"`
	Plan    *sensor.Plan     `json:"plan"`
	Result  *sensor.Estimate `json:"result"`
	Meter   *meterTruth      `json:"meter,omitempty"`
	Profile *sensor.Profile  `json:"-"` // sensor show prints it
}

// meterTruth is the energy of the same repetitions by the meter. Energies and powers are
// those of one repetition; U is expanded (k = 2).
type meterTruth struct {
	TaskID   store.TaskID `json:"task_id"`
	EnergyJ  float64      `json:"energy_j"`
	EnergyUJ float64      `json:"energy_u_j"`
	MeanW    float64      `json:"mean_w"`
	ErrorPct float64      `json:"sensor_error_pct"`
	Within   *bool        `json:"within_u,omitempty"` // left out where the meter cannot judge
	Missing  []string     `json:"not_measured,omitempty"`
}

// sensorRun plans and carries out a measurement with the GPU's sensor, beside a meter
// where a monitor is named. It blocks for the length of the plan; with --plan it prints
// the plan and returns.
func sensorRun(a *cli.App, ctx context.Context, f SensorRunFlags, args []string) error {
	card, err := session.FindGPU(f.GPU)
	if err != nil {
		return err
	}
	defer card.Close()
	// The work is one repetition: the trials repeat it.
	f.Duration, f.Repeat = f.Plan.Kernel, 1
	once, name, err := run.Work(a, card.Device, f.RunFlags, args)
	if err != nil {
		return err
	}
	r := &SensorRunReport{Work: name}
	s := &SensorTrials{Once: once, Seed: f.seed}
	f.NoMethods, f.Program = true, len(args) > 0
	b, done, err := run.NewBench(a, ctx, f.RunFlags, card, f.Name)
	if err != nil {
		return err
	}
	defer done()
	// The plan needs the open GPU, and prepare warms it up for the trial of a repetition.
	b.Prepare = func(ctx context.Context) error { return f.prepare(ctx, a, card, s, r) }
	b.Alone = func(ctx context.Context, own gpu.PowerSensor, _ measurement.Work) ([]gpu.Kernel, error) {
		return nil, SensorRunAlone(ctx, f, own, s, r)
	}
	// prepare warms the GPU up; only beside a meter the bench does so again.
	if b.Meter == nil {
		b.WarmUp = 0
	}
	ran, err := b.Run(ctx, s.work)
	// --plan ends the preparation with ErrPlanned, which is no failure.
	if errors.Is(err, cli.ErrPlanned) {
		return printPlan(a, r.Profile, r.Plan, f.Plan.Kernel)
	}
	if err == nil && b.Meter != nil {
		err = f.evaluate(ctx, a, b.Meter.DB.(*store.DB), ran.Task, s, r)
	}
	if err != nil {
		return err
	}
	return a.Print(r, r.Render)
}

// check returns a usage error for flags that exclude each other or are out of range.
func (f *SensorRunFlags) check(args []string) error {
	if session.CountTrue(len(args) > 0, f.Benchmark != "", f.PTX != "") != 1 {
		return cli.Usagef("name one piece of work: a program after --, --benchmark, or --ptx")
	}
	if f.Benchmark != "" && f.Plan.Kernel <= 0 {
		return cli.Usagef("--benchmark: say how long a repetition lasts with --length")
	}
	if f.trials < 0 || f.trials == 1 || f.repetitions < 0 || f.segment < 0 || f.Every <= 0 {
		return cli.Usagef("--trials is at least 2, and --repetitions, --segments and --every are positive")
	}
	return errors.Join(f.Check(args), session.NotNegative("--length", f.Plan.Kernel))
}

// prepare finds the profile, warms the GPU up, times a repetition where --length does not
// give its length, and makes the plan. It requires an open GPU, sets r and s, and returns
// ErrPlanned with --plan.
func (f *SensorRunFlags) prepare(ctx context.Context, a *cli.App, gpu *session.FoundGPU, s *SensorTrials,
	r *SensorRunReport,
) (err error) {
	info := gpu.Info()
	if r.Profile, err = f.Plan.profile(ctx, a, info.UUID, info.Driver); err != nil {
		return err
	}
	if f.WarmUp > 0 {
		err = gpu.WarmUp(ctx, f.WarmUp)
	}
	if err == nil && f.Plan.Kernel == 0 {
		f.Plan.Kernel, err = tryOut(ctx, s.Once)
	}
	if err != nil {
		return err
	}
	x, err := f.Planned(r.Profile)
	if err != nil {
		return err
	}
	r.GPU, r.Driver, r.Field, r.Plan, s.Plan = info.Name, info.Driver, r.Profile.Field, x, x
	if f.planOnly {
		return cli.ErrPlanned
	}
	a.Stepf("plan: %d trials of %d segments of %d repetitions, %v in all\n", x.Trials, x.Segments,
		x.PerSegment, x.Total)
	return nil
}

// SensorRunAlone carries out the trials of s while it polls the sensor own, and sets
// r.Result. Polls and kernels are on the host's clock, so that no clocks need relating.
func SensorRunAlone(ctx context.Context, f SensorRunFlags, own gpu.PowerSensor, s *SensorTrials,
	r *SensorRunReport,
) error {
	src, _, err := ReadDuring(ctx, own, f.Every, s.work)
	if err != nil {
		return err
	}
	if len(src.Polls[r.Field]) == 0 {
		return cli.Usagef("--field %q: this GPU's sensor does not have it: want instant, average or usage", r.Field)
	}
	r.Result, err = r.Profile.Evaluate(s.on(src, r.Field))
	return err
}

// evaluate sets r.Result from the readings that the task id stored, and r.Meter from the
// same segments of the meter's trace.
func (f *SensorRunFlags) evaluate(ctx context.Context, a *cli.App, db *store.DB, id store.TaskID,
	s *SensorTrials, r *SensorRunReport,
) error {
	src, err := sensorTask(a, ctx, db, fmt.Sprint(id), false)
	if err != nil {
		return err
	}
	if len(src.Polls[r.Field]) == 0 {
		return cli.Usagef("--field %q: task %d holds no readings of it", r.Field, id)
	}
	trials := s.on(src, r.Field)
	if r.Result, err = r.Profile.Evaluate(trials); err != nil {
		return err
	}
	if src.load == nil {
		r.Result.Notes = append(r.Result.Notes,
			"no meter's truth: the monitor's meter is the sensor itself, or the clocks could not be related")
		return nil
	}
	t, err := db.Task(ctx, id)
	if err != nil {
		return err
	}
	r.Meter = truthOf(&t, src.load, trials, r.Result)
	return nil
}

// truthOf returns the mean energy of a repetition by the meter, over the segments that
// the sensor's estimate e rests on. The relative uncertainty is that of the task's
// result. Within stays nil where rails without a sensor leave the agreement open.
func truthOf(t *store.Task, l *sensor.Load, trials []sensor.Trial, e *sensor.Estimate) *meterTruth {
	m := &meterTruth{TaskID: t.ID, Missing: t.Setup.Missing}
	// Segments are summed before the division: repetitions of unequal length weigh by it.
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
	// Unknown where the rails without a sensor could explain the difference.
	if a := (measure.Estimate{Energy: e.Energy, U: e.U}).Against(meter,
		measure.Joule(float64(most)*float64(length)/float64(n))); a != measure.Unknown {
		m.Within = new(a == measure.Agrees)
	}
	return m
}

// Render writes the result as text with a table of the trials.
func (r *SensorRunReport) Render(w io.Writer) {
	e := r.Result
	fmt.Fprintf(w, "%s on %s, by the sensor's %s field alone\n", r.Work,
		out.JoinNonEmpty(", driver ", r.GPU, r.Driver), r.Field)
	fmt.Fprintf(w, "  energy   %s of a repetition (95 %%: scatter %v, static line %v)\n",
		out.EnergyText(float64(e.Energy), float64(e.U)), e.UScatter, e.UStatic)
	fmt.Fprintf(w, "  mean     %.1f W over %v\n", float64(e.Mean), e.Length)
	if m := r.Meter; m != nil {
		within := ""
		if m.Within != nil {
			within = map[bool]string{true: ", within", false: ", outside of"}[*m.Within] + " both uncertainties"
		}
		fmt.Fprintf(w, "  meter    %s, task %d%s: the sensor is %s off%s\n",
			out.EnergyText(m.EnergyJ,
				m.EnergyUJ), m.TaskID, missingText(m.Missing), measure.FormatPercent(m.ErrorPct), within)
	}
	out.Each(w, "  note     %s\n", e.Notes)
	t := out.NewTable(w, "trial", "energy", "mean", "renewals")
	for i, x := range e.Trials {
		t.AppendRow(out.Row{i + 1, x.Energy, fmt.Sprintf("%.1f W", float64(x.Mean)), x.Renewals})
	}
	t.Render()
}

// tryOut returns the length of one repetition on the GPU. It measures the second of two,
// because the first one loads modules and allocates memory, unless that took longer than
// 1 s.
func tryOut(ctx context.Context, once measurement.Work) (length time.Duration, err error) {
	for range 2 {
		k, err := once(ctx)
		if err != nil {
			return 0, err
		}
		if len(k) == 0 {
			return 0, errors.New("no kernel ran: there is nothing to measure")
		}
		if length = k[len(k)-1].Span.End.Sub(k[0].Span.Start); length > time.Second {
			break // the time to load is negligible
		}
	}
	if length <= 0 {
		return 0, errors.New("a repetition takes no time that can be told: say how long with --length")
	}
	return length, nil
}

// Planned returns the plan for p with the numbers that the flags override, and its
// duration and uncertainty recomputed. A plan that misses the wanted uncertainty is an
// error unless --trials is set.
func (f *SensorRunFlags) Planned(p *sensor.Profile) (*sensor.Plan, error) {
	x, err := sensor.NewPlan(p, f.Plan.wanted())
	if err != nil && (f.trials == 0 || x == nil) {
		return nil, err
	}
	x.Segments, x.PerSegment = cmp.Or(f.segment, x.Segments), cmp.Or(f.repetitions, x.PerSegment)
	x.Trials = cmp.Or(f.trials, x.Trials)
	if f.segment > 0 || f.repetitions > 0 || f.trials > 0 {
		x.Recount(p, f.Plan.wanted())
	}
	return x, nil
}

// SensorTrials carries out a plan and records the span of each segment. It is not safe
// for concurrent use.
type SensorTrials struct {
	Plan   *sensor.Plan
	Once   measurement.Work // one repetition
	Seed   uint64           // of the delays; zero for a random one
	Trials [][]gpu.Span     // segments by trial, on the host's clock
}

// work carries out all trials and returns a kernel for each segment. Each trial starts
// after a random delay, uniform over the plan's range, so that the phase between work and
// sensor is random; pauses of Shift move it on between segments.
func (s *SensorTrials) work(ctx context.Context) ([]gpu.Kernel, error) {
	rng := rand.New(rand.NewPCG(cmp.Or(s.Seed, rand.Uint64()), 0x7a))
	var kernels []gpu.Kernel
	s.Trials = nil
	for range s.Plan.Trials {
		delay := measure.Seconds(rng.Float64()) * s.Plan.MostDelay
		if err := session.PauseUntil(ctx, time.Now().Add((delay + s.Plan.Discard).Duration())); err != nil {
			return nil, err
		}
		var segments []gpu.Span
		for range s.Plan.Segments {
			span, err := s.segment(ctx)
			if err != nil {
				return nil, err
			}
			segments = append(segments, span)
			kernels = append(kernels, gpu.Kernel{Name: "segment", Span: span})
			if err := session.PauseUntil(ctx, time.Now().Add(s.Plan.Shift.Duration())); err != nil {
				return nil, err
			}
		}
		s.Trials = append(s.Trials, segments)
	}
	return kernels, nil
}

// segment runs the repetitions of one segment without a pause and returns their span.
func (s *SensorTrials) segment(ctx context.Context) (span gpu.Span, err error) {
	for i := range s.Plan.PerSegment {
		k, err := s.Once(ctx)
		if err == nil && len(k) == 0 {
			err = errors.New("no kernel ran")
		}
		if err != nil {
			return span, err
		}
		if i == 0 {
			span.Start = k[0].Span.Start
		}
		span.End = k[len(k)-1].Span.End
	}
	return span, nil
}

// on returns the trials with the polls of a field, on the clock of its source.
func (s *SensorTrials) on(src *sensorSource, field string) []sensor.Trial {
	var out []sensor.Trial
	for _, segments := range s.Trials {
		t := sensor.Trial{Polls: src.Polls[field]}
		for _, x := range segments {
			t.Segments = append(t.Segments,
				sensor.Segment{From: src.place(x.Start), To: src.place(x.End), Repetitions: s.Plan.PerSegment})
		}
		out = append(out, t)
	}
	return out
}

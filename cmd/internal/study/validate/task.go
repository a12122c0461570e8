package validate

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"github.com/wattmark/wattmark/analysis/correct"
	"github.com/wattmark/wattmark/analysis/sensor"
	"github.com/wattmark/wattmark/analysis/smilog"
	"github.com/wattmark/wattmark/analysis/validate"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/out"
	"github.com/wattmark/wattmark/cmd/internal/report"
	correctcmd "github.com/wattmark/wattmark/cmd/internal/study/correct"
	"github.com/wattmark/wattmark/hostagent/measurement"
	hostsensor "github.com/wattmark/wattmark/hostagent/sensor"
	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/marker"
	"github.com/wattmark/wattmark/measure/quality"
	"github.com/wattmark/wattmark/store"
)

// TaskSubjects yields a subject for each stored task, in the order of ids. A task that
// cannot be a subject comes with an error; iteration continues. Samples are read when the
// subject's truth is iterated, so db must stay open until then.
func TaskSubjects(a *cli.App, ctx context.Context, db *store.DB, ids []store.TaskID, f *ValidateFlags) subjects {
	return func(yield func(validate.Subject, error) bool) {
		for _, id := range ids {
			s := validate.Subject{Name: fmt.Sprintf("task %d", id)}
			t, err := a.Task(ctx, db, fmt.Sprint(id))
			if err == nil {
				s, err = taskSubject(ctx, db, t)
			}
			if err == nil {
				var profiles []*sensor.Profile
				profiles, err = findProfiles(a, ctx, f, db, t.GPUUUID, t.Driver)
				addCorrected(&s, profiles)
			}
			if !yield(s, err) {
				return
			}
		}
	}
}

// taskSubject builds a subject from a task by its result in force. It returns an error
// with the remedy for a task that still runs, has no samples or no window.
func taskSubject(ctx context.Context, db *store.DB, t *store.Task) (validate.Subject, error) {
	s := validate.Subject{
		Name: fmt.Sprintf("task %d (%s)", t.ID, measure.Printable(t.Name)), GPU: t.GPU, Driver: t.Driver,
		Meter: t.Instrument.Kind, Missing: t.Setup.Missing,
	}
	switch {
	case t.State == store.Running:
		return s, fmt.Errorf("%s still runs: wait for its end, or finish it with wattmark host", s.Name)
	case t.Scans == 0:
		return s, fmt.Errorf("%s has no samples: measure it beside a meter (wattmark run --monitor)", s.Name)
	case t.Result == nil:
		return s, fmt.Errorf("%s has no window: give it one with wattmark trim %d", s.Name, t.ID)
	}
	times := report.NewTaskTimes(t)
	s.Origin = times.Origin
	s.Work = validate.Span{From: times.Host(t.Result.From), To: times.Host(t.Result.To)}
	s.Truth = report.TaskTruth(ctx, db, t, times.Host)
	s.Systematic, s.Offset = budgetOf(t.Result)
	s.Total, s.LooksAway = t.Result.Total, report.LooksAway(t)
	s.Clock = clockOf(t)
	s.Cautions = cautionsOf(t)
	var err error
	if s.Methods, err = taskMethods(ctx, db, t, times, s.Work); err != nil {
		return s, err
	}
	var note string
	s.Kernels, note, err = report.TaskKernels(ctx, db, t, times.Wall)
	if note != "" {
		s.Cautions = append(s.Cautions, note)
	}
	return s, err
}

// budgetOf splits a result's budget into a relative part, which scales with the energy,
// and an offset in watts, which scales with the time; both k = 1. The window's edges are
// left out: the uncertainty of the clock covers them.
//
//	relative = √Σ u²(gain, noise, …) / E,  offset = √Σ u²(offset …) / T
func budgetOf(r *measure.Result) (relative float64, offset measure.Watt) {
	e, length := float64(r.Total.Energy), float64(r.To-r.From)
	if len(r.Budget) == 0 {
		return math.Abs(float64(r.Total.U) / 2 / e), 0
	}
	// A coverage factor above 2 marks noise estimated from few readings: u grows with it.
	wider := max(1, measure.FactorOf(r.Total, r.Budget)/2)
	var byEnergy, byTime float64
	for _, c := range r.Budget {
		switch u := wider * float64(c.U); {
		case c.Source == "window edges":
		case strings.HasPrefix(c.Source, "offset "):
			byTime += u * u
		default:
			byEnergy += u * u
		}
	}
	return math.Sqrt(byEnergy) / math.Abs(e), measure.Watt(math.Sqrt(byTime) / length)
}

// clockOf describes the relation between a task's meter and the host's clock at the
// middle of the window: from the markers, from a recording, or from the monitor's start
// time alone.
func clockOf(t *store.Task) validate.Clock {
	nan, none := measure.Seconds(math.NaN()), measure.Number(math.NaN())
	if t.Clock == nil {
		return validate.Clock{OffsetU: nan, DriftPPM: none, DriftUPPM: none, How: "the monitor's start time"}
	}
	// Half of the window: an error of the drift moves its ends least.
	middle := (t.Result.From + t.Result.To) / 2
	at, u := t.Clock.Host(middle)
	if t.Marker.Code == marker.None { // played back: the monitor's clock is unrelated to the recording
		return validate.Clock{
			Offset: nan, OffsetU: 2 * u, DriftPPM: none, DriftUPPM: none, How: "the recording's own times",
		}
	}
	return validate.Clock{
		Offset:  measure.SecondsOf(measurement.HostTime(*t.Clock, at).Sub(t.Started)) - middle,
		OffsetU: 2 * u, DriftPPM: measure.Number(1e6 * (t.Clock.B - 1)),
		DriftUPPM: measure.Number(2e6 * math.Sqrt(t.Clock.VarB)), How: "markers",
	}
}

// cautionsOf returns the cautions that wattmark show prints for the task, without the one
// on the sensor's blind time where the meter's response already covers it.
func cautionsOf(t *store.Task) (result []string) {
	away := report.Caution(t.Setup.Response)
	if away != "" {
		result = append(result, away)
	}
	if t.OwnSensor() {
		result = append(result,
			"the meter is the GPU's own sensor: methods are held against one another, not against a truth")
	}
	if q := report.NewQuality(t); q != nil {
		for _, r := range q.Reasons {
			if repeated := away != "" && r.Cause == quality.LooksAway; !repeated && r.Level >= quality.Doubtful {
				result = append(result, r.Text)
			}
		}
	}
	if t.Result.Lost > 0 {
		result = append(result, out.GapText(t.Result.Gaps, t.Result.Lost)+" within the work")
	}
	return result
}

// taskMethods returns the software methods of a task: those with a stored result, then
// the fields and logs that have readings alone. work is the span of the result in force.
func taskMethods(ctx context.Context, db *store.DB, t *store.Task, times report.TaskTimes,
	work validate.Span,
) ([]validate.Method, error) {
	results, err1 := db.Methods(ctx, t.ID)
	readings, err2 := db.Readings(ctx, t.ID)
	if err := cmp.Or(err1, err2); err != nil {
		return nil, err
	}
	// Readings by stored method; NaN marks a register that the poll did not return.
	by := map[string][]hostsensor.Point{}
	for _, r := range readings {
		if !math.IsNaN(r.Value) {
			by[r.Method] = append(by[r.Method], hostsensor.Point{At: r.At, Value: r.Value})
		}
	}
	var out []validate.Method
	for i := range results {
		out = append(out, taskMethod(&results[i], by, times, work))
	}
	// Fields and logs that no method covers: of tasks measured without methods, and of
	// recordings that were played back. Their energy is NaN, so that validation integrates
	// the readings. stored is the key of a name in the database.
	add := func(name, stored string) {
		if r := points(by[stored], times); len(r) > 0 &&
			!slices.ContainsFunc(out, func(m validate.Method) bool { return m.Name == name }) {
			out = append(out, validate.Method{Name: name, Readings: r, Energy: measure.Joule(math.NaN())})
		}
	}
	add(string(hostsensor.InstantField), hostsensor.InstantPower)
	add(string(hostsensor.AverageField), hostsensor.AveragePower)
	if len(results) == 0 {
		add("usage", hostsensor.UsagePower) // SMA and MTSM read the same register
	}
	for _, stored := range slices.Sorted(maps.Keys(by)) {
		if strings.HasPrefix(stored, cli.SmiPrefix) {
			add(stored, stored)
		}
	}
	return out, nil
}

// taskMethod converts one stored method. Its energy follows the method's own rule; the
// readings are integrated instead where the window changed after the method was
// evaluated.
func taskMethod(x *store.MethodResult, by map[string][]hostsensor.Point, times report.TaskTimes,
	work validate.Span,
) validate.Method {
	m := validate.Method{
		Name: x.Method, Note: x.Note, Energy: x.Energy, U: x.U, Made: x.Readings, Silent: math.IsNaN(float64(x.Energy)),
	}
	switch hostsensor.Method(x.Method) {
	// The counter is cumulative energy: its differences over time are the power.
	case hostsensor.Counter, hostsensor.CounterEnds:
		m.Readings = points(report.PowerOf(by[measurement.MethodPrefix+string(hostsensor.Counter)]), times)
	// PAPI reads once at the end of the work: the first poll at or after it.
	case hostsensor.PAPI:
		polls := by[measurement.MethodPrefix+x.Method]
		if i := slices.IndexFunc(polls, func(p hostsensor.Point) bool { return !p.At.Before(x.To) }); i >= 0 {
			m.Readings = points(polls[i:i+1], times)
		}
	case hostsensor.InstantField:
		m.Readings = points(by[hostsensor.InstantPower], times)
	case hostsensor.AverageField:
		m.Readings = points(by[hostsensor.AveragePower], times)
	default:
		stored := measurement.MethodPrefix + x.Method
		if len(by[stored]) == 0 {
			stored = x.Method // imported logs and corrected variants have no prefix
		}
		m.Readings = points(by[stored], times)
		m.Silent = m.Silent && !strings.HasPrefix(x.Method, cli.SmiPrefix) // a log may still span the work
	}
	// The stored energy belongs to another window: only its readings remain valid.
	if off, same := times.SameWork(x.From, x.To, work); !same && !math.IsNaN(float64(m.Energy)) {
		m.Energy, m.U = measure.Joule(math.NaN()), 0
		m.Note = out.JoinNonEmpty("; ", m.Note,
			fmt.Sprintf("the window is not the work that it spoke of (%v off): its readings are integrated", off))
	}
	return m
}

// points converts readings to the subject's clock, in order of time.
func points(list []hostsensor.Point, times report.TaskTimes) (out []validate.Reading) {
	out = lists.Map(list, func(p hostsensor.Point) validate.Reading {
		return validate.Reading{At: times.Wall(p.At), Power: measure.Watt(p.Value)}
	})
	slices.SortStableFunc(out, func(a, b validate.Reading) int { return cmp.Compare(a.At, b.At) })
	return out
}

// correctedFlags adds the flags that describe a sensor, whose lag or window is corrected
// and validated beside the methods.
func (f *ValidateFlags) correctedFlags(fl *pflag.FlagSet) {
	f.sensor.Slope = correct.Symmetric.String()
	fl.StringVar(&f.sensor.Profile, "profile", "", "judge corrected variants too, by this stored sensor profile "+
		"(of a task: those of its GPU are used by themselves)")
	f.sensor.Certificate.Flags(fl)
	fl.StringVar(&f.sensor.Preset, "preset", "",
		"the same, by a published lag: "+strings.Join(correct.PresetNames(), ", "))
	fl.DurationVar(&f.sensor.Tau, "tau", 0, "the same, by a lag's constant, as correct fit finds it")
	fl.DurationVar(&f.sensor.Window, "window", 0, "the same, by what a reading is the mean of")
	fl.DurationVar(&f.sensor.Period, "period", 0, "from one renewal of the register to the next, with --window or --tau")
}

// addCorrected appends to the methods of s a variant for each profile, with the sensor's
// lag or window corrected. A profile without a field applies to the first method with at
// least two readings; one that fits no method is left out.
func addCorrected(s *validate.Subject, profiles []*sensor.Profile) {
	var out []validate.Method
	for _, p := range profiles {
		i := slices.IndexFunc(s.Methods, func(m validate.Method) bool {
			name := m.Name
			if _, field, ok := smilog.CutTool(name); ok {
				name = field
			}
			return len(m.Readings) >= 2 && (p.Field == "" || p.Field == name)
		})
		if i < 0 {
			continue
		}
		// The profile is shared between subjects: the field is set on a copy.
		q := *p
		q.Field = s.Methods[i].Name
		for _, m := range correct.Methods(s.Methods[i].Readings, &q, s.Work, s.Kernels) {
			// A variant that wattmark correct stored is validated as stored.
			if !slices.ContainsFunc(s.Methods, func(x validate.Method) bool { return x.Name == m.Name }) {
				out = append(out, m)
			}
		}
	}
	s.Methods = append(s.Methods, out...)
}

// findProfiles returns the sensor profiles to correct with: the one that the flags
// describe, else the newest stored one of each field of the GPU uuid. A certificate of
// another GPU or driver is refused. Without flags, a nil
// db or an empty uuid yields none. Stored profiles are named "UUID FIELD", and the list is
// ordered by name, then by version.
func findProfiles(a *cli.App, ctx context.Context, f *ValidateFlags, db *store.DB,
	uuid, driver string,
) ([]*sensor.Profile, error) {
	if f.sensor.Sensors() > 0 {
		p, _, err := correctcmd.SensorFrom(a, ctx, &f.sensor)
		if err == nil {
			err = f.sensor.Certificate.Fits(p, uuid, driver)
		}
		return []*sensor.Profile{p}, err
	}
	if db == nil || uuid == "" {
		return nil, nil
	}
	list, err := db.Analyses(ctx, sensor.Kind)
	if err != nil {
		return nil, err
	}
	var out []*sensor.Profile
	for i, x := range list {
		newest := i+1 == len(list) || list[i+1].Name != x.Name
		if !newest || !strings.HasPrefix(x.Name, uuid+" ") {
			continue
		}
		p, err := correctcmd.ReadProfile(&x)
		if err != nil {
			return nil, err
		}
		out = append(out, p)
	}
	return out, nil
}

package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"strings"
	"time"

	"wattmark/analysis/sensor"
	"wattmark/analysis/validate"
	"wattmark/hostagent/measurement"
	"wattmark/measure"
	"wattmark/measure/marker"
	"wattmark/measure/quality"
	"wattmark/store"
)

// taskSubjects makes subjects of stored tasks, one at a time.
func (a *app) taskSubjects(ctx context.Context, db *store.DB, ids []store.TaskID, f *validateFlags) subjects {
	return func(yield func(validate.Subject, error) bool) {
		for _, id := range ids {
			s := validate.Subject{Name: fmt.Sprintf("task %d", id)}
			t, err := a.task(ctx, db, fmt.Sprint(id))
			if err == nil {
				s, err = taskSubject(ctx, db, t)
			}
			if err == nil {
				var profiles []*sensor.Profile
				profiles, err = a.profiles(ctx, f, db, t.GPUUUID)
				addCorrected(&s, profiles)
			}
			if !yield(s, err) {
				return
			}
		}
	}
}

// taskTimes carries a task's device time to seconds of the host's clock since its
// work began.
type taskTimes struct {
	task   *store.Task
	origin time.Time
}

func newTaskTimes(t *store.Task) taskTimes {
	if t.Clock == nil {
		return taskTimes{t, t.Started.Add(t.Result.From.Duration())}
	}
	from, _ := t.Clock.Host(t.Result.From)
	return taskTimes{t, measurement.HostTime(*t.Clock, from)}
}

// host maps device time. Without a clock fit the monitor's start time has to do.
func (t taskTimes) host(device measure.Seconds) measure.Seconds {
	if f := t.task.Clock; f != nil {
		s, _ := f.Host(device)
		return s - measurement.HostSeconds(*f, t.origin)
	}
	return device - measure.SecondsOf(t.origin.Sub(t.task.Started))
}

func (t taskTimes) wall(at time.Time) measure.Seconds { return measure.SecondsOf(at.Sub(t.origin)) }

// taskSubject makes a subject of a stored task, by its result in force.
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
	times := newTaskTimes(t)
	s.Origin = times.origin
	s.Work = validate.Span{From: times.host(t.Result.From), To: times.host(t.Result.To)}
	s.Truth = taskTruth(ctx, db, t, times)
	s.Systematic, s.Offset = budgetOf(t.Result)
	s.Total, s.LooksAway = t.Result.Total, looksAway(t)
	s.Clock = clockOf(t)
	s.Cautions = cautionsOf(t)
	var err error
	if s.Methods, err = taskMethods(ctx, db, t, times, s.Work); err != nil {
		return s, err
	}
	var note string
	s.Kernels, note, err = taskKernels(ctx, db, t, times)
	if note != "" {
		s.Cautions = append(s.Cautions, note)
	}
	return s, err
}

// errStopped ends a reading that nobody wants the rest of.
var errStopped = errors.New("stopped")

// taskTruth yields the sum of a task's rails, scan by scan.
func taskTruth(ctx context.Context, db *store.DB, t *store.Task, times taskTimes) iter.Seq2[validate.Sample, error] {
	return func(yield func(validate.Sample, error) bool) {
		tb, skew := t.Setup.Timebase, meanSkew(&t.Setup)
		stream, err := measure.NewPowerStream(&t.Setup, func(p *measure.Powers) error {
			for i := range p.Scans() {
				var w measure.Watt
				for r := range p.Rails {
					w += p.Rails[r].P[i]
				}
				if !yield(validate.Sample{At: times.host(tb.Seconds(p.Tick(i)) + skew), Power: w}, nil) {
					return errStopped
				}
			}
			return nil
		})
		for b, e := range blocks(ctx, db, t) {
			if err == nil {
				err = e
			}
			if err == nil {
				err = stream.Add(b)
			}
			if err != nil {
				break
			}
		}
		if err == nil {
			err = stream.Close()
		}
		if err != nil && !errors.Is(err, errStopped) {
			yield(validate.Sample{}, err)
		}
	}
}

// meanSkew is how far the rails are read behind their scan, on the average.
func meanSkew(s *measure.Setup) (sum measure.Seconds) {
	for _, r := range s.Rails {
		sum += s.Channels[r.X].Skew
	}
	return sum / measure.Seconds(max(len(s.Rails), 1))
}

// budgetOf parts a result's budget into what goes by the energy and what goes by
// the time, both k = 1. The window's ends are left out: the clock tells of them.
func budgetOf(r *measure.Result) (relative float64, offset measure.Watt) {
	e, length := float64(r.Total.Energy), float64(r.To-r.From)
	if len(r.Budget) == 0 {
		return math.Abs(float64(r.Total.U) / 2 / e), 0
	}
	wider := max(1, measure.FactorOf(r.Total, r.Budget)/2) // few readings of a noise
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

// clockOf says how a task's meter was put on the host's clock.
func clockOf(t *store.Task) validate.Clock {
	nan := measure.Seconds(math.NaN())
	if t.Clock == nil {
		return validate.Clock{OffsetU: nan, DriftPPM: math.NaN(), DriftUPPM: math.NaN(), How: "the monitor's start time"}
	}
	middle := (t.Result.From + t.Result.To) / 2
	at, u := t.Clock.Host(middle)
	if t.Marker.Code == marker.None { // a recording that was played back: its monitor's clock says nothing
		return validate.Clock{Offset: nan, OffsetU: 2 * u, DriftPPM: math.NaN(), DriftUPPM: math.NaN(), How: "the recording's own times"}
	}
	return validate.Clock{
		Offset:  measure.SecondsOf(measurement.HostTime(*t.Clock, at).Sub(t.Started)) - middle,
		OffsetU: 2 * u, DriftPPM: 1e6 * (t.Clock.B - 1), DriftUPPM: 2e6 * math.Sqrt(t.Clock.VarB), How: "markers",
	}
}

// looksAway reports a meter that cannot judge a method: one that does not look all the
// time, or the GPU's own sensor.
func looksAway(t *store.Task) bool {
	return caution(t.Setup.Response) != "" || t.Instrument.Kind == "nvml"
}

// cautionsOf are what wattmark show warns of.
func cautionsOf(t *store.Task) (out []string) {
	away := caution(t.Setup.Response)
	if away != "" {
		out = append(out, away)
	}
	if t.Instrument.Kind == "nvml" {
		out = append(out, "the meter is the GPU's own sensor: methods are held against one another, not against a truth")
	}
	if q := newQuality(t); q != nil {
		for _, r := range q.Reasons {
			told := away != "" && r.Cause == string(quality.LooksAway)
			if !told && (r.Level == "doubtful" || r.Level == "void") {
				out = append(out, r.Text)
			}
		}
	}
	if t.Result.Lost > 0 {
		out = append(out, gapText(t.Result.Gaps, t.Result.Lost)+" within the work")
	}
	return out
}

// mostLaunches bounds what is held of a recorded program.
const mostLaunches = 1 << 20

// taskKernels are the kernels that were recorded in the program, else those that
// the benchmark noted.
func taskKernels(ctx context.Context, db *store.DB, t *store.Task, times taskTimes) (out []validate.Kernel, note string, err error) {
	tables, err := db.LaunchTables(ctx, t.ID)
	if err != nil {
		return nil, "", err
	}
	if len(tables.Processes) == 0 {
		list, err := db.Kernels(ctx, t.ID)
		for _, k := range list {
			out = append(out, validate.Kernel{Name: measure.Printable(k.Name), Span: validate.Span{From: times.wall(k.Start), To: times.wall(k.End)}})
		}
		return out, "", err
	}
	names := make([]string, len(tables.Names))
	for i, n := range tables.Names {
		names[i] = readable(n)
	}
	for l, err := range db.Launches(ctx, t.ID) {
		switch {
		case err != nil:
			return nil, "", err
		case l.Name >= len(names) || l.Device >= len(tables.Devices):
			return nil, "", fmt.Errorf("task %d: a launch of name %d on device %d: %w", t.ID, l.Name, l.Device, store.ErrCorrupt)
		case !tables.Devices[l.Device].Measured:
			continue
		case len(out) == mostLaunches:
			return out, fmt.Sprintf("of the recorded kernels only the first %d count: what later ones drew is in the line of no kernel", mostLaunches), nil
		}
		out = append(out, validate.Kernel{Name: names[l.Name], Span: validate.Span{From: times.wall(time.Unix(0, l.Start)), To: times.wall(time.Unix(0, l.End))}})
	}
	return out, "", nil
}

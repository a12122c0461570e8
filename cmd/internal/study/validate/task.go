package validate

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"strings"

	"github.com/wattmark/wattmark/analysis/sensor"
	"github.com/wattmark/wattmark/analysis/validate"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/out"
	"github.com/wattmark/wattmark/cmd/internal/report"
	"github.com/wattmark/wattmark/hostagent/measurement"
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
	s.Truth = TaskTruth(ctx, db, t, times.Host)
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

// errStopped ends the power stream early after the consumer has stopped the iteration.
var errStopped = errors.New("stopped")

// TaskTruth yields the sum of a task's rails, scan by scan, with at for the time of an
// instant of the meter's clock. Gaps yield no samples. Each iteration reads the chunks
// from the database anew.
func TaskTruth(ctx context.Context, db *store.DB, t *store.Task,
	at func(measure.Seconds) measure.Seconds,
) iter.Seq2[validate.Sample, error] {
	return func(yield func(validate.Sample, error) bool) {
		// A sample is timed by the mean skew between a scan and the conversion of its rails.
		tb, skew := t.Setup.Timebase, measure.Seconds(0)
		for _, r := range t.Setup.Rails {
			skew += t.Setup.Channels[r.X].Skew
		}
		skew /= measure.Seconds(max(len(t.Setup.Rails), 1))
		// The stream aligns the rails, which are converted one after the other, to one instant.
		stream, err := measure.NewPowerStream(&t.Setup, func(p *measure.Powers) error {
			for i := range p.Scans() {
				var w measure.Watt
				for r := range p.Rails {
					w += p.Rails[r].P[i]
				}
				if !yield(validate.Sample{At: at(tb.Seconds(p.Tick(i)) + skew), Power: w}, nil) {
					return errStopped
				}
			}
			return nil
		})
		// The stream is closed only after the last block: Close flushes the scans that
		// wait for their neighbours.
		for b, e := range report.Blocks(ctx, db, t) {
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

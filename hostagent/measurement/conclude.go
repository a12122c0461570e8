package measurement

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/wattmark/wattmark/hostagent/gpu"
	"github.com/wattmark/wattmark/hostagent/monitorclient"
	"github.com/wattmark/wattmark/hostagent/sensor"
	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/calib"
	"github.com/wattmark/wattmark/measure/clock"
	"github.com/wattmark/wattmark/measure/marker"
	"github.com/wattmark/wattmark/measure/session"
	"github.com/wattmark/wattmark/store"
)

// verdict collects the reasons for which a task is not complete.
//
//	Complete ─ untrimmed ─▶ Untrimmed ─ incomplete ─▶ Incomplete ─ failed ─▶ Failed
//
// A state never moves to the left.
type verdict struct {
	state   store.State
	reasons []string
	// owner is the process that measured, where it ends the task itself; recovered is set
	// where another does in its place (store.Outcome).
	owner     string
	recovered bool
	// clock relates the clocks of a task without markers; nil for none.
	clock *clock.Fit
}

// note adds a remark that leaves the state as it is; none where it is empty.
func (v *verdict) note(format string, a ...any) {
	if text := fmt.Sprintf(format, a...); text != "" {
		v.reasons = append(v.reasons, text)
	}
}

// incomplete adds a reason for which something is missing.
func (v *verdict) incomplete(format string, a ...any) {
	if v.state != store.Failed {
		v.state = store.Incomplete
	}
	v.note(format, a...)
}

// untrimmed adds a reason for which there is no window. It does not hide that
// something is missing.
func (v *verdict) untrimmed(format string, a ...any) {
	if v.state == store.Complete {
		v.state = store.Untrimmed
	}
	v.note(format, a...)
}

// Conclude computes a task's outcome from its stored samples, edges played and kernels, and a summary of their capture.
// It stores nothing. Errors are the database's.
func Conclude(ctx context.Context, db Store, id store.TaskID, s *session.Summary) (store.Outcome, error) {
	return conclude(ctx, db, id, s, verdict{})
}

// conclude is Conclude on top of v's reasons.
func conclude(ctx context.Context, db Store, id store.TaskID, s *session.Summary, v verdict) (store.Outcome, error) {
	v.state = cmp.Or(v.state, store.Complete)
	task, err := db.Task(ctx, id)
	if err != nil {
		return store.Outcome{}, err
	}
	if task.Failure != nil {
		// However well it was measured, a failed work has no result.
		v.state = store.Failed
		v.reasons = slices.Insert(v.reasons, 0, "the work failed: "+task.Failure.Reason)
	}
	if s.State == session.Incomplete {
		v.incomplete("the capture ended early: %s", s.Reason)
	}
	task.Clock = cmp.Or(v.clock, task.Clock)
	a, err := analyse(ctx, db, &task, s.Markers)
	if err != nil {
		return store.Outcome{}, err
	}
	if a.stranger != "" {
		v.incomplete("%s", a.stranger)
	}
	// One marker found by its code still relates the clocks, at an assumed rate: its window is
	// good enough to keep, not to be called complete.
	switch {
	case a.result == nil:
		v.untrimmed(noWindow+"%s"+setOne, v.why(s, a.why))
	case v.clock != nil:
		v.note("the GPU plays no markers: the clocks are related by when the capture began, ± %.2g s",
			2*math.Sqrt(v.clock.VarA))
	case a.start == nil || a.stop == nil:
		v.incomplete("the window rests on one marker alone: %s", v.why(s, errors.New("the other was not found")))
	case a.why != nil:
		v.note("%v", a.why)
	}
	v.note("%s", a.clock)
	v.note("%s", a.marks)
	v.note("%s", marked(&task, a.fit))
	seen, err := wired(ctx, db, &task, a.fit)
	if err != nil {
		return store.Outcome{}, err
	}
	v.note("%s", seen)
	// Samples lost outside of the window do not matter.
	switch {
	case a.result != nil && a.result.Gaps > 0:
		v.incomplete("%s within the window", missing(a.result.Lost, a.result.Gaps))
	case a.result == nil && s.Gaps > 0:
		v.incomplete("%s", missing(s.Lost, s.Gaps))
	}
	return store.Outcome{
		State: v.state, Reason: strings.Join(v.reasons, "; "), Markers: s.Markers,
		Clock: a.fit, Result: a.result, NVML: a.nvml, NVMLMethod: a.method,
	}, nil
}

// missing words a loss of scans in gaps.
func missing(scans, gaps uint64) string {
	verb := "were"
	if scans == 1 {
		verb = "was"
	}
	return fmt.Sprintf("%s %s lost in %s", measure.Plural(scans, "scan"), verb, measure.Plural(gaps, "gap"))
}

// why prefers the monitor's words, which has seen the trace, but where no marker was to be found.
func (v *verdict) why(s *session.Summary, own error) string {
	if s.NoWindowReason != "" && v.clock == nil {
		return s.NoWindowReason
	}
	return fmt.Sprint(own)
}

// analysis is the result of a task's samples, markers and kernels.
type analysis struct {
	bounds
	fit    *clock.Fit
	result *measure.Result
	nvml   *measure.Joule // by the GPU's own sensor, nil for none
	method string         // of its readings
	// stranger is the reason where the bench measured another GPU; empty for none.
	stranger string
	clock    string // the fault of the meter's clock; empty for none
	marks    string // how marks amid the work relate the clocks; empty without
	why      error  // why there is no result, or not the best one
}

// analyse relates the clocks, chooses the window and integrates over it. An
// error means that the database failed, not that the trace is poor.
func analyse(ctx context.Context, db Store, task *store.Task, found []marker.Found) (analysis, error) {
	var a analysis
	id := task.ID
	played, playedErr := db.Played(ctx, id)
	kernels, err := db.Kernels(ctx, id)
	if err = errors.Join(playedErr, err); err != nil {
		return a, err
	}
	if task.BenchGPU != "" && !measure.SameGPU(task.BenchGPU, task.GPUUUID) {
		a.stranger = fmt.Sprintf("the bench measured %s, not this GPU (%s)", task.BenchGPU, task.GPUUUID)
	}
	a.bounds = bound(found)
	if task.Chunks == 0 {
		a.why = errors.New("no samples were stored")
		return a, nil
	}
	fitErr := errors.New("the markers were not found by their code")
	if task.Marker.Code == marker.None {
		a.fit = task.Clock
	}
	if timed := a.timed(task.Marker, found); len(timed) > 0 {
		a.fit, fitErr = relate(&task.Setup, played, timed)
		a.clock = offRate(task.Setup.Timebase, a.fit)
	}
	t := *task
	if t.Clock, t.Markers = a.fit, found; a.fit != nil {
		m := bend(&t, played, false)
		a.marks = m.note()
	}
	p, err := choose(a.fit, fitErr, kernels, a.bounds, guess(task, a.bounds, &clock.Fit{}, Window{}).any())
	if err != nil {
		a.why = err
		return a, nil
	}
	if p.note != "" {
		a.why = errors.New(p.note)
	}
	p.edges.Rate = rateU(task.Setup.Timebase.UTickHz, a.fit, played, a.timed(task.Marker, found))
	if g := guess(task, a.bounds, a.fit, p.Window); g.any() {
		p.edges = g.edges(p.edges)
		if a.clock != "" {
			a.clock = g.note()
		}
	}
	p.edges.Aliasing, p.edges.Beats = aliased(task.Setup.Timebase, a.fit, kernels, a.bounds)
	if a.result, err = Integrate(ctx, db, &t, p.Window, p.edges); err != nil {
		if !errors.Is(err, measure.ErrNoData) && !errors.Is(err, measure.ErrWindow) && !errors.Is(err, measure.ErrThinned) {
			return a, err
		}
		a.why = err // about the window, not about the database
		return a, nil
	}
	a.nvml, a.method, err = overSensor(ctx, db, id, a.fit, kernels, p.Window)
	return a, err
}

// overSensor integrates the GPU's own readings over the window, on the host's clock: those of the instant power where
// the GPU has it, else of its usage; nil and empty when neither was read over the window. It reads no others.
func overSensor(
	ctx context.Context, db Store, id store.TaskID, fit *clock.Fit, kernels []store.Kernel, w Window,
) (energy *measure.Joule, method string, err error) {
	// Without a fit the work's own interval comes closest to the window.
	from, to, ok := span(kernels)
	if fit != nil {
		a, _ := fit.Host(w.From)
		b, _ := fit.Host(w.To)
		from, to, ok = HostTime(*fit, a), HostTime(*fit, b), true
	}
	if !ok {
		return nil, "", nil
	}
	for _, method := range []string{sensor.InstantPower, sensor.UsagePower} {
		readings, err := db.ReadingsWithin(ctx, id, method, from, to)
		if err != nil {
			return nil, "", err
		}
		points := lists.Map(readings, func(r store.Reading) sensor.Point { return sensor.Point{At: r.At, Value: r.Value} })
		if e, err := sensor.Integrate(points, from, to); err == nil {
			return &e, method, nil
		}
	}
	return nil, "", nil
}

// Sensed integrates the GPU's own readings of a task over a window in device time. The energy is
// nil, and the method empty, where the task has no clock fit or no readings all over the window.
func Sensed(ctx context.Context, db Store, t *store.Task, w Window) (*measure.Joule, string, error) {
	return overSensor(ctx, db, t.ID, t.Clock, nil, w)
}

// settle is how long the calls that end a task may take in all, beside the analysis.
const settle = 2 * time.Minute

// The note of a task without a window begins and ends so; Retrim removes it.
const (
	noWindow = "no window: "
	setOne   = "; the samples are kept: set one with wattmark trim"
)

// Notes of a task that is open only because of them. They come last in its reason, and a
// recovery removes them.
const (
	notStopped      = "the capture could not be stopped: "
	transferStopped = "the transfer stopped: "
)

// end gives a task its outcome. The capture is released only once the outcome
// is on disk, and kept where the monitor has something that this side lacks.
func end(ctx context.Context, db Store, m Monitor, id store.TaskID, capture string, got arrival, v verdict) error {
	switch {
	case got.err == nil:
	case errors.Is(got.err, monitorclient.ErrPastEnd):
		// Nothing more is to be had there.
		v.incomplete("the monitor's disk lost samples that had arrived here, and what was to follow them: %v", got.err)
		if err := giveUp(ctx, db, id, &got.trailer.Summary, v); err != nil {
			return errors.Join(got.err, err)
		}
		return errors.Join(got.err, release(ctx, m, capture))
	case errors.Is(got.err, monitorclient.ErrGone) && v.owner != "":
		// Only a recovery releases a capture while its measurement runs.
		return endRecovered(ctx, db, id, got, v)
	case errors.Is(got.err, monitorclient.ErrMismatch), errors.Is(got.err, monitorclient.ErrDamaged),
		errors.Is(got.err, monitorclient.ErrGone), errors.Is(got.err, store.ErrConflict):
		// Asking again would give the same: the task ends with what is stored.
		v.incomplete("%v", got.err)
		return errors.Join(got.err, giveUp(ctx, db, id, &got.trailer.Summary, v))
	default:
		// The monitor still has the rest: the task stays open, to be recovered.
		v.note(transferStopped+"%v; the monitor keeps the rest until this host fetches it", got.err)
		o := store.Outcome{State: store.Running, Reason: strings.Join(v.reasons, "; ")}
		return errors.Join(got.err, endOnce(ctx, db, id, o, v))
	}
	o, err := conclude(ctx, db, id, &got.trailer.Summary, v)
	if err != nil {
		return fmt.Errorf("analysis: %w", err)
	}
	if err := endOnce(ctx, db, id, o, v); err != nil {
		return err
	}
	return release(ctx, m, capture)
}

// release frees the capture on the monitor, for which it has settle of its own: the task is
// on disk, and a caller that has given up must not keep the bench.
func release(ctx context.Context, m Monitor, capture string) error {
	ctx, cancel := context.WithTimeout(ctx, settle)
	defer cancel()
	return unlessGone(m.Release(ctx, capture))
}

// endRecovered ends a task whose capture is gone. Where a recovery fetched all samples and
// ended the task before, this process adds its own record of the work.
func endRecovered(ctx context.Context, db Store, id store.TaskID, got arrival, v verdict) error {
	t, err := db.Task(ctx, id)
	switch {
	case err != nil:
		return errors.Join(got.err, err)
	case t.State == store.Running:
		v.incomplete("%v", got.err)
		return errors.Join(got.err, giveUp(ctx, db, id, &got.trailer.Summary, v))
	case t.State == store.Incomplete:
		v.incomplete("the samples were fetched by a recovery: %s", strings.TrimPrefix(t.Reason, unheard+"; "))
	}
	return giveUp(ctx, db, id, &session.Summary{Markers: t.Markers}, v)
}

// giveUp ends a task whose samples cannot be completed. Where the monitor's summary, which
// has the markers, did not come, they are detected in the stored samples.
func giveUp(ctx context.Context, db Store, id store.TaskID, s *session.Summary, v verdict) error {
	if len(s.Markers) == 0 {
		// Without markers the task still ends; its reasons are there already.
		s.Markers, _ = detect(ctx, db, id)
	}
	o, err := conclude(ctx, db, id, s, v)
	if err != nil {
		o = store.Outcome{State: store.Incomplete, Reason: strings.Join(v.reasons, "; ")}
	}
	return errors.Join(err, endOnce(ctx, db, id, o, v))
}

// endOnce ends a task that is not ended yet, or that was ended by a recovery in place of the
// process that measured. Where two recoveries meet on one task, the first to end it has had
// all samples and the other finds its capture gone: its ErrEnded is no fault of the task.
func endOnce(ctx context.Context, db Store, id store.TaskID, o store.Outcome, v verdict) error {
	o.Once, o.Owner, o.Recovered = true, v.owner, v.recovered
	if err := db.Finish(ctx, id, o); !errors.Is(err, store.ErrEnded) {
		return err
	}
	return nil
}

// detect looks for the task's markers in the stored chunks.
func detect(ctx context.Context, db Store, id store.TaskID) ([]marker.Found, error) {
	t, err := db.Task(ctx, id)
	if err != nil || t.Chunks == 0 {
		return nil, err
	}
	d, err := marker.NewDetector(t.Marker, &t.Setup)
	if err == nil {
		err = eachBlock(ctx, db, &t, func(b *measure.Block) (bool, error) {
			if b.Thinned() != nil {
				return false, nil // markers stay
			}
			return false, d.Push(b)
		})
	}
	if err == nil {
		err = d.Finish()
	}
	if err != nil {
		return nil, err
	}
	return d.Found(), nil
}

// ErrNoResult: the task has no result that could be computed anew.
var ErrNoResult = errors.New("no result to recalculate")

// Recalculate computes a task's result under another calibration, from the stored counts and
// over the same window, and puts it in use; the earlier results stay. It returns the
// result's number; added is false where the task had one under that calibration already. A
// calibration of other channels is calib.ErrMismatch, a task without a window ErrNoResult.
func Recalculate(ctx context.Context, db Store, id store.TaskID, s measure.Setup) (no int, added bool, err error) {
	t, err := db.Task(ctx, id)
	if err != nil {
		return 0, false, fmt.Errorf("recalculate: %w", err)
	}
	if t.Result == nil || t.State == store.Running {
		return 0, false, fmt.Errorf("recalculate: task %d: %w: it has no window (wattmark trim sets one), or still "+
			"runs", id, ErrNoResult)
	}
	if s, err = calib.Under(t.Setup, s); err != nil {
		return 0, false, fmt.Errorf("recalculate: task %d: %w", id, err)
	}
	s = calib.Aged(s, t.Launched)
	var r *measure.Result
	e, err := WindowEdges(ctx, db, &t)
	if err == nil {
		t.Setup = s
		r, err = Integrate(ctx, db, &t, Window{From: t.Result.From, To: t.Result.To}, e)
	}
	if err != nil {
		return 0, false, fmt.Errorf("recalculate: task %d: %w", id, err)
	}
	no, added, err = db.AddResult(ctx, id, s, r)
	if err != nil {
		return 0, false, fmt.Errorf("recalculate: %w", err)
	}
	return no, added, nil
}

// Recompute computes all results of a task anew over the windows that they have,
// as after samples were lost from the database. State and reason stay; a task
// without a result stays without.
func Recompute(ctx context.Context, db Store, id store.TaskID) error {
	t, err := db.Task(ctx, id)
	if err != nil || t.Result == nil {
		return err
	}
	e, err := WindowEdges(ctx, db, &t)
	if err != nil {
		return fmt.Errorf("recompute: %w", err)
	}
	o := store.Outcome{
		State: t.State, Reason: t.Reason, Markers: t.Markers, Clock: t.Clock, NVML: t.NVML, NVMLMethod: t.NVMLMethod,
	}
	if err := rework(ctx, db, &t, Window{From: t.Result.From, To: t.Result.To}, e, o); err != nil {
		return fmt.Errorf("recompute: task %d: %w", id, err)
	}
	return nil
}

// rework integrates a task anew over a window: first under its original calibration, as
// the outcome o, then under each other that it has a result of; the one in use comes last.
func rework(ctx context.Context, db Store, t *store.Task, w Window, e measure.Edges, o store.Outcome) error {
	setups := map[int]measure.Setup{1: t.Setup}
	for _, r := range t.Results {
		x, err := db.TaskResult(ctx, t.ID, r.Number)
		if err != nil {
			return err
		}
		setups[r.Number] = x.Setup
	}
	var err error
	if o.Result, err = Integrate(ctx, db, t, w, e); err != nil {
		return err
	}
	if err := db.Finish(ctx, t.ID, o); err != nil {
		return err
	}
	for _, r := range t.Results {
		if r.Number > 1 && !r.InUse {
			if _, _, err := Recalculate(ctx, db, t.ID, setups[r.Number]); err != nil {
				return err
			}
		}
	}
	if t.ResultNumber > 0 && len(t.Results) > 1 {
		_, _, err = Recalculate(ctx, db, t.ID, setups[t.ResultNumber])
	}
	return err
}

// WindowEdges returns the uncertainty of the ends of a task's window as it was when
// the window was chosen: by the clock fit, by the markers, or by hand.
func WindowEdges(ctx context.Context, db Store, t *store.Task) (measure.Edges, error) {
	is := func(from, to measure.Seconds) bool {
		const same = 1e-9 // a nanosecond is lost nowhere
		return math.Abs(float64(from-t.Result.From)) < same && math.Abs(float64(to-t.Result.To)) < same
	}
	// The window was chosen in one of three ways, and each leaves its own ends: those of the
	// kernels through the clock fit, those of the markers, or any, by hand.
	kernels, err := db.Kernels(ctx, t.ID)
	if err != nil {
		return measure.Edges{}, err
	}
	if from, to, some := span(kernels); some && t.Clock != nil {
		played, err := db.Played(ctx, t.ID)
		if err != nil {
			return measure.Edges{}, err
		}
		ends := bound(t.Markers)
		timed := ends.timed(t.Marker, t.Markers)
		// The stamps' jitter is not stored: the marker's edges show it again.
		if again, err := relate(&t.Setup, played, timed); err == nil {
			t.Clock.Jitter = again.Jitter
		}
		w, e := Carry(t.Clock, gpu.Span{Start: from, End: to})
		if is(w.From, w.To) {
			e.Rate = rateU(t.Setup.Timebase.UTickHz, t.Clock, played, timed)
			e = guess(t, ends, t.Clock, w).edges(e)
			e.Aliasing, e.Beats = aliased(t.Setup.Timebase, t.Clock, kernels, ends)
			return e, nil
		}
	}
	if m := bound(t.Markers); m.start != nil && m.stop != nil && is(m.start.End, m.stop.Begin) {
		return measure.Edges{UFrom: m.start.U, UTo: m.stop.U}, nil
	}
	return measure.Edges{}, nil
}

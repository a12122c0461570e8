package measurement

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"wattmark/hostagent/monitorclient"
	"wattmark/measure"
	"wattmark/measure/clock"
	"wattmark/measure/marker"
	"wattmark/store"
)

// verdict collects what speaks against a task's being complete.
type verdict struct {
	state   store.State
	reasons []string
	// owner is the process that measured, where it ends the task itself; recovered is set
	// where another does in its place (store.Outcome).
	owner     string
	recovered bool
}

// note adds a remark that leaves the state as it is.
func (v *verdict) note(format string, a ...any) {
	v.reasons = append(v.reasons, fmt.Sprintf(format, a...))
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

// failed adds why the work failed. That outranks whatever is missing: a failed work has
// no result, however well it was measured.
func (v *verdict) failed(f *store.Failure) {
	v.state = store.Failed
	v.reasons = slices.Insert(v.reasons, 0, "the work failed: "+f.Reason)
}

// conclude works out a task's outcome from what is stored and from what the
// monitor said of the capture, beside what the caller has against it already.
func conclude(ctx context.Context, db Store, id store.TaskID, s *monitorclient.Summary, v verdict) (store.Outcome, error) {
	if v.state == 0 {
		v.state = store.Complete
	}
	task, err := db.Task(ctx, id)
	if err != nil {
		return store.Outcome{}, err
	}
	if task.Failure != nil {
		v.failed(task.Failure)
	}
	if s.State == monitorclient.Incomplete {
		v.incomplete("the capture ended early: %s", s.Reason)
	}
	a, err := analyse(ctx, db, &task, s.Markers)
	if err != nil {
		return store.Outcome{}, err
	}
	if a.stranger != "" {
		v.incomplete("%s", a.stranger)
	}
	switch {
	case a.result == nil:
		v.untrimmed("no window: %s", why(s, a.why))
	case a.start == nil || a.stop == nil:
		v.incomplete("the window rests on one marker alone: %s", why(s, errors.New("the other was not found")))
	case a.why != nil:
		v.note("%v", a.why)
	}
	if a.clock != "" {
		v.note("%s", a.clock)
	}
	switch {
	case a.result != nil && a.result.Gaps > 0:
		v.incomplete("%s within the window", missing(a.result.Lost, a.result.Gaps))
	case a.result == nil && s.Gaps > 0:
		v.incomplete("%s", missing(s.Lost, s.Gaps))
	}
	return store.Outcome{
		State: v.state, Reason: strings.Join(v.reasons, "; "), Markers: s.Markers,
		Clock: a.fit, Result: a.result, NVML: a.nvml.energy, NVMLMethod: a.nvml.method,
	}, nil
}

// missing says how many scans are missing, in how many gaps.
func missing(scans, gaps uint64) string {
	if gaps == 1 {
		return fmt.Sprintf("%d scans were lost in a gap", scans)
	}
	return fmt.Sprintf("%d scans were lost in %d gaps", scans, gaps)
}

// why prefers the monitor's words: it has seen the trace.
func why(s *monitorclient.Summary, own error) string {
	if s.NoWindowReason != "" {
		return s.NoWindowReason
	}
	return fmt.Sprint(own)
}

// analysis is what a task's samples, markers and kernels come to.
type analysis struct {
	bounds
	fit    *clock.Fit
	result *measure.Result
	nvml   sensed
	// stranger says that the bench measured another GPU.
	stranger string
	clock    string // what is wrong with the meter's clock
	why      error  // why there is no result, or not the best one
}

// analyse relates the clocks, chooses the window and integrates over it. An
// error means that the database failed, not that the trace is poor.
func analyse(ctx context.Context, db Store, task *store.Task, found []marker.Found) (analysis, error) {
	var a analysis
	id := task.ID
	played, err := db.Played(ctx, id)
	if err != nil {
		return a, err
	}
	kernels, err := db.Kernels(ctx, id)
	if err != nil {
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
	var fitErr error
	if timed := a.timed(task.Marker, found); len(timed) > 0 {
		a.fit, fitErr = relate(&task.Setup, played, timed)
		a.clock = offRate(task.Setup.Timebase, a.fit)
	} else {
		fitErr = errors.New("the markers were not found by their code")
	}
	p, err := choose(a.fit, fitErr, kernels, a.bounds)
	if err != nil {
		a.why = err
		return a, nil
	}
	if p.note != "" {
		a.why = errors.New(p.note)
	}
	if g := guess(task, a.bounds, a.fit, p.Window); g.any() {
		p.edges = g.edges(p.edges)
		if a.clock != "" {
			a.clock = g.note()
		}
	}
	if a.result, err = integrate(ctx, db, id, &task.Setup, p.Window, p.edges); err != nil {
		if !outside(err) {
			return a, err
		}
		a.why = err
		return a, nil
	}
	a.nvml, err = overSensor(ctx, db, id, a.fit, kernels, p.Window)
	return a, err
}

// outside reports whether an error is about the window, not about the database.
func outside(err error) bool {
	return errors.Is(err, measure.ErrNoData) || errors.Is(err, measure.ErrWindow)
}

// overSensor integrates the GPU's own readings over the window, on the host's clock.
func overSensor(ctx context.Context, db Store, id store.TaskID, fit *clock.Fit, kernels []store.Kernel, w Window) (sensed, error) {
	readings, err := db.Readings(ctx, id)
	if err != nil || len(readings) == 0 {
		return sensed{}, err
	}
	if fit != nil {
		from, _ := fit.Host(w.From)
		to, _ := fit.Host(w.To)
		return sensorEnergy(readings, HostTime(*fit, from), HostTime(*fit, to)), nil
	}
	// Without a fit the work's own interval comes closest to the window.
	if from, to, ok := span(kernels); ok {
		return sensorEnergy(readings, from, to), nil
	}
	return sensed{}, nil
}

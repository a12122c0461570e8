package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"wattmark/analysis/compare"
	"wattmark/measure"
	"wattmark/measure/calib"
	"wattmark/measure/group"
	"wattmark/store"
)

// mostNamed is how many tasks a name may match.
const mostNamed = 10_000

// comparedSide reads the tasks that one side names.
func (a *app) comparedSide(ctx context.Context, spec, path string) (s comparedSide, err error) {
	side := *a
	side.db = path
	s = comparedSide{name: spec, path: path}
	if s.db, err = side.openDB(ctx); err != nil {
		return s, err
	}
	s.tasks, s.passed, err = side.tasksNamed(ctx, s.db, spec)
	if err != nil {
		err = errors.Join(err, s.db.Close())
	}
	return s, err
}

// tasksNamed reads tasks by number and by name, oldest first. One that is named by
// its number must have a result; of a name's, those that are complete are taken.
func (a *app) tasksNamed(ctx context.Context, db *store.DB, spec string) (out []*store.Task, passed []string, err error) {
	var ids []store.TaskID
	for part := range strings.SplitSeq(spec, ",") {
		part = strings.TrimSpace(part)
		if part == "" {
			return nil, nil, withCode(exitUsage, fmt.Errorf("%q has an empty entry: want task numbers or names with commas between them", spec))
		}
		if n, err := strconv.ParseInt(part, 10, 64); err == nil && n > 0 {
			ids = append(ids, store.TaskID(n))
			continue
		}
		list, err := db.Tasks(ctx, store.Query{Name: part, Limit: mostNamed})
		if err != nil {
			return nil, nil, err
		}
		found := len(ids)
		for i := range list {
			if t := &list[i]; t.State == store.Complete {
				ids = append(ids, t.ID)
			} else {
				passed = append(passed, fmt.Sprintf("task %d is %s", t.ID, stateNames[t.State]))
			}
		}
		if len(ids) == found {
			return nil, nil, withCode(exitNotFound, fmt.Errorf("no complete task is named %q in %s: list them with wattmark tasks", part, a.db))
		}
	}
	slices.Sort(ids)
	for _, id := range slices.Compact(ids) {
		t, err := a.task(ctx, db, strconv.FormatInt(int64(id), 10))
		if err != nil {
			return nil, nil, err
		}
		if t.Result == nil {
			return nil, nil, withCode(exitIncomplete, fmt.Errorf("task %d is %s and has no energy: %s", id, stateNames[t.State], t.Reason))
		}
		out = append(out, t)
	}
	return out, passed, nil
}

// notFailed refuses a task whose work failed, where a figure rests on the work.
func notFailed(t *store.Task) error {
	if t.Failure == nil {
		return nil
	}
	return withCode(exitIncomplete, fmt.Errorf("task %d is failed, and no result: %s", t.ID, t.Failure.Reason))
}

// What --meter takes.
const (
	meterAuto      = "auto"
	meterSame      = "same"
	meterDifferent = "different"
)

// comparedRun is a task as a run. side names the side that it is on, path the
// database.
func comparedRun(t *store.Task, meter, side, path string) compare.Run {
	r := t.Result
	run := compare.Run{Name: fmt.Sprintf("task %d", t.ID), At: t.Launched, Energy: r.Total.Energy, Time: r.Duration()}
	e := math.Abs(float64(r.Total.Energy))
	if len(r.Budget) == 0 { // of an older database: nobody kept what U is made of
		run.Errors = append(run.Errors, compare.Error{Energy: float64(r.Total.U) / 2 / e})
	}
	// A budget whose noise was seen in few readings has a larger k: as if its noise
	// were larger.
	k := measure.FactorOf(r.Total, r.Budget) / 2
	ends := float64(durationU(t)) / float64(r.Duration())
	h, _ := calib.HistoryOf(&t.Setup) // records of a later version bind nothing
	for _, c := range r.Budget {
		x := compare.Error{Behind: behind(c, h, t, meter, side, path), Energy: float64(c.U) / e}
		switch {
		case c.Source == "tick rate": // it makes all that is counted in ticks longer
			x.Time = x.Energy
		case c.Source == "window edges": // a longer window has more energy
			x.Time, ends = ends, 0
		case !c.Systematic && k > 1:
			x.Energy *= k
		}
		run.Errors = append(run.Errors, x)
	}
	if ends > 0 {
		run.Errors = append(run.Errors, compare.Error{Time: ends})
	}
	return run
}

// behind names what stands behind a line of a budget: errors of the same name are
// one error. It is empty for what is new in each task.
func behind(c measure.Contribution, h calib.History, t *store.Task, meter, side, path string) string {
	if !group.Lasts(c) {
		return ""
	}
	switch meter {
	case meterSame:
		return c.Source
	case meterDifferent:
		return c.Source + " of " + side
	}
	if by := group.SharedBy(c, h, t.Instrument); by != "" {
		if strings.HasPrefix(by, "instrument") { // adjusted meanwhile, it is another error
			by += ", calibration " + t.CalibrationID
		}
		return c.Source + ", by " + by
	}
	// A meter that tells no serial number is known by where it is and what it measures.
	i := t.Instrument
	where := fmt.Sprintf("%s, by the %s at %s", c.Source, joinNonEmpty(" ", i.Kind, i.Address), t.Monitor)
	return joinNonEmpty(", ", where, t.Bench, t.GPUUUID, path, "calibration "+t.CalibrationID)
}

// durationU is the standard uncertainty of a window's length: that of the clock
// fit, or of the markers that bound it.
func durationU(t *store.Task) measure.Seconds {
	r := t.Result
	if t.Clock != nil {
		from, _ := t.Clock.Host(r.From)
		to, _ := t.Clock.Host(r.To)
		e := t.Clock.Edges(from, to)
		return measure.Seconds(math.Sqrt(max(float64(e.UFrom*e.UFrom+e.UTo*e.UTo)-2*e.Correlation*float64(e.UFrom*e.UTo), 0)))
	}
	var v float64
	for _, m := range t.Markers {
		v += float64(m.U) * float64(m.U)
	}
	return measure.Seconds(math.Sqrt(v))
}

package main

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/ianlancetaylor/demangle"

	"wattmark/analysis/counters"
	"wattmark/measure"
	"wattmark/store"
)

// joinTasks takes powers from stored tasks: where a row names one, or, with
// --tasks, one that is named as the kernel or the application.
func (a *app) joinTasks(ctx context.Context, t *counters.Table, f *counterFlags) error {
	wanted := func(r counters.Run) bool {
		return math.IsNaN(float64(r.Power)) && (r.Task != "" || f.tasks)
	}
	if !slices.ContainsFunc(t.Runs, wanted) {
		return nil
	}
	db, err := a.openDB(ctx)
	if err != nil {
		return err
	}
	defer db.Close()
	for i := range t.Runs {
		r := &t.Runs[i]
		if !wanted(*r) {
			continue
		}
		task, err := a.taskOf(ctx, db, r)
		if err != nil {
			return fmt.Errorf("%s: line %d (%s): %w", r.File, r.Line, r.Name, err)
		}
		if r.Power, r.Measured, err = taskPower(ctx, db, task, r.Name); err != nil {
			return fmt.Errorf("%s: line %d (%s): %w", r.File, r.Line, r.Name, err)
		}
		if !slices.Contains(f.tasksUsed, task.ID) {
			f.tasksUsed = append(f.tasksUsed, task.ID)
		}
	}
	return nil
}

// taskOf finds the task of a row: by number, or the newest of a name.
func (a *app) taskOf(ctx context.Context, db *store.DB, r *counters.Run) (*store.Task, error) {
	if _, err := taskID(r.Task); err == nil {
		return a.task(ctx, db, r.Task)
	}
	names := []string{r.Task}
	if r.Task == "" {
		names = []string{r.Name, r.App}
	}
	for _, name := range names {
		if name == "" {
			continue
		}
		list, err := db.Tasks(ctx, store.Query{Name: strings.TrimRight(name, "*"), Limit: 1})
		if err != nil {
			return nil, err
		}
		if len(list) > 0 {
			t, err := db.Task(ctx, list[0].ID)
			return &t, err
		}
	}
	return nil, withCode(exitNotFound, fmt.Errorf("no task named %s in %s: measure it with wattmark run --name, or give the power in a column or with --power", strings.Join(quotedNames(names), " or "), a.db))
}

func quotedNames(names []string) (out []string) {
	for _, n := range names {
		if n != "" {
			out = append(out, fmt.Sprintf("%q", n))
		}
	}
	return out
}

// taskPower is the mean power of a task, or of the kernel alone where the task
// tells its kernels apart.
func taskPower(ctx context.Context, db *store.DB, t *store.Task, kernel string) (measure.Watt, measure.Seconds, error) {
	if err := notFailed(t); err != nil {
		return 0, 0, err
	}
	if t.Result == nil || !(t.Result.Mean > 0) {
		return 0, 0, withCode(exitIncomplete, fmt.Errorf("task %d has no power: see wattmark show %d", t.ID, t.ID))
	}
	lines, err := db.NameEnergies(ctx, t.ID, t.ResultNumber)
	if err != nil {
		return 0, 0, err
	}
	for _, l := range lines {
		if l.Class == store.KernelEnergy && sameKernel(l.Name, kernel) && l.Share > 0 && l.Energy.Energy > 0 && l.Short == 0 {
			return measure.Watt(float64(l.Energy.Energy) / float64(l.Share)), l.Share, nil
		}
	}
	return t.Result.Mean, t.Result.To - t.Result.From, nil
}

// sameKernel compares a compiler's symbol with a name that may be written out, with
// parameters or without.
func sameKernel(symbol, name string) bool {
	return name == symbol || name == demangle.Filter(symbol) || name == demangle.Filter(symbol, demangle.NoParams)
}

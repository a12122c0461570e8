package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/ianlancetaylor/demangle"
	"github.com/spf13/cobra"

	"wattmark/analysis/counters"
	"wattmark/analysis/model"
	"wattmark/measure"
	"wattmark/store"
)

// counterFlags say how files of counters are read.
type counterFlags struct {
	counters.Options
	form, by, kernel string
	power            string
	tasks, byFile    bool
	minBlocks        float64
	minTime          float64
	leaveOut         bool

	tasksUsed []store.TaskID
}

func (f *counterFlags) add(c *cobra.Command) {
	fl := c.Flags()
	fl.StringVar(&f.form, "form", "", "form of the files: csv, utilisation, ncu, ncu-long, accelwattch (default: found out)")
	fl.StringVar(&f.power, "power", "", "file with the powers: a header, a column of names, a column power_w")
	fl.BoolVar(&f.tasks, "tasks", false, "take powers from the task database: tasks that are named as the kernel or the application")
	fl.StringVar(&f.Power, "power-column", "", "column with the power in W")
	fl.StringVar(&f.Name, "name-column", "", "column with the kernel's name")
	fl.StringVar(&f.App, "group-column", "", "column with the application")
	fl.StringVar(&f.Time, "time-column", "", "column with the run's time in s")
	fl.StringVar(&f.Blocks, "blocks-column", "", "column with the number of thread blocks")
	fl.StringVar(&f.Task, "task-column", "", "column with the number or name of a stored task, whose power counts")
	fl.StringArrayVar(&f.Ignore, "ignore", nil, "leave a column out (repeatable)")
	fl.StringArrayVar(&f.Rates, "rate", nil, "column that is no count of events: not divided by the time (repeatable)")
	fl.StringVar(&f.by, "rows", string(counters.ByKernel), "of Nsight Compute's launches make a row by kernel, launch or app")
	fl.BoolVar(&f.byFile, "by-file", false, "each file is of an application that is named as the file")
	fl.StringVar(&f.kernel, "kernel", "", "only kernels whose name matches this regular expression")
	fl.Float64Var(&f.minBlocks, "min-blocks", 120, "warn of kernels with fewer blocks (the paper's 120 are 4 for each of 30 multiprocessors)")
	fl.Float64Var(&f.minTime, "min-time", 1, "warn of powers measured for fewer seconds")
	fl.BoolVar(&f.leaveOut, "leave-out", false, "leave rows that are warned of so out, rather than warn")
}

// featureFlags choose a model's columns.
type featureFlags struct {
	set, file, scale string
	features         []string
}

func (f *featureFlags) add(c *cobra.Command) {
	fl := c.Flags()
	fl.StringVar(&f.set, "set", "", "columns: mem, inst, mem/inst, mem/inst/branch, mem/inst/ws, mem/inst/tlb, full (the paper's), nsight-full, nsight-units, per-cycle, all, or counters with commas between")
	fl.StringArrayVar(&f.features, "feature", nil, "a column by a formula: 'dram = (DRAM_Rd + DRAM_Wr)/Elapsed_Cycles' (repeatable)")
	fl.StringVar(&f.file, "features", "", "YAML file with name: formula")
	fl.StringVar(&f.scale, "scale", string(counters.Auto), "counts of events per-second, none, or auto: per second where every row has a time")
}

// counterTable reads the files of a command line, joins passes and powers.
func (a *app) counterTable(ctx context.Context, f *counterFlags, files []string) (*counters.Table, error) {
	if f.kernel != "" {
		re, err := regexp.Compile(f.kernel)
		if err != nil {
			return nil, withCode(exitUsage, fmt.Errorf("--kernel: %w", err))
		}
		f.Kernel = re
	}
	f.Options.Form, f.Options.By = counters.Form(f.form), counters.By(f.by)
	var tables []*counters.Table
	for _, arg := range files {
		o := f.Options
		if f.byFile {
			o.AppName = strings.TrimSuffix(filepath.Base(arg), filepath.Ext(arg))
		}
		t, err := a.readCounters(arg, o)
		if err != nil {
			return nil, err
		}
		tables = append(tables, t)
	}
	t, err := counters.Merge(tables...)
	if err != nil {
		return nil, err
	}
	if f.power != "" {
		if err := a.joinPowerFile(t, f.power); err != nil {
			return nil, err
		}
	}
	if err := a.joinTasks(ctx, t, f); err != nil {
		return nil, err
	}
	if f.leaveOut {
		if n := t.Drop(func(r counters.Run) bool {
			return r.Blocks < f.minBlocks || float64(r.Measured) < f.minTime
		}); n > 0 {
			t.Notes = append(t.Notes, fmt.Sprintf("%d rows were left out: fewer than %g blocks, or measured for less than %g s", n, f.minBlocks, f.minTime))
		}
	}
	return t, nil
}

// readCounters reads a file, or "-", the standard input; NAME=FILE names the application.
func (a *app) readCounters(arg string, o counters.Options) (*counters.Table, error) {
	path := arg
	if _, err := os.Stat(arg); err != nil {
		if name, file, ok := strings.Cut(arg, "="); ok && name != "" {
			o.AppName, path = name, file
		}
	}
	var r io.Reader = a.in
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		r = f
	}
	return counters.Parse(path, r, o)
}

func (a *app) joinPowerFile(t *counters.Table, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	list, err := counters.ParsePower(path, f)
	if err != nil {
		return err
	}
	return t.JoinPower(path, list)
}

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

// of returns the columns that are asked for.
func (f *featureFlags) of(t *counters.Table) (counters.Set, error) {
	if f.set == "" && len(f.features) == 0 && f.file == "" {
		return t.Usual(), nil
	}
	s, err := f.named(t)
	if err != nil {
		return s, err
	}
	if f.file != "" {
		more, err := readFeatures(f.file)
		if err != nil {
			return s, err
		}
		s.Features = append(s.Features, more...)
	}
	for _, text := range f.features {
		name, formula, ok := strings.Cut(text, "=")
		if name, formula = strings.TrimSpace(name), strings.TrimSpace(formula); !ok || name == "" || formula == "" {
			return s, withCode(exitUsage, fmt.Errorf("--feature %q: want NAME = FORMULA", text))
		}
		s.Features = append(s.Features, counters.Feature{Name: name, Formula: formula})
	}
	return s, nil
}

func (f *featureFlags) named(t *counters.Table) (counters.Set, error) {
	s, known := counters.Named(f.set)
	switch {
	case f.set == "":
		return counters.Set{Name: "own"}, nil
	case known:
		return s, nil
	case f.set == "all" && t != nil:
		return t.All(), nil
	}
	s.Name = f.set
	for name := range strings.SplitSeq(f.set, ",") {
		if name = strings.TrimSpace(name); name == "" {
			return s, withCode(exitUsage, fmt.Errorf("--set %q: a name is empty", f.set))
		}
		s.Features = append(s.Features, counters.Feature{Name: name})
	}
	return s, nil
}

// readFeatures reads a YAML file of name: formula, in its order.
func readFeatures(path string) ([]counters.Feature, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var m yaml.MapSlice
	if err := yaml.Unmarshal(data, &m); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	var out []counters.Feature
	for _, item := range m {
		name, ok := item.Key.(string)
		formula, text := item.Value.(string)
		if !ok || !text {
			return nil, fmt.Errorf("%s: %v: want name: formula", path, item.Key)
		}
		out = append(out, counters.Feature{Name: name, Formula: formula})
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%s: no feature in it", path)
	}
	return out, nil
}

// modelData makes training data of a table; it wants powers.
func modelData(t *counters.Table, s counters.Set, scale string) (*model.Data, error) {
	d, err := t.Data(s.Features, counters.Scale(scale))
	if err != nil {
		return nil, modelUsage(fmt.Errorf("%s: %w", cmp.Or(s.Name, "features"), err))
	}
	for i, r := range t.Runs {
		if math.IsNaN(float64(r.Power)) {
			return nil, fmt.Errorf("%s: line %d (%s): no power: add a column power_w, a file with --power, or tasks with --tasks", r.File, r.Line, d.Rows[i].Name)
		}
	}
	return d, nil
}

// Package model has the commands of counter models: power from performance counters by
// regression, its evaluation, and predictions by it.
package model

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/spf13/cobra"
	"github.com/wattmark/wattmark/analysis/counters"
	"github.com/wattmark/wattmark/analysis/model"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/study/stored"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/store"
)

// modelCmd returns the family model with its commands.
func modelCmd(a *cli.App) *cobra.Command {
	c := &cobra.Command{Use: "model", Short: "Estimate power from performance counters"}
	c.AddCommand(modelFitCmd(a), modelEvalCmd(a), modelPredictCmd(a), modelExplainCmd(a),
		stored.ListCmd(a, kind, "List the models", readModel,
			func(list []*storedModel) error { return printModels(a, list) }),
		kind.DeleteCmd(a, "Delete a model, or one version of it"),
		modelShowCmd(a), modelPlanCmd(a))
	return c
}

// trainFlags are the flags of training and cross-validation.
type trainFlags struct {
	// alpha is a number or "auto"; preset replaces the defaults of flags not given.
	method, alpha, preset string
	// alphaFolds belongs to the inner cross-validation that chooses α; folds, foldBy and seed
	// to the outer one that measures the errors.
	alphaFolds int
	folds      int
	foldBy     string
	seed       uint64
}

func (f *trainFlags) add(c *cobra.Command) {
	fl := c.Flags()
	fl.StringVar(&f.method, "method", string(model.Ridge),
		"ridge, ridge-positive (no negative coefficients), lasso or ols")
	fl.StringVar(&f.alpha, "alpha", "auto", "weight of the penalty, or auto: by cross-validation over the training rows")
	fl.IntVar(&f.alphaFolds, "alpha-folds", 10, "folds of that cross-validation")
	fl.IntVar(&f.folds, "folds", 10, "folds of the cross-validation")
	fl.StringVar(&f.foldBy, "fold-by", string(model.ByRowMod),
		"row-mod (row number modulo folds), block, random, loo (each row), group (each application), group-k")
	fl.Uint64Var(&f.seed, "seed", 1, "seed of --fold-by random")
	fl.StringVar(&f.preset, "preset", "", "accelwattch: per-cycle sums, α = 10, each row left out")
}

// options returns the options of training. A preset applies only to flags that the command
// line leaves out. Every error is wrong usage.
func (f *trainFlags) options(c *cobra.Command) (model.Options, error) {
	switch f.preset {
	case "":
	case "accelwattch":
		if !c.Flags().Changed("alpha") {
			f.alpha = "10"
		}
		if !c.Flags().Changed("fold-by") {
			f.foldBy = string(model.ByOne)
		}
	default:
		return model.Options{}, cli.Usagef("--preset %q: there is accelwattch", f.preset)
	}
	o := model.Options{Method: model.Method(f.method), Alpha: model.Auto, AlphaFolds: f.alphaFolds}
	if f.alpha != "auto" {
		v, err := strconv.ParseFloat(f.alpha, 64)
		if err != nil || math.IsNaN(v) {
			return o, cli.Usagef("--alpha %q: want a number of 0 or more, or auto", f.alpha)
		}
		o.Alpha = v
	}
	return o, modelUsage(o.Check())
}

// modelUsage gives errors in options and formulas the exit code of wrong usage. Other
// errors, and nil, pass unchanged.
func modelUsage(err error) error {
	if errors.Is(err, model.ErrOptions) || errors.Is(err, counters.ErrFormula) {
		return cli.WithCode(cli.ExitUsage, err)
	}
	return err
}

//go:embed help.md
var help string

// Commands returns the commands of this package.
func Commands(a *cli.App) []*cobra.Command {
	return cli.In(cli.Learn, help, modelCmd(a))
}

// counterFlags select and read files of counters, and the powers that belong to them.
type counterFlags struct {
	counters.Options
	// form and by override the detected form and grouping; kernel is a regular expression.
	form, by, kernel string
	// power is a file of powers by name; tasks takes them from stored tasks instead.
	power         string
	tasks, byFile bool
	// minBlocks, and minTime in seconds, mark rows that are doubtful: too small a grid to fill
	// the GPU, too short a measurement. leaveOut drops them in place of a warning.
	minBlocks float64
	minTime   measure.Seconds
	leaveOut  bool

	// tasksUsed collects the tasks that powers were taken from.
	tasksUsed []store.TaskID
}

func (f *counterFlags) add(c *cobra.Command) {
	fl := c.Flags()
	fl.StringVar(&f.form, "form", "",
		"form of the files: csv, utilisation, ncu, ncu-long, accelwattch (default: found out)")
	fl.StringVar(&f.power, "power", "", "file with the powers: a header, a column of names, a column power_w")
	fl.BoolVar(&f.tasks, "tasks", false,
		"take powers from the task database: tasks that are named as the kernel or the application")
	fl.StringVar(&f.Power, "power-column", "", "column with the power in W")
	fl.StringVar(&f.Name, "name-column", "", "column with the kernel's name")
	fl.StringVar(&f.App, "group-column", "", "column with the application")
	fl.StringVar(&f.Time, "time-column", "", "column with the run's time in s")
	fl.StringVar(&f.Blocks, "blocks-column", "", "column with the number of thread blocks")
	fl.StringVar(&f.Task, "task-column", "", "column with the number or name of a stored task, whose power counts")
	fl.StringArrayVar(&f.Ignore, "ignore", nil, "leave a column out (repeatable)")
	fl.StringArrayVar(&f.Rates, "rate", nil, "column that is no count of events: not divided by the time (repeatable)")
	fl.StringVar(&f.by, "rows", string(counters.ByKernel),
		"of Nsight Compute's launches make a row by kernel, launch or app")
	fl.BoolVar(&f.byFile, "by-file", false, "each file is of an application that is named as the file")
	fl.StringVar(&f.kernel, "kernel", "", "only kernels whose name matches this regular expression")
	fl.Float64Var(&f.minBlocks, "min-blocks", 120,
		"warn of kernels with fewer blocks (the paper's 120 are 4 for each of 30 multiprocessors)")
	fl.Float64Var((*float64)(&f.minTime), "min-time", 1, "warn of powers measured for fewer seconds")
	fl.BoolVar(&f.leaveOut, "leave-out", false, "leave rows that are warned of so out, rather than warn")
}

// featureFlags choose a model's columns: a named set, formulas, or a YAML file of
// formulas. All that are given are joined.
type featureFlags struct {
	set, file, scale string
	features         []string
}

func (f *featureFlags) add(c *cobra.Command) {
	fl := c.Flags()
	fl.StringVar(&f.set, "set", "",
		"columns: mem, inst, mem/inst, mem/inst/branch, mem/inst/ws, mem/inst/tlb, full (the paper's), nsight-full, "+
			"nsight-units, per-cycle, all, or counters with commas between")
	fl.StringArrayVar(&f.features, "feature", nil,
		"a column by a formula: 'dram = (DRAM_Rd + DRAM_Wr)/Elapsed_Cycles' (repeatable)")
	fl.StringVar(&f.file, "features", "", "YAML file with name: formula")
	fl.StringVar(&f.scale, "scale", string(counters.Auto),
		"counts of events per-second, none, or auto: per second where every row has a time")
}

// counterTable reads the files and returns one table: rows of different kernels are
// appended, passes of the same kernels are joined by column. Then powers are joined, from
// --power first, from tasks for rows still without. Doubtful rows are dropped last, when
// the duration of each power is known.
func counterTable(a *cli.App, ctx context.Context, f *counterFlags, files []string) (*counters.Table, error) {
	if f.kernel != "" {
		re, err := regexp.Compile(f.kernel)
		if err != nil {
			return nil, cli.Usagef("--kernel: %w", err)
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
		t, err := readCounters(a, arg, o)
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
		if err := joinPowerFile(a, t, f.power); err != nil {
			return nil, err
		}
	}
	if err := joinTasks(a, ctx, t, f); err != nil {
		return nil, err
	}
	if f.leaveOut {
		if n := t.Drop(func(r counters.Run) bool {
			return r.Blocks < f.minBlocks || r.Measured < f.minTime
		}); n > 0 {
			t.Notes = append(t.Notes,
				fmt.Sprintf("%d rows were left out: fewer than %g blocks, or measured for less than %g s", n,
					f.minBlocks, float64(f.minTime)))
		}
	}
	return t, nil
}

// readCounters reads one file, or the standard input for "-". NAME=FILE names the
// application, unless a file of that whole name exists.
func readCounters(a *cli.App, arg string, o counters.Options) (*counters.Table, error) {
	path := arg
	if _, err := os.Stat(arg); err != nil {
		if name, file, ok := strings.Cut(arg, "="); ok && name != "" {
			o.AppName, path = name, file
		}
	}
	var r io.Reader = a.In
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

// joinPowerFile reads the powers of the file at path and joins them to the rows of
// t by name.
func joinPowerFile(a *cli.App, t *counters.Table, path string) error {
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

// of returns the columns to train on: those of the set, of the YAML file and of --feature,
// in this order. Without any flag it returns the usual set of the table's form. t may be
// nil if --set is not "all".
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
			return s, cli.Usagef("--feature %q: want NAME = FORMULA", text)
		}
		s.Features = append(s.Features, counters.Feature{Name: name, Formula: formula})
	}
	return s, nil
}

// named returns the set of --set: a known one, all columns of the table, or a list of
// counters. It is empty without --set, to be filled by formulas.
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
			return s, cli.Usagef("--set %q: a name is empty", f.set)
		}
		s.Features = append(s.Features, counters.Feature{Name: name})
	}
	return s, nil
}

// readFeatures reads a YAML mapping of name to formula and keeps its order, which is the
// order of the coefficients.
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

// modelData computes the columns of s for every row of t. It fails where a row has no
// power, naming file and line.
func modelData(t *counters.Table, s counters.Set, scale string) (*model.Data, error) {
	d, err := t.Data(s.Features, counters.Scale(scale))
	if err != nil {
		return nil, modelUsage(fmt.Errorf("%s: %w", cmp.Or(s.Name, "features"), err))
	}
	for i, r := range t.Runs {
		if math.IsNaN(float64(r.Power)) {
			return nil,
				fmt.Errorf("%s: line %d (%s): no power: add a column power_w, a file with --power, or tasks with "+
					"--tasks", r.File, r.Line, d.Rows[i].Name)
		}
	}
	return d, nil
}

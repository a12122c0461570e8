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
	"github.com/spf13/pflag"
	"github.com/wattmark/wattmark/analysis/counters"
	"github.com/wattmark/wattmark/analysis/model"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/store"
)

// trainFlags are the flags of training and cross-validation.
type trainFlags struct {
	model.Options
	// alpha is a number or "auto"; preset replaces the defaults of flags not given.
	alpha, preset string
	// The inner cross-validation, of Options, chooses α; this outer one measures the errors.
	folds   int
	foldBy  model.FoldBy
	seed    uint64
	changed func(flag string) bool // whether the command line gives a flag
}

func (f *trainFlags) add(c *cobra.Command) {
	fl := c.Flags()
	f.changed = fl.Changed
	fl.StringVar((*string)(&f.Method), "estimator", string(model.Ridge),
		"ridge, ridge-positive (no negative coefficients), lasso or ols")
	fl.StringVar(&f.alpha, "alpha", "auto", "weight of the penalty, or auto: by cross-validation over the training rows")
	fl.IntVar(&f.AlphaFolds, "alpha-folds", 10, "folds of that cross-validation")
	fl.IntVar(&f.folds, "folds", 10, "folds of the cross-validation")
	fl.StringVar((*string)(&f.foldBy), "fold-by", string(model.ByRowMod),
		"row-mod (row number modulo folds), block, random, loo (each row), group (each application), group-k")
	fl.Uint64Var(&f.seed, "seed", 1, "seed of --fold-by random")
	fl.StringVar(&f.preset, "preset", "", "accelwattch: per-cycle sums, α = 10, each row left out")
}

// options returns the options of training. A preset applies only to flags that the command
// line leaves out. Every error is wrong usage.
func (f *trainFlags) options() (o model.Options, err error) {
	o = f.Options
	switch f.preset {
	case "":
	case "accelwattch":
		if !f.changed("alpha") {
			f.alpha = "10"
		}
		if !f.changed("fold-by") {
			f.foldBy = model.ByOne
		}
	default:
		return o, cli.Usagef("--preset %q: there is accelwattch", f.preset)
	}
	if o.Alpha = model.Auto; f.alpha != "auto" {
		if o.Alpha, err = strconv.ParseFloat(f.alpha, 64); err != nil || math.IsNaN(o.Alpha) {
			return o, cli.Usagef("--alpha %q: want a number of 0 or more, or auto", f.alpha)
		}
	}
	return o, o.Check()
}

//go:embed help.md
var help string

// Commands returns the commands of this package.
func Commands(a *cli.App) []*cobra.Command {
	c := &cobra.Command{Use: "model", Short: "Estimate power from performance counters"}
	show := command(a, "show NAME[@VERSION]", "Show a model", cobra.ExactArgs(1),
		func(ctx context.Context, args []string) error {
			m, err := loadModel(a, ctx, args[0])
			if err != nil {
				return err
			}
			return printModel(a, m)
		})
	c.AddCommand(modelFitCmd(a), modelEvalCmd(a), modelPredictCmd(a), modelExplainCmd(a), listModelsCmd(a),
		kind.DeleteCmd(a, "Delete a model, or one version of it"), show, modelPlanCmd(a))
	return cli.In(cli.Learn, help, c)
}

// command returns a command with --json that gives errors in options and formulas the exit
// code of wrong usage.
func command(a *cli.App, use, short string, args cobra.PositionalArgs,
	run func(context.Context, []string) error,
) *cobra.Command {
	return a.JSONFlag(cli.Command(use, short, args, func(ctx context.Context, args []string) error {
		err := run(ctx, args)
		if errors.Is(err, model.ErrOptions) || errors.Is(err, counters.ErrFormula) {
			return cli.WithCode(cli.ExitUsage, err)
		}
		return err
	}))
}

// studyFlags are the flags of fit and eval: the files, the model's columns, and the training.
type studyFlags struct {
	counterFlags
	featureFlags
	trainFlags
}

func (f *studyFlags) add(c *cobra.Command) {
	cli.Section(c.Flags(), "Columns of the model", func() { f.featureFlags.add(c) })
	cli.Section(c.Flags(), "Training", func() { f.trainFlags.add(c) })
	cli.Section(c.Flags(), "The files", func() { f.counterFlags.add(c.Flags()) })
}

// counterFlags select and read files of counters, and the powers that belong to them.
type counterFlags struct {
	counters.Options
	kernel string // regular expression
	// power is a file of powers by name; tasks takes them from stored tasks instead.
	power         string
	tasks, byFile bool
	// minBlocks, and minTime in seconds, mark rows that are doubtful: too small a grid to fill
	// the GPU, too short a measurement. leaveOut drops them in place of a warning.
	minBlocks float64
	minTime   measure.Seconds
	leaveOut  bool

	tasksUsed []store.TaskID // whose powers were taken
}

func (f *counterFlags) add(fl *pflag.FlagSet) {
	fl.StringVar((*string)(&f.Form), "form", "",
		"form of the files: csv, utilisation, ncu, ncu-long, accelwattch (default: found out)")
	fl.StringVar(&f.power, "powers", "", "file with the powers: a header, a column of names, a column power_w")
	fl.BoolVar(&f.tasks, "tasks", false,
		"take powers from the task database: tasks that are named as the kernel or the application")
	fl.StringVar(&f.Power, "power-column", "", "column with the power in W")
	fl.StringVar(&f.Name, "name-column", "", "column with the kernel's name")
	fl.StringVar(&f.App, "group-column", "", "column with the application")
	fl.StringVar(&f.Time, "time-column", "", "column with the run's time in s")
	fl.StringVar(&f.Blocks, "blocks-column", "", "column with the number of thread blocks")
	fl.StringVar(&f.Task, "task-column", "", "column with the number or name of a stored task, whose power counts")
	fl.StringArrayVar(&f.Ignore, "ignore", nil, "leave a column out (repeatable)")
	fl.StringArrayVar(&f.Rates, "gauge", nil, "column that is no count of events: not divided by the time (repeatable)")
	fl.StringVar((*string)(&f.By), "rows", string(counters.ByKernel),
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
	set, file string
	scale     counters.Scale
	features  []string
}

func (f *featureFlags) add(c *cobra.Command) {
	fl := c.Flags()
	fl.StringVar(&f.set, "counters", "",
		"columns: mem, inst, mem/inst, mem/inst/branch, mem/inst/ws, mem/inst/tlb, full (the paper's), nsight-full, "+
			"nsight-units, per-cycle, all, or counters with commas between")
	fl.StringArrayVar(&f.features, "feature", nil,
		"a column by a formula: 'dram = (DRAM_Rd + DRAM_Wr)/Elapsed_Cycles' (repeatable)")
	fl.StringVar(&f.file, "features", "", "YAML file with name: formula")
	fl.StringVar((*string)(&f.scale), "scale", string(counters.Auto),
		"counts of events per-second, none, or auto: per second where every row has a time")
}

// table reads the files and returns one table: rows of different kernels are appended,
// passes of the same kernels are joined by column. Then powers are joined, from --powers
// first, from tasks for rows still without. Doubtful rows are dropped last, when the
// duration of each power is known.
func (f *counterFlags) table(a *cli.App, ctx context.Context, files []string) (t *counters.Table, err error) {
	if f.kernel != "" {
		if f.Kernel, err = regexp.Compile(f.kernel); err != nil {
			return nil, cli.Usagef("--kernel: %w", err)
		}
	}
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
	if t, err = counters.Merge(tables...); err != nil {
		return nil, err
	}
	// A file of powers covers every row or is an error; tasks fill the rest.
	if f.power != "" {
		list, err := cli.ReadFile(f.power, counters.ParsePower)
		if err == nil {
			err = t.JoinPower(f.power, list)
		}
		if err != nil {
			return nil, err
		}
	}
	if err := f.joinTasks(a, ctx, t); err != nil || !f.leaveOut {
		return t, err
	}
	if n := t.Drop(func(r counters.Run) bool { return r.Blocks < f.minBlocks || r.Measured < f.minTime }); n > 0 {
		t.Notes = append(t.Notes, fmt.Sprintf("%d rows were left out: fewer than %g blocks, or measured for less than "+
			"%g s", n, f.minBlocks, float64(f.minTime)))
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
	read := func(r io.Reader, name string) (*counters.Table, error) { return counters.Parse(name, r, o) }
	if path == "-" {
		return read(a.In, path)
	}
	return cli.ReadFile(path, read)
}

// none reports whether no flag names a column.
func (f *featureFlags) none() bool { return f.set == "" && len(f.features) == 0 && f.file == "" }

// of returns the columns to train on: those of the set, of the YAML file and of --feature,
// in this order. The set is a known one, all columns of the table, or a list of counters.
// Without any flag it is the usual one of the table's form. t may be nil if --counters is not "all".
func (f *featureFlags) of(t *counters.Table) (counters.Set, error) {
	if f.none() {
		return t.Usual(), nil
	}
	// Formulas may be given without a set, and then make one of their own.
	s, known := counters.Named(f.set)
	switch {
	case known:
	case f.set == "":
		s.Name = "own"
	case f.set == "all" && t != nil:
		s = t.All()
	default:
		s.Name = f.set
		for name := range strings.SplitSeq(f.set, ",") {
			if name = strings.TrimSpace(name); name == "" {
				return s, cli.Usagef("--counters %q: a name is empty", f.set)
			}
			s.Features = append(s.Features, counters.Feature{Name: name})
		}
	}
	if f.file != "" {
		more, err := cli.ReadFile(f.file, readFeatures)
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

// readFeatures reads a YAML mapping of name to formula and keeps its order, which is the
// order of the coefficients.
func readFeatures(r io.Reader, path string) (out []counters.Feature, err error) {
	data, err := io.ReadAll(r)
	if err != nil {
		return nil, err
	}
	// A Go map would lose the order.
	var m yaml.MapSlice
	if err := yaml.Unmarshal(data, &m); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
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

// trainingData computes the columns of s for every row of t. It fails where a row has no
// power, naming file and line.
func trainingData(t *counters.Table, s counters.Set, scale counters.Scale) (*model.Data, error) {
	d, err := t.Data(s.Features, scale)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", cmp.Or(s.Name, "features"), err)
	}
	for i, r := range t.Runs {
		if math.IsNaN(float64(r.Power)) {
			return nil, fmt.Errorf("%s: line %d (%s): no power: add a column power_w, a file with --powers, or tasks "+
				"with --tasks", r.File, r.Line, d.Rows[i].Name)
		}
	}
	return d, nil
}

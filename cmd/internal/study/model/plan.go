package model

import (
	"context"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/ianlancetaylor/demangle"
	"github.com/spf13/cobra"
	"github.com/wattmark/wattmark/analysis/counters"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/out"
	"github.com/wattmark/wattmark/cmd/internal/study/compare"
	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/store"
)

// PlanReport is the JSON of model plan: counters, and the runs they are dealt
// into.
type PlanReport struct {
	Set    string          `json:"set"`
	Source counters.Source `json:"source"`
	PerRun int             `json:"per_run"`
	// Counters are the events still to be counted; Have are those that files contain.
	Counters []string   `json:"counters"`
	Have     []string   `json:"have,omitempty"`
	Runs     [][]string `json:"runs"`
	// Commands run ncu once per entry of Runs; only with --source ncu.
	Commands []string `json:"commands,omitempty"`
	// Sets compares the paper's models; only with the CUDA profiler's names.
	Sets []setSummary `json:"sets,omitempty"`
}

// setSummary is the cost of one of the paper's models: counters, and runs at the
// given limit.
type setSummary struct {
	Set      string `json:"set"`
	Counters int    `json:"counters"`
	Runs     int    `json:"runs"`
}

// planFlags are the flags of plan. program is a shell command line; perRun and
// limits bound the counters of one run, in all and per hardware unit.
type planFlags struct {
	featureFlags
	source  counters.Source
	program string
	perRun  int
	limits  []string
	have    []string
}

// modelPlanCmd returns model plan. It reads the files of --have and touches
// neither GPU nor database.
func modelPlanCmd(a *cli.App) *cobra.Command {
	var f planFlags
	c := command(a, "plan [-- PROGRAM ARGS...]", "Deal a model's counters into the fewest runs", nil,
		func(_ context.Context, args []string) error {
			f.program = cli.ShellWords(args)
			r, err := modelPlan(a, &f)
			if err != nil {
				return err
			}
			return a.Print(r, r.render)
		})
	f.add(c)
	fl := c.Flags()
	fl.StringVar((*string)(&f.source), "source", string(counters.CUDAProfiler),
		"what counts: cuda-profiler (the paper's names) or ncu")
	fl.IntVar(&f.perRun, "per-run", 4, "counters in one run; 0 for no limit (the paper's GPU: 4)")
	fl.StringArrayVar(&f.limits, "unit-limit", nil,
		"UNIT=N: at most N metrics whose name begins with UNIT__ in one run (repeatable)")
	fl.StringArrayVar(&f.have, "have", nil, "file that has some of the counters already (repeatable)")
	return c
}

// modelPlan expands the columns to their base counters, drops those that files
// already have, and deals the rest into the fewest runs within the limits. Without
// --counters the source decides: full for the paper's names, nsight-units for ncu.
func modelPlan(a *cli.App, f *planFlags) (*PlanReport, error) {
	nsight := f.source == counters.NsightSource
	if !nsight && f.source != counters.CUDAProfiler {
		return nil, cli.Usagef("--source %q: want %s or %s", f.source, counters.CUDAProfiler, counters.NsightSource)
	}
	limit := counters.Limit{Total: f.perRun, PerUnit: map[string]int{}}
	for _, s := range f.limits {
		u, n, _ := strings.Cut(s, "=")
		v, err := strconv.Atoi(n)
		if err != nil || v < 1 || u == "" {
			return nil, cli.Usagef("--unit-limit %q: want UNIT=N, as in dram=4", s)
		}
		limit.PerUnit[u] = v
	}
	r := &PlanReport{Source: f.source, PerRun: f.perRun}
	for _, path := range f.have {
		t, err := readCounters(a, path, counters.Options{})
		if err != nil {
			return nil, err
		}
		r.Have = append(r.Have, lists.Map(t.Columns, func(c counters.Column) string { return c.Name })...)
	}
	if f.none() {
		f.set = map[bool]string{true: "nsight-units", false: "full"}[nsight]
	}
	set, err := f.of(nil)
	if err != nil {
		return nil, err
	}
	r.Set = set.Name
	if r.Counters, r.Runs, err = deal(set, f.source, r.Have, limit); err != nil {
		return nil, err
	}
	if nsight {
		r.Commands = commands(r.Runs, f.program)
		return r, nil
	}
	for _, s := range counters.PaperSets() {
		base, runs, err := deal(s, f.source, nil, limit)
		if err != nil {
			return nil, err
		}
		r.Sets = append(r.Sets, setSummary{s.Name, len(base), len(runs)})
	}
	return r, nil
}

// deal returns the counters of a set that are not in have, and the runs to count them in.
func deal(s counters.Set, from counters.Source, have []string, limit counters.Limit) (base []string, runs [][]string,
	err error,
) {
	if base, err = counters.Base(s.Features, from, have); err == nil {
		runs, err = counters.Plan(base, limit)
	}
	return base, runs, err
}

// commands returns one ncu command line per run. Each also counts
// gpu__time_duration, so that the counts of a run are divided by that run's own
// time: the passes of one kernel differ in duration.
func commands(runs [][]string, program string) (out []string) {
	for i, run := range runs {
		metrics := append(slices.Clone(run), "gpu__time_duration.sum")
		out = append(out,
			fmt.Sprintf("LC_ALL=C ncu --csv --page raw --print-units base --clock-control none --metrics %s "+
				"--log-file pass%d.csv %s", strings.Join(metrics, ","), i+1, program))
	}
	return out
}

// render writes the runs as a table, then the commands, then the paper's models.
func (r *PlanReport) render(w io.Writer) {
	if len(r.Runs) == 0 {
		fmt.Fprintln(w, "nothing is left to count")
		return
	}
	fmt.Fprintf(w, "%s: %s in %s\n\n", measure.Printable(r.Set), measure.Plural(len(r.Counters), "counter"),
		measure.Plural(len(r.Runs), "run"))
	t := out.NewTable(w, "run", "counters")
	for i, run := range r.Runs {
		t.AppendRow(out.Row{i + 1, measure.Printable(strings.Join(run, ", "))})
	}
	t.Render()
	for i, c := range r.Commands {
		if i == 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintln(w, measure.Printable(c))
	}
	if len(r.Sets) > 0 {
		fmt.Fprintln(w)
		out.Table(w, out.Row{"the paper's models", "counters", "runs"}, r.Sets,
			func(s setSummary) out.Row { return out.Row{s.Set, s.Counters, s.Runs} })
	}
}

// joinTasks fills missing powers from stored tasks: a row that names a task by
// number or name gets that one's power; with --tasks any other row gets that of
// the newest task named as its kernel, else as its application. The database is
// opened only if some row needs it. Errors name file and line.
func (f *counterFlags) joinTasks(a *cli.App, ctx context.Context, t *counters.Table) error {
	// A power in the files or of --powers takes precedence over a task's.
	wanted := func(r counters.Run) bool {
		return math.IsNaN(float64(r.Power)) && (r.Task != "" || f.tasks)
	}
	if !slices.ContainsFunc(t.Runs, wanted) {
		return nil
	}
	db, err := a.OpenDB(ctx)
	if err != nil {
		return err
	}
	defer db.Close()
	for i := range t.Runs {
		r := &t.Runs[i]
		if !wanted(*r) {
			continue
		}
		task, err := taskOf(a, ctx, db, r)
		if err == nil {
			r.Power, r.Measured, err = taskPower(ctx, db, task, r.Name)
		}
		if err != nil {
			return fmt.Errorf("%s: line %d (%s): %w", r.File, r.Line, r.Name, err)
		}
		f.tasksUsed = lists.AddNew(f.tasksUsed, task.ID)
	}
	return nil
}

// taskOf returns the task of a row: by number, else the newest whose name is
// r.Task, or, if that is empty, the kernel's or the application's. Names match
// exactly, so a trailing * is cut.
func taskOf(a *cli.App, ctx context.Context, db *store.DB, r *counters.Run) (*store.Task, error) {
	// A number is a task's, though a task may be named by digits as well.
	if _, err := cli.TaskID(r.Task); err == nil {
		return a.Task(ctx, db, r.Task)
	}
	names := []string{r.Task}
	if r.Task == "" {
		names = []string{r.Name, r.App}
	}
	var tried []string
	for _, name := range names {
		if name == "" {
			continue
		}
		tried = append(tried, strconv.Quote(name))
		list, err := db.Tasks(ctx, store.Query{Name: strings.TrimRight(name, "*"), Limit: 1})
		if err != nil {
			return nil, err
		}
		if len(list) > 0 {
			t, err := db.Task(ctx, list[0].ID)
			return &t, err
		}
	}
	return nil, cli.NotFoundf("no task named %s in %s: measure it with wattmark run --name, or give the power in a "+
		"column or with --powers", strings.Join(tried, " or "), a.DB)
}

// taskPower returns a mean power and the seconds it was averaged over: of the
// kernel alone, if the task's energies are split by kernel and no launch was too
// short for the meter, else of the whole window. A failed task, or one without
// power, is an error.
func taskPower(ctx context.Context, db *store.DB, t *store.Task, kernel string) (measure.Watt, measure.Seconds, error) {
	if err := compare.NotFailed(t); err != nil {
		return 0, 0, err
	}
	if t.Result == nil || !(t.Result.Mean > 0) {
		return 0, 0, cli.WithCode(cli.ExitIncomplete, fmt.Errorf("task %d has no power: see wattmark show %d", t.ID, t.ID))
	}
	lines, err := db.NameEnergies(ctx, t.ID, t.ResultNumber)
	if err != nil {
		return 0, 0, err
	}
	for _, l := range lines {
		// Files name a kernel by its symbol, or demangled with or without its parameters.
		forms := []string{l.Name, demangle.Filter(l.Name), demangle.Filter(l.Name, demangle.NoParams)}
		// Mean power of the kernel: its energy divided by its share of the window in
		// seconds. Short counts launches below the meter's resolution.
		if slices.Contains(forms, kernel) && l.Class == store.KernelEnergy && l.Share > 0 && l.Energy.Energy > 0 &&
			l.Short == 0 {
			return measure.Watt(float64(l.Energy.Energy) / float64(l.Share)), l.Share, nil
		}
	}
	return t.Result.Mean, t.Result.To - t.Result.From, nil
}

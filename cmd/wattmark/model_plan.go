package main

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"wattmark/analysis/counters"
	"wattmark/measure"
)

// planReport is what model plan prints.
type planReport struct {
	Set      string       `json:"set"`
	Source   string       `json:"source"`
	PerRun   int          `json:"per_run"`
	Counters []string     `json:"counters"`
	Have     []string     `json:"have,omitempty"` // that files have already
	Runs     [][]string   `json:"runs"`
	Commands []string     `json:"commands,omitempty"`
	Sets     []setSummary `json:"sets,omitempty"`
}

type setSummary struct {
	Set      string `json:"set"`
	Counters int    `json:"counters"`
	Runs     int    `json:"runs"`
}

type planFlags struct {
	featureFlags
	source, program string
	perRun          int
	limits          []string
	have            []string
}

func (a *app) modelPlanCmd() *cobra.Command {
	var f planFlags
	c := &cobra.Command{
		Use: "plan [-- PROGRAM ARGS...]", Short: "Deal a model's counters into the fewest runs",
		Long: `List the counters that a model's columns are made of, and deal them into the fewest
runs of the program: at most --per-run in a run, and at most so many of one unit
(--limit dram=4). Counters that a file has already (--have) are left out.

With --source ncu the commands are printed: each writes a file that wattmark model
fit takes, all together, as passes of the same kernels. Nsight Compute by itself replays
kernels until it has all metrics, so one run does where the kernels allow it; with
--per-run it need not replay.`,
		Example: `  wattmark model plan --set full --per-run 4
  wattmark model plan --source ncu --set nsight-units --per-run 4 -- ./gemm 4096
  wattmark model plan --source ncu --set nsight-units --have pass1.csv -- ./gemm 4096`,
		RunE: func(_ *cobra.Command, args []string) error {
			f.program = shellWords(args)
			r, err := a.modelPlan(&f)
			if err != nil {
				return modelUsage(err)
			}
			if a.json {
				return a.printJSON(r)
			}
			r.render(a.out)
			return nil
		},
	}
	f.add(c)
	fl := c.Flags()
	fl.StringVar(&f.source, "source", string(counters.CUDAProfiler), "what counts: cuda-profiler (the paper's names) or ncu")
	fl.IntVar(&f.perRun, "per-run", 4, "counters in one run; 0 for no limit (the paper's GPU: 4)")
	fl.StringArrayVar(&f.limits, "limit", nil, "UNIT=N: at most N metrics whose name begins with UNIT__ in one run (repeatable)")
	fl.StringArrayVar(&f.have, "have", nil, "file that has some of the counters already (repeatable)")
	return a.jsonFlag(c)
}

// shellWords quotes arguments for a shell.
func shellWords(args []string) string {
	if len(args) == 0 {
		return "PROGRAM"
	}
	var out []string
	for _, s := range args {
		if s == "" || strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./=:,+@%-") != "" {
			s = "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
		}
		out = append(out, s)
	}
	return strings.Join(out, " ")
}

func (a *app) modelPlan(f *planFlags) (*planReport, error) {
	source := counters.Source(f.source)
	if source != counters.CUDAProfiler && source != counters.NsightSource {
		return nil, withCode(exitUsage, fmt.Errorf("--source %q: want %s or %s", f.source, counters.CUDAProfiler, counters.NsightSource))
	}
	limit, err := f.limit()
	if err != nil {
		return nil, err
	}
	r := &planReport{Source: f.source, PerRun: f.perRun}
	for _, path := range f.have {
		t, err := a.readCounters(path, counters.Options{})
		if err != nil {
			return nil, err
		}
		for _, c := range t.Columns {
			r.Have = append(r.Have, c.Name)
		}
	}
	if f.set == "" && len(f.features) == 0 && f.file == "" {
		f.set = "full"
		if source == counters.NsightSource {
			f.set = "nsight-units"
		}
	}
	set, err := f.of(nil)
	if err != nil {
		return nil, err
	}
	r.Set = set.Name
	if r.Counters, err = counters.Base(set.Features, source, r.Have); err != nil {
		return nil, err
	}
	if r.Runs, err = counters.Plan(r.Counters, limit); err != nil {
		return nil, err
	}
	if source == counters.NsightSource {
		r.Commands = commands(r.Runs, f.program)
	} else {
		r.Sets, err = summaries(limit)
	}
	return r, err
}

func (f *planFlags) limit() (counters.Limit, error) {
	l := counters.Limit{Total: f.perRun, PerUnit: map[string]int{}}
	for _, s := range f.limits {
		u, n, _ := strings.Cut(s, "=")
		v, err := strconv.Atoi(n)
		if err != nil || v < 1 || u == "" {
			return l, withCode(exitUsage, fmt.Errorf("--limit %q: want UNIT=N, as in dram=4", s))
		}
		l.PerUnit[u] = v
	}
	return l, nil
}

// commands has the time counted in every run: each run's counts are divided by its
// own time.
func commands(runs [][]string, program string) (out []string) {
	for i, run := range runs {
		metrics := append(slices.Clone(run), "gpu__time_duration.sum")
		out = append(out, fmt.Sprintf("LC_ALL=C ncu --csv --page raw --print-units base --clock-control none --metrics %s --log-file pass%d.csv %s", strings.Join(metrics, ","), i+1, program))
	}
	return out
}

// summaries tells what each of the paper's models needs.
func summaries(l counters.Limit) (out []setSummary, err error) {
	for _, s := range counters.PaperSets() {
		base, err := counters.Base(s.Features, counters.CUDAProfiler, nil)
		if err != nil {
			return nil, err
		}
		runs, err := counters.Plan(base, l)
		if err != nil {
			return nil, err
		}
		out = append(out, setSummary{s.Name, len(base), len(runs)})
	}
	return out, nil
}

func (r *planReport) render(w io.Writer) {
	if len(r.Runs) == 0 {
		fmt.Fprintln(w, "nothing is left to count")
		return
	}
	fmt.Fprintf(w, "%s: %d counters in %d runs\n\n", measure.Printable(r.Set), len(r.Counters), len(r.Runs))
	t := newTable(w)
	t.AppendHeader(table.Row{"run", "counters"})
	for i, run := range r.Runs {
		t.AppendRow(table.Row{i + 1, measure.Printable(strings.Join(run, ", "))})
	}
	t.Render()
	for i, c := range r.Commands {
		if i == 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintln(w, measure.Printable(c))
	}
	if len(r.Sets) == 0 {
		return
	}
	fmt.Fprintln(w)
	t = newTable(w)
	t.AppendHeader(table.Row{"the paper's models", "counters", "runs"})
	for _, s := range r.Sets {
		t.AppendRow(table.Row{s.Set, s.Counters, s.Runs})
	}
	t.Render()
}

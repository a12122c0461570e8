// Package task has the commands that read and change tasks of the database:
//
//	tasks, users       list
//	show               one task, or the group of a measurement of several GPUs
//	trim               set the window by hand and compute the energy again
//	tag, note, pin     change labels
//	delete             remove tasks, after a confirmation
//
// Reading commands open the database read-only; package report renders the task.
package task

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/spf13/cobra"
	"github.com/wattmark/wattmark/api/client"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/out"
	"github.com/wattmark/wattmark/cmd/internal/report"
	"github.com/wattmark/wattmark/cmd/internal/session"
	"github.com/wattmark/wattmark/hostagent/measurement"
	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/group"
	"github.com/wattmark/wattmark/measure/quality"
	"github.com/wattmark/wattmark/store"
)

// listFlags are the flags of tasks.
type listFlags struct {
	q             store.Query
	since, until  string
	tags, without []string
	verdicts      []string
	watch         bool
	look
}

// tasksCmd returns the command tasks, whose flags fill a store.Query.
func tasksCmd(a *cli.App) *cobra.Command {
	var f listFlags
	c := cli.Command("tasks", "List tasks, newest first, by user, name and time", cobra.NoArgs,
		func(ctx context.Context, _ []string) error { return f.run(ctx, a) })
	fl := c.Flags()
	fl.StringVar(&f.q.User, "user", "", "only this user's")
	fl.StringVar(&f.q.Name, "name", "", "only of this name; a trailing * matches what begins so")
	fl.StringVar(&f.q.Job, "job", "", "only of this job")
	fl.StringVar(&f.q.Search, "search", "", "only with all of these words, or beginnings of words, in name, notes or tags")
	fl.StringArrayVar(&f.tags, "tag", nil, "only with this tag: key=value, or key alone (repeatable)")
	fl.StringArrayVar(&f.without, "without-tag", nil, "only without this tag: key=value, or key alone (repeatable)")
	fl.StringVar(&f.since, "since", "", "only launched at or after: 2026-01-31, 2026-01-31T15:04:05Z, or 7d for the last "+
		"seven days")
	fl.StringVar(&f.until, "until", "", "only launched before")
	fl.StringSliceVar(&f.verdicts, "verdict", nil, "only of these verdicts: good, usable, doubtful, void; each task is "+
		"judged anew")
	fl.BoolVar(&f.watch, "watch", false, "with --host: print a line for each new task and each change, until it is "+
		"interrupted")
	fl.IntVar(&f.q.Limit, "limit", 50, "how many")
	f.look.flags(c)
	fl.Int64Var((*int64)(&f.q.Before), "before", 0, "only tasks with a smaller number, for the next page")
	return a.HostFlag(a.JSONFlag(c))
}

// run checks the flags, finishes left-over tasks of a database, and prints the list.
func (f *listFlags) run(ctx context.Context, a *cli.App) error {
	q, err := f.query()
	if err != nil {
		return err
	}
	if err := f.check(a, f.watch); err != nil {
		return err
	}
	if f.watch {
		return watchTasks(ctx, a, q)
	}
	if _, ok := a.OnHost(); !ok {
		db, err := a.OpenDB(ctx)
		if err != nil {
			return err
		}
		session.LeftOvers(ctx, a, db)
		if err := db.Close(); err != nil {
			return err
		}
	}
	tasks, err := f.list(ctx, a, q)
	if err != nil {
		return err
	}
	return f.print(a, tasks, q)
}

// query returns the query of the flags. Errors are of usage.
func (f *listFlags) query() (q store.Query, err error) {
	var errs [3]error
	q = f.q
	q.Since, errs[0] = cli.ParseTime(f.since)
	q.Until, errs[1] = cli.ParseTime(f.until)
	q.Tags, errs[2] = parseTags(f.tags, true)
	if err := cmp.Or(errs[:]...); err != nil {
		return q, err
	}
	for _, w := range f.without {
		t, err := store.ParseTag(w)
		if err != nil {
			return q, cli.WithCode(cli.ExitUsage, err)
		}
		q.Without = append(q.Without, t)
	}
	for _, v := range f.verdicts {
		var level quality.Level
		if err := level.UnmarshalText([]byte(v)); err != nil {
			return q, cli.Usagef("there is no verdict %q: there are good, usable, doubtful and void", v)
		}
		q.Verdicts = append(q.Verdicts, level)
	}
	if f.watch && q.Verdicts != nil {
		return q, cli.Usagef("--watch prints a line for each change: leave out --verdict")
	}
	return q, nil
}

func usersCmd(a *cli.App) *cobra.Command {
	return a.HostFlag(ListCmd(a, "users", "List users with their number of tasks", "users", a.Users,
		"", out.Row{"user", "tasks"}, func(u store.UserTasks) out.Row { return out.Row{u.User, u.Tasks} }))
}

// ListCmd returns a command that prints a list: under a key in JSON, as a table in text, or as
// none of the database where the list is empty and none is not.
func ListCmd[T any](a *cli.App, use, short, key string, load func(context.Context) ([]T, error), none string,
	head out.Row, row func(T) out.Row,
) *cobra.Command {
	return a.JSONFlag(cli.Command(use, short, cobra.NoArgs, func(ctx context.Context, _ []string) error {
		list, err := load(ctx)
		if err != nil {
			return err
		}
		list = append([]T{}, list...) // JSON shows none as []
		return a.Print(map[string]any{key: list}, func(w io.Writer) {
			if len(list) == 0 && none != "" {
				fmt.Fprintf(w, none+"\n", a.DB)
				return
			}
			out.Table(w, head, list, row)
		})
	}))
}

//go:embed help.md
var help string

// Commands returns the commands of this package.
func Commands(a *cli.App) []*cobra.Command {
	return append(cli.In(cli.Look, help, tasksCmd(a), showCmd(a), usersCmd(a), trimCmd(a), deleteCmd(a), tagCmd(a),
		noteCmd(a)), cli.In(cli.Database, help, pinCmd(a, true), pinCmd(a, false))...)
}

// showFlags are the flags of show.
type showFlags struct {
	noPlot, budget, kernels, ranges, swings, windows bool

	step   string // names the kernels that begin a step; empty for none
	svg    string // file for the picture; empty for none
	result uint   // number of a result; 0 for the one in use
	group  int64  // number of a group instead of a task; 0 for none
}

// showCmd returns the command show. It needs no write access, except to finish tasks of
// processes that no longer exist (session.LeftOvers).
func showCmd(a *cli.App) *cobra.Command {
	var f showFlags
	taskOrGroup := func(c *cobra.Command, args []string) error {
		if c.Flags().Changed("group") {
			return cli.OneGroup(c, args)
		}
		return cli.OneTask(c, args)
	}
	c := cli.Command("show TASK | --group N", "Show a task, or a group of GPUs: energy, rails, markers, plot",
		taskOrGroup, func(ctx context.Context, args []string) error {
			db, err := openShown(ctx, a, args, store.GroupID(f.group))
			if err != nil {
				return err
			}
			defer db.Close()
			if f.group > 0 {
				return ShowGroup(ctx, a, db, store.GroupID(f.group), false)
			}
			t, err := report.TaskResult(a, ctx, db, args[0], f.result)
			if err != nil {
				return err
			}
			return show(ctx, a, db, t, f)
		})
	report.ResultFlag(c, &f.result)
	c.Flags().Int64Var(&f.group, "group", 0, "show this group of tasks, with its total")
	c.Flags().BoolVar(&f.noPlot, "no-plot", false, "leave the plot out")
	c.Flags().BoolVar(&f.kernels, "kernels", false,
		"list the energy by kernel name, where run --auto recorded the kernels")
	c.Flags().BoolVar(&f.ranges, "ranges", false,
		"list the energy by range, where run --auto or annotate recorded the program's own (NVTX, record_function)")
	c.Flags().BoolVar(&f.windows, "windows", false,
		"list the energy of the windows that a server named: requests, their stages, joules by what they counted")
	c.Flags().BoolVar(&f.swings, "swings", false, "list how the power varies: excursions and slopes over 1, 10 and 100 ms, "+
		"root mean square by frequency")
	c.Flags().StringVar(&f.step, "step", "", "with --swings: the mean course of a step that begins with each kernel of "+
		"this name, or part of a name")
	cli.SVGFlag(c.Flags(), &f.svg, "also draw the power by the meter and by software into this file")
	c.Flags().BoolVar(&f.budget, "budget", false, "list the contributions to the total's uncertainty")
	return a.HostFlag(a.JSONFlag(c))
}

// openShown opens the database of a task, or of a group, and finishes tasks of processes that no
// longer exist.
func openShown(ctx context.Context, a *cli.App, args []string, group store.GroupID) (db *store.DB, err error) {
	if group > 0 {
		db, err = a.OpenGroup(ctx, group)
	} else {
		db, err = a.OpenDB(ctx, args...)
	}
	if _, remote := a.OnHost(); err == nil && !remote {
		session.LeftOvers(ctx, a, db)
	}
	return db, err
}

// show prints one task: the report, then the parts that flags select, then the plot. The
// parts with --json are fields of the same object.
func show(ctx context.Context, a *cli.App, db *store.DB, t *store.Task, f showFlags) error {
	r := report.NewReport(t, a.DB)
	r.Reason = out.JoinNonEmpty("; ", t.Reason, session.Unfinished(t))
	for _, part := range []struct {
		wanted bool
		add    func() error
	}{
		{true, func() error { return r.AddSide(ctx, db) }},
		{f.kernels, func() error { return r.AddKernels(ctx, db) }},
		{f.ranges, func() (err error) {
			r.Ranges, err = db.Ranges(ctx, t)
			return err
		}},
		{f.windows, func() error { return r.AddWindows(ctx, db) }},
		{f.swings || f.step != "", func() error { return r.AddSwings(a, ctx, db, f.step) }},
		{f.svg != "", func() error { return report.DrawTask(ctx, db, t, f.svg) }},
	} {
		if !part.wanted {
			continue
		}
		if err := part.add(); err != nil {
			return err
		}
	}
	r.Picture = f.svg
	if a.JSON {
		return a.PrintJSON(r)
	}
	report.RenderReport(a.Out, r)
	if f.kernels {
		report.RenderKernels(a, r)
	}
	if f.ranges {
		report.RenderRanges(a, r.Ranges)
	}
	if f.windows {
		report.RenderWindows(a, r.Windows)
	}
	if r.Swings != nil {
		report.RenderSwings(a, r.Swings)
	}
	if f.budget {
		renderBudget(a, r)
	}
	if f.noPlot || t.Scans == 0 {
		return nil
	}
	return report.PlotTask(a, ctx, db, t, r)
}

// renderBudget writes the contributions to the total's uncertainty: standard uncertainties
// in joules, and whether the contribution averages out over many samples.
func renderBudget(a *cli.App, r *report.Report) {
	fmt.Fprintln(a.Out, "\nUncertainty budget of the total (standard uncertainties, k = 1):")
	out.Table(a.Out, out.Row{"source", "u", "averages out"}, r.Budget, func(b measure.Contribution) out.Row {
		return out.Row{b.Source, b.U, map[bool]string{true: "no", false: "yes"}[b.Systematic]}
	})
}

// trimCmd returns the command trim. The window is in device time, in seconds since the
// capture's first sample, as the axis of the plot.
func trimCmd(a *cli.App) *cobra.Command {
	var from, to time.Duration
	c := cli.Command("trim TASK --from T --to T", "Set a task's window by hand", cli.OneTask,
		func(ctx context.Context, args []string) error {
			if to <= from {
				return cli.Usagef("trim: --to must lie after --from; look at the plot of wattmark show")
			}
			w := measurement.Window{From: measure.SecondsOf(from), To: measure.SecondsOf(to)}
			if _, ok := a.OnHost(); ok {
				return trimOnHost(ctx, a, args[0], w)
			}
			db, err := a.OpenToChange(ctx)
			if err != nil {
				return err
			}
			defer db.Close()
			t, err := a.Task(ctx, db, args[0])
			if err != nil {
				return err
			}
			if err := measurement.Retrim(ctx, db, t.ID, w); err != nil {
				return err
			}
			// The energies by kernel follow from the window.
			if err := report.ShareAgain(ctx, db, t.ID); err != nil {
				return err
			}
			return report.ShowTask(a, ctx, db, t.ID, nil)
		})
	c.Flags().DurationVar(&from, "from", 0, "device time at which the window begins")
	c.Flags().DurationVar(&to, "to", 0, "device time at which it ends")
	return a.HostFlag(a.JSONFlag(c))
}

// trimOnHost gives a task of the host a window, and shows the task as it is then.
func trimOnHost(ctx context.Context, a *cli.App, arg string, w measurement.Window) error {
	id, err := a.Number(ctx, arg)
	if err != nil {
		return err
	}
	if err := a.AskHost(ctx, func(c *client.Client) error {
		_, err := c.Trim(ctx, int64(id), float64(w.From), float64(w.To))
		return err
	}); err != nil {
		return err
	}
	db, t, err := a.OpenTask(ctx, fmt.Sprint(id))
	if err != nil {
		return err
	}
	defer db.Close()
	return report.ShowTask(a, ctx, db, t.ID, nil)
}

// GroupReport is the JSON of a measurement of several GPUs: one member per GPU, each with
// its task, and the total over all of them. Energies are in joules, uncertainties expanded
// (k = 2), powers in watts.
type GroupReport struct {
	GroupID  int64          `json:"group_id"`
	Name     string         `json:"name"`
	User     string         `json:"user"`
	State    string         `json:"state"`
	Database string         `json:"database"`
	Launched time.Time      `json:"launched"`
	GPUs     []memberReport `json:"gpus"`
	// Total covers the GPUs that have a result; nil if none has.
	Total *totalReport `json:"total,omitempty"`
}

// memberReport is one GPU of a group.
type memberReport struct {
	GPU     string         `json:"gpu"`
	UUID    string         `json:"gpu_uuid"`
	Monitor string         `json:"monitor,omitempty"`
	Reason  string         `json:"reason,omitempty"` // why there is no task
	Task    *report.Report `json:"task,omitempty"`
}

// totalReport is the sum over the GPUs that have a result. Errors with a common cause, such
// as one meter for several GPUs, add linearly; the GPUs' own errors add in quadrature.
type totalReport struct {
	group.Sum
	Mean    measure.Watt   `json:"mean_w"`
	GPUs    int            `json:"gpus_summed"`
	Missing int            `json:"gpus_missing"`
	Common  []sharedReport `json:"shared,omitempty"`
}

// sharedReport is one error that several GPUs have in common.
type sharedReport struct {
	Source string        `json:"source"` // the line of the uncertainty budget
	By     string        `json:"by"`     // the common cause, as an instrument
	GPUs   []int         `json:"gpus"`   // counted from 0
	U      measure.Joule `json:"u_j"`
}

// newGroupReport returns the report of a group; db is the database's name for display.
func newGroupReport(g *measurement.GroupResult, db string) *GroupReport {
	r := &GroupReport{
		GroupID: int64(g.ID), Name: g.Name, User: g.User, State: g.State.String(), Database: report.Readable(db),
		Launched: g.Launched,
	}
	// A member without a task carries the reason; a task carries its own.
	for i, m := range g.Members {
		x := memberReport{GPU: m.GPU, UUID: m.GPUUUID, Monitor: m.Monitor, Reason: m.Reason}
		switch t := g.Tasks[i]; {
		case t != nil:
			x.Task = report.NewReport(t, db)
		case x.Reason == "":
			x.Reason = "its capture has not begun"
		}
		r.GPUs = append(r.GPUs, x)
	}
	if len(g.Summed) == 0 { // no member has a result: no total, rather than one of zero
		return r
	}
	r.Total = &totalReport{
		Sum: g.Sum, Mean: g.Sum.Mean, GPUs: len(g.Summed), Missing: len(g.Members) - len(g.Summed),
	}
	for _, l := range g.Sum.Lines {
		// Parts count the summed GPUs; the report counts all GPUs of the group.
		members := lists.Map(l.Parts, func(p int) int { return g.Summed[p] })
		r.Total.Common = append(r.Total.Common, sharedReport{l.Source, l.By, members, l.U})
	}
	return r
}

// ShowGroup prints a group. With measured, at the end of a measurement, a group that is not
// complete is an error with the exit code 3.
func ShowGroup(ctx context.Context, a *cli.App, db *store.DB, id store.GroupID, measured bool) error {
	g, err := measurement.ReadGroup(ctx, db, id)
	if errors.Is(err, store.ErrNotFound) {
		return cli.NotFoundf("no group %d in %s: wattmark tasks shows the groups of tasks", id, a.DB)
	}
	if err != nil {
		return err
	}
	r := newGroupReport(&g, a.DB)
	err = a.Print(r, func(w io.Writer) { renderGroup(w, r) })
	if err == nil && measured && g.State != store.Complete {
		err = cli.WithCode(cli.ExitIncomplete,
			fmt.Errorf("group %d is %s: wattmark show --group %d says what is missing", id, r.State, id))
	}
	return err
}

// renderGroup writes the group as text: one row per GPU with the total as the footer, then
// the reasons of members that were not measured or are incomplete, then the uncertainty.
func renderGroup(w io.Writer, r *GroupReport) {
	fmt.Fprintf(w, "Group %d  %s, by %s: %s\n\n", r.GroupID, r.Name, r.User, r.State)
	t := out.NewTable(w, "GPU", "name", "UUID", "task", "state", "duration", "energy (k = 2)", "mean")
	for i, m := range r.GPUs {
		row := out.Row{i, m.GPU, m.UUID, "", "not measured", "", "", ""}
		if x := m.Task; x != nil {
			row[3], row[4] = x.TaskID, x.State
			if x.EnergyJ != nil && x.EnergyUJ != nil {
				row[5], row[6], row[7] = measure.Seconds(*x.DurationS), out.EnergyText(*x.EnergyJ, *x.EnergyUJ),
					measure.Watt(*x.MeanW)
			}
		}
		t.AppendRow(row)
	}
	if s := r.Total; s != nil {
		what := "total"
		if s.Missing > 0 {
			what = fmt.Sprintf("total of %d of %d GPUs", s.GPUs, s.GPUs+s.Missing)
		}
		t.AppendFooter(out.Row{"", what, "", "", "", "", out.Energy(s.Estimate), s.Mean})
	}
	t.SetColumnConfigs([]table.ColumnConfig{
		{Number: 7, Align: text.AlignRight, AlignFooter: text.AlignRight},
		{Number: 8, Align: text.AlignRight, AlignFooter: text.AlignRight},
	})
	t.Render()
	fmt.Fprintln(w)
	for i, m := range r.GPUs {
		switch {
		case m.Task == nil:
			fmt.Fprintf(w, "  GPU %d    not measured: %s\n", i, m.Reason)
		case m.Task.Reason != "":
			fmt.Fprintf(w, "  GPU %d    task %d: %s\n", i, m.Task.TaskID, m.Task.Reason)
		}
	}
	if s := r.Total; s != nil {
		renderShared(w, s)
	}
}

// renderShared writes the parts of the total's uncertainty: independent, shared, and the
// upper bound.
func renderShared(w io.Writer, s *totalReport) {
	shared := "none shared"
	if len(s.Common) > 0 {
		shared = fmt.Sprintf("%v of shared ones", s.Shared)
	}
	fmt.Fprintf(w, "  ± U      %v of the GPUs' own errors, %s; %v if all that does not average out were one error\n",
		s.Independent, shared, s.AllShared)
	for _, l := range s.Common {
		fmt.Fprintf(w, "  shared   %s, by %s: %v over GPUs %v\n", l.Source, l.By, l.U, l.GPUs)
	}
}

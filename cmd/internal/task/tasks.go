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
	"context"
	_ "embed"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/out"
	"github.com/wattmark/wattmark/cmd/internal/report"
	"github.com/wattmark/wattmark/cmd/internal/session"
	"github.com/wattmark/wattmark/hostagent/measurement"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/store"
)

// tasksCmd returns the command tasks, whose flags fill a store.Query.
func tasksCmd(a *cli.App) *cobra.Command {
	var q store.Query
	var since, until string
	var tags, without []string
	c := cli.Command("tasks", "List tasks, newest first, by user, name and time", cobra.NoArgs,
		func(ctx context.Context, _ []string) error {
			var err error
			if q.Since, err = cli.ParseTime(since); err != nil {
				return err
			}
			if q.Until, err = cli.ParseTime(until); err != nil {
				return err
			}
			if q.Tags, err = parseTags(tags, true); err != nil {
				return err
			}
			for _, w := range without {
				t, err := store.ParseTag(w)
				if err != nil {
					return cli.WithCode(cli.ExitUsage, err)
				}
				q.Without = append(q.Without, t)
			}
			db, err := a.OpenDB(ctx)
			if err != nil {
				return err
			}
			defer db.Close()
			session.LeftOvers(ctx, a, db)
			tasks, err := db.Tasks(ctx, q)
			if err != nil {
				return err
			}
			return printTasks(a, tasks, q)
		})
	c.Flags().StringVar(&q.User, "user", "", "only this user's")
	c.Flags().StringVar(&q.Name, "name", "", "only of this name; a trailing * matches what begins so")
	c.Flags().StringVar(&q.Job, "job", "", "only of this job")
	c.Flags().StringVar(&q.Search, "search", "",
		"only with all of these words, or beginnings of words, in name, notes or tags")
	c.Flags().StringArrayVar(&tags, "tag", nil, "only with this tag: key=value, or key alone (repeatable)")
	c.Flags().StringArrayVar(&without, "without-tag", nil, "only without this tag: key=value, or key alone (repeatable)")
	c.Flags().StringVar(&since, "since", "", "only launched at or after: 2026-01-31 or 2026-01-31T15:04:05Z")
	c.Flags().StringVar(&until, "until", "", "only launched before")
	c.Flags().IntVar(&q.Limit, "limit", 50, "how many")
	c.Flags().Int64Var((*int64)(&q.Before), "before", 0, "only tasks with a smaller number, for the next page")
	return a.JSONFlag(c)
}

// printTasks prints a list: as JSON, or as a table no wider than the terminal. A full page
// ends with the command for the next one.
func printTasks(a *cli.App, tasks []store.Row, q store.Query) error {
	if a.JSON {
		list := []report.ListedReport{}
		for i := range tasks {
			list = append(list, report.NewListedReport(&tasks[i], a.DB))
		}
		return a.PrintJSON(map[string]any{"tasks": list})
	}
	if len(tasks) == 0 {
		fmt.Fprintln(a.Out, "No such tasks in", a.DB)
		return nil
	}
	rows := make([]report.TaskRow, len(tasks))
	for i := range tasks {
		rows[i] = report.NewTaskRow(&tasks[i])
	}
	width := 0 // no limit in a file
	if out.IsTerminal(a.Out) {
		width = out.TerminalWidth(a.Out)
	}
	fmt.Fprintln(a.Out, report.TaskTable(rows, width))
	if q.Limit > 0 && len(tasks) == q.Limit {
		fmt.Fprintf(a.Out, "\nOlder ones: wattmark tasks --before %d\n", tasks[len(tasks)-1].ID)
	}
	return nil
}

// usersCmd returns the command users.
func usersCmd(a *cli.App) *cobra.Command {
	c := cli.Command("users", "List users with their number of tasks", cobra.NoArgs,
		func(ctx context.Context, _ []string) error {
			db, err := a.OpenDB(ctx)
			if err != nil {
				return err
			}
			defer db.Close()
			users, err := db.Users(ctx)
			if err != nil {
				return err
			}
			type user struct {
				User  string `json:"user"`
				Tasks uint64 `json:"tasks"`
			}
			list := []user{} // never null in JSON
			t := out.NewTable(a.Out)
			t.AppendHeader([]any{"user", "tasks"})
			for _, u := range users {
				list = append(list, user(u))
				t.AppendRow([]any{u.User, u.Tasks})
			}
			return a.Print(map[string]any{"users": list}, func(io.Writer) { t.Render() })
		})
	return a.JSONFlag(c)
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
	noPlot, budget, kernels bool
	svg                     string // file for the picture; empty for none
	result                  uint   // number of a result; 0 for the one in use
	group                   int64  // number of a group instead of a task; 0 for none
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
	c := cli.Command("show TASK | --group N", "Show one task, or several GPUs' group: energy, rails, markers, a plot",
		taskOrGroup, func(ctx context.Context, args []string) error {
			db, err := a.OpenDB(ctx)
			if err != nil {
				return err
			}
			defer db.Close()
			session.LeftOvers(ctx, a, db)
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
	cli.SVGFlag(c.Flags(), &f.svg, "also draw the power by the meter and by software into this file")
	c.Flags().BoolVar(&f.budget, "budget", false, "list the contributions to the total's uncertainty")
	return a.JSONFlag(c)
}

// show prints one task: the report, then the parts that flags select, then the plot. The
// parts with --json are fields of the same object.
func show(ctx context.Context, a *cli.App, db *store.DB, t *store.Task, f showFlags) error {
	r := report.NewReport(t, a.DB)
	r.Reason = out.JoinNonEmpty("; ", t.Reason, session.Unfinished(t))
	if err := r.AddSide(ctx, db); err != nil {
		return err
	}
	if f.kernels {
		if err := r.AddKernels(ctx, db); err != nil {
			return err
		}
	}
	if f.svg != "" {
		if err := report.DrawTask(ctx, db, t, f.svg); err != nil {
			return err
		}
		r.Picture = f.svg
	}
	if a.JSON {
		return a.PrintJSON(r)
	}
	report.RenderReport(a.Out, r)
	if f.kernels {
		report.RenderKernels(a, r)
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
	t := out.NewTable(a.Out)
	t.AppendHeader([]any{"source", "u", "averages out"})
	for _, b := range r.Budget {
		avg := "yes"
		if b.Systematic {
			avg = "no"
		}
		t.AppendRow([]any{b.Source, measure.Joule(b.U), avg})
	}
	t.Render()
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
			db, err := a.OpenToChange(ctx)
			if err != nil {
				return err
			}
			defer db.Close()
			t, err := a.Task(ctx, db, args[0])
			if err != nil {
				return err
			}
			w := measurement.Window{From: measure.SecondsOf(from), To: measure.SecondsOf(to)}
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
	return a.JSONFlag(c)
}

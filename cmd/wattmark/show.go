package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"wattmark/measure"
	"wattmark/store"
)

// showFlags say what of a task is shown.
type showFlags struct {
	noPlot, budget, kernels bool
	svg                     string
	result                  uint
	group                   int64
}

func (a *app) showCmd() *cobra.Command {
	var f showFlags
	c := &cobra.Command{
		Use: "show TASK | --group N", Short: "Show one task, or several GPUs' group: energy, rails, markers, a plot",
		Args: func(c *cobra.Command, args []string) error {
			if c.Flags().Changed("group") {
				return oneGroup(c, args)
			}
			return oneTask(c, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			db, err := a.openDB(cmd.Context())
			if err != nil {
				return err
			}
			defer db.Close()
			a.leftOvers(cmd.Context(), db)
			if f.group > 0 {
				return a.showGroup(cmd.Context(), db, store.GroupID(f.group), false)
			}
			t, err := a.taskResult(cmd.Context(), db, args[0], f.result)
			if err != nil {
				return err
			}
			return a.show(cmd.Context(), db, t, f)
		},
	}
	resultFlag(c, &f.result)
	c.Flags().Int64Var(&f.group, "group", 0, "show this group of tasks, with its total")
	c.Flags().BoolVar(&f.noPlot, "no-plot", false, "leave the plot out")
	c.Flags().BoolVar(&f.kernels, "kernels", false, "list the energy by kernel name, where run --auto recorded the kernels")
	svgFlag(c.Flags(), &f.svg, "also draw the power by the meter and by software into this file")
	c.Flags().BoolVar(&f.budget, "budget", false, "list the contributions to the total's uncertainty")
	return a.jsonFlag(c)
}

func (a *app) show(ctx context.Context, db *store.DB, t *store.Task, f showFlags) error {
	r := newReport(t, a.db)
	r.Reason = joinNonEmpty("; ", t.Reason, unfinished(t))
	if err := errors.Join(r.addSide(ctx, db), r.addTiny(ctx, db)); err != nil {
		return err
	}
	if f.kernels {
		if err := r.addKernels(ctx, db, t); err != nil {
			return err
		}
	}
	if f.svg != "" {
		if err := a.drawTask(ctx, db, t, f.svg); err != nil {
			return err
		}
		r.Picture = f.svg
	}
	if a.json {
		return a.printJSON(r)
	}
	renderReport(a.out, r)
	if f.kernels {
		a.renderKernels(r)
	}
	if f.budget {
		a.renderBudget(r)
	}
	if f.noPlot || t.Scans == 0 {
		return nil
	}
	return a.plotTask(ctx, db, t, r)
}

func (a *app) renderBudget(r *report) {
	fmt.Fprintln(a.out, "\nUncertainty budget of the total (standard uncertainties, k = 1):")
	t := newTable(a.out)
	t.AppendHeader([]any{"source", "u", "averages out"})
	for _, b := range r.Budget {
		avg := "yes"
		if b.Systematic {
			avg = "no"
		}
		t.AppendRow([]any{b.Source, measure.Joule(b.UJ), avg})
	}
	t.Render()
}

// plotAxis is what the axis beside a plot may take: "   1000 W ┤".
const plotAxis = 12

func (a *app) plotTask(ctx context.Context, db *store.DB, t *store.Task, r *report) error {
	columns, room := 90, 0
	if isTerminal(a.out) {
		room = terminalWidth(a.out)
		columns = min(max(room-plotAxis, leastPlot), 160)
	}
	tr, err := loadTrace(ctx, db, t, columns)
	if err != nil {
		return err
	}
	fmt.Fprintln(a.out)
	tr.plot(a.out, r, room)
	return nil
}

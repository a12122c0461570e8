package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"wattmark/hostagent/instructions"
	"wattmark/hostagent/instructions/reference"
)

// table1Prefix before a GPU selects a column of Table I of Arafa et al.
const table1Prefix = "table1:"

// comparisonFlags say what of tables of instructions is compared, and how it is shown.
type comparisonFlags struct {
	tableFlags
	quantity      string
	beside, asCSV bool
}

func (a *app) instructionsCompareCmd() *cobra.Command {
	var f comparisonFlags
	c := &cobra.Command{
		Use: "compare A B [C...]", Short: "Hold measurements of instructions against each other", Args: cobra.MinimumNArgs(1),
		Long: `Hold measurements against each other: each a campaign of the task database, a
file, or table1:maxwell, table1:pascal, table1:volta or table1:turing, a column of
Table I of Arafa et al. (2020), or table1 for all four. That has one thread, and the
methods papi and mtsm. Three and more are shown side by side, each with its ratio to
the first that has the row, and with marks where Table I is irregular in print;
--markdown and --csv do so for two as well.

"differs" is Welch's t-test on the passes: chance makes a difference as large in
less than 1 of 20 rows. It takes two passes of each.`,
		Example: "  wattmark instructions compare 1 2 --layout whole-gpu --quantity dynamic\n  wattmark instructions compare table1:volta h200.jsonl --method mtsm\n" +
			"  wattmark instructions compare table1 h200.jsonl --method mtsm --level 3 --markdown",
		RunE: func(cmd *cobra.Command, args []string) error { return a.compareInstructions(cmd, args, &f) },
	}
	f.add(c)
	c.Flags().StringVar(&f.quantity, "quantity", string(instructions.EnergyOf), "energy, or dynamic: above the idle GPU's")
	c.Flags().BoolVar(&f.beside, "markdown", false, "print a table for a document, the figures side by side")
	c.Flags().BoolVar(&f.asCSV, "csv", false, "print CSV, the figures side by side")
	c.MarkFlagsMutuallyExclusive("markdown", "csv")
	a.jsonFlag(c)
	c.MarkFlagsMutuallyExclusive("csv", "json")
	c.MarkFlagsMutuallyExclusive("markdown", "json")
	return c
}

// compareInstructions reads the tables and shows them.
func (a *app) compareInstructions(cmd *cobra.Command, args []string, f *comparisonFlags) error {
	q := instructions.Quantity(f.quantity)
	if q != instructions.EnergyOf && q != instructions.DynamicOf {
		return withCode(exitUsage, fmt.Errorf("--quantity %q: want %s or %s", f.quantity, instructions.EnergyOf, instructions.DynamicOf))
	}
	args = wholeTable(args)
	if len(args) < 2 {
		return withCode(exitUsage, errors.New("name two measurements or more, or table1 for the four GPUs of the paper"))
	}
	sides := make([][]instructions.Estimate, len(args))
	for n, name := range args {
		var err error
		if sides[n], err = a.estimatesNamed(cmd.Context(), name, q); err != nil {
			return err
		}
	}
	if len(args) > 2 || f.beside || f.asCSV {
		return a.instructionsBeside(cmd, args, sides, q, f)
	}
	rows := []instructions.Comparison{}
	for _, r := range instructions.Compare(sides[0], sides[1], q) {
		if f.takes(cmd, r.Method, r.Layout, r.Level, a.json) {
			rows = append(rows, r)
		}
	}
	return a.printComparison(args, rows)
}

func (a *app) estimatesNamed(ctx context.Context, name string, q instructions.Quantity) ([]instructions.Estimate, error) {
	if gpu, ok := strings.CutPrefix(name, table1Prefix); ok {
		if q != instructions.EnergyOf {
			return nil, withCode(exitUsage, fmt.Errorf("%s has no %s energies: leave --quantity out", name, q))
		}
		e, err := reference.Estimates(gpu)
		if err != nil {
			err = withCode(exitUsage, err)
		}
		return e, err
	}
	runs, err := a.instructionRuns(ctx, []string{name})
	return instructions.Estimates(runs), err
}

func (a *app) printComparison(names []string, rows []instructions.Comparison) error {
	if a.json {
		return a.printJSON(rows)
	}
	if len(rows) == 0 {
		return fmt.Errorf("%s and %s have no row in common: try another --method", names[0], names[1])
	}
	t := newTable(a.out)
	t.AppendHeader(table.Row{"instruction", "layout", "level", "A: " + names[0], "± spread", "B: " + names[1], "± spread", "B/A", "t", "differs"})
	for _, r := range rows {
		welch, differs := "", ""
		if r.Welch != nil {
			welch, differs = fmt.Sprintf("%.1f", r.Welch.T), "no"
			if r.Welch.Differ {
				differs = "yes"
			}
		}
		t.AppendRow(table.Row{
			r.Instruction, r.Layout, fmt.Sprintf("-O%d", r.Level), joules(r.A.Energy), spread(r.A.Spread, r.A.Passes),
			joules(r.B.Energy), spread(r.B.Spread, r.B.Passes), fmt.Sprintf("%.3g", r.Ratio), welch, differs,
		})
	}
	t.Render()
	return nil
}

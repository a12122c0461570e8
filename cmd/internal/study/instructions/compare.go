package instructions

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/out"
	"github.com/wattmark/wattmark/hostagent/experiment/instructions"
	"github.com/wattmark/wattmark/hostagent/experiment/instructions/reference"
)

// BesideReport is the JSON of two or more tables side by side.
type BesideReport struct {
	Tables   []string              `json:"tables"`
	Quantity instructions.Quantity `json:"quantity"`
	Rows     []besideRow           `json:"rows"`
}

// besideRow is one instruction, layout, level and method, with a cell per table.
type besideRow struct {
	instructions.Beside
	// Notes has one entry per table: codes of irregularities in print.
	Notes [][]string `json:"notes"`
}

// besideMarks are the signs of those codes.
var besideMarks = map[string]string{"order": "†", "equal": "=", "digits": "‡", "not measured": "not measured"}

// besideLegend explains the signs.
const besideLegend = "† PAPI below MTSM, = PAPI equal to MTSM, ‡ printed with more or fewer than four decimals"

// sideBySide prints tables side by side: JSON or text. Tables without a
// common row are an error.
func (f *comparisonFlags) sideBySide(a *cli.App, names []string, tables [][]instructions.Estimate) error {
	// Irregularities in print, per table; nil for measurements of one's own.
	notes := make([]map[reference.Noted][]string, len(names))
	papers := false
	for n, name := range names {
		if gpu, ok := strings.CutPrefix(name, table1Prefix); ok {
			notes[n], papers = reference.Notes(gpu), true
		}
	}
	// A column of Table I has two methods: without --method both are shown.
	all := a.JSON || papers && !f.changed("method")
	r := BesideReport{Tables: names, Quantity: f.quantity, Rows: []besideRow{}}
	for _, b := range instructions.SideBySide(tables, f.quantity) {
		if !f.takes(b.Method, b.Layout, b.Level, all) {
			continue
		}
		row := besideRow{b, make([][]string, len(names))}
		for n := range names {
			row.Notes[n] = []string{}
			// Table I has one thread and two methods only, so other rows have no notes.
			if b.Layout == instructions.OneThread && (b.Method == instructions.PAPI || b.Method == instructions.MTSM) {
				row.Notes[n] = append(row.Notes[n], notes[n][reference.Noted{Instruction: b.Instruction, Level: b.Level}]...)
			}
		}
		r.Rows = append(r.Rows, row)
	}
	if len(r.Rows) == 0 && !a.JSON {
		return fmt.Errorf("%s have no row in common: try another --method", strings.Join(names, ", "))
	}
	return a.Print(r, r.table)
}

// table writes text. From the second table on, each cell has its ratio
// to the first table that has the row.
func (r *BesideReport) table(w io.Writer) {
	t := out.NewTable(w)
	header := table.Row{"instruction", "layout", "level", "method"}
	for n, name := range r.Tables {
		if header = append(header, filepath.Base(name)); n > 0 {
			header = append(header, "ratio")
		}
	}
	t.AppendHeader(header)
	marked := false
	for _, row := range r.Rows {
		line := table.Row{row.Instruction, row.Layout, levelText(row.Level), row.Method}
		for n, c := range row.Cells {
			// A dash marks a table without the row.
			figure, ratio := "–", ""
			if c != nil {
				figure = joules(c.Energy)
				if c.Ratio != nil {
					ratio = fmt.Sprintf("%.3g", *c.Ratio)
				}
				if c.Welch != nil && c.Welch.Differ {
					ratio += "*"
				}
			}
			for _, note := range row.Notes[n] {
				figure += " " + besideMarks[note]
				marked = true
			}
			if line = append(line, figure); n > 0 {
				line = append(line, ratio)
			}
		}
		t.AppendRow(line)
	}
	t.Render()
	fmt.Fprintln(w, "\nratio: to the first table that has the row; * differs by Welch's test on the passes (5 %)")
	if marked {
		fmt.Fprintln(w, besideLegend)
	}
}

// table1Prefix before a GPU's name selects a column of Table I of Arafa et al.
// (2020).
const table1Prefix = "table1:"

// comparisonFlags select rows and their quantity.
type comparisonFlags struct {
	tableFlags
	quantity instructions.Quantity
}

func instructionsCompareCmd(a *cli.App) *cobra.Command {
	var f comparisonFlags
	c := cli.Command("compare A B [C...]", "Hold measurements of instructions against each other", cobra.MinimumNArgs(1),
		func(ctx context.Context, args []string) error {
			if f.quantity != instructions.EnergyOf && f.quantity != instructions.DynamicOf {
				return cli.Usagef("--quantity %q: want %s or %s", f.quantity, instructions.EnergyOf,
					instructions.DynamicOf)
			}
			var names []string
			for _, n := range args {
				if n != strings.TrimSuffix(table1Prefix, ":") {
					names = append(names, n)
					continue
				}
				for _, gpu := range reference.GPUs() { // table1 stands for the columns of all GPUs of Table I
					names = append(names, table1Prefix+strings.ToLower(gpu))
				}
			}
			if len(names) < 2 {
				return cli.Usagef("name two measurements or more, or table1 for the four GPUs of the paper")
			}
			sides := make([][]instructions.Estimate, len(names))
			for n, name := range names {
				var err error
				if sides[n], err = estimatesNamed(a, ctx, name, f.quantity); err != nil {
					return err
				}
			}
			return f.sideBySide(a, names, sides)
		})
	f.add(c)
	c.Flags().StringVar((*string)(&f.quantity), "quantity", string(instructions.EnergyOf),
		"energy, or dynamic: above the idle GPU's")
	return a.JSONFlag(c)
}

// estimatesNamed returns the estimates of a column of Table I, a campaign or a
// file. Table I has total energies only.
func estimatesNamed(a *cli.App, ctx context.Context, name string, q instructions.Quantity) ([]instructions.Estimate,
	error,
) {
	if gpu, ok := strings.CutPrefix(name, table1Prefix); ok {
		if q != instructions.EnergyOf {
			return nil, cli.Usagef("%s has no %s energies: leave --quantity out", name, q)
		}
		e, err := reference.Estimates(gpu)
		return e, cli.WithCode(cli.ExitUsage, err)
	}
	runs, err := instructionRuns(a, ctx, []string{name})
	return instructions.Estimates(runs), err
}

// levelText returns an optimisation level as the flag of a compiler.
func levelText(level int) string { return fmt.Sprintf("-O%d", level) }

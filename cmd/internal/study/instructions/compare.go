package instructions

import (
	"context"
	"encoding/csv"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/out"
	"github.com/wattmark/wattmark/cmd/internal/session"
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

// sideBySide prints tables side by side: JSON, CSV, Markdown or text. Tables without a
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
	all := a.JSON || f.asCSV || papers && !f.changed("method")
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
	switch {
	case a.JSON:
		return a.PrintJSON(r)
	case len(r.Rows) == 0:
		return fmt.Errorf("%s have no row in common: try another --method", strings.Join(names, ", "))
	case f.asCSV:
		return r.csv(a)
	}
	r.table(a, f.beside)
	return nil
}

// table writes text or Markdown. From the second table on, each cell has its ratio
// to the first table that has the row.
func (r *BesideReport) table(a *cli.App, markdown bool) {
	t := out.NewTable(a.Out)
	header := table.Row{"instruction", "layout", "level", "method"}
	for n, name := range r.Tables {
		if header = append(header, session.BaseName(name)); n > 0 {
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
	if markdown {
		fmt.Fprintln(cli.Raw(a.Out), t.RenderMarkdown())
	} else {
		t.Render()
	}
	fmt.Fprintln(a.Out, "\nratio: to the first table that has the row; * differs by Welch's test on the passes (5 %)")
	if marked {
		fmt.Fprintln(a.Out, besideLegend)
	}
}

// csv writes energies in J with nine digits, and the notes as text. A table without the row
// leaves its cells empty, so that columns keep their meaning.
func (r *BesideReport) csv(a *cli.App) error {
	header := []string{"instruction", "layout", "level", "method"}
	for _, name := range r.Tables {
		header = append(header, name+" "+string(r.Quantity)+"_j", name+" spread_j", name+" passes", name+" ratio",
			name+" note")
	}
	lines := [][]string{header}
	number := func(v float64) string { return strconv.FormatFloat(v, 'g', 9, 64) }
	for _, row := range r.Rows {
		line := []string{row.Instruction, string(row.Layout), strconv.Itoa(row.Level), string(row.Method)}
		for n, c := range row.Cells {
			energy, spread, passes, ratio := "", "", "", ""
			if c != nil {
				energy, spread, passes = number(float64(c.Energy)), number(float64(c.Spread)), strconv.Itoa(c.Passes)
				if c.Ratio != nil {
					ratio = number(*c.Ratio)
				}
			}
			line = append(line, energy, spread, passes, ratio, strings.Join(row.Notes[n], "; "))
		}
		lines = append(lines, line)
	}
	return csv.NewWriter(cli.Raw(a.Out)).WriteAll(lines)
}

// table1Prefix before a GPU's name selects a column of Table I of Arafa et al.
// (2020).
const table1Prefix = "table1:"

// comparisonFlags select rows and the form of the output.
type comparisonFlags struct {
	tableFlags
	quantity      instructions.Quantity
	beside, asCSV bool
}

// instructionsCompareCmd returns instructions compare.
func instructionsCompareCmd(a *cli.App) *cobra.Command {
	var f comparisonFlags
	c := cli.Command("compare A B [C...]", "Hold measurements of instructions against each other", cobra.MinimumNArgs(1),
		func(ctx context.Context, args []string) error { return f.compare(a, ctx, args) })
	f.add(c)
	c.Flags().StringVar((*string)(&f.quantity), "quantity", string(instructions.EnergyOf),
		"energy, or dynamic: above the idle GPU's")
	c.Flags().BoolVar(&f.beside, "markdown", false, "print a table for a document, the figures side by side")
	c.Flags().BoolVar(&f.asCSV, "csv", false, "print CSV, the figures side by side")
	c.MarkFlagsMutuallyExclusive("markdown", "csv")
	a.JSONFlag(c)
	c.MarkFlagsMutuallyExclusive("csv", "json")
	c.MarkFlagsMutuallyExclusive("markdown", "json")
	return c
}

// compare reads each measurement and prints two as differences with Welch's test, more than
// two side by side. table1 stands for the columns of all GPUs of Table I.
func (f *comparisonFlags) compare(a *cli.App, ctx context.Context, args []string) error {
	if f.quantity != instructions.EnergyOf && f.quantity != instructions.DynamicOf {
		return cli.Usagef("--quantity %q: want %s or %s", f.quantity, instructions.EnergyOf, instructions.DynamicOf)
	}
	var names []string
	for _, n := range args {
		if n != strings.TrimSuffix(table1Prefix, ":") {
			names = append(names, n)
			continue
		}
		for _, gpu := range reference.GPUs() {
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
	// Two measurements get a test of their difference, more get ratios to the first.
	if len(names) > 2 || f.beside || f.asCSV {
		return f.sideBySide(a, names, sides)
	}
	rows := []instructions.Comparison{}
	for _, r := range instructions.Compare(sides[0], sides[1], f.quantity) {
		if f.takes(r.Method, r.Layout, r.Level, a.JSON) {
			rows = append(rows, r)
		}
	}
	return printComparison(a, names, rows)
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
		if err != nil {
			err = cli.WithCode(cli.ExitUsage, err)
		}
		return e, err
	}
	runs, err := instructionRuns(a, ctx, []string{name})
	return instructions.Estimates(runs), err
}

// printComparison writes one row per figure that both have; none is an error.
// Ratio is B/A.
func printComparison(a *cli.App, names []string, rows []instructions.Comparison) error {
	if len(rows) == 0 && !a.JSON {
		return fmt.Errorf("%s and %s have no row in common: try another --method", names[0], names[1])
	}
	return a.Print(rows, func(w io.Writer) {
		head := out.Row{
			"instruction", "layout", "level", "A: " + names[0], "± spread", "B: " + names[1], "± spread", "B/A", "t", "differs",
		}
		out.Table(w, head, rows, func(r instructions.Comparison) out.Row {
			// Welch's test needs two passes on each side; without them both cells are empty.
			welch, differs := "", ""
			if r.Welch != nil {
				welch, differs = fmt.Sprintf("%.1f", r.Welch.T), "no"
				if r.Welch.Differ {
					differs = "yes"
				}
			}
			return out.Row{
				r.Instruction, r.Layout, levelText(r.Level), joules(r.A.Energy), spread(r.A.Spread, r.A.Passes),
				joules(r.B.Energy), spread(r.B.Spread, r.B.Passes), fmt.Sprintf("%.3g", r.Ratio), welch, differs,
			}
		})
	})
}

// levelText returns an optimisation level as the flag of a compiler.
func levelText(level int) string { return fmt.Sprintf("-O%d", level) }

package main

import (
	"encoding/csv"
	"fmt"
	"strconv"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"wattmark/hostagent/instructions"
	"wattmark/hostagent/instructions/reference"
)

// wholeTable puts all columns of Table I in the place of its name.
func wholeTable(names []string) (out []string) {
	for _, n := range names {
		if n != strings.TrimSuffix(table1Prefix, ":") {
			out = append(out, n)
			continue
		}
		for _, gpu := range reference.GPUs() {
			out = append(out, table1Prefix+strings.ToLower(gpu))
		}
	}
	return out
}

// besideReport is several tables side by side, as our JSON shows them.
type besideReport struct {
	Tables   []string              `json:"tables"`
	Quantity instructions.Quantity `json:"quantity"`
	Rows     []besideRow           `json:"rows"`
}

type besideRow struct {
	instructions.Beside
	// Notes has one entry a table: what is irregular there in print.
	Notes [][]string `json:"notes"`
}

// besideMarks are the signs of what is irregular.
var besideMarks = map[string]string{"order": "†", "equal": "=", "digits": "‡", "not measured": "not measured"}

const besideLegend = "† PAPI below MTSM, = PAPI equal to MTSM, ‡ printed with more or fewer than four decimals"

// instructionsBeside shows tables side by side.
func (a *app) instructionsBeside(cmd *cobra.Command, names []string, tables [][]instructions.Estimate, q instructions.Quantity, f *comparisonFlags) error {
	notes := make([]map[reference.Noted][]string, len(names))
	papers := false
	for n, name := range names {
		if gpu, ok := strings.CutPrefix(name, table1Prefix); ok {
			notes[n], papers = reference.Notes(gpu), true
		}
	}
	// The paper's methods where it is asked for and none is named.
	all := a.json || f.asCSV || papers && !cmd.Flags().Changed("method")
	r := besideReport{Tables: names, Quantity: q, Rows: []besideRow{}}
	for _, b := range instructions.SideBySide(tables, q) {
		if !f.takes(cmd, b.Method, b.Layout, b.Level, all) {
			continue
		}
		row := besideRow{b, make([][]string, len(names))}
		for n := range names {
			row.Notes[n] = []string{}
			if b.Layout == instructions.OneThread && (b.Method == instructions.PAPI || b.Method == instructions.MTSM) { // all that Table I has
				row.Notes[n] = append(row.Notes[n], notes[n][reference.Noted{Instruction: b.Instruction, Level: b.Level}]...)
			}
		}
		r.Rows = append(r.Rows, row)
	}
	switch {
	case a.json:
		return a.printJSON(r)
	case len(r.Rows) == 0:
		return fmt.Errorf("%s have no row in common: try another --method", strings.Join(names, ", "))
	case f.asCSV:
		return r.csv(a)
	}
	r.table(a, f.beside)
	return nil
}

// table writes the rows for a person, or for a document.
func (r *besideReport) table(a *app, markdown bool) {
	t := newTable(a.out)
	header := table.Row{"instruction", "layout", "level", "method"}
	for n, name := range r.Tables {
		if header = append(header, baseName(name)); n > 0 {
			header = append(header, "ratio")
		}
	}
	t.AppendHeader(header)
	marked := false
	for _, row := range r.Rows {
		line := table.Row{row.Instruction, row.Layout, fmt.Sprintf("-O%d", row.Level), row.Method}
		for n, c := range row.Cells {
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
		t.RenderMarkdown()
	} else {
		t.Render()
	}
	fmt.Fprintln(a.out, "\nratio: to the first table that has the row; * differs by Welch's test on the passes (5 %)")
	if marked {
		fmt.Fprintln(a.out, besideLegend)
	}
}

// csv writes the rows for a program: joules, and the notes in words.
func (r *besideReport) csv(a *app) error {
	w := csv.NewWriter(a.out)
	header := []string{"instruction", "layout", "level", "method"}
	for _, name := range r.Tables {
		header = append(header, name+" "+string(r.Quantity)+"_j", name+" spread_j", name+" passes", name+" ratio", name+" note")
	}
	if err := w.Write(header); err != nil {
		return err
	}
	number := func(v float64) string { return strconv.FormatFloat(v, 'g', 9, 64) }
	for _, row := range r.Rows {
		line := []string{row.Instruction, string(row.Layout), strconv.Itoa(row.Level), string(row.Method)}
		for n, c := range row.Cells {
			note := strings.Join(row.Notes[n], "; ")
			if c == nil {
				line = append(line, "", "", "", "", note)
				continue
			}
			ratio := ""
			if c.Ratio != nil {
				ratio = number(*c.Ratio)
			}
			line = append(line, number(float64(c.Energy)), number(float64(c.Spread)), strconv.Itoa(c.Passes), ratio, note)
		}
		if err := w.Write(line); err != nil {
			return err
		}
	}
	w.Flush()
	return w.Error()
}

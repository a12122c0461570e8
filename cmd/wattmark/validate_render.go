package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"wattmark/analysis/validate"
)

// render writes a validation for a person.
func (v *validation) render(w io.Writer) error {
	for i, r := range v.reports {
		if i > 0 {
			fmt.Fprintln(w)
		}
		renderValidation(w, r)
	}
	return nil
}

func renderValidation(w io.Writer, r *validate.Report) {
	fmt.Fprintf(w, "%s: %s\n", r.Name, r.Verdict)
	renderClock(w, &r.Clock)
	t := newTable(w)
	t.AppendHeader(table.Row{"method", "energy", "error"})
	for i := range r.Methods {
		m := &r.Methods[i]
		t.AppendRow(table.Row{m.Name, m.Energy, percent(m.ErrorPct)})
	}
	t.SetColumnConfigs([]table.ColumnConfig{{Number: 2, Align: text.AlignRight}})
	t.Render()
}

func (v *validation) writeSVG(io.Writer) error  { return errors.New("not drawn") }
func (v *validation) writeHTML(io.Writer) error { return errors.New("not drawn") }

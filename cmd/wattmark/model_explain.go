package main

import (
	"fmt"
	"io"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"wattmark/measure"
)

func (a *app) modelExplainCmd() *cobra.Command {
	var cf counterFlags
	var svg string
	c := &cobra.Command{
		Use: "explain MODEL [FILE...]", Short: "Tell what each counter and the intercept add to an estimate", Args: cobra.MinimumNArgs(1),
		Long: `Part the estimates of a stored model into what each counter and the intercept add:
of the kernels in the files, or of the training's own. With --svg as stacked bars.

The intercept is what the model gives to no counter: idle power, and whatever all
training kernels have in common.`,
		Example: "  wattmark model explain gtx285\n  wattmark model explain gtx285 new.csv --svg parts.svg",
		RunE: func(cmd *cobra.Command, args []string) error {
			r, d, err := a.predict(cmd.Context(), &cf, &intervalFlags{interval: "none", level: 0.95}, args[0], args[1:])
			if err != nil {
				return err
			}
			m, err := a.loadModel(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			var e evalReport
			e.share(d, m.Content.Fit)
			r.Shares = e.Shares
			if svg != "" {
				if err := writeFile(svg, func(w io.Writer) error { return drawParts(w, r) }); err != nil {
					return err
				}
			}
			if a.json {
				return a.printJSON(r)
			}
			r.renderParts(a.out)
			return nil
		},
	}
	cf.add(c)
	svgFlag(c.Flags(), &svg, "file to draw stacked bars into")
	return a.jsonFlag(c)
}

func (r *predictReport) renderParts(w io.Writer) {
	fmt.Fprintf(w, "model %s\n\n", measure.Printable(r.Model))
	renderShares(w, r.Shares)
	t := newTable(w)
	head := table.Row{"kernel", "estimated", "intercept"}
	for _, s := range r.Shares[1:] {
		head = append(head, short(s.Counter))
	}
	t.AppendHeader(head)
	for _, k := range r.Kernels {
		row := table.Row{short(k.Name), fmt.Sprintf("%.1f W", k.EstimatedW), fmt.Sprintf("%+.1f", *k.InterceptW)}
		for _, x := range k.Added {
			row = append(row, fmt.Sprintf("%+.1f", x.W))
		}
		t.AppendRow(row)
	}
	t.Render()
	fmt.Fprintln(w)
	renderWarnings(w, r.Warnings, r.Notes)
}

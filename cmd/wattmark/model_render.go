package main

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/jedib0t/go-pretty/v6/table"

	"wattmark/analysis/model"
	"wattmark/measure"
)

// render writes the report for a person.
func (r *evalReport) render(w io.Writer) {
	how := fmt.Sprintf("%d folds by %s", r.Folds, r.FoldBy)
	if r.Model != "" {
		how = "model " + r.Model + ", trained before"
	}
	alpha := ""
	if r.Method != string(model.LeastSquares) {
		alpha = optional(r.Alpha, ", α = %.4g")
		if r.Alphas != nil {
			alpha = fmt.Sprintf(", α chosen in every fold: %.3g to %.3g", slices.Min(r.Alphas), slices.Max(r.Alphas))
		}
	}
	scaled := ""
	if r.PerSecond {
		scaled = ", counts per second"
	}
	fmt.Fprintf(w, "%s: %d kernels, %d columns (%s)%s\n%s%s, %s\n\n", measure.Printable(r.File), r.Rows, len(r.Features), measure.Printable(r.Set), scaled, r.Method, alpha, how)
	t := newTable(w)
	t.AppendHeader(table.Row{"", "squared error", "error ratio", "R²", "bias"})
	t.AppendRow(table.Row{"this model", fmt.Sprintf("%.4f W²", r.MSEW2), fmt.Sprintf("%.4f %%", r.MAPEPct), optional(r.R2, "%.4f"), fmt.Sprintf("%+.3f W", r.BiasW)})
	if c := r.Constant; c != nil {
		t.AppendRow(table.Row{"the mean alone", fmt.Sprintf("%.4f W²", c.MSEW2), fmt.Sprintf("%.4f %%", c.MAPEPct), "", ""})
		t.AppendRow(table.Row{"the same, no row left out", "", fmt.Sprintf("%.4f %%", c.MAPEInSamplePct), "", ""})
	}
	t.Render()
	fmt.Fprintln(w)
	renderShares(w, r.Shares)
	r.renderWorst(w)
	renderWarnings(w, r.Warnings, r.Notes)
}

func renderShares(w io.Writer, shares []shareReport) {
	t := newTable(w)
	t.AppendHeader(table.Row{"adds", "mean", "part of the estimate", "W a standard deviation", "VIF"})
	for _, s := range shares {
		t.AppendRow(table.Row{measure.Printable(s.Counter), fmt.Sprintf("%+.2f W", s.MeanW), fmt.Sprintf("%+.1f %%", s.SharePct), optional(s.WeightW, "%+.3g"), optional(s.VIF, "%.3g")})
	}
	t.Render()
	fmt.Fprintln(w)
}

// renderWorst shows the kernels that the model misses most.
func (r *evalReport) renderWorst(w io.Writer) {
	const most = 10
	list := slices.Clone(r.Kernels)
	slices.SortStableFunc(list, func(a, b rowReport) int { return cmp.Compare(math.Abs(*b.ErrorPct), math.Abs(*a.ErrorPct)) })
	t := newTable(w)
	t.AppendHeader(table.Row{"missed most", "measured", "estimated", "error", ""})
	for _, k := range list[:min(most, len(list))] {
		t.AppendRow(table.Row{short(k.Name), fmt.Sprintf("%.1f W", *k.MeasuredW), fmt.Sprintf("%.1f W", k.EstimatedW), fmt.Sprintf("%+.1f W", *k.ErrorW), percent(*k.ErrorPct)})
	}
	t.Render()
	fmt.Fprintln(w)
}

// short cuts a kernel's name, which templates make hundreds of letters long.
func short(name string) string {
	const most = 48
	r := []rune(measure.Printable(name))
	if len(r) > most {
		return string(r[:most-1]) + "…"
	}
	return string(r)
}

func renderWarnings(w io.Writer, list []model.Warning, notes []string) {
	const most = 12
	for i, x := range list {
		if i == most {
			fmt.Fprintf(w, "warning: and %d more (--json has them all)\n", len(list)-most)
			break
		}
		where := ""
		if x.Row != "" {
			where = short(x.Row) + ": "
		}
		fmt.Fprintf(w, "warning: %s%s\n", where, measure.Printable(x.Text))
	}
	for _, n := range notes {
		fmt.Fprintf(w, "note: %s\n", measure.Printable(n))
	}
}

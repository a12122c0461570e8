package validate

import (
	"cmp"
	"fmt"
	"io"
	"math"

	"github.com/wattmark/wattmark/analysis/validate"
	"github.com/wattmark/wattmark/analysis/validate/page"
	"github.com/wattmark/wattmark/cmd/internal/out"
	"github.com/wattmark/wattmark/measure"
)

// render writes the validation as text: each report, the summary of several, the refused
// subjects and the files written.
func (v *validation) render(w io.Writer) {
	for i, r := range v.Subjects {
		if i > 0 {
			fmt.Fprintln(w)
		}
		renderValidation(w, r)
	}
	if len(v.Lines) > 0 && len(v.Subjects) > 1 {
		fmt.Fprintf(w, "\nAll %d together:\n", v.summary.Subjects)
		out.Table(w, out.Row{
			"method", "GPU, driver", ">n", ">mean error %", ">interval", ">MAPE %", ">RMSE %", ">RMSE", ">within", ">worst %",
		}, v.Lines, func(l validate.SummaryLine) out.Row {
			return out.Row{
				measure.Printable(l.Method), cmp.Or(out.JoinNonEmpty(", ", l.GPU, l.Driver), "all"), l.N,
				orDash(l.MeanErrorPct, "%+.2f"), intervalText(l.Interval), orDash(l.MAPEPct, "%.2f"),
				orDash(l.RMSEPct, "%.2f"), orDash(l.RMSE, "%.3g J"), fmt.Sprintf("%d of %d", l.Agreeing, l.Judged),
				orDash(l.WorstPct, "%+.2f"),
			}
		})
	}
	for _, x := range v.Refused {
		fmt.Fprintf(w, "\nNot judged: %s\n", x.Reason)
	}
	for _, f := range []struct{ action, name string }{
		{"Drawn into", v.SVG},
		{"Written to", v.HTML},
		{"Kept as validation", v.Saved},
	} {
		if f.name != "" {
			fmt.Fprintf(w, "\n%s %s\n", f.action, f.name)
		}
	}
}

// renderValidation writes one report: verdict, meter, clock, cautions, the table of
// methods, the kernels and a plot.
func renderValidation(w io.Writer, r *validate.Report) {
	fmt.Fprintf(w, "%s: %s.\n\n", r.Name, r.Verdict)
	if r.GPU != "" {
		fmt.Fprintf(w, "  GPU      %s\n", out.JoinNonEmpty(", driver ", r.GPU, r.Driver))
	}
	fmt.Fprintf(w, "  meter    %s, %s over %v, %s\n", cmp.Or(r.Meter, "unnamed"),
		out.EnergyText(r.Truth.Energy, r.Truth.U), r.Work.Length(), measure.Plural(r.Samples, "sample"))
	for i, l := range page.Clock(r.Clock) {
		label := map[bool]string{true: "clock"}[i == 0]
		fmt.Fprintf(w, "  %-8s %s\n", label, l)
	}
	for _, m := range r.Missing {
		bound := m.Reason
		if !math.IsNaN(float64(m.Most)) {
			bound = fmt.Sprintf("at most %v: %s", m.Most, m.Reason)
		}
		fmt.Fprintf(w, "  missing  %s (%s)\n", measure.Printable(m.Name), bound)
	}
	out.Each(w, "  caution  %s\n", r.Cautions)
	fmt.Fprintln(w)
	renderMethods(w, r)
	out.Each(w, "  %s\n", page.Notes(r.Methods))
	renderKernels(w, r)
	out.Sketch(w, page.Power(r))
}

// orDash formats v, or returns a dash where it is NaN or infinite.
func orDash[T ~float64](v T, format string) string { return out.Known(v, format, "–") }

// intervalText formats an interval in percent, or a dash where a bound is not known.
func intervalText(i validate.Interval) string {
	if !measure.Known(i.Lo) || !measure.Known(i.Hi) {
		return "–"
	}
	return fmt.Sprintf("%+.2f … %+.2f", i.Lo, i.Hi)
}

// renderMethods writes the table of methods, one row each.
func renderMethods(w io.Writer, r *validate.Report) {
	out.Table(w, out.Row{
		"method", ">energy", ">error %", "± U", fmt.Sprintf(">%.4g %% interval", 100*r.Level), "->bias", "->RMSE", ">MAPE %",
		">lag (k = 2)", ">readings",
	}, r.Methods, func(m validate.MethodReport) out.Row {
		lag := "–"
		if !math.IsNaN(float64(m.Lag)) {
			lag = fmt.Sprintf("%.1f ± %.1f ms", 1e3*float64(m.Lag), 1e3*float64(m.LagU))
		}
		return out.Row{
			measure.Printable(m.Name), orDash(m.Energy, "%.2f J"), orDash(m.ErrorPct, "%+.2f"), m.Agreement.Word(),
			intervalText(m.Interval), orDash(m.Bias, "%+.1f W"), orDash(m.RMSE, "%.1f W"), orDash(m.MAPEPct, "%.1f"), lag,
			m.Readings,
		}
	})
	fmt.Fprintf(w, "  ± U: whether the energy over this work agrees with the meter's, within the meter's "+
		"uncertainty and the method's own (k = 2);\n  interval: what longer work like this may show, without what a lag does at its begin and end\n")
}

// mostKernelLines is the number of kernel names in the text; --json and --html have all.
const mostKernelLines = 20

// renderKernels writes the energy and the error of each method by kernel name. Where
// several kernels run at once, each has an equal share of the power.
func renderKernels(w io.Writer, r *validate.Report) {
	lines := r.ByKernel(mostKernelLines)
	if lines == nil {
		return
	}
	fmt.Fprintln(w, "\nBy kernel, in equal shares where several run at once; error in % of what each method's "+
		"readings make of the same shares:")
	// One column a method, with its error alone: the intervals are in JSON and on the page.
	head := out.Row{"kernel", "->launches", "->time", ">meter (k = 2)"}
	for i := range r.Methods {
		head = append(head, ">"+measure.Printable(r.Methods[i].Name))
	}
	t := out.NewTable(w, head...)
	for i := range lines {
		k := &lines[i]
		row := out.Row{
			measure.Shorten(measure.Printable(k.Name), 40), k.Launches, k.Busy, out.EnergyText(k.Truth.Energy, k.Truth.U),
		}
		for _, m := range k.Methods {
			row = append(row, orDash(m.ErrorPct, "%+.1f"))
		}
		switch k.Kind {
		case validate.WithoutKernel:
			row[1] = ""
			t.AppendRow(row)
		case validate.AllKernels:
			row[2] = k.Share // the sum of durations counts an overlap twice
			t.AppendFooter(row)
		default:
			t.AppendRow(row)
		}
	}
	t.Render()
	if len(r.Kernels) > mostKernelLines {
		fmt.Fprintln(w, "  --json and --html have every name")
	}
}

package main

import (
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"
	"github.com/guptarohit/asciigraph"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"wattmark/analysis/validate"
	"wattmark/analysis/validate/page"
	"wattmark/measure"
)

// render writes a validation for a person.
func (v *validation) render(w io.Writer) {
	for i, r := range v.reports {
		if i > 0 {
			fmt.Fprintln(w)
		}
		renderValidation(w, r)
	}
	if len(v.summary.Lines) > 0 && len(v.reports) > 1 {
		renderSummary(w, v.summary)
	}
	for _, x := range v.refused {
		fmt.Fprintf(w, "\nNot judged: %v\n", x.err)
	}
	for _, f := range []struct{ what, name string }{{"Drawn into", v.svg}, {"Written to", v.html}, {"Kept as validation", v.saved}} {
		if f.name != "" {
			fmt.Fprintf(w, "\n%s %s\n", f.what, f.name)
		}
	}
}

func renderValidation(w io.Writer, r *validate.Report) {
	fmt.Fprintf(w, "%s: %s.\n\n", r.Name, r.Verdict)
	if r.GPU != "" {
		fmt.Fprintf(w, "  GPU      %s\n", joinNonEmpty(", driver ", r.GPU, r.Driver))
	}
	fmt.Fprintf(w, "  meter    %s, %s over %v, %d samples\n", firstOf(r.Meter, "unnamed"),
		energyText(float64(r.Truth.Energy), float64(r.Truth.U)), r.Work.Length(), r.Samples)
	renderClock(w, r.Clock)
	renderFoundClock(w, &r.Clock)
	for _, m := range r.Missing {
		bound := m.Reason
		if !math.IsNaN(float64(m.Most)) {
			bound = fmt.Sprintf("at most %v: %s", m.Most, m.Reason)
		}
		fmt.Fprintf(w, "  missing  %s (%s)\n", measure.Printable(m.Name), bound)
	}
	for _, c := range r.Cautions {
		fmt.Fprintf(w, "  caution  %s\n", c)
	}
	fmt.Fprintln(w)
	renderValidated(w, r)
	for _, n := range page.Notes(r.Methods) {
		fmt.Fprintf(w, "  %s\n", n)
	}
	renderValidatedKernels(w, r)
	plotValidation(w, r)
}

func renderClock(w io.Writer, c validate.Clock) {
	if math.IsNaN(float64(c.OffsetU)) {
		fmt.Fprintf(w, "  clock    %s, how well is not known\n", c.How)
		return
	}
	fmt.Fprintf(w, "  clock    %s: ", firstOf(c.How, "as given"))
	if !math.IsNaN(float64(c.Offset)) {
		fmt.Fprintf(w, "%v added to the meter's times, ", c.Offset)
	}
	fmt.Fprintf(w, "± %v", c.OffsetU)
	if !math.IsNaN(c.DriftPPM) {
		fmt.Fprintf(w, "; %+.1f ppm on the host's", c.DriftPPM)
	}
	fmt.Fprintln(w)
}

// orDash writes a value, or a dash for none.
func orDash(v float64, format string) string {
	if number(v) == nil {
		return "–"
	}
	return fmt.Sprintf(format, v)
}

func intervalText(lo, hi float64) string {
	if number(lo) == nil || number(hi) == nil {
		return "–"
	}
	return fmt.Sprintf("%+.2f … %+.2f", lo, hi)
}

func renderValidated(w io.Writer, r *validate.Report) {
	t := newTable(w)
	t.AppendHeader(table.Row{"method", "energy", "error %", "± U", fmt.Sprintf("%.4g %% interval", 100*r.Level), "bias", "RMSE", "MAPE %", "lag (k = 2)", "readings"})
	for i := range r.Methods {
		m := &r.Methods[i]
		lag := "–"
		if !math.IsNaN(float64(m.Lag)) {
			lag = fmt.Sprintf("%.1f ± %.1f ms", 1e3*float64(m.Lag), 1e3*float64(m.LagU))
		}
		t.AppendRow(table.Row{
			measure.Printable(m.Name), orDash(float64(m.Energy), "%.2f J"), orDash(m.ErrorPct, "%+.2f"), m.Agreement.Word(), intervalText(m.Lo, m.Hi),
			orDash(float64(m.Bias), "%+.1f W"), orDash(float64(m.RMSE), "%.1f W"), orDash(m.MAPEPct, "%.1f"), lag, m.Readings,
		})
	}
	alignRight(t, 2, 3, 5, 6, 7, 8, 9, 10)
	t.Render()
	fmt.Fprintf(w, "  ± U: whether the energy over this work agrees with the meter's, within the meter's uncertainty and the method's own (k = 2);\n  interval: what other work like this may show\n")
}

func alignRight(t table.Writer, columns ...int) {
	var c []table.ColumnConfig
	for _, n := range columns {
		c = append(c, table.ColumnConfig{Number: n, Align: text.AlignRight, AlignHeader: text.AlignRight, AlignFooter: text.AlignRight})
	}
	t.SetColumnConfigs(c)
}

// mostKernelLines is how many names the terminal shows; --json and --html have all.
const mostKernelLines = 20

func renderValidatedKernels(w io.Writer, r *validate.Report) {
	lines := r.ByKernel(mostKernelLines)
	if lines == nil {
		return
	}
	fmt.Fprintln(w, "\nBy kernel, in equal shares where several run at once; error in % of what each method's readings make of the same shares:")
	t := newTable(w)
	head := table.Row{"kernel", "launches", "time", "meter (k = 2)"}
	right := []int{2, 3, 4}
	for i := range r.Methods {
		head = append(head, measure.Printable(r.Methods[i].Name))
		right = append(right, 5+i)
	}
	t.AppendHeader(head)
	for i := range lines {
		k := &lines[i]
		row := table.Row{shorten(measure.Printable(k.Name), 40), k.Launches, k.Busy, energyText(float64(k.Truth.Energy), float64(k.Truth.U))}
		for _, m := range k.Methods {
			row = append(row, orDash(m.ErrorPct, "%+.1f"))
		}
		switch k.Kind {
		case validate.WithoutKernel:
			row[1] = ""
			t.AppendRow(row)
		case validate.AllKernels:
			row[2] = k.Share // durations count twice where kernels overlap
			t.AppendFooter(row)
		default:
			t.AppendRow(row)
		}
	}
	alignRight(t, right...)
	t.Render()
	if len(r.Kernels) > mostKernelLines {
		fmt.Fprintln(w, "  --json and --html have every name")
	}
}

func renderSummary(w io.Writer, s validate.Summary) {
	fmt.Fprintf(w, "\nAll %d together:\n", s.Subjects)
	t := newTable(w)
	t.AppendHeader(table.Row{"method", "GPU, driver", "n", "mean error %", "interval", "MAPE %", "RMSE %", "RMSE", "within", "worst %"})
	for _, l := range s.Lines {
		t.AppendRow(table.Row{
			measure.Printable(l.Method), firstOf(joinNonEmpty(", ", l.GPU, l.Driver), "all"), l.N, orDash(l.MeanErrorPct, "%+.2f"), intervalText(l.Lo, l.Hi),
			orDash(l.MAPEPct, "%.2f"), orDash(l.RMSEPct, "%.2f"), orDash(float64(l.RMSE), "%.3g J"), fmt.Sprintf("%d of %d", l.Agreeing, l.Judged), orDash(l.WorstPct, "%+.2f"),
		})
	}
	alignRight(t, 3, 4, 5, 6, 7, 8, 9, 10)
	t.Render()
}

// plotValidation draws the meter and the method that is furthest off.
func plotValidation(w io.Writer, r *validate.Report) {
	width := plotWidth(w)
	at := func(c int) float64 {
		return float64(r.Trace.From) + (float64(c)+0.5)*float64(r.Trace.To-r.Trace.From)/float64(width)
	}
	truth := make([]float64, width)
	n := len(r.Trace.Columns)
	for c := range truth {
		var sum float64
		from, to := c*n/width, max((c+1)*n/width, c*n/width+1)
		for _, x := range r.Trace.Columns[from:to] {
			sum += float64(x.Mean)
		}
		truth[c] = sum / float64(to-from)
	}
	series, legends := [][]float64{truth}, []string{"meter"}
	colors := []asciigraph.AnsiColor{asciigraph.Default}
	if m := furthest(r); m != nil {
		said := make([]float64, width)
		for c := range said {
			said[c] = readingAt(m, at(c))
		}
		name := measure.Printable(m.Name)
		if !isTerminal(w) {
			name += " (*)"
		}
		series, legends = append(series, said), append(legends, name)
		colors = append(colors, asciigraph.Red)
	}
	opts := []asciigraph.Option{
		asciigraph.Height(10), asciigraph.Offset(3), asciigraph.LowerBound(0), asciigraph.Precision(0), asciigraph.SeriesLegends(legends...),
		asciigraph.YAxisValueFormatter(func(v float64) string { return fmt.Sprintf("%.0f W", v) }),
	}
	if isTerminal(w) {
		opts = append(opts, asciigraph.SeriesColors(colors...))
	} else {
		opts = append(opts, asciigraph.SeriesChars(asciigraph.DefaultCharSet, asciigraph.CreateCharSet("*")))
	}
	graph := asciigraph.PlotMany(series, opts...)
	if !isTerminal(w) {
		graph = ansi.Strip(graph)
	}
	lines := strings.Split(graph, "\n")
	left := leftEdge(lines)
	body, legend := splitLegend(lines)
	fmt.Fprintf(w, "\n%s\n", strings.Join(body, "\n"))
	first, last := fmt.Sprintf("%.3f s", float64(r.Trace.From-r.Work.From)), fmt.Sprintf("%.3f s", float64(r.Trace.To-r.Work.From))
	fmt.Fprintf(w, "%s%s%*s\n", strings.Repeat(" ", left), first, width-len(first), last)
	fmt.Fprintln(w, strings.Trim(strings.Join(legend, "\n"), "\n"))
}

// furthest is the method with readings whose error is the largest.
func furthest(r *validate.Report) (out *validate.MethodReport) {
	for i := range r.Methods {
		m := &r.Methods[i]
		if len(m.Points) > 1 && !math.IsNaN(m.ErrorPct) && (out == nil || math.Abs(m.ErrorPct) > math.Abs(out.ErrorPct)) {
			out = m
		}
	}
	return out
}

// readingAt is the last reading before an instant, NaN where there is none near.
func readingAt(m *validate.MethodReport, at float64) float64 {
	const near = 0.5 // seconds
	v := math.NaN()
	for _, p := range m.Points {
		if float64(p.At) > at {
			break
		}
		if at-float64(p.At) < near {
			v = float64(p.Power)
		}
	}
	return v
}

func (v *validation) writeSVG(w io.Writer) error { return page.WriteSVG(w, v.reports) }

func (v *validation) writeHTML(w io.Writer) error {
	p := page.Page{Reports: v.reports, Summary: v.summary, Made: time.Now(), Maker: "wattmark " + version()}
	for _, x := range v.refused {
		p.Refused = append(p.Refused, page.Refusal{Name: x.name, Reason: x.err.Error()})
	}
	return p.Write(w)
}

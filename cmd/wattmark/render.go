package main

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"wattmark/measure"
)

func newTable(w io.Writer) table.Writer {
	t := table.NewWriter()
	t.SetOutputMirror(w)
	t.SetStyle(table.StyleLight)
	t.Style().Options.DrawBorder = false
	t.Style().Options.SeparateColumns = false
	t.Style().Format.Header = text.FormatDefault
	t.Style().Format.Footer = text.FormatDefault
	return t
}

// energyText writes E ± U with as many decimals as U deserves: two
// significant digits of the uncertainty (GUM, 7.2.6).
func energyText(e, u float64) string {
	if u <= 0 || math.IsNaN(u) || math.IsInf(u, 0) {
		return fmt.Sprintf("%.4g J", e)
	}
	decimals := 1 - int(math.Floor(math.Log10(u)))
	decimals = max(0, min(decimals, 9))
	return fmt.Sprintf("%.*f J ± %.*f J", decimals, e, decimals, u)
}

// percent writes a deviation with at least two significant digits.
func percent(v float64) string {
	if math.Abs(v) < 0.1 {
		return fmt.Sprintf("%+.2g %%", v)
	}
	return fmt.Sprintf("%+.2f %%", v)
}

// largest names the contribution that the total's uncertainty owes most to.
func largest(b []budgetReport) (budgetReport, bool) {
	if len(b) == 0 {
		return budgetReport{}, false
	}
	return slices.MaxFunc(b, func(x, y budgetReport) int { return cmp.Compare(x.UJ, y.UJ) }), true
}

// renderReport writes a task for a person.
func renderReport(w io.Writer, r *report) {
	fmt.Fprintf(w, "Task %d  %s, by %s: %s\n", r.TaskID, r.Name, r.User, r.State)
	if r.Reason != "" {
		fmt.Fprintf(w, "  why      %s\n", r.Reason)
	}
	if r.GPU != "" {
		fmt.Fprintf(w, "  GPU      %s\n", joinNonEmpty(", driver ", r.GPU, r.Driver))
	}
	if r.Condition != nil {
		fmt.Fprintf(w, "  it was   %v\n", r.Condition)
	}
	if r.Instrument != "" {
		fmt.Fprintf(w, "  meter    %s, %v, bench %s\n", r.Instrument, rateText(r.RateHz), r.Bench)
	}
	renderRecords(w, r)
	renderLabels(w, r)
	if r.DurationS != nil {
		fmt.Fprintf(w, "  window   %v, %d samples, %s\n", measure.Seconds(*r.DurationS), r.Samples, gapText(r.Gaps, r.Lost))
	}
	if len(r.Rails) > 0 {
		fmt.Fprintln(w)
		renderRails(w, r)
	}
	if len(r.Results) > 1 {
		fmt.Fprintf(w, "\nShown above is result %d. All of them:\n", r.ResultNumber)
		renderResults(w, r)
	}
	if len(r.Missing) > 0 {
		fmt.Fprintf(w, "\nNot measured: %s. The card draws more than the total above.\n", strings.Join(r.Missing, ", "))
	}
	if r.Caution != "" {
		fmt.Fprintf(w, "\nCaution: %s.\n", r.Caution)
	}
	fmt.Fprintln(w)
	r.Tiny.render(w)
	r.Quality.render(w)
	renderComparison(w, r)
	renderMarkers(w, r)
	for _, e := range r.Events {
		fmt.Fprintf(w, "  event    %s at scan %d: %s\n", e.Kind, e.FirstScan, e.Detail)
	}
	renderMethods(w, r.Methods, "the meter")
}

func renderRails(w io.Writer, r *report) {
	t := newTable(w)
	t.AppendHeader(table.Row{"rail", "energy (k = 2)", "mean", "peak"})
	for _, x := range r.Rails {
		t.AppendRow(table.Row{x.Name, energyText(x.EnergyJ, x.EnergyUJ), measure.Watt(x.MeanW), measure.Watt(x.PeakW)})
	}
	if len(r.Rails) > 1 && r.EnergyJ != nil {
		t.AppendFooter(table.Row{"total", energyText(*r.EnergyJ, *r.EnergyUJ), measure.Watt(*r.MeanW), measure.Watt(*r.PeakW)})
	}
	t.SetColumnConfigs([]table.ColumnConfig{
		{Number: 2, Align: text.AlignRight, AlignFooter: text.AlignRight},
		{Number: 3, Align: text.AlignRight, AlignFooter: text.AlignRight},
		{Number: 4, Align: text.AlignRight, AlignFooter: text.AlignRight},
	})
	t.Render()
}

func renderComparison(w io.Writer, r *report) {
	if b, ok := largest(r.Budget); ok {
		fmt.Fprintf(w, "  ± U      owes most to %s, %v (k = 1)\n", b.Source, measure.Joule(b.UJ))
	}
	if r.TruthJ != nil && r.EnergyJ != nil {
		verdict := insideText(measure.Estimate{Energy: measure.Joule(*r.EnergyJ), U: measure.Joule(*r.EnergyUJ)}, *r.TruthJ)
		fmt.Fprintf(w, "  truth    %.2f J injected by the emulated board: error %s, %s\n", *r.TruthJ, percent(*r.ErrorPct), verdict)
		fmt.Fprintf(w, "           tests %s\n", strings.ReplaceAll(r.Tests, "; ", ";\n           "))
	}
	if r.NVMLJ != nil {
		fmt.Fprintf(w, "  NVML     %.2f J by %s", *r.NVMLJ, cmp.Or(r.NVMLMethod, "the GPU's own sensor"))
		if r.EnergyJ != nil && *r.EnergyJ != 0 {
			fmt.Fprintf(w, ": %s against the meter", percent(100*(*r.NVMLJ / *r.EnergyJ - 1)))
		}
		fmt.Fprintln(w)
	}
}

// insideText says whether an energy agrees with one that is exactly known.
func insideText(e measure.Estimate, truth float64) string {
	if e.Against(measure.Estimate{Energy: measure.Joule(truth)}, 0) == measure.Agrees {
		return "inside of ± U"
	}
	return "outside of ± U"
}

func renderMarkers(w io.Writer, r *report) {
	if r.unmarked {
		return
	}
	for _, m := range []struct {
		name string
		m    *markerReport
	}{{"start", r.Markers.Start}, {"stop", r.Markers.Stop}} {
		if m.m == nil {
			fmt.Fprintf(w, "  marker   %-5s not found\n", m.name)
			continue
		}
		note := ""
		if m.m.Fallback {
			note = ", by the plain up-down pattern"
		}
		if !m.m.TagOK {
			note += ", tag not read"
		}
		fmt.Fprintf(w, "  marker   %-5s at %.6f s ± %v (k = 1), correlation %.3f, PSLR %.1f dB, step %v%s\n",
			m.name, m.m.TS, measure.Seconds(m.m.US), m.m.Correlation, m.m.PSLRdB, measure.Watt(m.m.StepW), note)
	}
	if c := r.Clock; c != nil {
		fmt.Fprintf(w, "  clock    residual %v rms over %d edges (%d rejected), meter runs %+.1f ppm against the host\n",
			measure.Seconds(c.RMSS), c.Observations, c.Rejected, (c.B-1)*1e6)
	}
}

func rateText(hz float64) string {
	s := measure.Hertz(hz).String()
	return strings.TrimSuffix(s, "Hz") + "S/s"
}

func gapText(gaps, lost uint64) string {
	switch gaps {
	case 0:
		return "no gap"
	case 1:
		return fmt.Sprintf("1 gap (%d samples lost)", lost)
	}
	return fmt.Sprintf("%d gaps (%d samples lost)", gaps, lost)
}

func joinNonEmpty(sep string, parts ...string) string {
	var out []string
	for _, p := range parts {
		if p != "" {
			out = append(out, p)
		}
	}
	return strings.Join(out, sep)
}

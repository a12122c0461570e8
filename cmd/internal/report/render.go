package report

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/wattmark/wattmark/cmd/internal/out"
	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/store"
)

// renderLargest writes the largest contribution to the total's uncertainty, if there is one.
func renderLargest(w io.Writer, budget []measure.Contribution) {
	if len(budget) > 0 {
		c := slices.MaxFunc(budget, func(x, y measure.Contribution) int { return cmp.Compare(x.U, y.U) })
		fmt.Fprintf(w, "  ± U      owes most to %s, %v (k = 1)\n", c.Source, c.U)
	}
}

// RenderReport writes a task as text, without plot, kernels and budget.
func RenderReport(w io.Writer, r *Report) {
	fmt.Fprintf(w, "Task %d  %s, by %s: %s\n", r.TaskID, r.Name, r.User, r.State)
	if r.Reason != "" {
		fmt.Fprintf(w, "  why      %s\n", r.Reason)
	}
	if r.GPU != "" {
		fmt.Fprintf(w, "  GPU      %s\n", out.JoinNonEmpty(", driver ", r.GPU, r.Driver))
	}
	if r.Condition != nil {
		fmt.Fprintf(w, "  it was   %v\n", r.Condition)
	}
	if r.Instrument != "" {
		fmt.Fprintf(w, "  meter    %s, %v, bench %s\n", r.Instrument, out.RateText(r.Rate), r.Bench)
	}
	renderRecords(w, r)
	RenderLabels(w, r)
	if r.DurationS != nil {
		fmt.Fprintf(w, "  window   %v, %s, %s\n", measure.Seconds(*r.DurationS), measure.Plural(r.Samples, "sample"),
			out.GapText(r.Gaps, r.Lost))
	}
	if len(r.Rails) > 0 {
		fmt.Fprintln(w)
		renderRails(w, r)
	}
	if len(r.Results) > 1 {
		fmt.Fprintf(w, "\nShown above is result %d. All of them:\n", r.ResultNumber)
		RenderResults(w, r)
	}
	if len(r.Missing) > 0 {
		fmt.Fprintf(w, "\nNot measured: %s. The card draws more than the total above.\n", strings.Join(r.Missing, ", "))
	}
	if r.Caution != "" {
		fmt.Fprintf(w, "\nCaution: %s.\n", r.Caution)
	}
	fmt.Fprintln(w)
	r.Tiny.render(w)
	if q := r.Quality; q != nil {
		fmt.Fprintf(w, "  quality  %s\n", q.Level)
		for _, reason := range q.Reasons {
			fmt.Fprintf(w, "           %s: %s\n", reason.Level, reason.Text)
		}
	}
	renderComparison(w, r)
	renderMarkers(w, r)
	for _, e := range r.Events {
		fmt.Fprintf(w, "  event    %s at scan %d: %s\n", e.Kind, e.FirstScan, e.Detail)
	}
	RenderMethods(w, r.Methods, "the meter")
}

// renderRails writes the energy by rail; with several rails the footer is their total.
func renderRails(w io.Writer, r *Report) {
	t := out.NewTable(w, "rail", ">energy (k = 2)", ">mean", ">peak")
	row := func(name string, e, u, mean, peak float64) []any {
		return []any{name, out.EnergyText(e, u), measure.Watt(mean), measure.Watt(peak)}
	}
	for _, x := range r.Rails {
		t.AppendRow(row(x.Name, x.EnergyJ, x.EnergyUJ, x.MeanW, x.PeakW))
	}
	if len(r.Rails) > 1 && r.EnergyJ != nil {
		t.AppendFooter(row("total", *r.EnergyJ, *r.EnergyUJ, *r.MeanW, *r.PeakW))
	}
	t.Render()
}

// renderComparison writes the largest source of uncertainty and, if known, the differences
// from the true energy of an emulated board and from the GPU's own sensor (NVML).
func renderComparison(w io.Writer, r *Report) {
	renderLargest(w, r.Budget)
	if r.TruthJ != nil && r.EnergyJ != nil {
		verdict := InsideText(measure.Estimate{Energy: measure.Joule(*r.EnergyJ), U: measure.Joule(*r.EnergyUJ)}, *r.TruthJ)
		fmt.Fprintf(w, "  truth    %.2f J injected by the emulated board: error %s, %s\n", *r.TruthJ,
			measure.FormatPercent(*r.ErrorPct), verdict)
		fmt.Fprintf(w, "           tests %s\n", strings.ReplaceAll(r.Tests, "; ", ";\n           "))
	}
	if r.NVMLJ != nil {
		fmt.Fprintf(w, "  NVML     %.2f J by %s", *r.NVMLJ, cmp.Or(r.NVMLMethod, "the GPU's own sensor"))
		if r.EnergyJ != nil && *r.EnergyJ != 0 {
			fmt.Fprintf(w, ": %s against the meter", measure.FormatPercent(100*(*r.NVMLJ / *r.EnergyJ - 1)))
		}
		fmt.Fprintln(w)
	}
}

// InsideText returns whether ± U of an energy includes an exactly known one, as text.
func InsideText(e measure.Estimate, truth float64) string {
	if e.Against(measure.Estimate{Energy: measure.Joule(truth)}, 0) == measure.Agrees {
		return "inside of ± U"
	}
	return "outside of ± U"
}

// renderMarkers writes the two markers and the clock fit from their edges.
func renderMarkers(w io.Writer, r *Report) {
	if r.unmarked {
		return
	}
	for _, m := range []struct {
		name string
		m    *MarkerReport
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
			c.RMS, c.Used, c.Rejected, (c.B-1)*1e6)
	}
}

// AddLabels adds the task's tags, pin, notes and provenance.
func (r *Report) AddLabels(t *store.Task) {
	r.Tags, r.Pinned = t.Tags, t.Pinned
	r.Notes, r.Provenance = t.Notes, newProvenanceReport(t.Provenance)
}

// RenderLabels writes tags, notes, pin, packing and provenance.
func RenderLabels(w io.Writer, r *Report) {
	if len(r.Tags) > 0 {
		words := lists.Map(slices.Sorted(maps.Keys(r.Tags)), func(k string) string { return k + "=" + r.Tags[k] })
		fmt.Fprintf(w, "  tags     %s\n", strings.Join(words, ", "))
	}
	for _, n := range r.Notes {
		fmt.Fprintf(w, "  note %-3d %s  (%s)\n", n.Number, n.Text, n.At.Local().Format("2006-01-02 15:04"))
	}
	if r.Pinned {
		fmt.Fprintln(w, "  pinned   retention leaves it")
	}
	if r.Cold {
		fmt.Fprintf(w, "  packed   other programs need wattmark db expand %d first\n", r.TaskID)
	}
	r.Provenance.render(w)
}

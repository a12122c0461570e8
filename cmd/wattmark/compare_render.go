package main

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"wattmark/analysis/compare"
)

// renderCompare writes a comparison for a person.
func (a *app) renderCompare(r *compareReport) {
	fmt.Fprintf(a.out, "%s\n\n", r.Verdict)
	for _, s := range []struct {
		name string
		s    *sideReport
	}{{"A", &r.A}, {"B", &r.B}} {
		tasks := strings.Trim(strings.Join(strings.Fields(fmt.Sprint(s.s.Tasks)), ", "), "[]")
		fmt.Fprintf(a.out, "  %s  %s: task %s on %s, by %s\n", s.name, s.s.Spec, tasks, strings.Join(s.s.GPUs, "; "), strings.Join(s.s.Meters, "; "))
	}
	fmt.Fprintln(a.out)
	t := newTable(a.out)
	tested := r.effects[0].Holds == compare.BothSides
	row := func(cells ...any) { // without a test there is no column of p
		if !tested {
			cells = cells[:len(cells)-1]
		}
		t.AppendRow(cells)
	}
	if tested {
		t.AppendHeader(table.Row{"", "A", "B", "B against A (95 %)", "p"})
	} else {
		t.AppendHeader(table.Row{"", "A", "B", "B against A (± " + coveredText(r.effects[0].Holds) + ")"})
	}
	for i := range r.effects {
		e := &r.effects[i]
		row(e.Quantity.Name, meanText(e.A, e.Quantity.Unit), meanText(e.B, e.Quantity.Unit), effectText(&r.Quantities[i]), pText(number(e.P)))
	}
	for _, w := range r.Work {
		unit := "J/" + w.Unit
		row("energy by "+w.Unit, figureText95(w.A, unit), figureText95(w.B, unit), changeText(w.ChangePct, w.LowPct, w.HighPct), pText(w.P))
		row(w.Unit+" a second", siText(w.RateA, w.Unit+"/s"), siText(w.RateB, w.Unit+"/s"), "", "")
	}
	right(t, 2, 3, 4, 5)
	t.Render()
	a.renderCompareKernels(r.Kernels)
	fmt.Fprintln(a.out)
	a.renderCommon(r.Shared)
	if p := r.Permuted; p != nil {
		fmt.Fprintf(a.out, "  chance   by permutation p %s (%d ways to call the runs A and B%s)\n", compare.PText(p.P), p.Ways, map[bool]string{true: ", all", false: ", at random"}[p.Exact])
	}
	for _, v := range r.Visible {
		fmt.Fprintf(a.out, "  visible  with %d and %d runs a difference of %.2g %% would be shown in 4 of 5 trials\n", v.Runs[0], v.Runs[1], v.ChangePct)
	}
	for _, c := range append(append([]string{}, r.A.Passed...), r.B.Passed...) {
		fmt.Fprintf(a.out, "  passed over: %s\n", c)
	}
	for _, c := range r.Cautions {
		fmt.Fprintf(a.out, "  caution: %s\n", c)
	}
}

// renderCommon says what A and B have in common, by what stands behind it.
func (a *app) renderCommon(list []cancelReport) {
	var order []string
	sums := map[string][3]float64{}
	for _, c := range list {
		_, by, ok := strings.Cut(c.Source, ", by ")
		if !ok {
			by = "what --meter says"
		}
		if _, seen := sums[by]; !seen {
			order = append(order, by)
		}
		s := sums[by]
		for i, v := range []float64{c.APct, c.BPct, c.LeftPct} {
			s[i] = math.Hypot(s[i], v)
		}
		sums[by] = s
	}
	for _, by := range order {
		s := sums[by]
		fmt.Fprintf(a.out, "  common   %.2g %% of A, %.2g %% of B, %.2g %% of the ratio (k = 1), by %s\n", s[0], s[1], s[2], by)
	}
}

func (a *app) renderCompareKernels(kernels []kernelEffect) {
	if len(kernels) == 0 {
		return
	}
	title, covers := "By kernel, p corrected for their number after Holm (none where one side has one run):", "95 %"
	if !slices.ContainsFunc(kernels, func(k kernelEffect) bool { return k.Holm != nil }) {
		title, covers = "By kernel, without a test:", "± "+coveredText(compare.Coverage(kernels[0].Energy.Holds))
	}
	fmt.Fprintf(a.out, "\n%s\n", title)
	t := newTable(a.out)
	t.AppendHeader(table.Row{"kernel", "launches A", "B", "energy A", "B", "energy (" + covers + ")", "time", "a launch A", "B", "p"})
	for i := range kernels {
		k := &kernels[i]
		t.AppendRow(table.Row{
			shorten(k.Name, 40), fmt.Sprintf("%.4g", k.LaunchesA), fmt.Sprintf("%.4g", k.LaunchesB),
			siText(k.Energy.A.Value, "J"), siText(k.Energy.B.Value, "J"), effectText(&k.Energy), effectText(&k.Time),
			siText(k.PerCallA, "J"), siText(k.PerCallB, "J"), pText(k.Holm),
		})
	}
	right(t, 2, 3, 4, 5, 6, 7, 8, 9, 10)
	t.Render()
}

// right aligns columns to the right.
func right(t table.Writer, columns ...int) {
	var c []table.ColumnConfig
	for _, n := range columns {
		c = append(c, table.ColumnConfig{Number: n, Align: text.AlignRight, AlignHeader: text.AlignRight, AlignFooter: text.AlignRight})
	}
	t.SetColumnConfigs(c)
}

func effectText(e *effectReport) string { return changeText(e.ChangePct, e.LowPct, e.HighPct) }

// coveredText says in short what an interval covers.
func coveredText(c compare.Coverage) string {
	if c == compare.Meters {
		return "meters"
	}
	return "one side's scatter"
}

// changeText writes a change in percent with its interval, where there is one.
func changeText(c float64, low, high *float64) string {
	if low == nil || high == nil {
		return fmt.Sprintf("%+.2f %%", c)
	}
	u := (*high - *low) / 2
	d := digitsFor(u)
	return fmt.Sprintf("%+.*f ± %.*f %%", d, c, d, u)
}

// digitsFor is how many decimals two digits of u take.
func digitsFor(u float64) int {
	if !(u > 0) || math.IsInf(u, 0) {
		return 2
	}
	return min(max(1-int(math.Floor(math.Log10(u))), 0), 9)
}

func meanText(m compare.Mean, unit string) string { return withU(m.Value, m.U(), unit) }

func figureText95(f figureReport, unit string) string { return withU(f.Value, (f.High-f.Low)/2, unit) }

// siPrefixes are those of small and large figures.
var siPrefixes = []struct {
	scale float64
	name  string
}{{1e15, "P"}, {1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "k"}, {1, ""}, {1e-3, "m"}, {1e-6, "µ"}, {1e-9, "n"}, {1e-12, "p"}, {1e-15, "f"}}

func siScale(v float64) (scale float64, name string) {
	for _, p := range siPrefixes {
		if math.Abs(v) >= p.scale*0.99995 {
			return p.scale, p.name
		}
	}
	if v == 0 {
		return 1, ""
	}
	last := siPrefixes[len(siPrefixes)-1]
	return last.scale, last.name
}

func siText(v float64, unit string) string {
	s, name := siScale(v)
	return fmt.Sprintf("%.4g %s%s", v/s, name, unit)
}

// withU writes a figure with its uncertainty, both to the same decimal.
func withU(v, u float64, unit string) string {
	s, name := siScale(v)
	if !(u > 0) || math.IsInf(u, 0) {
		return siText(v, unit)
	}
	d := digitsFor(u / s)
	return fmt.Sprintf("%.*f ± %.*f %s%s", d, v/s, d, u/s, name, unit)
}

func pText(p *float64) string {
	if p == nil {
		return "–"
	}
	return strings.TrimPrefix(compare.PText(*p), "= ")
}

package compare

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/wattmark/wattmark/analysis/compare"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/out"
	"github.com/wattmark/wattmark/cmd/internal/report"
	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/quality"
	"github.com/wattmark/wattmark/store"
)

// CompareReport is the result of compare. Intervals cover 95 %.
type CompareReport struct {
	Verdict    string                 `json:"verdict"`
	A          sideReport             `json:"a"`
	B          sideReport             `json:"b"`
	Quantities []compare.Effect       `json:"quantities"`
	Work       []compare.PerWork      `json:"work,omitempty"`
	Kernels    []kernelEffect         `json:"kernels,omitempty"`
	Shared     []compare.Cancelled    `json:"shared,omitempty"`
	Visible    []visibleReport        `json:"visible,omitempty"`
	Needed     *neededReport          `json:"needed,omitempty"`
	Random     *compare.Randomisation `json:"randomisation,omitempty"`
	Start      *startReport           `json:"start,omitempty"`
	Cautions   []string               `json:"cautions,omitempty"`
	Level      float64                `json:"confidence"`
}

// sideReport lists the tasks of a side with their GPUs and meters.
type sideReport struct {
	Spec     string         `json:"spec"`
	Database string         `json:"database"`
	Tasks    []store.TaskID `json:"tasks"`
	GPUs     []string       `json:"gpus"`
	Meters   []string       `json:"instruments"`
	Passed   []string       `json:"passed_over,omitempty"`
}

// visibleReport is the smallest difference that so many runs of each side, in turns where
// the present ones are, else in pairs of random order, would show in 4 of 5 trials.
type visibleReport struct {
	Runs   [2]int        `json:"runs"`
	Change measure.Ratio `json:"change_pct"`
}

// neededReport is the number of pairs of random order that would show the present
// difference in energy in 4 of 5 trials; 0 for more than 1000. It is there without a test.
type neededReport struct {
	Runs    int           `json:"runs"`
	Change  measure.Ratio `json:"change_pct"`
	Scatter measure.Ratio `json:"scatter_pct"` // standard deviation of a run
	Assumed bool          `json:"scatter_assumed"`
}

// newCompareReport builds the report of both sides. effects starts with energy and time.
func newCompareReport(s *[2]comparedSide, effects []compare.Effect) *CompareReport {
	energy, time := &effects[0], &effects[1]
	r := &CompareReport{
		Verdict: compare.Verdict(energy, time), Level: compare.Level, Quantities: effects,
		A: s[0].sideReport, B: s[1].sideReport, Shared: energy.Cancelled, Random: energy.Randomise(),
	}
	na, nb := len(s[0].runs), len(s[1].runs)
	sd, seen := energy.Scatter()
	if energy.Design != compare.Turns && energy.Design != compare.RandomPairs {
		r.Needed = &neededReport{energy.Needed(sd), energy.Relative, measure.Ratio(sd), !seen}
	}
	// Differences that as many runs, five more, or twenty more of each side would show.
	for _, more := range []int{0, 5, 20} {
		if change := energy.Visible(na+more, nb+more, sd); seen && measure.Known(change) {
			r.Visible = append(r.Visible, visibleReport{[2]int{na + more, nb + more}, measure.Ratio(change)})
		}
	}
	r.caution(s, energy)
	return r
}

// caution adds the cautions: errors and scatter that the intervals do not cover,
// confounded sides, doubtful tasks, an exact test that disagrees, and missing pairs.
func (r *CompareReport) caution(s *[2]comparedSide, energy *compare.Effect) {
	add := func(format string, a ...any) { r.Cautions = append(r.Cautions, fmt.Sprintf(format, a...)) }
	switch energy.Holds {
	case compare.Meters:
		add("one run of each: ± is the meters' alone, of the time the clocks' and the stamps'; how the work scatters " +
			"from run to run is in none of these figures")
	case compare.OneSide:
		add("one side has a single run: ± takes it to scatter as the other side does, which nobody has seen; there " +
			"is no test")
	case compare.NoDrift:
		add("%s: ± does not cover a drift of the card, and there is no test", energy.Design)
	}
	if a, b := strings.Join(r.A.GPUs, "; "), strings.Join(r.B.GPUs, "; "); a != b {
		add("A ran on %s, B on %s: the difference is theirs too", a, b)
	}
	for i := range s {
		if n := len(s[i].commands); n > 1 {
			add("the tasks of %c have %d command lines, as %q and %q: their work may not be the same", 'A'+i, n, s[i].commands[0],
				s[i].commands[1])
		}
		if len(s[i].Meters) > 1 {
			add("the tasks of %c were measured with several meters: %s", 'A'+i, strings.Join(s[i].Meters, ", "))
		}
	}
	if len(energy.Cancelled) == 0 && energy.Common > 0 {
		add("A and B share no meter that can be told by its serial number or bench: the gains of both are in the " +
			"interval")
	}
	r.Cautions = append(r.Cautions, faulty(slices.Concat(s[0].tasks, s[1].tasks))...)
	if a, b := missingRails(s[0].tasks), missingRails(s[1].tasks); a != b {
		add("not the same rails were measured: A lacks %s, B lacks %s", cmp.Or(a, "none"), cmp.Or(b, "none"))
	}
	// The smallest p of the exact test is 2/ways: with more no data could reach the level.
	if p := r.Random; p != nil && energy.Shown && p.P >= 1-compare.Level && 2/float64(p.Ways) < 1-compare.Level {
		add("the exact test does not show it (p = %.2g): the differences of the pairs are far from normally distributed",
			p.P)
	}
	planned := map[string]int{}
	for _, run := range s[0].runs {
		planned[run.Turn.Series] = run.Turn.Planned
	}
	missing := -len(s[0].runs)
	for _, n := range planned {
		missing += n
	}
	if energy.Design == compare.RandomPairs && missing > 0 {
		add("%d of the %d planned pairs are not compared", missing, missing+len(s[0].runs))
	}
}

// faulty returns a caution for each state and each cause of doubt, with the tasks that have it.
func faulty(tasks []*store.Task) (cautions []string) {
	var faults []string
	of := map[string][]store.TaskID{}
	add := func(fault string, t *store.Task) {
		faults, of[fault] = lists.AddNew(faults, fault), append(of[fault], t.ID)
	}
	for _, t := range tasks {
		if q := report.NewQuality(t); q != nil && q.Level >= quality.Doubtful {
			add(fmt.Sprintf("%s (%s)", q.Level, q.Reasons[0].Cause), t)
		}
		if t.State != store.Complete {
			add(t.State.String(), t)
		}
	}
	for _, fault := range faults {
		first, are := slices.Min(of[fault]), "is"
		if n := len(of[fault]); n > 1 {
			are = fmt.Sprintf("and %d more are", n-1)
		}
		cautions = append(cautions, fmt.Sprintf("task %d %s %s: wattmark show %d says why", first, are, fault, first))
	}
	return cautions
}

// missingRails lists the rails without a sensor over tasks, once each.
func missingRails(tasks []*store.Task) string {
	var out []string
	for _, t := range tasks {
		for _, m := range t.Setup.Missing {
			out = lists.AddNew(out, m)
		}
	}
	return strings.Join(out, ", ")
}

// Render writes the report as text.
func (r *CompareReport) Render(w io.Writer) {
	fmt.Fprintf(w, "%s\n\n", r.Verdict)
	for i, s := range []*sideReport{&r.A, &r.B} {
		tasks := strings.ReplaceAll(spec(s.Tasks), ",", ", ")
		if s.Spec != spec(s.Tasks) { // a name
			tasks += " (" + s.Spec + ")"
		}
		fmt.Fprintf(w, "  %c  task %s on %s, by %s\n", 'A'+i, tasks, strings.Join(s.GPUs, "; "),
			strings.Join(s.Meters, "; "))
	}
	fmt.Fprintln(w)
	r.renderEffects(w)
	renderKernels(w, r.Kernels)
	fmt.Fprintln(w)
	renderCommon(w, r.Shared)
	if r.Start != nil {
		r.Start.render(w)
	}
	if p := r.Random; p != nil {
		ways := map[bool]string{true: "all ", false: "random "}[p.Exact]
		fmt.Fprintf(w, "  exact    energy by itself, randomised, no model of scatter: p %s (%s%d orders)\n",
			compare.PText(p.P), ways, p.Ways)
	}
	inTurns := r.Quantities[0].Design == compare.Turns
	order := map[bool]string{true: "runs of each in turns", false: "pairs of random order"}[inTurns]
	for _, v := range r.Visible {
		runs := fmt.Sprint(v.Runs[0])
		if v.Runs[0] != v.Runs[1] {
			runs += fmt.Sprint(" and ", v.Runs[1])
		}
		fmt.Fprintf(w, "  visible  with %s %s: %.2g %%, in 4 of 5 trials\n", runs, order, 100*v.Change)
	}
	out.Each(w, "  passed over: %s\n", slices.Concat(r.A.Passed, r.B.Passed))
	out.Each(w, "  caution: %s\n", r.Cautions)
}

// renderEffects writes the table of the quantities and of the work.
func (r *CompareReport) renderEffects(w io.Writer) {
	// All quantities have the same runs, and so the same coverage.
	holds := r.Quantities[0].Holds
	head := []any{"", "->A", "->B", ">B against A (± " + coveredText(holds) + ")"}
	tested := holds == compare.BothSides
	if tested { // without a test there is no column of p
		head = append(head[:3], ">B against A (95 %)", "-->p")
	}
	t := out.NewTable(w, head...)
	row := func(cells ...any) { t.AppendRow(cells[:len(head)]) }
	short := map[compare.Quantity]string{compare.EDP: "EDP", compare.ED2P: "ED²P"}
	for i := range r.Quantities {
		e := &r.Quantities[i]
		row(cmp.Or(short[e.Quantity], e.Name), meanText(e.A, e.Unit), meanText(e.B, e.Unit), changeText(e.Change),
			pText(e.Corrected))
	}
	for _, x := range r.Work {
		unit := "J/" + x.Unit
		row("energy by "+x.Unit, meanText(x.A, unit), meanText(x.B, unit), changeText(x.Change), pText(x.Corrected))
		row(x.Unit+" a second", measure.FormatSI(x.RateA, x.Unit+"/s"), measure.FormatSI(x.RateB, x.Unit+"/s"), "", "")
	}
	t.Render()
}

// renderCommon writes the errors that A and B have in common, added in quadrature by
// origin.
func renderCommon(w io.Writer, list []compare.Cancelled) {
	var order []string
	sums := map[string][3]float64{}
	for _, c := range list {
		// behind writes "SOURCE, by ORIGIN"; with --meters the source stands alone.
		_, by, ok := strings.Cut(c.Behind, ", by ")
		if !ok {
			by = "what --meters says"
		}
		if _, seen := sums[by]; !seen {
			order = append(order, by)
		}
		s := sums[by]
		for i, v := range []measure.Ratio{c.A, c.B, c.Left} {
			s[i] = math.Hypot(s[i], 100*float64(v))
		}
		sums[by] = s
	}
	for _, by := range order {
		s := sums[by]
		// The path of the spool distinguishes meters, but is left out of the text.
		if meter, place, ok := strings.Cut(by, " at "+cli.SpoolScheme); ok {
			_, more, _ := strings.Cut(place, ", ")
			by = meter + ", " + more
		}
		fmt.Fprintf(w, "  common   %.2g %% of A, %.2g %% of B, %.2g %% of the ratio (k = 1), by %s\n", s[0], s[1], s[2], by)
	}
}

// renderKernels writes the table of kernels, with p only where a test was
// possible.
func renderKernels(w io.Writer, kernels []kernelEffect) {
	if len(kernels) == 0 {
		return
	}
	title, covers := "By kernel, p corrected for their number after Holm (none without runs of both sides in turns):", "95 %"
	if !slices.ContainsFunc(kernels, func(k kernelEffect) bool { return measure.Known(k.Holm) }) {
		title, covers = "By kernel, without a test:", "± "+coveredText(kernels[0].Energy.Holds)
	}
	fmt.Fprintf(w, "\n%s\n", title)
	joules := func(v float64) string { return measure.FormatSI(v, "J") }
	out.Table(w, out.Row{
		"kernel", "-->launches A", "-->B", ">energy A", ">B", ">energy (" + covers + ")", ">time", "--->a launch A", "--->B", ">p",
	}, kernels, func(k kernelEffect) out.Row {
		return out.Row{
			measure.Shorten(k.Name, 40), fmt.Sprintf("%.4g", k.LaunchesA), fmt.Sprintf("%.4g", k.LaunchesB),
			joules(k.Energy.A.Value), joules(k.Energy.B.Value), changeText(k.Energy.Change), changeText(k.Time.Change),
			joules(k.PerCallA), joules(k.PerCallB), pText(k.Holm),
		}
	})
}

// coveredText names the scatter that an interval covers.
func coveredText(c compare.Coverage) string {
	texts := map[compare.Coverage]string{compare.Meters: "meters", compare.NoDrift: "no drift"}
	return cmp.Or(texts[c], "one side's scatter")
}

// meanText formats a side's mean with half the width of its interval, or a factor where that is wide.
func meanText(m compare.Mean, unit string) string {
	if loose := compare.Loose(m.Low, m.High); loose != "" {
		return measure.FormatSI(m.Value, unit) + " " + loose
	}
	return measure.FormatU(m.Value, m.U(), unit)
}

// changeText formats a change in percent, with half the width of its interval where there
// is one.
func changeText(c compare.Change) string {
	if !measure.Known(c.ChangeLow) || !measure.Known(c.ChangeHigh) {
		return fmt.Sprintf("%+.2f %%", 100*c.Relative)
	}
	if loose := compare.Loose(float64(1+c.ChangeLow), float64(1+c.ChangeHigh)); loose != "" {
		return fmt.Sprintf("%+.3g %% %s", 100*c.Relative, loose)
	}
	u := float64(100*c.ChangeHigh-100*c.ChangeLow) / 2
	d := measure.Decimals(u)
	return fmt.Sprintf("%+.*f ± %.*f %%", d, 100*c.Relative, d, u)
}

// pText formats a p, or a dash where no test was possible.
func pText(p measure.Number) string {
	if !measure.Known(p) {
		return "–"
	}
	return strings.TrimPrefix(compare.PText(float64(p)), "= ")
}

package main

import (
	"fmt"
	"math"
	"strings"

	"wattmark/analysis/compare"
	"wattmark/store"
)

// compareReport is a comparison as our JSON shows it. Intervals are of 95 %.
type compareReport struct {
	Verdict    string           `json:"verdict"`
	A          sideReport       `json:"a"`
	B          sideReport       `json:"b"`
	Quantities []effectReport   `json:"quantities"`
	Work       []perWorkReport  `json:"work,omitempty"`
	Kernels    []kernelEffect   `json:"kernels,omitempty"`
	Shared     []cancelReport   `json:"shared,omitempty"`
	Visible    []visibleReport  `json:"visible,omitempty"`
	Permuted   *permutedReport  `json:"permutation,omitempty"`
	Cautions   []string         `json:"cautions,omitempty"`
	Level      float64          `json:"confidence"`
	effects    []compare.Effect // for the terminal
}

type sideReport struct {
	Spec     string   `json:"spec"`
	Database string   `json:"database"`
	Tasks    []int64  `json:"tasks"`
	GPUs     []string `json:"gpus"`
	Meters   []string `json:"instruments"`
	Passed   []string `json:"passed_over,omitempty"`
}

// effectReport is one quantity; Unit is that of a and b.
type effectReport struct {
	Quantity  string       `json:"quantity"`
	Unit      string       `json:"unit"`
	A         figureReport `json:"a"`
	B         figureReport `json:"b"`
	ChangePct float64      `json:"change_pct"`
	LowPct    *float64     `json:"low_pct"` // null where nothing bounds the change
	HighPct   *float64     `json:"high_pct"`
	// Holds is what low and high cover: with one run of each "meters" alone.
	Holds string   `json:"interval_holds"`
	P     *float64 `json:"p"`   // null where a side has one run
	DoF   *float64 `json:"dof"` // null for as many as one likes
	Shown bool     `json:"shown"`
}

type figureReport struct {
	Value     float64  `json:"value"`
	Low       float64  `json:"low"`
	High      float64  `json:"high"`
	SpreadPct *float64 `json:"spread_pct"` // standard deviation of a run; null of one
	Runs      int      `json:"runs"`
}

// cancelReport is an error that stands behind both sides, k = 1.
type cancelReport struct {
	Source  string  `json:"source"`
	APct    float64 `json:"a_pct"`
	BPct    float64 `json:"b_pct"`
	LeftPct float64 `json:"left_pct"`
}

// visibleReport says what so many runs of each would show in 4 of 5 trials.
type visibleReport struct {
	Runs      [2]int  `json:"runs"`
	ChangePct float64 `json:"change_pct"`
}

type permutedReport struct {
	P     float64 `json:"p"`
	Ways  int     `json:"ways"`
	Exact bool    `json:"exact"`
}

func newFigure(m compare.Mean) figureReport {
	return figureReport{m.Value, m.Low, m.High, number(100 * m.Spread), m.Runs}
}

func newEffect(e *compare.Effect) effectReport {
	r := effectReport{
		Quantity: e.Quantity.Name, Unit: e.Quantity.Unit, A: newFigure(e.A), B: newFigure(e.B),
		ChangePct: 100 * e.Change(), Holds: string(e.Holds), P: number(e.P), DoF: number(e.DoF), Shown: e.Shown(),
	}
	if e.U > 0 {
		r.LowPct, r.HighPct = number(100*(e.Low-1)), number(100*(e.High-1))
	}
	return r
}

func newCompareReport(s *[2]comparedSide, effects []compare.Effect) *compareReport {
	energy, time := &effects[0], &effects[1]
	r := &compareReport{Verdict: compare.Verdict(energy, time), Level: compare.Level, effects: effects, A: newSideReport(&s[0]), B: newSideReport(&s[1])}
	for i := range effects {
		r.Quantities = append(r.Quantities, newEffect(&effects[i]))
	}
	for _, c := range energy.Cancelled {
		r.Shared = append(r.Shared, cancelReport{c.Behind, 100 * c.A, 100 * c.B, 100 * c.Left})
	}
	na, nb := len(s[0].runs), len(s[1].runs)
	for _, more := range []int{0, 5, 20} {
		if change, seen := energy.Visible(na+more, nb+more); seen && !math.IsNaN(change) {
			r.Visible = append(r.Visible, visibleReport{[2]int{na + more, nb + more}, 100 * change})
		}
	}
	if p := energy.Permute(); p != nil {
		r.Permuted = &permutedReport{p.P, p.Ways, p.Exact}
	}
	r.caution(s, energy)
	return r
}

func newSideReport(s *comparedSide) sideReport {
	r := sideReport{Spec: s.name, Database: s.path, Passed: s.passed}
	for _, t := range s.tasks {
		r.Tasks = append(r.Tasks, int64(t.ID))
		r.GPUs = addNew(r.GPUs, joinNonEmpty(", ", t.GPU, t.GPUUUID))
		r.Meters = addNew(r.Meters, joinNonEmpty(" ", t.Instrument.Kind, t.Instrument.Serial))
	}
	return r
}

func addNew(list []string, s string) []string {
	for _, v := range list {
		if v == s {
			return list
		}
	}
	return append(list, s)
}

// caution says what the figures do not hold.
func (r *compareReport) caution(s *[2]comparedSide, energy *compare.Effect) {
	add := func(format string, a ...any) { r.Cautions = append(r.Cautions, fmt.Sprintf(format, a...)) }
	na, nb := len(s[0].runs), len(s[1].runs)
	switch {
	case na == 1 && nb == 1:
		add("one run of each: ± is the meters' alone, of the time the clocks'; how the work scatters from run to run is in none of these figures")
	case na == 1 || nb == 1:
		add("one side has a single run: ± takes it to scatter as the other side does, which nobody has seen; there is no test")
	}
	if na+nb > 2 && !compare.Interleaved(s[0].runs, s[1].runs) {
		add("all runs of one side came before the other's: a card that warms up meanwhile looks like a difference; let them take turns")
	}
	if a, b := strings.Join(r.A.GPUs, "; "), strings.Join(r.B.GPUs, "; "); a != b {
		add("A ran on %s, B on %s: the difference is theirs too", a, b)
	}
	if len(energy.Cancelled) == 0 && energy.Common > 0 {
		add("A and B share no meter that can be told by its serial number or bench: the gains of both are in the interval")
	}
	for i := range s {
		for _, t := range s[i].tasks {
			if q := newQuality(t); q != nil && (q.Level == "doubtful" || q.Level == "void") {
				add("task %d is %s: wattmark show %d says why", t.ID, q.Level, t.ID)
			}
			if t.State != store.Complete {
				add("task %d is %s", t.ID, stateNames[t.State])
			}
		}
	}
	if a, b := missingRails(s[0].tasks), missingRails(s[1].tasks); a != b {
		add("not the same rails were measured: A lacks %s, B lacks %s", firstOf(a, "none"), firstOf(b, "none"))
	}
	switch p := r.Permuted; {
	case p == nil || !energy.Shown() || p.P < 1-compare.Level:
	case p.Exact && 2/float64(p.Ways) >= 1-compare.Level:
		add("with so few runs no permutation test can show a difference: the p of Welch's test rests on scatter that is as good as normal")
	default:
		add("the permutation test does not show it (p = %.2g of %d ways): one run may be far off the others", p.P, p.Ways)
	}
}

func missingRails(tasks []*store.Task) string {
	var out []string
	for _, t := range tasks {
		for _, m := range t.Setup.Missing {
			out = addNew(out, m)
		}
	}
	return strings.Join(out, ", ")
}

// perWorkReport is energy by work.
type perWorkReport struct {
	Unit      string       `json:"unit"`
	WorkA     float64      `json:"work_a"`
	WorkB     float64      `json:"work_b"`
	A         figureReport `json:"a_j_per_unit"`
	B         figureReport `json:"b_j_per_unit"`
	ChangePct float64      `json:"change_pct"`
	LowPct    *float64     `json:"low_pct"`
	HighPct   *float64     `json:"high_pct"`
	P         *float64     `json:"p"`
	RateA     float64      `json:"a_per_s"`
	RateB     float64      `json:"b_per_s"`
}

func (r *compareReport) addWork(effects []compare.Effect, work []compare.WorkPair) error {
	for _, w := range work {
		p, err := compare.Per(&effects[0], &effects[1], w.A, w.B)
		if err != nil {
			return err
		}
		x := perWorkReport{
			Unit: p.Unit, WorkA: p.WorkA, WorkB: p.WorkB, A: newFigure(p.A), B: newFigure(p.B),
			ChangePct: 100 * (p.Ratio - 1), P: number(p.P), RateA: p.RateA, RateB: p.RateB,
		}
		if effects[0].U > 0 {
			x.LowPct, x.HighPct = number(100*(p.Low-1)), number(100*(p.High-1))
		}
		r.Work = append(r.Work, x)
	}
	return nil
}

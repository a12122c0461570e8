package compare

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/wattmark/wattmark/analysis/compare"
	"github.com/wattmark/wattmark/api"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/out"
	"github.com/wattmark/wattmark/cmd/internal/report"
	"github.com/wattmark/wattmark/hostagent/measurement"
	"github.com/wattmark/wattmark/hostagent/sensor"
	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/store"
	"gonum.org/v1/gonum/stat"
)

// kernelEffect compares one kernel of both sides. Holm is the p corrected for the number
// of kernels; it is null without a test.
type kernelEffect struct {
	Name      string         `json:"name"`
	LaunchesA float64        `json:"a_launches"` // mean per run
	LaunchesB float64        `json:"b_launches"`
	Energy    compare.Effect `json:"energy"`
	Time      compare.Effect `json:"time"`
	PerCallA  float64        `json:"a_j_per_launch"`
	PerCallB  float64        `json:"b_j_per_launch"`
	Holm      measure.Number `json:"p_holm"`
}

// kernelRuns are the runs of one side that contain a kernel, with its launches in all of
// them.
type kernelRuns struct {
	runs     []compare.Run
	launches float64
}

// kernelsOf collects a side's kernels by name. Kernels without energy or time in a run
// are skipped: a ratio of them does not exist.
func (s *comparedSide) kernelsOf(ctx context.Context) (map[string]kernelRuns, error) {
	out := map[string]kernelRuns{}
	for i, t := range s.tasks {
		_, lines, err := report.NameEnergies(ctx, s.db, t)
		if err != nil && !errors.Is(err, measurement.ErrNoShares) {
			return nil, err
		}
		for _, l := range lines {
			if l.Class != store.KernelEnergy || !(l.Energy.Energy > 0) || !(l.Share > 0) {
				continue
			}
			k := out[l.Name]
			k.runs = append(k.runs, kernelRun(&l, &s.runs[i]))
			k.launches += float64(l.Launches)
			out[l.Name] = k
		}
	}
	return out, nil
}

// kernelRun returns the part of a kernel in a run. Errors with an origin shared between
// runs have the same relative size as in the whole; the rest of the kernel's uncertainty
// is independent:
//
//	rest² = (U/2E)² − Σ shared²
func kernelRun(l *store.NameEnergy, whole *compare.Run) compare.Run {
	out := compare.Run{Name: whole.Name, At: whole.At, Energy: l.Energy.Energy, Time: l.Share, Turn: whole.Turn}
	u := float64(l.Energy.U) / 2 / float64(l.Energy.Energy)
	rest := u * u
	for _, e := range whole.Errors {
		if e.Behind != "" {
			out.Errors = append(out.Errors, e)
			rest -= e.Energy * e.Energy
		}
	}
	if rest > 0 {
		out.Errors = append(out.Errors, compare.Error{Energy: math.Sqrt(rest)})
	}
	return out
}

// addKernels compares the kernels that both sides have, sorted by falling energy, with p
// corrected after Holm. Kernels of one side alone are counted in a caution.
func (r *CompareReport) addKernels(ctx context.Context, s *[2]comparedSide) error {
	var by [2]map[string]kernelRuns
	for i := range s {
		var err error
		if by[i], err = s[i].kernelsOf(ctx); err != nil {
			return err
		}
	}
	var family, times []compare.Effect
	only := [2]int{}
	for name, a := range by[0] {
		b, both := by[1][name]
		if !both {
			only[0]++
			continue
		}
		k, err := compareKernel(name, a, b)
		if err != nil {
			return fmt.Errorf("kernel %s: %w", api.Readable(name), err)
		}
		family, times, r.Kernels = append(family, k.Energy), append(times, k.Time), append(r.Kernels, k)
	}
	only[1] = len(by[1]) - len(r.Kernels)
	// The family is complete only here: the correction depends on the number of tests.
	compare.Holm(family)
	compare.Holm(times)
	for i := range family {
		r.Kernels[i].Energy, r.Kernels[i].Time, r.Kernels[i].Holm = family[i], times[i], family[i].Corrected
	}
	// By the larger of both energies: a kernel that B made cheap stays near the top.
	slices.SortFunc(r.Kernels, func(x, y kernelEffect) int {
		return cmp.Or(cmp.Compare(max(y.Energy.A.Value, y.Energy.B.Value), max(x.Energy.A.Value, x.Energy.B.Value)),
			cmp.Compare(x.Name, y.Name))
	})
	if caution := leftOut(len(r.Kernels), only[0], only[1]); caution != "" {
		r.Cautions = append(r.Cautions, caution)
	}
	return nil
}

// leftOut returns the caution about kernels that only one side has; empty where there is none.
func leftOut(compared, onlyA, onlyB int) string {
	switch {
	case compared > 0 && onlyA+onlyB > 0:
		return fmt.Sprintf("%s ran in A only, %d in B only: they are in the totals, and not compared",
			measure.Plural(onlyA, "kernel"), onlyB)
	case onlyA > 0 && onlyB > 0:
		return "no kernel is compared: A and B have no line in common. Names whose energies the readings do not " +
			"determine one by one share a line, and A's lines hold other names than B's (wattmark show --kernels)"
	}
	return ""
}

// compareKernel compares the energy and time of one kernel.
func compareKernel(name string, a, b kernelRuns) (k kernelEffect, err error) {
	if k.Energy, err = compare.Between(a.runs, b.runs, compare.Energy); err != nil {
		return k, err
	}
	if k.Time, err = compare.Between(a.runs, b.runs, compare.Time); err != nil {
		return k, err
	}
	k.Name = api.Readable(name)
	k.LaunchesA, k.LaunchesB = a.launches/float64(len(a.runs)), b.launches/float64(len(b.runs))
	k.PerCallA, k.PerCallB = k.Energy.A.Value/k.LaunchesA, k.Energy.B.Value/k.LaunchesB
	return k, nil
}

// Tags of the tasks of a series, as run --times sets them. A task with all of Series, Side,
// Turn and Planned is one of a pair whose order was drawn at random.
const (
	TagSeries  = "series"
	TagSide    = "side" // A or B; absent in repeats of one version
	TagTurn    = "turn" // number of the pair, or of the repeat, from 1
	TagPlanned = "planned"
	// TagSecond: the scatter of the pairs without this tag set the number of all.
	TagSecond = "second"
	// TagRest is the power before the run in watts, without a context of the run on the GPU.
	TagRest = "rest_w"
)

// turnOf reads the place of a task in a series; zero for a task that is in none.
func turnOf(t *store.Task) compare.Turn {
	number, err1 := strconv.Atoi(t.Tags[TagTurn])
	planned, err2 := strconv.Atoi(t.Tags[TagPlanned])
	if t.Tags[TagSide] == "" || err1 != nil || err2 != nil {
		return compare.Turn{}
	}
	return compare.Turn{Series: t.Tags[TagSeries], Number: number, Planned: planned, Second: t.Tags[TagSecond] != ""}
}

// leaveUnpaired removes the runs without a partner where all runs are of series and some
// are pairs, as the last run of a series that was interrupted, and lists them as passed over.
func leaveUnpaired(s *[2]comparedSide) {
	var have [2]map[compare.Turn]bool
	for i := range s {
		have[i] = map[compare.Turn]bool{}
		for _, r := range s[i].runs {
			if r.Turn.Series == "" {
				return
			}
			have[i][r.Turn] = true
		}
	}
	if !slices.ContainsFunc(s[0].runs, func(r compare.Run) bool { return have[1][r.Turn] }) {
		return // of different series: no pairs at all
	}
	for i := range s {
		side := &s[i]
		tasks, runs := side.tasks, side.runs
		side.tasks, side.runs, side.Tasks = nil, nil, nil
		for k, r := range runs {
			if have[1-i][r.Turn] {
				side.tasks, side.runs = append(side.tasks, tasks[k]), append(side.runs, r)
				side.Tasks = append(side.Tasks, tasks[k].ID)
				continue
			}
			side.Passed = append(side.Passed, fmt.Sprintf("%s has no partner in its pair", r.Name))
		}
	}
}

// startReport is the state of the card before the runs of A and of B, as the mean of each:
// what a drift between the sides would change.
type startReport struct {
	Temperature [2]measure.Number `json:"temperature_c"`
	Rest        [2]measure.Watt   `json:"rest_w"`
}

const (
	// startDegrees in K is the difference at the start that is a caution: NVML's resolution.
	startDegrees = 1
	// startRest is the relative difference of the power at rest that is one.
	startRest = 0.02
)

// addStart adds the state before the runs, where it was recorded, and cautions of sides that
// began differently. It reads the tasks' readings.
func (r *CompareReport) addStart(ctx context.Context, s *[2]comparedSide) error {
	var start startReport
	for i := range s {
		var degrees, rest []float64
		for _, t := range s[i].tasks {
			readings, err := s[i].db.Readings(ctx, t.ID)
			if err != nil {
				return err
			}
			if c := sensor.Conditions(readings); len(c) > 0 && measure.Known(c[0].Temperature) {
				degrees = append(degrees, c[0].Temperature)
			}
			if w, err := strconv.ParseFloat(t.Tags[TagRest], 64); err == nil {
				rest = append(rest, w)
			}
		}
		// NaN of none
		start.Temperature[i], start.Rest[i] = measure.Number(stat.Mean(degrees, nil)), measure.Watt(stat.Mean(rest, nil))
	}
	degrees := measure.Known(start.Temperature[0] + start.Temperature[1])
	rest := measure.Known(start.Rest[0] + start.Rest[1])
	if !degrees && !rest {
		return nil
	}
	r.Start = &start
	const effect = "a part of the difference may be the temperature's"
	if degrees && math.Abs(float64(start.Temperature[0]-start.Temperature[1])) >= startDegrees {
		r.Cautions = append(r.Cautions, fmt.Sprintf("A began at %.1f °C, B at %.1f °C: %s", start.Temperature[0],
			start.Temperature[1], effect))
	}
	if low, high := min(start.Rest[0], start.Rest[1]), max(start.Rest[0], start.Rest[1]); rest && high > low*(1+startRest) {
		r.Cautions = append(r.Cautions, fmt.Sprintf("the card drew %s before runs of A, %s before runs of B: %s",
			start.Rest[0], start.Rest[1], effect))
	}
	return nil
}

// render writes the state before the runs on a line.
func (s *startReport) render(w io.Writer) {
	side := func(i int) string {
		rest := map[bool]string{true: s.Rest[i].String()}[measure.Known(s.Rest[i])]
		return out.JoinNonEmpty(", ", rest, out.Known(s.Temperature[i], "%.1f °C", ""))
	}
	fmt.Fprintf(w, "  start    before the runs on average: A %s; B %s\n", side(0), side(1))
}

// RepeatsReport is the mean of repeats of one version. Intervals cover 95 %: the scatter of
// the runs, taken as independent, and the meter's errors.
type RepeatsReport struct {
	Tasks      []store.TaskID `json:"tasks"`
	Quantities []repeated     `json:"quantities"`
	Level      float64        `json:"confidence"`
}

// repeated is the mean of a quantity.
type repeated struct {
	compare.Quantity
	compare.Mean
}

// Repeats returns the means over tasks.
func Repeats(ctx context.Context, a *cli.App, tasks []store.TaskID) (*RepeatsReport, error) {
	s, err := readSide(a, ctx, spec(tasks), a.DB)
	if err != nil {
		return nil, err
	}
	defer s.db.Close()
	s.runs = lists.Map(s.tasks, func(t *store.Task) compare.Run { return comparedRun(t, meterAuto, "A", a.DB) })
	r := &RepeatsReport{Tasks: tasks, Level: compare.Level}
	for _, q := range []compare.Quantity{compare.Energy, compare.Time, compare.Power} {
		m, err := compare.Figure(s.runs, q)
		if err != nil {
			return nil, err
		}
		r.Quantities = append(r.Quantities, repeated{q, m})
	}
	return r, nil
}

// leastScatter is the least scatter in percent that is written as a figure.
const leastScatter = 0.001

// Render writes the report as text.
func (r *RepeatsReport) Render(w io.Writer) {
	of := map[bool]string{true: "task", false: "tasks"}[len(r.Tasks) == 1]
	fmt.Fprintf(w, "Mean of %s (%s %s)\n\n", measure.Plural(len(r.Tasks), "run"), of, spec(r.Tasks))
	out.Table(w, out.Row{"", ">mean ± U (95 %)", ">scatter of a run (k = 1)"}, r.Quantities, func(q repeated) out.Row {
		scatter := out.Known(100*q.Spread, "%.2g %%", "–")
		if 100*q.Spread < leastScatter {
			scatter = fmt.Sprintf("< %v %%", leastScatter)
		}
		return out.Row{q.Name, measure.FormatU(q.Value, q.U(), q.Unit), scatter}
	})
	if len(r.Tasks) == 1 {
		fmt.Fprintln(w, "\n  ± U is the meter's errors alone: a single run shows no scatter")
		return
	}
	fmt.Fprintln(w, "\n  ± U is the runs' scatter and the meter's errors; a drift over the runs is in the scatter")
}

// spec writes tasks as flags name them: 1,2,5.
func spec(tasks []store.TaskID) string {
	ids := slices.Sorted(slices.Values(tasks))
	return strings.Join(lists.Map(ids, func(id store.TaskID) string { return fmt.Sprint(id) }), ",")
}

// Tasks compares tasks of one database, as compare does with their numbers.
func Tasks(ctx context.Context, app *cli.App, a, b []store.TaskID) (*CompareReport, error) {
	return compareSides(app, ctx, compareFlags{a: spec(a), b: spec(b), meter: meterAuto, kernels: true})
}

package compare

import (
	"context"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"

	"gonum.org/v1/gonum/stat"

	"github.com/wattmark/wattmark/analysis/compare"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/out"
	"github.com/wattmark/wattmark/hostagent/sensor"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/store"
)

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
	// startDegrees is the difference of start temperatures that is a caution, in K: NVML's
	// resolution.
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
		var parts []string
		if measure.Known(s.Rest[i]) {
			parts = append(parts, s.Rest[i].String())
		}
		if measure.Known(s.Temperature[i]) {
			parts = append(parts, fmt.Sprintf("%.1f °C", s.Temperature[i]))
		}
		return out.JoinNonEmpty(", ", parts...)
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
	for _, t := range s.tasks {
		s.runs = append(s.runs, comparedRun(t, meterAuto, "A", a.DB))
	}
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

// Render writes the report as text.
func (r *RepeatsReport) Render(w io.Writer) {
	fmt.Fprintf(w, "Mean of %s (tasks %s)\n\n", measure.Plural(len(r.Tasks), "run"), spec(r.Tasks))
	t := out.NewTable(w, "", ">mean ± U (95 %)", ">scatter of a run (k = 1)")
	for _, q := range r.Quantities {
		scatter := "–"
		if measure.Known(q.Spread) {
			scatter = fmt.Sprintf("%.2g %%", 100*q.Spread)
		}
		t.AppendRow([]any{q.Name, measure.FormatU(q.Value, q.U(), q.Unit), scatter})
	}
	t.Render()
	fmt.Fprintln(w, "\n  ± U is the runs' scatter and the meter's errors; a drift over the runs is in the scatter")
}

// spec writes tasks as flags name them: 1,2,5.
func spec(tasks []store.TaskID) string {
	var b []byte
	for i, id := range slices.Sorted(slices.Values(tasks)) {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, int64(id), 10)
	}
	return string(b)
}

// Tasks compares tasks of one database, as compare does with their numbers.
func Tasks(ctx context.Context, app *cli.App, a, b []store.TaskID) (*CompareReport, error) {
	return compareSides(app, ctx, compareFlags{a: spec(a), b: spec(b), meter: meterAuto, kernels: true})
}

// Package roofline has the command that places tasks in a roofline of time and of energy,
// and the sweep that measures one.
package roofline

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/wattmark/wattmark/analysis/figure"
	"github.com/wattmark/wattmark/analysis/roofline"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/out"
	"github.com/wattmark/wattmark/cmd/internal/study/compare"
	"github.com/wattmark/wattmark/hostagent/sensor"
	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/group"
	"github.com/wattmark/wattmark/store"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// rooflineFlags select the tasks to fit, their work, and the plots.
type rooflineFlags struct {
	work, points         []string // TASK:flop=W,byte=Q; points are shown without being fitted
	peakFlops, peakBytes float64
	svg                  string
	noPlot               bool
	tasks                string // to fit, with commas between them
}

// add defines the flags that roofline and its sweep share.
func (f *rooflineFlags) add(c *cobra.Command) {
	fl := c.Flags()
	fl.Float64Var(&f.peakFlops, "peak-flops", 0, "best rate in flop/s (default: the best that was measured)")
	fl.Float64Var(&f.peakBytes, "peak-bytes", 0, "best rate in byte/s (default: the best that was measured)")
	cli.SVGFlag(fl, &f.svg, "draw flop/s, flop/J and power against intensity into this file")
	fl.BoolVar(&f.noPlot, "no-plot", false, "leave the plot in the terminal out")
	fl.StringArrayVar(&f.points, "point", nil,
		"also show this task, without fitting it: TASK or TASK:flop=W,byte=Q (repeatable)")
}

// runRoofline fits E = flop·ε_flop + byte·ε_mem + π0·T to the tasks of f, adds the
// points that are only shown, and prints the roofline. All fitted tasks must have
// run on one GPU: the coefficients are properties of a device. Errors of the fit
// are wrong usage.
func runRoofline(a *cli.App, ctx context.Context, db *store.DB, f rooflineFlags) error {
	tasks, points, passed, err := f.fitted(a, ctx, db)
	if err != nil {
		return err
	}
	m, err := roofline.Fit(points, commonOf(tasks), roofline.Peaks{Flops: f.peakFlops, Bytes: f.peakBytes})
	if errors.Is(err, roofline.ErrFit) {
		return cli.WithCode(cli.ExitUsage, err)
	}
	if err != nil {
		return err
	}
	r := &RooflineReport{
		GPU: tasks[0].GPU, UUID: tasks[0].GPUUUID, Model: m, Cautions: m.Cautions, Passed: passed,
	}
	for i, p := range points {
		r.Points = append(r.Points, newRoofPoint(m, tasks[i], p, m.Fitted(p)))
	}
	low, high := r.bounds()
	const steps = 64
	for i := range steps + 1 {
		// Equal ratios are equal distances on the logarithmic axis.
		x := low * math.Pow(high/low, float64(i)/steps)
		perSecond, perJoule, power := m.At(x)
		r.Line = append(r.Line, roofLinePoint{x, perSecond, perJoule, power})
	}
	for _, s := range f.points {
		if err := addRoofPoint(a, ctx, db, r, m, s); err != nil {
			return err
		}
	}
	r.Picture = f.svg
	if err := out.ToFile(f.svg, r.writeSVG); err != nil {
		return err
	}
	return a.Print(r, func(w io.Writer) { r.render(w, !f.noPlot) })
}

// fitted returns the tasks to fit and their points, with the work given, or stored by the
// sweep. passed names tasks that a pattern matched and that are left out; a failed task is
// an error.
func (f *rooflineFlags) fitted(a *cli.App, ctx context.Context, db *store.DB) (tasks []*store.Task,
	points []roofline.Point, passed []string, err error,
) {
	given := map[store.TaskID]roofline.Work{}
	for _, s := range f.work {
		id, w, err := roofline.ParseTaskWork(s)
		if err != nil {
			return nil, nil, nil, cli.WithCode(cli.ExitUsage, err)
		}
		given[store.TaskID(id)] = w
	}
	if tasks, passed, err = compare.TasksNamed(a, ctx, db, f.tasks); err != nil {
		return nil, nil, nil, err
	}
	first, last := tasks[0], tasks[len(tasks)-1]
	if slices.ContainsFunc(tasks, func(t *store.Task) bool { return t.GPUUUID != first.GPUUUID }) {
		return nil, nil, nil, cli.Usagef("tasks %d to %d are of several GPUs: a roofline is one device's", first.ID,
			last.ID)
	}
	for _, t := range tasks {
		if err := compare.NotFailed(t); err != nil {
			return nil, nil, nil, err
		}
		p, err := roofPoint(ctx, db, t, given)
		if err != nil {
			return nil, nil, nil, err
		}
		points = append(points, p)
	}
	return tasks, points, passed, nil
}

// roofPoint returns the task with its work, given or as the sweep stored it, and the
// relative standard uncertainty of its energy. Only contributions of this measurement count; those that last,
// such as calibration, are common to all tasks and enter by commonOf. The task counts as
// throttled where the clocks were reduced when its work ended, by the last of two or more
// readings of the GPU's state.
func roofPoint(ctx context.Context, db *store.DB, t *store.Task, given map[store.TaskID]roofline.Work) (
	p roofline.Point, err error,
) {
	w, ok := given[t.ID]
	if !ok {
		if w, err = keptWork(ctx, db, t.ID); err != nil {
			return p, err
		}
	}
	r := t.Result
	var own float64
	for _, c := range r.Budget {
		if !group.Lasts(c) {
			// Relative, since the energies of the tasks differ by orders of magnitude.
			u := float64(c.U / r.Total.Energy)
			own += u * u
		}
	}
	readings, err := db.Readings(ctx, t.ID)
	c := sensor.Conditions(readings)
	return roofline.Point{
		Name: fmt.Sprintf("task %d %s", t.ID, t.Name), Flop: w.Flop, Bytes: w.Bytes,
		Energy: r.Total.Energy, Time: r.Duration(), U: math.Sqrt(own),
		Throttled: len(c) > 1 && len(c[len(c)-1].Throttled()) > 0,
	}, err
}

// addRoofPoint adds a task to r that is not fitted: TASK with stored work, or
// TASK:flop=W,byte=Q. One of another GPU gets a caution.
func addRoofPoint(a *cli.App, ctx context.Context, db *store.DB, r *RooflineReport, m *roofline.Model, s string) error {
	given := map[store.TaskID]roofline.Work{}
	number, _, has := strings.Cut(s, ":")
	if has {
		id, w, err := roofline.ParseTaskWork(s)
		if err != nil {
			return cli.WithCode(cli.ExitUsage, err)
		}
		given[store.TaskID(id)] = w
	}
	t, err := a.Task(ctx, db, number)
	if err == nil {
		err = compare.HasResult(t)
	}
	if err != nil {
		return err
	}
	if t.GPUUUID != r.UUID {
		r.Cautions = append(r.Cautions,
			fmt.Sprintf("task %d ran on another GPU (%s)", t.ID, out.JoinNonEmpty(", ", t.GPU, t.GPUUUID)))
	}
	p, err := roofPoint(ctx, db, t, given)
	if err != nil {
		return err
	}
	r.Points = append(r.Points, newRoofPoint(m, t, p, false))
	return nil
}

// commonOf returns the uncertainty that one meter contributes to all tasks alike:
// relative for gains, in W for offsets, averaged per source over the tasks and
// then combined as the root of the sum of squares.
func commonOf(tasks []*store.Task) roofline.Common {
	// Means over the tasks, by source: the same error contributes to every task.
	gains, offsets := map[string]float64{}, map[string]float64{}
	rootOfSquares := func(m map[string]float64) float64 { return floats.Norm(slices.Collect(maps.Values(m)), 2) }
	n := float64(len(tasks))
	for _, t := range tasks {
		r := t.Result
		for _, c := range r.Budget {
			if !group.Lasts(c) {
				continue
			}
			// An offset of a meter is a constant power; its energy grows with the duration.
			if strings.HasPrefix(c.Source, "offset ") {
				offsets[c.Source] += float64(c.U) / float64(r.Duration()) / n
			} else {
				gains[c.Source] += float64(c.U/r.Total.Energy) / n
			}
		}
	}
	return roofline.Common{Gain: rootOfSquares(gains), Offset: measure.Watt(rootOfSquares(offsets))}
}

//go:embed help.md
var help string

// Commands returns the commands of this package: roofline, with sweep below it.
func Commands(a *cli.App) []*cobra.Command {
	var f rooflineFlags
	c := cli.Command("roofline TASK...",
		"Fit an energy roofline: joules by flop, by byte and by time", cobra.MinimumNArgs(1),
		func(ctx context.Context, args []string) error {
			db, err := a.OpenDB(ctx)
			if err != nil {
				return err
			}
			defer db.Close()
			f.tasks = strings.Join(args, ",")
			return runRoofline(a, ctx, db, f)
		})
	f.add(c)
	c.Flags().StringArrayVar(&f.work, "work", nil, "what a task did: TASK:flop=W,byte=Q (repeatable)")
	c.AddCommand(rooflineSweepCmd(a))
	return cli.In(cli.Learn, help, a.JSONFlag(c))
}

// RooflineReport is the JSON of roofline: the model with the tasks on it. U is the half width of a 95 % interval.
type RooflineReport struct {
	GPU  string `json:"gpu,omitempty"`
	UUID string `json:"gpu_uuid,omitempty"`
	*roofline.Model
	Points []roofTask `json:"points"`
	// Line samples the model's curve; Points are the tasks.
	Line []roofLinePoint `json:"model"`
	// Cautions are the model's and those about the tasks.
	Cautions []string `json:"cautions,omitempty"`
	// Passed names tasks that a pattern matched and the fit left out.
	Passed  []string `json:"passed_over,omitempty"`
	Picture string   `json:"picture,omitempty"`
}

// roofTask is a task on the roofline. Intensity is unknown for a task that moves no bytes.
type roofTask struct {
	TaskID    store.TaskID    `json:"task_id"`
	Name      string          `json:"name"`
	Fitted    bool            `json:"fitted"`
	Throttled bool            `json:"throttled,omitempty"`
	Flop      float64         `json:"flop"`
	Bytes     float64         `json:"byte"`
	Intensity measure.Number  `json:"intensity_flop_per_byte"`
	Energy    measure.Joule   `json:"energy_j"`
	Time      measure.Seconds `json:"time_s"`
	Power     measure.Watt    `json:"power_w"`
	FlopPerS  float64         `json:"flop_per_s"`
	FlopPerJ  float64         `json:"flop_per_j"`
	Residual  measure.Ratio   `json:"against_model_pct"`
	// Roof is the time of the work at the best rates / the time it took.
	Roof measure.Ratio `json:"of_roof_pct"`
}

// roofLinePoint is one sample of the model's curve.
type roofLinePoint struct {
	Intensity float64      `json:"intensity_flop_per_byte"`
	FlopPerS  float64      `json:"flop_per_s"`
	FlopPerJ  float64      `json:"flop_per_j"`
	Power     measure.Watt `json:"power_w"`
}

// bounds returns the range of intensities to draw: a factor of four around the
// balance in time, extended to all tasks.
func (r *RooflineReport) bounds() (low, high float64) {
	low, high = r.TimeBalance/4, r.TimeBalance*4
	for _, p := range r.Points {
		if p.Intensity > 0 {
			low, high = min(low, float64(p.Intensity)), max(high, float64(p.Intensity))
		}
	}
	return low, high
}

// newRoofPoint returns a task with its rates and its residual from the model.
func newRoofPoint(m *roofline.Model, t *store.Task, p roofline.Point, fitted bool) roofTask {
	x := roofTask{
		TaskID: t.ID, Name: t.Name, Fitted: fitted, Throttled: p.Throttled, Flop: p.Flop, Bytes: p.Bytes,
		Intensity: measure.Number(math.NaN()), Energy: p.Energy, Time: p.Time, Power: p.Power(),
		FlopPerS: p.Flop / float64(p.Time), FlopPerJ: p.Flop / float64(p.Energy), Residual: measure.Ratio(m.Residual(p)),
		Roof: measure.Ratio(m.Time(p.Flop, p.Bytes) / p.Time),
	}
	if p.Bytes > 0 {
		x.Intensity = measure.Number(p.Intensity())
	}
	return x
}

// render writes the coefficients, the tasks, a plot unless unwanted, and cautions.
func (r *RooflineReport) render(w io.Writer, plot bool) {
	fmt.Fprintf(w, "Energy roofline of %s (± 95 %%)\n\n", out.JoinNonEmpty(", ", r.GPU, r.UUID))
	figure := func(f roofline.Figure, unit string) string { return measure.FormatU(f.Value, f.U, unit) }
	for _, l := range [][2]string{
		{"a flop", figure(r.Flop, "J")},
		{"a byte", figure(r.Byte, "J")},
		{"constant power", figure(r.Constant, "W")},
		{"best rates", measure.FormatSI(r.Flops, "flop/s") + ", " + measure.FormatSI(r.Bytes, "byte/s")},
		{"balance in time", fmt.Sprintf("%.4g flop/byte", r.TimeBalance)},
		{"balance in energy", figure(r.EnergyBalance, "flop/byte") + ": half of the best flop/J"},
		{"a byte against a flop", figure(r.Gap, "flop")},
		{"a flop at its best", figure(r.BestFlop, "J") + ", constant power included"},
	} {
		fmt.Fprintf(w, "  %-22s %s\n", l[0], l[1])
	}
	if r.DoF > 0 {
		fmt.Fprintf(w, "  %-22s %.2g %% around the model, %d degrees of freedom\n", "points scatter", 100*r.Scatter, r.DoF)
	}
	fmt.Fprintln(w)
	out.Table(w, out.Row{
		">task", "-name", ">flop/byte", ">flop/s", ">of roof", ">flop/J", ">power", ">against model", "",
	}, r.Points, roofTask.row)
	if plot {
		r.plot(w)
	}
	out.Each(w, "  caution: %s\n", slices.Concat(r.Passed, r.Cautions))
}

// row returns the task's line of the table.
func (p roofTask) row() out.Row {
	infinite := map[bool]string{true: "–", false: "∞"}[p.Flop == 0]
	shown := map[bool]string{false: "not fitted"}[p.Fitted]
	return out.Row{
		p.TaskID, measure.Shorten(p.Name, 40), out.Known(p.Intensity, "%.4g", infinite),
		measure.FormatSI(p.FlopPerS, "flop/s"), fmt.Sprintf("%.0f %%", 100*p.Roof),
		measure.FormatSI(p.FlopPerJ, "flop/J"), p.Power, measure.FormatPercent(float64(100 * p.Residual)),
		out.JoinNonEmpty(", ", map[bool]string{true: "throttled"}[p.Throttled], shown),
	}
}

// roofPanel is one of the three plots against intensity; log selects a logarithmic
// ordinate.
type roofPanel struct {
	label string
	log   bool
	line  func(roofLinePoint) float64
	point func(roofTask) float64
}

// roofPanels are drawn from top to bottom over one abscissa.
var roofPanels = []roofPanel{
	{"flop/s", true, func(l roofLinePoint) float64 { return l.FlopPerS }, func(p roofTask) float64 { return p.FlopPerS }},
	{"flop/J", true, func(l roofLinePoint) float64 { return l.FlopPerJ }, func(p roofTask) float64 { return p.FlopPerJ }},
	{
		"power / W", false, func(l roofLinePoint) float64 { return float64(l.Power) },
		func(p roofTask) float64 { return float64(p.Power) },
	},
}

// intensity is the label of the abscissa.
const intensity = "arithmetic intensity / (flop/byte)"

// writeSVG draws flop/s, flop/J and power in W over intensity in flop/byte, one
// above the other, aligned on the abscissa. Title and legend belong to the first.
func (r *RooflineReport) writeSVG(w io.Writer) error {
	var plots []*plot.Plot
	for i, panel := range roofPanels {
		c := r.panel(panel, i == 0)
		if i == len(roofPanels)-1 {
			c.X = intensity
		}
		p, err := c.Plot()
		if err != nil {
			return fmt.Errorf("plot: %w", err)
		}
		p.Legend.Top = false // thumbs first: long text in any font stays clear
		p.Legend.XOffs, p.Legend.YOffs = 10*vg.Centimeter, 4*vg.Millimeter
		plots = append(plots, p)
	}
	const mm = vg.Millimeter
	return figure.Stack(w, 20*vg.Centimeter, 27*vg.Centimeter, draw.Tiles{
		PadX: 2 * mm, PadY: 4 * mm, PadTop: 3 * mm, PadBottom: 3 * mm, PadLeft: 3 * mm, PadRight: 5 * mm,
	}, plots)
}

// panel returns the model's curve, the tasks and the two balances; without names, which
// the legend holds, unless it is the first.
func (r *RooflineReport) panel(p roofPanel, first bool) *figure.Chart {
	c := &figure.Chart{Y: p.label, LogX: true, LogY: p.log, FromZero: !p.log, Headroom: 1.1}
	if p.log {
		c.Headroom = 1.5
	}
	var model plotter.XYs = lists.Map(r.Line, func(l roofLinePoint) plotter.XY {
		return plotter.XY{X: l.Intensity, Y: p.line(l)}
	})
	// A point without an intensity, or not above zero on a logarithmic axis, is left out.
	var tasks [2]plotter.XYs // fitted, and shown only
	for _, x := range r.Points {
		if y := p.point(x); x.Intensity > 0 && (y > 0 || !p.log) {
			i := map[bool]int{false: 1}[x.Fitted]
			tasks[i] = append(tasks[i], plotter.XY{X: float64(x.Intensity), Y: y})
		}
	}
	c.Line("model", figure.Style{Color: figure.Blue, Width: 1.6}, model)
	c.Line("fitted tasks", figure.Style{Color: figure.Vermillion, Radius: 3}, tasks[0])
	c.Line("other tasks", figure.Style{Color: figure.Pink, Radius: 3, Shape: draw.BoxGlyph{}}, tasks[1])
	c.Marks = r.balances()
	if first {
		c.Title = "Energy roofline of " + r.GPU
		return c
	}
	for i := range c.Lines {
		c.Lines[i].Name = ""
	}
	for i := range c.Marks {
		c.Marks[i].Name = ""
	}
	return c
}

// balances marks the intensities of the two balances.
func (r *RooflineReport) balances() []figure.Mark {
	energy, time := r.EnergyBalance.Value, r.TimeBalance
	return []figure.Mark{
		{Name: fmt.Sprintf("balance in energy, %.3g", energy), Sign: 'E', At: energy, Color: figure.Green},
		{Name: fmt.Sprintf("balance in time, %.3g", time), Sign: 'T', At: time, Color: figure.Rule},
	}
}

// plot draws flop/s and flop/J in percent of their best in the terminal.
func (r *RooflineReport) plot(w io.Writer) {
	_, high := r.bounds()
	// The best flop/J is that at an intensity where bytes no longer matter.
	_, best, _ := r.At(1e9 * high)
	var speed, energy plotter.XYs
	for _, l := range r.Line {
		speed = append(speed, plotter.XY{X: l.Intensity, Y: 100 * l.FlopPerS / r.Flops})
		energy = append(energy, plotter.XY{X: l.Intensity, Y: 100 * l.FlopPerJ / best})
	}
	c := &figure.Chart{
		X: intensity, Y: "share of the best / %", LogX: true, YRange: [2]float64{0, 100}, Marks: r.balances(),
	}
	c.Line("flop/s, % of the best", figure.Style{Color: figure.Blue, Sketch: true}, speed)
	c.Line("flop/J, % of the best", figure.Style{Color: figure.Vermillion, Sketch: true}, energy)
	out.Sketch(w, c)
	fmt.Fprintln(w)
}

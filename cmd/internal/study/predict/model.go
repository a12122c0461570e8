package predict

import (
	"context"
	"encoding/json"
	"fmt"
	"image/color"
	"io"
	"math"
	"time"

	"github.com/spf13/cobra"
	"github.com/wattmark/wattmark/analysis/figure"
	"github.com/wattmark/wattmark/analysis/predict"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/out"
	"github.com/wattmark/wattmark/cmd/internal/study/stored"
	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/store"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// kind selects predictions among the stored analyses.
var kind = stored.Kind{Kind: "prediction", Noun: "prediction", Family: "predict"}

// predictionContent is the stored form of a model: points and options. The model
// is fitted again on reading; the coefficients are stored for other programs.
type predictionContent struct {
	Kernel  string          `json:"kernel,omitempty"`
	GPU     string          `json:"gpu,omitempty"`
	Options predict.Options `json:"options"`
	// Fitted: the resident blocks were fitted from the steps of the times.
	Fitted bool `json:"resident_fitted,omitempty"`
	// FlopsPerBlock is the work of a block, 0 if not given; Off is the power of the
	// switched-off GPU. Both only concern SimGrid.
	FlopsPerBlock float64         `json:"flops_per_block,omitempty"`
	Off           measure.Watt    `json:"off_w"`
	Points        []predict.Point `json:"points"`
	// Others were held back from the fit, and are predicted.
	Others     []predict.Point    `json:"others,omitempty"`
	Parameters predict.Parameters `json:"parameters"`
	Round      predict.Round      `json:"round"`
}

// Prediction is a fitted model with its name, version, sources and doubts, as predict
// calibrate, show, list and sweep print it in JSON. Version is 0 until it is stored.
type Prediction struct {
	Database string    `json:"database,omitempty"`
	Name     string    `json:"name"`
	Version  int       `json:"version,omitempty"`
	Made     time.Time `json:"made,omitzero"` // in UTC, whole seconds
	predictionContent
	Tasks []store.TaskID `json:"tasks,omitempty"`
	// SpeedFlops and FlopsPerRound are the figures of a SimGrid platform.
	SpeedFlops    float64  `json:"speed_flop_s"`
	FlopsPerRound float64  `json:"flops_per_round"`
	Doubts        []string `json:"doubts,omitempty"`
	// Evaluation compares the predictions of Others with their values; nil without Others.
	Evaluation *predict.Evaluation `json:"evaluation,omitempty"`
	Picture    string              `json:"picture,omitempty"`
	model      *predict.Model
}

// model fits the points and evaluates Others. Options and points of the result are
// those that the fit used, with defaults filled in.
func (c predictionContent) model(name string) (*Prediction, error) {
	m, err := predict.Fit(c.Points, c.Options)
	if err != nil {
		return nil, err
	}
	p := &Prediction{predictionContent: c, Name: name, model: m}
	p.Options, p.Points, p.Parameters = m.Options(), m.Points(), m.Parameters()
	if p.Round, err = m.Round(predict.Target{}); err != nil {
		return nil, err
	}
	p.SpeedFlops, p.FlopsPerRound = p.Round.Speed(p.flopsPerBlock()), p.flopsPerBlock()*float64(p.Round.Blocks)
	if len(c.Others) > 0 {
		v, err := m.Evaluate(c.Others)
		if err != nil {
			return nil, err
		}
		p.Evaluation = &v
	}
	return p, nil
}

// flopsPerBlock returns the work of a block in flop, 1 if not given: a simulation
// then counts blocks.
func (c *predictionContent) flopsPerBlock() float64 {
	if c.FlopsPerBlock > 0 {
		return c.FlopsPerBlock
	}
	return 1
}

// finish fits the model to c, stores it as the next version of name unless dry, with
// references to tasks, and prints it. doubts are those about the origin of the points. The
// database is created if absent.
func (c predictionContent) finish(a *cli.App, ctx context.Context, name string, doubts []string, tasks []store.TaskID,
	dry bool, svg string,
) error {
	p, err := c.model(name)
	if err != nil {
		return err
	}
	p.Doubts = append(predict.Review(c.Points, c.Options), doubts...)
	if !dry {
		x, err := kind.Keep(a, ctx, name, p.predictionContent, tasks)
		if err != nil {
			return err
		}
		p.as(&x)
	}
	return p.show(a, svg)
}

// as sets the identity of p to that of its stored form.
func (p *Prediction) as(x *store.Analysis) {
	p.Version, p.Made, p.Tasks = x.Version, x.Made.UTC().Truncate(time.Second), x.Tasks
}

// loadPrediction returns the model NAME or NAME@VERSION of args, or without args the only
// one stored, of which there may be several versions. None or several, and an unknown name,
// are errors.
func loadPrediction(a *cli.App, ctx context.Context, args []string) (*Prediction, error) {
	if len(args) == 0 {
		list, err := kind.All(a, ctx)
		if err != nil {
			return nil, err
		}
		names := map[string]bool{}
		for _, x := range list {
			names[x.Name] = true
		}
		switch len(names) {
		case 0:
			return nil, cli.NotFoundf("no prediction is stored yet: make one with wattmark predict calibrate")
		case 1:
			args = []string{list[0].Name}
		default:
			return nil, cli.Usagef("there are %d predictions: name one (wattmark predict list)", len(names))
		}
	}
	x, err := kind.Get(a, ctx, args[0])
	if err != nil {
		return nil, err
	}
	return readPrediction(x)
}

// readPrediction decodes the stored form and fits it again; content that cannot be
// fitted is an error.
func readPrediction(x *store.Analysis) (*Prediction, error) {
	var c predictionContent
	err := json.Unmarshal(x.Content, &c)
	if err == nil {
		var p *Prediction
		if p, err = c.model(x.Name); err == nil {
			p.as(x)
			return p, nil
		}
	}
	return nil, fmt.Errorf("prediction %s@%d: its content is not a model of this program: %w", x.Name, x.Version, err)
}

// listCmd returns predict list: a line per model.
func listCmd(a *cli.App) *cobra.Command {
	read := func(x *store.Analysis) (*Prediction, error) {
		p, err := readPrediction(x)
		if err == nil {
			p.Database = a.DB
		}
		return p, err
	}
	head := out.Row{"prediction", "made", "GPU", "SMs", "resident", "calibrated on", "a round", "draws"}
	return stored.ListCmd(a, kind, "predictions", "List the stored models", read, "No predictions in %s", head,
		func(p *Prediction) out.Row {
			return out.Row{
				fmt.Sprintf("%s@%d", p.Name, p.Version), p.Made.Local().Format(time.DateTime), p.GPU, p.Options.SMs,
				p.Options.Resident, blocksText(p.Points), p.Round.Time, p.Round.Power,
			}
		})
}

// show draws the SVG if named, then prints JSON, or text with a plot of energy.
func (p *Prediction) show(a *cli.App, svg string) error {
	if err := out.ToFile(svg, p.writeSVG); err != nil {
		return err
	}
	p.Database, p.Picture = a.DB, svg
	return a.Print(p, func(w io.Writer) {
		p.render(w)
		// A curve that cannot be predicted is left out: the figures above it are complete.
		if curve, err := p.curve(); err == nil && len(curve) > 1 {
			out.Sketch(w, p.chart(predicted[1], curve))
		}
		if svg != "" {
			fmt.Fprintln(w, "\nDrawn into", svg)
		}
	})
}

// render writes the coefficients with uncertainties, the rounds, the doubts, and
// the errors of points held back.
func (p *Prediction) render(w io.Writer) {
	fmt.Fprintf(w, "Prediction %s", p.Name)
	if p.Version > 0 {
		fmt.Fprintf(w, "@%d", p.Version)
	}
	if p.GPU != "" {
		fmt.Fprintf(w, "  on %s", p.GPU)
	}
	o, q := p.Options, p.Parameters
	fmt.Fprintf(w, "\n  from     %s of %s blocks, %s weights\n", measure.Plural(len(p.Points), "point"),
		blocksText(p.Points), o.Weights)
	fmt.Fprintf(w, "  time     %v·NB + %v   (± %v, ± %v at %.3g %%)\n", q.PerBlock, q.Start, q.UPerBlock, q.UStart,
		100*o.Level)
	fmt.Fprintf(w, "  energy   %v·NB + %v·T   (± %v)\n", q.Block, o.Idle, q.UBlock)
	how := map[bool]string{true: ", fitted from the steps of the times"}[p.Fitted]
	fmt.Fprintf(w, "  rounds   of %d blocks: %d multiprocessors with %d resident%s\n", p.Round.Blocks, o.SMs,
		o.Resident, how)
	fmt.Fprintf(w, "           %v and %v each, at %v\n", p.Round.Time, p.Round.Energy, p.Round.Power)
	if o.Weights == predict.Stated {
		fmt.Fprintf(w,
			"  fit      residuals as large with a probability of %.2g (time) and %.2g (energy) under the stated "+
				"uncertainties\n", q.PTime, q.PEnergy)
	}
	out.Each(w, "  note     %s\n", p.Doubts)
	if p.Evaluation != nil {
		fmt.Fprintf(w, "\nPredicted, and not calibrated on:\n")
		renderEvaluation(w, p.Evaluation)
	}
}

// rounded returns an error in percent; below 1e-9 % it is rounding, and 0.
func rounded(pct float64) float64 {
	if math.Abs(pct) < 1e-9 {
		return 0
	}
	return pct
}

// renderEvaluation writes the relative errors of every point, then their extremes
// and means per kind of prediction.
func renderEvaluation(w io.Writer, v *predict.Evaluation) {
	head := out.Row{"blocks", "rounds", "time", "by the line", "by rounds", "energy", "by the line", "by rounds", "mixed"}
	out.Table(w, head, v.Points, func(p predict.Scored) out.Row {
		t := func(f predict.Forecast) string {
			return measure.FormatPercent(rounded(100 * float64(f.Time-p.Time) / float64(p.Time)))
		}
		e := func(f predict.Forecast) string {
			return measure.FormatPercent(rounded(100 * float64(f.Energy-p.Energy) / float64(p.Energy)))
		}
		return out.Row{
			p.Point.Blocks, p.Rounds, p.Time, t(p.Linear), t(p.ByRounds), p.Energy, e(p.Linear), e(p.ByRounds), e(p.Mixed),
		}
	})
	fmt.Fprintln(w)
	t := out.NewTable(w, "error (%)", "worst", "best", "average", "mean with sign", "in the band")
	add := func(name string, e predict.Errors, hits int) {
		row := out.Row{name}
		for _, pct := range []float64{e.Worst, e.Best, e.Average, e.Mean} {
			row = append(row, fmt.Sprintf("%.3g", rounded(pct)))
		}
		t.AppendRow(append(row, fmt.Sprintf("%d of %d", hits, len(v.Points))))
	}
	add("time by the line", v.Linear.Time, v.Linear.TimeHit)
	add("time by rounds", v.ByRounds.Time, v.ByRounds.TimeHit)
	add("energy by the line", v.Linear.Energy, v.Linear.EnergyHit)
	add("energy by rounds", v.ByRounds.Energy, v.ByRounds.EnergyHit)
	add("energy, mixed", v.Mixed.Energy, v.Mixed.EnergyHit)
	t.Render()
}

// quantityOf selects time or energy for one panel: the forecast with its half
// width, and the measured value.
type quantityOf struct {
	label  string
	value  func(predict.Forecast) (v, half float64)
	points func(predict.Point) float64
	mixed  bool // the mixed prediction differs from that by rounds
}

// predicted are the panels, from top to bottom. Mixed times equal those by rounds.
var predicted = []quantityOf{
	{
		"time / s", func(f predict.Forecast) (float64, float64) { return float64(f.Time), float64(f.TimePrediction) },
		func(p predict.Point) float64 { return float64(p.Time) }, false,
	},
	{
		"energy / J", func(f predict.Forecast) (float64, float64) { return float64(f.Energy), float64(f.EnergyPrediction) },
		func(p predict.Point) float64 { return float64(p.Energy) }, true,
	},
}

// reach returns the largest number of blocks of the plots: 10 % above the largest
// point.
func (p *Prediction) reach() uint64 {
	most := p.Round.Blocks
	for _, x := range append(p.model.Points(), p.Others...) {
		most = max(most, x.Blocks)
	}
	return most + most/10
}

// curve predicts at most 1000 numbers of blocks, evenly from 1 to the reach.
func (p *Prediction) curve() (out []predict.Prediction, err error) {
	most := p.reach()
	steps := min(1000, most)
	for i := range steps {
		q, err := p.model.At(1+i*(most-1)/max(1, steps-1), predict.Target{})
		if err != nil {
			return nil, err
		}
		out = append(out, q)
	}
	return out, nil
}

// writeSVG draws time above energy over the number of blocks: the line with its
// band, the staircase of rounds, and the measured points.
func (p *Prediction) writeSVG(w io.Writer) error {
	curve, err := p.curve()
	if err != nil {
		return err
	}
	var plots []*plot.Plot
	title := fmt.Sprintf("%s: time and energy by number of blocks", p.Name)
	for _, q := range predicted {
		c := p.chart(q, curve)
		c.Title, title = title, ""
		pl, err := c.Plot()
		if err != nil {
			return err
		}
		plots = append(plots, pl)
	}
	return figure.Stack(w, figure.Width, 1.6*figure.Height, draw.Tiles{
		PadTop: vg.Millimeter, PadY: 3 * vg.Millimeter, PadRight: 3 * vg.Millimeter, PadLeft: 2 * vg.Millimeter,
	}, plots)
}

// bandColor fills the band of prediction.
var bandColor = color.NRGBA{0x00, 0x72, 0xb2, 0x30}

// chart draws one quantity: the band, the three predictions, and the points.
func (p *Prediction) chart(q quantityOf, curve []predict.Prediction) *figure.Chart {
	// The band may reach below zero where a time or an energy cannot.
	var upper, lower, steps, linear, mixed plotter.XYs
	for _, c := range curve {
		x := float64(c.Blocks)
		v, half := q.value(c.Linear)
		linear = append(linear, plotter.XY{X: x, Y: v})
		upper, lower = append(upper, plotter.XY{X: x, Y: v + half}), append(lower, plotter.XY{X: x, Y: max(v-half, 0)})
		r, _ := q.value(c.ByRounds)
		if n := len(steps); n > 0 && steps[n-1].Y != r { // a step goes straight up
			steps = append(steps, plotter.XY{X: x, Y: steps[n-1].Y})
		}
		steps = append(steps, plotter.XY{X: x, Y: r})
		if m, _ := q.value(c.Mixed); q.mixed {
			mixed = append(mixed, plotter.XY{X: x, Y: m})
		}
	}
	dots := func(points []predict.Point) plotter.XYs {
		return lists.Map(points, func(x predict.Point) plotter.XY {
			return plotter.XY{X: float64(x.Blocks), Y: q.points(x)}
		})
	}
	// 1.25 times the largest value, so that a wide band does not flatten the curves.
	most := linear[len(linear)-1].Y
	for _, x := range append(p.model.Points(), p.Others...) {
		most = max(most, q.points(x))
	}
	c := &figure.Chart{
		X: "blocks", Y: q.label, XRange: [2]float64{0, float64(p.reach())}, YRange: [2]float64{0, most}, Headroom: 1.25,
	}
	band := fmt.Sprintf("band of prediction, %.3g %%", 100*p.Options.Level)
	c.Areas = []figure.Area{{Name: band, Color: bandColor, Lower: lower, Upper: upper}}
	c.Line("by the line (Eqs. 1, 3)", figure.Style{Color: figure.Blue, Width: 1.4, Sketch: true}, linear)
	c.Line("by rounds (Eqs. 4, 6)", figure.Style{Color: figure.Vermillion, Width: 1.4, Sketch: true}, steps)
	c.Line("mixed: the blocks' energy, the rounds' time", figure.Style{Color: figure.Pink, Width: 1.2, Dashed: true}, mixed)
	c.Line("calibrated on", figure.Style{Color: figure.Blue, Radius: 3, Sketch: true}, dots(p.model.Points()))
	c.Line("measured, not calibrated on",
		figure.Style{Color: figure.Green, Radius: 3, Shape: draw.TriangleGlyph{}, Sketch: true}, dots(p.Others))
	return c
}

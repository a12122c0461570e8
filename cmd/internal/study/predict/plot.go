package predict

import (
	"errors"
	"fmt"
	"image/color"
	"io"
	"math"
	"slices"

	"github.com/guptarohit/asciigraph"
	"github.com/wattmark/wattmark/analysis/figure"
	"github.com/wattmark/wattmark/analysis/predict"
	"github.com/wattmark/wattmark/cmd/internal/out"
	"github.com/wattmark/wattmark/cmd/internal/report"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

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
		"time / s",
		func(f predict.Forecast) (float64, float64) { return float64(f.Time.Value), float64(f.Time.Prediction) },
		func(p predict.Point) float64 { return float64(p.Time) }, false,
	},
	{
		"energy / J",
		func(f predict.Forecast) (float64, float64) {
			return float64(f.Energy.Value), float64(f.Energy.Prediction)
		},
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

// plotSteps is the number of points of a curve in the SVG.
const plotSteps = 1000

// curve predicts at most steps numbers of blocks, evenly from 1 to the reach.
func (p *Prediction) curve(steps uint64) (out []predict.Prediction, err error) {
	most := p.reach()
	steps = min(steps, most)
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
	curve, err := p.curve(plotSteps)
	if err != nil {
		return err
	}
	var plots []*plot.Plot
	title := fmt.Sprintf("%s: time and energy by number of blocks", p.Name)
	for _, q := range predicted {
		pl, err := p.panel(q, curve, title)
		if err != nil {
			return err
		}
		plots, title = append(plots, pl), ""
	}
	return figure.Stack(w, report.PictureWidth, 1.6*report.PictureHeight, draw.Tiles{
		PadTop: vg.Millimeter, PadY: 3 * vg.Millimeter, PadRight: 3 * vg.Millimeter, PadLeft: 2 * vg.Millimeter,
	}, plots)
}

// bandColor fills the band of prediction.
var bandColor = color.NRGBA{0x00, 0x72, 0xb2, 0x30}

// panel draws one quantity: the band, the three predictions, and the points.
func (p *Prediction) panel(q quantityOf, curve []predict.Prediction, title string) (*plot.Plot, error) {
	pl := figure.New(title, "number of blocks", q.label)
	pl.Add(figure.Grid())
	var upper, lower, steps, line, mixed plotter.XYs
	for _, c := range curve {
		x := float64(c.Blocks)
		v, half := q.value(c.Linear)
		line = append(line, plotter.XY{X: x, Y: v})
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
	dots := func(points []predict.Point) (xy plotter.XYs) {
		for _, x := range points {
			xy = append(xy, plotter.XY{X: float64(x.Blocks), Y: q.points(x)})
		}
		return xy
	}
	style := func(c color.Color, width vg.Length) figure.Style { return figure.Style{Color: c, Width: width} }
	err := errors.Join(
		figure.Between(pl, fmt.Sprintf("band of prediction, %.3g %%", 100*p.Options.Level), bandColor, lower, upper),
		figure.Add(pl, "by the line (Eqs. 1, 3)", style(figure.Blue, 1.4), line),
		figure.Add(pl, "by rounds (Eqs. 4, 6)", style(figure.Vermillion, 1.4), steps),
		figure.Add(pl, "mixed: the blocks' energy, the rounds' time",
			figure.Style{Color: figure.Pink, Width: 1.2, Dashed: true}, mixed),
		figure.Add(pl, "calibrated on", figure.Style{Color: figure.Blue, Radius: 3}, dots(p.model.Points())),
		figure.Add(pl, "measured, not calibrated on",
			figure.Style{Color: figure.Green, Radius: 3, Shape: draw.TriangleGlyph{}}, dots(p.Others)))
	// 1.25 times the largest value, so that a wide band does not flatten the curves.
	most := line[len(line)-1].Y
	for _, x := range append(p.model.Points(), p.Others...) {
		most = max(most, q.points(x))
	}
	pl.X.Min, pl.Y.Min, pl.Y.Max = 0, 0, 1.25*most
	return pl, err
}

// plot draws energy over blocks as text, as wide as the terminal. A curve that
// cannot be predicted is left out without an error: the figures above it are
// complete.
func (p *Prediction) plot(w io.Writer) {
	curve, err := p.curve(uint64(out.PlotWidth(w)))
	if err != nil || len(curve) < 2 {
		return
	}
	most := p.reach()
	var line, rounds []float64
	for _, c := range curve {
		line, rounds = append(line, float64(c.Linear.Energy.Value)), append(rounds, float64(c.ByRounds.Energy.Value))
	}
	measured := slices.Repeat([]float64{math.NaN()}, len(curve)) // NaN leaves the column empty
	for _, x := range append(p.model.Points(), p.Others...) {
		// The column of a point, by linear interpolation between 1 and the reach.
		i := int(float64(x.Blocks-1) / float64(max(most-1, 1)) * float64(len(curve)-1))
		measured[i] = float64(x.Energy)
	}
	g := out.Graph{
		Series: [][]float64{line, rounds, measured}, Height: 14, Axis: "%.4g J", Columns: len(curve),
		First: "1", Last: fmt.Sprintf("%d blocks", most),
		Colours: []asciigraph.AnsiColor{asciigraph.Blue, asciigraph.Red, asciigraph.Green},
		Options: []asciigraph.Option{asciigraph.LowerBound(0), asciigraph.SeriesChars(
			asciigraph.CreateCharSet("·"), asciigraph.DefaultCharSet, asciigraph.CreateCharSet("o"))},
	}
	if out.IsTerminal(w) {
		g.Legends = []string{"by the line", "by rounds", "measured"}
	}
	fmt.Fprintln(w)
	g.Draw(w)
	if !out.IsTerminal(w) { // the legend of a graph names colours alone
		fmt.Fprintln(w, "   · by the line   ─ by rounds   o measured")
	}
}

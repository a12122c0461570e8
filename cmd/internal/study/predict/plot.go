package predict

import (
	"errors"
	"fmt"
	"image/color"
	"io"
	"math"
	"strings"

	"github.com/guptarohit/asciigraph"
	"github.com/wattmark/wattmark/analysis/figure"
	"github.com/wattmark/wattmark/analysis/predict"
	"github.com/wattmark/wattmark/cmd/internal/out"
	"github.com/wattmark/wattmark/cmd/internal/report"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
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
		"time / s", func(f predict.Forecast) (float64, float64) {
			return float64(f.Time.Value), float64(f.Time.Prediction)
		},
		func(p predict.Point) float64 { return float64(p.Time) }, false,
	},
	{
		"energy / J", func(f predict.Forecast) (float64, float64) {
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
	c := vgsvg.New(report.PictureWidth, 1.6*report.PictureHeight)
	tiles := draw.Tiles{
		Rows: 2, Cols: 1, PadTop: vg.Millimeter, PadY: 3 * vg.Millimeter, PadRight: 3 * vg.Millimeter,
		PadLeft: 2 * vg.Millimeter,
	}
	var plots [][]*plot.Plot
	title := fmt.Sprintf("%s: time and energy by number of blocks", p.Name)
	for _, q := range predicted {
		pl, err := p.panel(q, curve, title)
		if err != nil {
			return err
		}
		plots, title = append(plots, []*plot.Plot{pl}), ""
	}
	dc := draw.New(c)
	// A white ground keeps the axes readable on a dark page.
	dc.FillPolygon(color.White, []vg.Point{
		dc.Min, {X: dc.Max.X, Y: dc.Min.Y}, dc.Max, {X: dc.Min.X, Y: dc.Max.Y},
	})
	for i, row := range plot.Align(plots, tiles, dc) {
		plots[i][0].Draw(row[0])
	}
	return figure.Encode(w, c)
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
		m, _ := q.value(c.Mixed)
		mixed = append(mixed, plotter.XY{X: x, Y: m})
	}
	if !q.mixed {
		mixed = nil
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
	p.scale(pl, q, line)
	return pl, err
}

// scale limits the ordinate to 1.25 times the largest value, so that a wide band
// does not flatten the curves.
func (p *Prediction) scale(pl *plot.Plot, q quantityOf, line plotter.XYs) {
	most := line[len(line)-1].Y
	for _, x := range append(p.model.Points(), p.Others...) {
		most = max(most, q.points(x))
	}
	pl.X.Min, pl.Y.Min, pl.Y.Max = 0, 0, 1.25*most
}

// plot draws energy over blocks as text, as wide as the terminal. A curve that
// cannot be predicted is left out without an error: the figures above it are
// complete.
func (p *Prediction) plot(w io.Writer) {
	width := out.PlotWidth(w)
	curve, err := p.curve(uint64(width))
	if err != nil || len(curve) < 2 {
		return
	}
	most := p.reach()
	series := make([][]float64, 3)
	for i := range series {
		series[i] = make([]float64, len(curve))
	}
	for i, c := range curve {
		series[0][i], _ = predicted[1].value(c.Linear)
		series[1][i], _ = predicted[1].value(c.ByRounds)
		// NaN leaves the column empty.
		series[2][i] = math.NaN()
	}
	for _, x := range append(p.model.Points(), p.Others...) {
		// The column of a point, by linear interpolation between 1 and the reach.
		i := int(float64(x.Blocks-1) / float64(max(most-1, 1)) * float64(len(curve)-1))
		series[2][i] = float64(x.Energy)
	}
	opts := []asciigraph.Option{
		asciigraph.Height(14), asciigraph.Offset(3), asciigraph.LowerBound(0), asciigraph.SeriesChars(
			asciigraph.CreateCharSet("·"), asciigraph.DefaultCharSet, asciigraph.CreateCharSet("o")),
		asciigraph.YAxisValueFormatter(func(v float64) string { return fmt.Sprintf("%.4g J", v) }),
		asciigraph.SeriesLegends("by the line", "by rounds", "measured"),
	}
	if out.IsTerminal(w) {
		opts = append(opts, asciigraph.SeriesColors(asciigraph.Blue, asciigraph.Red, asciigraph.Green))
	}
	lines := strings.Split(asciigraph.PlotMany(series, opts...), "\n")
	left := out.LeftEdge(lines)
	body, legend := out.SplitLegend(lines)
	first, last := "1", fmt.Sprintf("%d blocks", most)
	text := strings.Trim(strings.Join(legend, "\n"), "\n")
	if !out.IsTerminal(w) {
		text = "   · by the line   ─ by rounds   o measured"
	}
	fmt.Fprintf(w, "\n%s\n%s%s%*s\n%s\n", strings.Join(body, "\n"), strings.Repeat(" ", left), first,
		len(curve)-len(first), last, text)
}

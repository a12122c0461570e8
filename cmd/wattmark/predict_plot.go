package main

import (
	"bytes"
	"fmt"
	"image/color"
	"io"
	"math"
	"strings"

	"github.com/guptarohit/asciigraph"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"wattmark/analysis/predict"
)

// quantityOf is time or energy of a forecast and of a point.
type quantityOf struct {
	label  string
	value  func(predict.Forecast) (v, half float64)
	points func(predict.Point) float64
	mixed  bool // the mixed prediction is not that by rounds
}

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

// reach is the number of blocks that plots go to.
func (p *prediction) reach() uint64 {
	most := p.Round.Blocks
	for _, x := range append(p.model.Points(), p.Others...) {
		most = max(most, x.Blocks)
	}
	return most + most/10
}

// plotSteps bounds how finely a curve is drawn.
const plotSteps = 1000

// curve predicts so many numbers of blocks from 1 to the reach.
func (p *prediction) curve(steps uint64) (out []predict.Prediction, err error) {
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

// writeSVG draws time above energy, each by the line with its band, by rounds,
// and as measured.
func (p *prediction) writeSVG(w io.Writer) error {
	curve, err := p.curve(plotSteps)
	if err != nil {
		return err
	}
	c := vgsvg.New(pictureWidth, 1.6*pictureHeight)
	tiles := draw.Tiles{Rows: 2, Cols: 1, PadTop: vg.Millimeter, PadY: 3 * vg.Millimeter, PadRight: 3 * vg.Millimeter, PadLeft: 2 * vg.Millimeter}
	plots := [][]*plot.Plot{}
	for i, q := range predicted {
		pl, err := p.panel(q, curve)
		if err != nil {
			return fmt.Errorf("plot: %w", err)
		}
		if i == 0 {
			pl.Title.Text = fmt.Sprintf("%s: time and energy by number of blocks", p.Name)
		}
		plots = append(plots, []*plot.Plot{pl})
	}
	dc := draw.New(c)
	dc.FillPolygon(color.White, []vg.Point{{X: dc.Min.X, Y: dc.Min.Y}, {X: dc.Max.X, Y: dc.Min.Y}, {X: dc.Max.X, Y: dc.Max.Y}, {X: dc.Min.X, Y: dc.Max.Y}})
	for i, row := range plot.Align(plots, tiles, dc) {
		plots[i][0].Draw(row[0])
	}
	var b bytes.Buffer
	if _, err := c.WriteTo(&b); err != nil {
		return fmt.Errorf("plot: %w", err)
	}
	_, err = w.Write(bytes.ReplaceAll(b.Bytes(), []byte("font-family:Liberation Sans;"), []byte("font-family:Liberation Sans,Arial,Helvetica,sans-serif;")))
	return err
}

var (
	lineColor  = color.RGBA{0x00, 0x72, 0xb2, 0xff}
	bandColor  = color.NRGBA{0x00, 0x72, 0xb2, 0x30}
	roundColor = color.RGBA{0xd5, 0x5e, 0x00, 0xff}
	mixedColor = color.RGBA{0xcc, 0x79, 0xa7, 0xff}
	otherColor = color.RGBA{0x00, 0x9e, 0x73, 0xff}
)

func (p *prediction) panel(q quantityOf, curve []predict.Prediction) (*plot.Plot, error) {
	pl := plot.New()
	pl.X.Label.Text, pl.Y.Label.Text = "number of blocks", q.label
	pl.Add(plotter.NewGrid())
	pl.Legend.Top, pl.Legend.Left, pl.Legend.Padding = true, true, vg.Millimeter
	pl.Legend.XOffs, pl.Legend.YOffs = 5*vg.Millimeter, -2*vg.Millimeter
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
	for i := len(lower) - 1; i >= 0; i-- {
		upper = append(upper, lower[i])
	}
	band, err := plotter.NewPolygon(upper)
	if err != nil {
		return nil, err
	}
	band.Color, band.LineStyle.Width = bandColor, 0
	pl.Add(band)
	pl.Legend.Add(fmt.Sprintf("band of prediction, %.3g %%", 100*p.Options.Level), band)
	lines := []pictureLine{
		{"by the line (Eqs. 1, 3)", look{color: lineColor, width: 1.4}, line},
		{"by rounds (Eqs. 4, 6)", look{color: roundColor, width: 1.4}, steps},
	}
	if q.mixed {
		lines = append(lines, pictureLine{"mixed: the blocks' energy, the rounds' time", look{color: mixedColor, width: 1.2, dashed: true}, mixed})
	}
	for _, l := range lines {
		thumb, err := l.draw(pl)
		if err != nil {
			return nil, err
		}
		pl.Legend.Add(l.name, thumb)
	}
	if err := addPoints(pl, q, "calibrated on", p.model.Points(), lineColor, draw.CircleGlyph{}); err != nil {
		return nil, err
	}
	if err := addPoints(pl, q, "measured, not calibrated on", p.Others, otherColor, draw.TriangleGlyph{}); err != nil {
		return nil, err
	}
	p.scale(pl, q, line)
	return pl, nil
}

// scale keeps a wide band from pressing the curves down.
func (p *prediction) scale(pl *plot.Plot, q quantityOf, line plotter.XYs) {
	most := line[len(line)-1].Y
	for _, x := range append(p.model.Points(), p.Others...) {
		most = max(most, q.points(x))
	}
	pl.X.Min, pl.Y.Min, pl.Y.Max = 0, 0, 1.25*most
}

func addPoints(pl *plot.Plot, q quantityOf, name string, points []predict.Point, c color.Color, g draw.GlyphDrawer) error {
	var xy plotter.XYs
	for _, x := range points {
		xy = append(xy, plotter.XY{X: float64(x.Blocks), Y: q.points(x)})
	}
	if len(xy) == 0 {
		return nil
	}
	s, err := plotter.NewScatter(xy)
	if err != nil {
		return err
	}
	s.Color, s.Radius, s.Shape = c, 3, g
	pl.Add(s)
	pl.Legend.Add(name, s)
	return nil
}

// plot draws the energy in the terminal.
func (p *prediction) plot(w io.Writer) {
	width := plotWidth(w)
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
		series[2][i] = math.NaN()
	}
	for _, x := range append(p.model.Points(), p.Others...) {
		i := int(float64(x.Blocks-1) / float64(max(most-1, 1)) * float64(len(curve)-1))
		series[2][i] = float64(x.Energy)
	}
	opts := []asciigraph.Option{
		asciigraph.Height(14), asciigraph.Offset(3), asciigraph.LowerBound(0), asciigraph.SeriesChars(
			asciigraph.CreateCharSet("·"), asciigraph.DefaultCharSet, asciigraph.CreateCharSet("o")),
		asciigraph.YAxisValueFormatter(func(v float64) string { return fmt.Sprintf("%.4g J", v) }),
		asciigraph.SeriesLegends("by the line", "by rounds", "measured"),
	}
	if isTerminal(w) {
		opts = append(opts, asciigraph.SeriesColors(asciigraph.Blue, asciigraph.Red, asciigraph.Green))
	}
	lines := strings.Split(asciigraph.PlotMany(series, opts...), "\n")
	left := leftEdge(lines)
	body, legend := splitLegend(lines)
	first, last := "1", fmt.Sprintf("%d blocks", most)
	text := strings.Trim(strings.Join(legend, "\n"), "\n")
	if !isTerminal(w) {
		text = "   · by the line   ─ by rounds   o measured"
	}
	fmt.Fprintf(w, "\n%s\n%s%s%*s\n%s\n", strings.Join(body, "\n"), strings.Repeat(" ", left), first, len(curve)-len(first), last, text)
}

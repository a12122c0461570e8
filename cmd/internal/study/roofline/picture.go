package roofline

import (
	"errors"
	"fmt"
	"image/color"
	"io"
	"math"

	"github.com/wattmark/wattmark/analysis/figure"
	"github.com/wattmark/wattmark/measure"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

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

// writeSVG draws flop/s, flop/J and power in W over intensity in flop/byte, one
// above the other, aligned on the abscissa.
func (r *RooflineReport) writeSVG(w io.Writer) error {
	var plots []*plot.Plot
	for i, p := range roofPanels {
		pl, err := r.panel(p, i == 0, i == len(roofPanels)-1)
		if err != nil {
			return fmt.Errorf("plot: %w", err)
		}
		plots = append(plots, pl)
	}
	const mm = vg.Millimeter
	return figure.Stack(w, 20*vg.Centimeter, 27*vg.Centimeter, draw.Tiles{
		PadX: 2 * mm, PadY: 4 * mm, PadTop: 3 * mm, PadBottom: 3 * mm, PadLeft: 3 * mm, PadRight: 5 * mm,
	}, plots)
}

// siTicks labels the decades of a logarithmic axis with SI prefixes.
type siTicks struct{ plot.LogTicks }

// Ticks implements plot.Ticker.
func (t siTicks) Ticks(low, high float64) []plot.Tick {
	result := t.LogTicks.Ticks(low, high)
	for i := range result {
		if result[i].Label != "" {
			s, name := measure.SIPrefix(result[i].Value)
			result[i].Label = fmt.Sprintf("%.3g%s", result[i].Value/s, name)
		}
	}
	return result
}

// panel draws the model's curve, the tasks and the two balances. Title and legend
// belong to the first panel, the label of the abscissa to the last. The legend holds what exists.
func (r *RooflineReport) panel(p roofPanel, first, last bool) (*plot.Plot, error) {
	pl := figure.New("", "", p.label)
	pl.X.Scale, pl.X.Tick.Marker = plot.LogScale{}, siTicks{}
	if last {
		pl.X.Label.Text = "arithmetic intensity / (flop/byte)"
	}
	name := func(string) string { return "" }
	if first {
		pl.Title.Text = "Energy roofline of " + r.GPU
		name = func(s string) string { return s }
		pl.Legend.Top = false // thumbs first: long text in any font stays clear
		pl.Legend.XOffs, pl.Legend.YOffs = 10*vg.Centimeter, 4*vg.Millimeter
	}
	var model plotter.XYs
	for _, l := range r.Line {
		model = append(model, plotter.XY{X: l.Intensity, Y: p.line(l)})
	}
	// A point without an intensity, or not above zero on a logarithmic axis, is left out.
	var tasks [2]plotter.XYs // fitted, and shown only
	for _, x := range r.Points {
		if y := p.point(x); x.Intensity > 0 && (y > 0 || !p.log) {
			i := map[bool]int{false: 1}[x.Fitted]
			tasks[i] = append(tasks[i], plotter.XY{X: float64(x.Intensity), Y: y})
		}
	}
	pl.Add(figure.Grid())
	err := errors.Join(figure.Add(pl, name("model"), figure.Style{Color: figure.Blue, Width: 1.6}, model),
		figure.Add(pl, name("fitted tasks"), figure.Style{Color: figure.Vermillion, Radius: 3}, tasks[0]),
		figure.Add(pl, name("other tasks"), figure.Style{Color: figure.Pink, Radius: 3, Shape: draw.BoxGlyph{}}, tasks[1]))
	if p.log {
		pl.Y.Scale, pl.Y.Tick.Marker = plot.LogScale{}, siTicks{}
		pl.Y.Min, pl.Y.Max = pl.Y.Min/1.5, pl.Y.Max*1.5
	} else {
		pl.Y.Min, pl.Y.Max, pl.Y.Tick.Marker = 0, pl.Y.Max*1.1, figure.Ticks(6)
	}
	// A balance that is not positive and finite has no line.
	for _, m := range []struct {
		name string
		at   float64
		c    color.Color
	}{{"time", r.TimeBalance, figure.Rule}, {"energy", r.EnergyBalance.Value, figure.Green}} {
		if m.at > 0 && !math.IsInf(m.at, 0) {
			err = errors.Join(err, figure.Add(pl, name(fmt.Sprintf("balance in %s, %.3g", m.name, m.at)),
				figure.Style{Color: m.c, Width: 1, Dashed: true}, plotter.XYs{{X: m.at, Y: pl.Y.Min}, {X: m.at, Y: pl.Y.Max}}))
		}
	}
	return pl, err
}

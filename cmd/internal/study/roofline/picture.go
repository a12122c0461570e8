package roofline

import (
	"fmt"
	"image/color"
	"io"

	"github.com/wattmark/wattmark/analysis/figure"
	"github.com/wattmark/wattmark/cmd/internal/out"
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
	mark := func(name string, sign rune, at float64, c color.Color) figure.Mark {
		return figure.Mark{Name: fmt.Sprintf("%s, %.3g", name, at), Sign: sign, At: at, Color: c}
	}
	return []figure.Mark{
		mark("balance in energy", 'E', r.EnergyBalance.Value, figure.Green),
		mark("balance in time", 'T', r.TimeBalance, figure.Rule),
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

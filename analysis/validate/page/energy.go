package page

import (
	"image/color"
	"math"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"wattmark/analysis/validate"
)

// energyPlot is the energy by each method with its interval, and the meter's as a
// line with its uncertainty.
func energyPlot(r *validate.Report) (*plot.Plot, error) {
	p := plot.New()
	p.Title.Text = "Energy of the work"
	truth, u := float64(r.Truth.Energy), float64(r.Truth.U)
	p.X.Label.Text = "energy / J (grey: the meter)"
	n := len(r.Methods)
	names := make([]string, n)
	top := truth + u
	p.Add(grid())
	sure, err := plotter.NewPolygon(plotter.XYs{{X: truth - u, Y: -0.6}, {X: truth + u, Y: -0.6}, {X: truth + u, Y: float64(n) - 0.4}, {X: truth - u, Y: float64(n) - 0.4}})
	if err != nil {
		return nil, err
	}
	sure.Color, sure.LineStyle.Width = band, 0
	p.Add(sure)
	cs := colours(r)
	for i := range r.Methods {
		m := &r.Methods[n-1-i]
		names[i] = short(m.Name)
		e := float64(m.Energy)
		if math.IsNaN(e) || math.IsInf(e, 0) {
			names[i] += " (none)"
			continue
		}
		b := bar{at: float64(i), to: e, from: e, color: cs[n-1-i]}
		b.lo, b.hi = truth*(1+m.Lo/100), truth*(1+m.Hi/100)
		top = max(top, e, b.hi)
		p.Add(b)
	}
	line, err := plotter.NewLine(plotter.XYs{{X: truth, Y: -0.6}, {X: truth, Y: float64(n) - 0.4}})
	if err != nil {
		return nil, err
	}
	line.Color, line.Width = truthC, 1.6
	p.Add(line)
	for i, n := range names {
		// A reader's font may be wider than the one that this is laid out with.
		names[i] = n + strings.Repeat("\u00a0", 1+len(n)/7)
	}
	p.NominalY(names...)
	p.X.Tick.Marker = ticker{5}
	p.X.Min, p.X.Max = 0, top*1.05
	p.Y.Min, p.Y.Max = -0.6, float64(n)-0.4
	style(p)
	return p, nil
}

// bar is one horizontal bar with an error bar.
type bar struct {
	at, from, to, lo, hi float64
	color                color.Color
}

// Plot implements plot.Plotter.
func (b bar) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	at := y(b.at)
	thick := min(y(b.at+0.3)-at, 5*vg.Millimeter)
	c.FillPolygon(b.color, c.ClipPolygonXY([]vg.Point{{X: x(0), Y: at - thick}, {X: x(b.to), Y: at - thick}, {X: x(b.to), Y: at + thick}, {X: x(0), Y: at + thick}}))
	if math.IsNaN(b.lo) || math.IsNaN(b.hi) {
		return
	}
	lo, hi, end := x(b.lo), x(b.hi), thick/2
	for _, s := range []draw.LineStyle{{Color: halo, Width: 3}, {Color: ink, Width: 1}} {
		c.StrokeLines(s, []vg.Point{{X: lo, Y: at}, {X: hi, Y: at}},
			[]vg.Point{{X: lo, Y: at - end}, {X: lo, Y: at + end}}, []vg.Point{{X: hi, Y: at - end}, {X: hi, Y: at + end}})
	}
}

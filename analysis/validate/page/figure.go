package page

import (
	"bytes"
	"fmt"
	"image/color"
	"io"
	"math"
	"slices"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"wattmark/analysis/validate"
)

// The size of a figure's row: power over time, and energies beside it.
const (
	powerWidth, energyWidth = 21 * vg.Centimeter, 13 * vg.Centimeter
	rowHeight               = 10.5 * vg.Centimeter
)

// The colours are Okabe and Ito's, which the colour-blind tell apart; the truth is
// grey. A page turns them into variables, so that they suit light and dark.
var (
	ink    = color.NRGBA{0, 0, 0, 0xff}
	gridC  = color.NRGBA{0xdd, 0xdd, 0xdd, 0xff}
	truthC = color.NRGBA{0x7f, 0x7f, 0x7f, 0xff}
	band   = color.NRGBA{0xc8, 0xc8, 0xc8, 0xff}
	halo   = color.NRGBA{0xfe, 0xfe, 0xfe, 0xff} // around what is drawn on bars
)

var byMethod = map[string]color.NRGBA{
	"instant": {0xd5, 0x5e, 0x00, 0xff}, "average": {0x00, 0x72, 0xb2, 0xff}, "sma": {0x00, 0x9e, 0x73, 0xff},
	"mtsm": {0xe6, 0x9f, 0x00, 0xff}, "papi": {0xcc, 0x79, 0xa7, 0xff}, "counter": {0x11, 0x11, 0x11, 0xff},
	"counter-ends": {0x56, 0xb4, 0xe9, 0xff},
}

// others are for methods that have no colour of their own.
var others = []color.NRGBA{
	{0xa0, 0x52, 0x2d, 0xff},
	{0x80, 0x00, 0x80, 0xff},
	{0x6b, 0x8e, 0x23, 0xff},
	{0xdc, 0x14, 0x3c, 0xff},
	{0x00, 0x8b, 0x8b, 0xff},
	{0xb8, 0x86, 0x0b, 0xff},
}

// colours gives every method of a report its colour.
func colours(r *validate.Report) []color.NRGBA {
	out := make([]color.NRGBA, len(r.Methods))
	next := 0
	for i := range r.Methods {
		c, ok := byMethod[r.Methods[i].Name]
		if !ok {
			c = others[next%len(others)]
			next++
		}
		out[i] = c
	}
	return out
}

// style gives a plot the house's fonts.
func style(p *plot.Plot) {
	f := font.Font{Typeface: "Liberation", Variant: "Sans", Size: 10}
	for _, s := range []*draw.TextStyle{&p.X.Label.TextStyle, &p.Y.Label.TextStyle, &p.Legend.TextStyle, &p.X.Tick.Label, &p.Y.Tick.Label, &p.Title.TextStyle} {
		size := s.Font.Size
		s.Font = f
		s.Font.Size = max(size, 9)
	}
	p.Title.TextStyle.Font.Size = 11
}

// grid are the lines behind the data.
func grid() *plotter.Grid {
	g := plotter.NewGrid()
	g.Vertical.Color, g.Horizontal.Color = gridC, gridC
	return g
}

// powerPlot is the power by the meter and by software over time.
func powerPlot(r *validate.Report) (*plot.Plot, error) {
	p := plot.New()
	p.Title.Text = "Power over time"
	p.X.Label.Text, p.Y.Label.Text = "time since the work began / s", "power / W"
	origin := float64(r.Work.From)
	p.X.Min, p.X.Max = float64(r.Trace.From)-origin, float64(r.Trace.To)-origin
	p.Add(grid())
	if err := addTruth(p, r, origin); err != nil {
		return nil, err
	}
	p.X.Tick.Marker, p.Y.Tick.Marker = ticker{6}, ticker{5}
	cs := colours(r)
	for i := range r.Methods {
		if drawn(r.Methods[:i], &r.Methods[i]) {
			continue
		}
		if err := addMethod(p, &r.Methods[i], cs[i], r, origin); err != nil {
			return nil, fmt.Errorf("draw %s: %w", r.Methods[i].Name, err)
		}
	}
	top := 0.0
	for _, c := range r.Trace.Columns {
		if v := float64(c.Max); v > top {
			top = v
		}
	}
	for i := range r.Methods {
		for _, x := range r.Methods[i].Points {
			top = max(top, float64(x.Power))
		}
	}
	p.Y.Min, p.Y.Max = 0, top*(1.12+0.075*float64(len(r.Methods)+1))
	p.Legend.Padding = 0.8 * vg.Millimeter
	p.Legend.Top, p.Legend.Left = true, true
	p.Legend.XOffs, p.Legend.YOffs = 4*vg.Millimeter, -2*vg.Millimeter
	style(p)
	return p, nil
}

// drawn reports whether an earlier method has the same readings: two rules for one
// register make one line.
func drawn(before []validate.MethodReport, m *validate.MethodReport) bool {
	return slices.ContainsFunc(before, func(b validate.MethodReport) bool {
		return len(b.Points) > 0 && slices.Equal(b.Points, m.Points)
	})
}

// addTruth draws the meter's means over the range of its samples.
func addTruth(p *plot.Plot, r *validate.Report, origin float64) error {
	var mean, upper, lower plotter.XYs
	n := len(r.Trace.Columns)
	for i, c := range r.Trace.Columns {
		at := float64(r.Trace.From) + (float64(i)+0.5)*float64(r.Trace.To-r.Trace.From)/float64(n) - origin
		if math.IsNaN(float64(c.Mean)) {
			continue
		}
		mean = append(mean, plotter.XY{X: at, Y: float64(c.Mean)})
		upper = append(upper, plotter.XY{X: at, Y: float64(c.Max)})
		lower = append(lower, plotter.XY{X: at, Y: float64(c.Min)})
	}
	if len(mean) == 0 {
		return nil
	}
	for i := len(lower) - 1; i >= 0; i-- {
		upper = append(upper, lower[i])
	}
	area, err := plotter.NewPolygon(upper)
	if err != nil {
		return err
	}
	area.Color, area.LineStyle.Width = band, 0
	line, err := plotter.NewLine(mean)
	if err != nil {
		return err
	}
	line.Color, line.Width = truthC, 1
	p.Add(area, line)
	p.Legend.Add(named("meter", short(r.Meter))+", mean and range", line)
	return nil
}

func named(what, which string) string {
	if which == "" {
		return what
	}
	return what + ": " + which
}

// addMethod draws a method's readings; one reading stands for the work.
func addMethod(p *plot.Plot, m *validate.MethodReport, c color.Color, r *validate.Report, origin float64) error {
	if len(m.Points) == 0 && m.Readings != 1 {
		return nil
	}
	var xy plotter.XYs
	for _, x := range m.Points {
		xy = append(xy, plotter.XY{X: float64(x.At) - origin, Y: float64(x.Power)})
	}
	if m.Readings == 1 {
		w := float64(r.Mean + m.Bias)
		xy = plotter.XYs{{X: 0, Y: w}, {X: float64(r.Work.Length()), Y: w}}
	}
	if m.Name == "sma" {
		s, err := plotter.NewScatter(xy)
		if err != nil {
			return err
		}
		s.Color, s.Radius, s.Shape = c, 1.3, draw.CircleGlyph{}
		p.Add(s)
		p.Legend.Add(short(m.Name), s)
		return nil
	}
	l, err := plotter.NewLine(xy)
	if err != nil {
		return err
	}
	l.Color, l.Width = c, 1.4
	if m.Name == "mtsm" || m.Readings == 1 {
		l.Dashes = []vg.Length{4, 3}
	}
	p.Add(l)
	p.Legend.Add(short(m.Name), l)
	return nil
}

// energyPlot is the energy by each method with its interval, and the meter's as a
// line with its uncertainty.
func energyPlot(r *validate.Report) (*plot.Plot, error) {
	p := plot.New()
	p.Title.Text = "Energy of the work"
	truth, u := float64(r.Truth.Energy), float64(r.Truth.U)
	p.X.Label.Text = fmt.Sprintf("energy / J (grey: the meter's %s)", energyText(truth, u))
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
	const thick = 0.3
	c.FillPolygon(b.color, c.ClipPolygonXY([]vg.Point{
		{X: x(0), Y: y(b.at - thick)}, {X: x(b.to), Y: y(b.at - thick)}, {X: x(b.to), Y: y(b.at + thick)}, {X: x(0), Y: y(b.at + thick)},
	}))
	if math.IsNaN(b.lo) || math.IsNaN(b.hi) {
		return
	}
	const end = 0.15
	for _, s := range []draw.LineStyle{{Color: halo, Width: 3}, {Color: ink, Width: 1}} {
		c.StrokeLines(s, []vg.Point{{X: x(b.lo), Y: y(b.at)}, {X: x(b.hi), Y: y(b.at)}},
			[]vg.Point{{X: x(b.lo), Y: y(b.at - end)}, {X: x(b.lo), Y: y(b.at + end)}},
			[]vg.Point{{X: x(b.hi), Y: y(b.at - end)}, {X: x(b.hi), Y: y(b.at + end)}})
	}
}

// ticker labels about so many round values.
type ticker struct{ about int }

// Ticks implements plot.Ticker.
func (t ticker) Ticks(lo, hi float64) (out []plot.Tick) {
	step := round((hi - lo) / float64(t.about))
	if !(step > 0) || math.IsInf(step, 0) {
		return nil
	}
	for k := math.Ceil(lo / step); k*step <= hi+step*1e-9; k++ {
		out = append(out, plot.Tick{Value: k * step, Label: strconv.FormatFloat(math.Round(k)*step+0, 'g', 6, 64)})
	}
	return out
}

// round is the least of 1, 2, 5 and 10 times a power of ten that is not below v.
func round(v float64) float64 {
	base := math.Pow(10, math.Floor(math.Log10(v)))
	for _, m := range []float64{1, 2, 5} {
		if m*base >= v*(1-1e-9) {
			return m * base
		}
	}
	return 10 * base
}

// WriteSVG draws subjects below one another: power over time, and the energies.
func WriteSVG(w io.Writer, reports []*validate.Report) error {
	if len(reports) == 0 {
		return fmt.Errorf("draw: nothing was validated")
	}
	title := 7 * vg.Millimeter
	height := (rowHeight + title) * vg.Length(len(reports))
	c := vgsvg.New(powerWidth+energyWidth, height)
	dc := draw.New(c)
	dc.SetColor(color.White)
	dc.Fill(dc.Rectangle.Path())
	for i, r := range reports {
		r = clean(r)
		left, right, err := plots(r)
		if err != nil {
			return fmt.Errorf("draw %s: %w", r.Name, err)
		}
		bottom := height - vg.Length(i+1)*(rowHeight+title)
		at := func(x, width vg.Length) draw.Canvas {
			return draw.Canvas{Canvas: c, Rectangle: vg.Rectangle{
				Min: vg.Point{X: x, Y: bottom + 2*vg.Millimeter}, Max: vg.Point{X: x + width - 4*vg.Millimeter, Y: bottom + rowHeight},
			}}
		}
		left.Draw(at(2*vg.Millimeter, powerWidth))
		right.Draw(at(powerWidth, energyWidth))
		head := left.Title.TextStyle
		head.Font.Size = 12
		head.XAlign, head.YAlign = draw.XLeft, draw.YBottom
		dc.FillText(head, vg.Point{X: 4 * vg.Millimeter, Y: bottom + rowHeight + 1*vg.Millimeter}, heading(r))
	}
	return emit(w, c)
}

func heading(r *validate.Report) string {
	out := r.Name
	if r.GPU != "" {
		out += " on " + r.GPU
	}
	if r.Driver != "" {
		out += ", driver " + r.Driver
	}
	return out
}

func plots(r *validate.Report) (power, energy *plot.Plot, err error) {
	if power, err = powerPlot(r); err != nil {
		return nil, nil, err
	}
	energy, err = energyPlot(r)
	return power, energy, err
}

// emit writes a canvas with fonts that most machines have.
func emit(w io.Writer, c io.WriterTo) error {
	var b bytes.Buffer
	if _, err := c.WriteTo(&b); err != nil {
		return fmt.Errorf("draw: %w", err)
	}
	_, err := w.Write(bytes.ReplaceAll(b.Bytes(), []byte("font-family:Liberation Sans;"), []byte("font-family:Liberation Sans,Arial,Helvetica,sans-serif;")))
	return err
}

package page

import (
	"fmt"
	"image/color"
	"math"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

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

// colours gives every method of a report its colour; a column of nvidia-smi has that
// of the field which it shows, unless the field was read too.
func colours(r *validate.Report) []color.NRGBA {
	out := make([]color.NRGBA, len(r.Methods))
	taken := map[color.NRGBA]bool{}
	for i := range r.Methods {
		if c, ok := byMethod[r.Methods[i].Name]; ok {
			out[i], taken[c] = c, true
		}
	}
	next := 0
	for i := range r.Methods {
		if out[i] != (color.NRGBA{}) {
			continue
		}
		name := r.Methods[i].Name
		c, ok := byMethod[name[strings.LastIndexByte(name, '.')+1:]]
		if !ok || taken[c] {
			c = others[next%len(others)]
			next++
		}
		out[i], taken[c] = c, true
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
	// A reading before the picture and one behind it lead their lines to its edges.
	p.X.Min, p.X.Max = float64(r.Trace.From)-origin, float64(r.Trace.To)-origin
	p.Y.Min, p.Y.Max = 0, top*(1.12+0.08*float64(len(r.Methods)+1))
	p.Legend.Padding = 1.1 * vg.Millimeter
	p.Legend.Top, p.Legend.Left, p.Legend.Padding = true, true, vg.Millimeter
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
	if len(m.Points) == 0 && m.Compared != 1 {
		return nil
	}
	var xy plotter.XYs
	for _, x := range m.Points {
		xy = append(xy, plotter.XY{X: float64(x.At) - origin, Y: float64(x.Power)})
	}
	if m.Compared == 1 {
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
	if m.Name == "mtsm" || m.Compared == 1 {
		l.Dashes = []vg.Length{4, 3}
	}
	p.Add(l)
	p.Legend.Add(short(m.Name), l)
	return nil
}

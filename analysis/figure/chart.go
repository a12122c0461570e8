package figure

import (
	"cmp"
	"fmt"
	"image/color"
	"io"
	"math"

	"github.com/wattmark/wattmark/measure"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
)

// The size of a chart that states none.
const (
	Width  = 24 * vg.Centimeter
	Height = 12 * vg.Centimeter
)

// Chart is a plot that is declared once: WriteSVG draws all of it, and a terminal the marks
// and the lines with Sketch. The order of lines is that of drawing.
type Chart struct {
	Title         string
	X, Y          string // labels of the axes, with the unit behind " / "
	LogX, LogY    bool
	Areas         []Area // behind the grid
	Lines         []Line
	Marks         []Mark
	Width, Height vg.Length // of the SVG; zero for those of the package

	// XRange and YRange are the limits of the axes; equal ones for those of the data.
	XRange, YRange [2]float64
	FromZero       bool // Y begins at zero
	// Headroom is a factor above the largest Y that leaves room for the legend; zero for none.
	// On a logarithmic axis it holds below the least Y too.
	Headroom float64
}

// Line is a series with its style and its name in the legend, empty for none.
type Line struct {
	Name string
	Style
	Points plotter.XYs
}

// Line adds a series.
func (c *Chart) Line(name string, s Style, points plotter.XYs) {
	c.Lines = append(c.Lines, Line{name, s, points})
}

// Area is the filled space between two series over the same abscissae.
type Area struct {
	Name         string
	Color        color.Color
	Lower, Upper plotter.XYs
}

// Mark is an abscissa with a meaning: a dashed line in SVG, the sign below a plot in the
// terminal. One that is not finite, or not positive on a logarithmic axis, is left out.
type Mark struct {
	Name  string
	Sign  rune
	At    float64
	Color color.Color
}

// Plot returns the chart as a plot, for a caller that places it beside others.
func (c *Chart) Plot() (*plot.Plot, error) {
	p := New(c.Title, c.X, c.Y)
	if c.LogX {
		p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, siTicks{}
	}
	if c.LogY {
		p.Y.Scale, p.Y.Tick.Marker = plot.LogScale{}, siTicks{}
	}
	for _, a := range c.Areas {
		if err := Between(p, a.Name, a.Color, a.Lower, a.Upper); err != nil {
			return nil, err
		}
	}
	p.Add(Grid())
	for _, l := range c.Lines {
		if err := Add(p, l.Name, l.Style, l.Points); err != nil {
			return nil, err
		}
	}
	c.limit(p)
	for _, m := range c.Marks {
		if !c.Shows(m) {
			continue
		}
		ends := plotter.XYs{{X: m.At, Y: p.Y.Min}, {X: m.At, Y: p.Y.Max}}
		if err := Add(p, m.Name, Style{Color: m.Color, Width: 1, Dashed: true}, ends); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// limit sets the limits of the axes, which the series have widened to their data.
func (c *Chart) limit(p *plot.Plot) {
	if c.XRange[0] < c.XRange[1] {
		p.X.Min, p.X.Max = c.XRange[0], c.XRange[1]
	}
	if c.FromZero {
		p.Y.Min = 0
	}
	if c.YRange[0] < c.YRange[1] {
		p.Y.Min, p.Y.Max = c.YRange[0], c.YRange[1]
	}
	room := cmp.Or(c.Headroom, 1)
	p.Y.Max *= room
	if c.LogY {
		p.Y.Min /= room
	}
}

// Shows reports whether the chart has a place for a mark.
func (c *Chart) Shows(m Mark) bool {
	return !math.IsNaN(m.At) && !math.IsInf(m.At, 0) && (m.At > 0 || !c.LogX)
}

// WriteSVG draws the chart.
func (c *Chart) WriteSVG(w io.Writer) error {
	p, err := c.Plot()
	if err != nil {
		return err
	}
	return Save(w, p, cmp.Or(c.Width, Width), cmp.Or(c.Height, Height))
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

// Package figure sets up the SVG plots of all commands and pages alike, on top of
// gonum.org/v1/plot:
//
//   - New makes an empty plot with the house's fonts, Grid the lines behind its data.
//   - The palette is Okabe and Ito's (2008), distinguishable with any of the common
//     colour deficiencies. Method gives each way of reading a GPU's sensor its colour,
//     Series colours in turn for anything else. Truth, Band and Rule are greys for the
//     meter, for ranges and uncertainties, and for auxiliary lines.
//   - Line, Dots and Area draw a series and enter it into the legend.
//   - Encode and Save write SVG whose text falls back to fonts that most machines have.
//
// Plots are not safe for concurrent use; different plots are independent.
package figure

import (
	"bytes"
	"cmp"
	"fmt"
	"image/color"
	"io"
	"math"
	"slices"
	"strconv"

	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// The palette of Okabe and Ito, without its yellow on white.
var (
	Vermillion = color.NRGBA{0xd5, 0x5e, 0x00, 0xff}
	Blue       = color.NRGBA{0x00, 0x72, 0xb2, 0xff}
	Green      = color.NRGBA{0x00, 0x9e, 0x73, 0xff}
	Orange     = color.NRGBA{0xe6, 0x9f, 0x00, 0xff}
	Pink       = color.NRGBA{0xcc, 0x79, 0xa7, 0xff}
	Sky        = color.NRGBA{0x56, 0xb4, 0xe9, 0xff}
)

// The neutral colours. A page replaces them by its own for a light or dark theme, so
// no two are equal.
var (
	Ink    = color.NRGBA{0x00, 0x00, 0x00, 0xff} // axes, text, error bars
	Ground = color.NRGBA{0xfe, 0xfe, 0xfe, 0xff} // the halo of a line that crosses a bar
	Lines  = color.NRGBA{0xdd, 0xdd, 0xdd, 0xff} // of the grid
	Truth  = color.NRGBA{0x7f, 0x7f, 0x7f, 0xff} // the meter
	Band   = color.NRGBA{0xc8, 0xc8, 0xc8, 0xff} // range or uncertainty of the meter
	Rule   = color.NRGBA{0x60, 0x60, 0x60, 0xff} // identity, thresholds, other aids
)

// Methods colours the ways of reading a GPU's own sensor, by method name.
var Methods = map[string]color.NRGBA{
	"instant": Vermillion, "average": Blue, "sma": Green, "mtsm": Orange, "papi": Pink,
	"counter": {0x11, 0x11, 0x11, 0xff}, "counter-ends": Sky,
}

// Others colours methods that have no colour of their own.
var Others = []color.NRGBA{
	{0xa0, 0x52, 0x2d, 0xff},
	{0x80, 0x00, 0x80, 0xff},
	{0x6b, 0x8e, 0x23, 0xff},
	{0xdc, 0x14, 0x3c, 0xff},
	{0x00, 0x8b, 0x8b, 0xff},
	{0xb8, 0x86, 0x0b, 0xff},
}

// series are the palette, then darker and lighter variants of it.
var series = []color.NRGBA{
	Blue, Vermillion, Green, Orange, Pink, Sky,
	{0xf0, 0xe4, 0x42, 0xff},
	Rule,
	{0x80, 0x40, 0x10, 0xff},
	{0x40, 0x40, 0xa0, 0xff},
	{0x90, 0xd0, 0xa0, 0xff},
	{0xf0, 0xb0, 0xa0, 0xff},
	{0x20, 0x60, 0x50, 0xff},
}

// Series returns the colour of series i ≥ 0; colours repeat after 13.
func Series(i int) color.NRGBA { return series[i%len(series)] }

// Hex returns a colour as it stands in SVG, such as #D55E00.
func Hex(c color.NRGBA) string { return fmt.Sprintf("#%02X%02X%02X", c.R, c.G, c.B) }

// Dashed is the pattern of dashed lines.
var Dashed = []vg.Length{4, 3}

// New returns an empty plot with title, axis labels, the house's fonts and its legend
// at the top left. An empty string leaves its text out.
func New(title, x, y string) *plot.Plot {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = title, x, y
	sans := font.Font{Typeface: "Liberation", Variant: "Sans"}
	for _, s := range []*draw.TextStyle{
		&p.Title.TextStyle, &p.Legend.TextStyle,
		&p.X.Label.TextStyle, &p.X.Tick.Label, &p.Y.Label.TextStyle, &p.Y.Tick.Label,
	} {
		s.Font = font.From(sans, s.Font.Size)
	}
	p.Legend.Top, p.Legend.Left, p.Legend.Padding = true, true, vg.Millimeter
	p.Legend.XOffs, p.Legend.YOffs = 5*vg.Millimeter, -2*vg.Millimeter
	return p
}

// Grid returns the lines behind the data: add them to a plot first.
func Grid() *plotter.Grid {
	g := plotter.NewGrid()
	g.Vertical.Color, g.Horizontal.Color = Lines, Lines
	return g
}

// Style is how a series is drawn: as a line of a width in points, dashed or not, or
// as dots of a radius in points where Radius is positive.
type Style struct {
	Color  color.Color
	Width  vg.Length
	Dashed bool
	Radius vg.Length
	Shape  draw.GlyphDrawer // of dots; a disc where nil
	Sketch bool             // of a Chart: in a terminal too, which can show few series
}

// Add draws a series and enters it into the legend, unless name is empty. A series
// without points is left out. It fails where a coordinate is NaN or infinite.
func Add(p *plot.Plot, name string, s Style, xy plotter.XYs) error {
	if len(xy) == 0 {
		return nil
	}
	var drawn interface {
		plot.Plotter
		plot.Thumbnailer
	}
	if s.Radius > 0 {
		dots, err := plotter.NewScatter(xy)
		if err != nil {
			return fmt.Errorf("plot: %s: %w", name, err)
		}
		dots.Color, dots.Radius, dots.Shape = s.Color, s.Radius, cmp.Or[draw.GlyphDrawer](s.Shape, draw.CircleGlyph{})
		drawn = dots
	} else {
		line, err := plotter.NewLine(xy)
		if err != nil {
			return fmt.Errorf("plot: %s: %w", name, err)
		}
		line.Color, line.Width = s.Color, s.Width
		if s.Dashed {
			line.Dashes = Dashed
		}
		drawn = line
	}
	p.Add(drawn)
	if name != "" {
		p.Legend.Add(name, drawn)
	}
	return nil
}

// Between fills the area between two series over the same abscissae, without an
// outline, and enters it into the legend, unless name is empty. Series without points
// are left out.
func Between(p *plot.Plot, name string, c color.Color, lower, upper plotter.XYs) error {
	if len(lower) == 0 {
		return nil
	}
	ring := slices.Clone(lower)
	slices.Reverse(ring)
	area, err := plotter.NewPolygon(append(slices.Clone(upper), ring...))
	if err != nil {
		return fmt.Errorf("plot: %s: %w", name, err)
	}
	area.Color, area.LineStyle.Width = c, 0
	p.Add(area)
	if name != "" {
		p.Legend.Add(name, area)
	}
	return nil
}

// Box fills the rectangle from (x0, y0) to (x1, y1), as Between does.
func Box(p *plot.Plot, name string, c color.Color, x0, y0, x1, y1 float64) error {
	return Between(p, name, c, plotter.XYs{{X: x0, Y: y0}, {X: x1, Y: y0}}, plotter.XYs{{X: x0, Y: y1}, {X: x1, Y: y1}})
}

// Save writes a plot as SVG of a width and a height.
func Save(w io.Writer, p *plot.Plot, width, height vg.Length) error {
	c := vgsvg.New(width, height)
	p.Draw(draw.New(c))
	return Encode(w, c)
}

// Stack writes plots as SVG, one above the other with their axes aligned. tiles holds the
// distances around and between them.
func Stack(w io.Writer, width, height vg.Length, tiles draw.Tiles, plots []*plot.Plot) error {
	canvas := vgsvg.New(width, height)
	dc := draw.New(canvas)
	dc.SetColor(color.White) // a white ground keeps the axes readable on a dark page
	dc.Fill(dc.Rectangle.Path())
	rows := lists.Map(plots, func(p *plot.Plot) []*plot.Plot { return []*plot.Plot{p} })
	tiles.Rows, tiles.Cols = len(plots), 1
	for i, row := range plot.Align(rows, tiles, dc) {
		plots[i].Draw(row[0])
	}
	return Encode(w, canvas)
}

// Encode writes an SVG canvas. Liberation Sans, which the plots are laid out with,
// gets fallbacks with letters of the same widths.
func Encode(w io.Writer, canvas io.WriterTo) error {
	var b bytes.Buffer
	if _, err := canvas.WriteTo(&b); err != nil {
		return fmt.Errorf("plot: %w", err)
	}
	_, err := w.Write(bytes.ReplaceAll(b.Bytes(),
		[]byte("font-family:Liberation Sans;"), []byte("font-family:Liberation Sans,Arial,Helvetica,sans-serif;")))
	return err
}

// Ticks labels about so many round values of a linear axis: multiples of 1, 2 or 5
// times a power of ten.
type Ticks int

// Ticks implements plot.Ticker.
func (t Ticks) Ticks(lo, hi float64) (out []plot.Tick) {
	// The least of 1, 2, 5 and 10 times a power of ten that is not below the distance.
	least := (hi - lo) / float64(t)
	base := math.Pow(10, math.Floor(math.Log10(least)))
	step := 10 * base
	for _, m := range []float64{5, 2, 1} {
		if m*base >= least*(1-1e-9) {
			step = m * base
		}
	}
	if !(step > 0) || math.IsInf(step, 0) {
		return nil
	}
	for k := math.Ceil(lo / step); k*step <= hi+step*1e-9; k++ {
		label := strconv.FormatFloat(math.Round(k)*step+0, 'g', 6, 64)
		out = append(out, plot.Tick{Value: k * step, Label: label})
	}
	return out
}

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

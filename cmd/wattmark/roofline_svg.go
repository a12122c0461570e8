package main

import (
	"bytes"
	"fmt"
	"image/color"
	"io"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// The colours are Okabe and Ito's.
var (
	roofLine   = color.RGBA{0x00, 0x72, 0xb2, 0xff}
	roofFitted = color.RGBA{0xd5, 0x5e, 0x00, 0xff}
	roofShown  = color.RGBA{0xcc, 0x79, 0xa7, 0xff}
	roofTime   = color.Gray{0x60}
	roofEnergy = color.RGBA{0x00, 0x9e, 0x73, 0xff}
)

// roofPanel is one of the three plots against intensity.
type roofPanel struct {
	label string
	log   bool
	line  func(roofLinePoint) float64
	point func(roofPointReport) float64
}

var roofPanels = []roofPanel{
	{"flop/s", true, func(l roofLinePoint) float64 { return l.FlopPerS }, func(p roofPointReport) float64 { return p.FlopPerS }},
	{"flop/J", true, func(l roofLinePoint) float64 { return l.FlopPerJ }, func(p roofPointReport) float64 { return p.FlopPerJ }},
	{"power / W", false, func(l roofLinePoint) float64 { return l.PowerW }, func(p roofPointReport) float64 { return p.PowerW }},
}

// writeSVG draws time, energy and power against intensity, one above the other.
func (r *rooflineReport) writeSVG(w io.Writer) error {
	const width, height = 20 * vg.Centimeter, 27 * vg.Centimeter
	canvas := vgsvg.New(width, height)
	dc := draw.New(canvas)
	dc.SetColor(color.White)
	dc.Fill(dc.Rectangle.Path()) // readable on a dark page too
	var rows [][]*plot.Plot
	for i, p := range roofPanels {
		pl, err := r.panel(p, i == 0, i == len(roofPanels)-1)
		if err != nil {
			return fmt.Errorf("plot: %w", err)
		}
		rows = append(rows, []*plot.Plot{pl})
	}
	tiles := draw.Tiles{Rows: len(rows), Cols: 1, PadX: 2 * vg.Millimeter, PadY: 4 * vg.Millimeter, PadTop: 3 * vg.Millimeter, PadBottom: 3 * vg.Millimeter, PadLeft: 3 * vg.Millimeter, PadRight: 5 * vg.Millimeter}
	for i, row := range plot.Align(rows, tiles, dc) {
		rows[i][0].Draw(row[0])
	}
	var b bytes.Buffer
	if _, err := canvas.WriteTo(&b); err != nil {
		return fmt.Errorf("plot: %w", err)
	}
	_, err := w.Write(bytes.ReplaceAll(b.Bytes(), []byte("font-family:Liberation Sans;"), []byte("font-family:Liberation Sans,Arial,Helvetica,sans-serif;")))
	return err
}

// siTicks label the decades of a logarithmic axis with prefixes.
type siTicks struct{ plot.LogTicks }

func (t siTicks) Ticks(low, high float64) []plot.Tick {
	out := t.LogTicks.Ticks(low, high)
	for i := range out {
		if out[i].Label != "" {
			s, name := siScale(out[i].Value)
			out[i].Label = fmt.Sprintf("%.3g%s", out[i].Value/s, name)
		}
	}
	return out
}

// wattTicks are four to eight round values from zero on.
type wattTicks struct{}

func (wattTicks) Ticks(_, high float64) (out []plot.Tick) {
	step := math.Pow(10, math.Floor(math.Log10(high/4)))
	for _, m := range []float64{5, 2} {
		if high/(m*step) >= 4 {
			step *= m
			break
		}
	}
	for v := 0.0; v <= high; v += step {
		out = append(out, plot.Tick{Value: v, Label: fmt.Sprintf("%.4g", v)})
	}
	return out
}

func (r *rooflineReport) panel(p roofPanel, first, last bool) (*plot.Plot, error) {
	pl := plot.New()
	pl.Y.Label.Text = p.label
	pl.X.Scale, pl.X.Tick.Marker = plot.LogScale{}, siTicks{}
	if first {
		pl.Title.Text = "Energy roofline of " + r.GPU
	}
	if last {
		pl.X.Label.Text = "arithmetic intensity / (flop/byte)"
	}
	var model plotter.XYs
	for _, l := range r.Line {
		model = append(model, plotter.XY{X: l.Intensity, Y: p.line(l)})
	}
	line, err := plotter.NewLine(model)
	if err != nil {
		return nil, err
	}
	line.Color, line.Width = roofLine, 1.6
	pl.Add(plotter.NewGrid(), line)
	shapes, err := r.scatter(pl, p)
	if err != nil {
		return nil, err
	}
	if p.log {
		pl.Y.Scale, pl.Y.Tick.Marker = plot.LogScale{}, siTicks{}
		pl.Y.Min, pl.Y.Max = pl.Y.Min/1.5, pl.Y.Max*1.5
	} else {
		pl.Y.Min, pl.Y.Max, pl.Y.Tick.Marker = 0, pl.Y.Max*1.1, wattTicks{}
	}
	marks, err := r.marks(pl)
	if err == nil && first {
		r.legend(pl, line, shapes, marks)
	}
	return pl, err
}

// scatter draws the tasks that were fitted, and the others.
func (r *rooflineReport) scatter(pl *plot.Plot, p roofPanel) (out [2]*plotter.Scatter, err error) {
	for i, c := range []color.Color{roofFitted, roofShown} {
		var xy plotter.XYs
		for _, x := range r.Points {
			if y := p.point(x); x.Fitted == (i == 0) && x.Intensity != nil && *x.Intensity > 0 && (y > 0 || !p.log) {
				xy = append(xy, plotter.XY{X: *x.Intensity, Y: y})
			}
		}
		if len(xy) == 0 {
			continue
		}
		if out[i], err = plotter.NewScatter(xy); err != nil {
			return out, err
		}
		out[i].Color, out[i].Radius, out[i].Shape = c, 3, []draw.GlyphDrawer{draw.CircleGlyph{}, draw.BoxGlyph{}}[i]
		pl.Add(out[i])
	}
	return out, nil
}

func (r *rooflineReport) legend(pl *plot.Plot, line *plotter.Line, shapes [2]*plotter.Scatter, marks [2]*plotter.Line) {
	pl.Legend.Top, pl.Legend.Left = false, true // thumbs first: no text runs into them, whatever the font
	pl.Legend.XOffs, pl.Legend.YOffs = 10*vg.Centimeter, 4*vg.Millimeter
	pl.Legend.Add("model", line)
	for i, name := range []string{"fitted tasks", "other tasks"} {
		if shapes[i] != nil {
			pl.Legend.Add(name, shapes[i])
		}
	}
	for i, name := range []string{fmt.Sprintf("balance in time, %.3g", r.TimeBalance), fmt.Sprintf("balance in energy, %.3g", r.EnergyBalance.Value)} {
		if marks[i] != nil {
			pl.Legend.Add(name, marks[i])
		}
	}
}

// marks draws the two balances.
func (r *rooflineReport) marks(pl *plot.Plot) (out [2]*plotter.Line, err error) {
	for i, at := range []float64{r.TimeBalance, r.EnergyBalance.Value} {
		if !(at > 0) || math.IsInf(at, 0) {
			continue
		}
		l, err := plotter.NewLine(plotter.XYs{{X: at, Y: pl.Y.Min}, {X: at, Y: pl.Y.Max}})
		if err != nil {
			return out, err
		}
		l.Color, l.Width, l.Dashes = []color.Color{roofTime, roofEnergy}[i], 1, [][]vg.Length{{5, 3}, {2, 2}}[i]
		pl.Add(l)
		out[i] = l
	}
	return out, nil
}

package main

import (
	"bytes"
	"fmt"
	"image/color"
	"io"
	"math"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// palette is Okabe and Ito's, which the colour-blind tell apart, and lighter and
// darker ones of the same for more than eight.
var modelPalette = []color.RGBA{
	{0x00, 0x72, 0xb2, 0xff},
	{0xd5, 0x5e, 0x00, 0xff},
	{0x00, 0x9e, 0x73, 0xff},
	{0xe6, 0x9f, 0x00, 0xff},
	{0xcc, 0x79, 0xa7, 0xff},
	{0x56, 0xb4, 0xe9, 0xff},
	{0xf0, 0xe4, 0x42, 0xff},
	{0x60, 0x60, 0x60, 0xff},
	{0x80, 0x40, 0x10, 0xff},
	{0x40, 0x40, 0xa0, 0xff},
	{0x90, 0xd0, 0xa0, 0xff},
	{0xf0, 0xb0, 0xa0, 0xff},
	{0x20, 0x60, 0x50, 0xff},
}

var interceptGrey = color.RGBA{0xc8, 0xc8, 0xc8, 0xff}

// drawAgainst draws estimated over measured power, with the line where both are
// the same.
func drawAgainst(w io.Writer, r *evalReport) error {
	pl := plot.New()
	pl.Title.Text = fmt.Sprintf("%s: %.4g W², %.3g %%", r.Set, r.MSEW2, r.MAPEPct)
	pl.X.Label.Text, pl.Y.Label.Text = "measured power / W", "estimated power / W"
	pl.Add(plotter.NewGrid())
	var fine, warned plotter.XYs
	low, high := math.Inf(1), math.Inf(-1)
	for _, k := range r.Kernels {
		p := plotter.XY{X: *k.MeasuredW, Y: k.EstimatedW}
		low, high = min(low, p.X, p.Y), max(high, p.X, p.Y)
		if len(k.Warnings) > 0 {
			warned = append(warned, p)
		} else {
			fine = append(fine, p)
		}
	}
	room := max(0.05*(high-low), 1)
	low, high = low-room, high+room
	pl.X.Min, pl.X.Max, pl.Y.Min, pl.Y.Max = low, high, low, high
	same, err := plotter.NewLine(plotter.XYs{{X: low, Y: low}, {X: high, Y: high}})
	if err != nil {
		return err
	}
	same.Color, same.Dashes = color.Gray{0x60}, []vg.Length{4, 3}
	pl.Add(same)
	pl.Legend.Add("estimated = measured", same)
	for _, s := range []struct {
		name  string
		xy    plotter.XYs
		color color.Color
		shape draw.GlyphDrawer
	}{{"kernel like the training", fine, modelPalette[0], draw.CircleGlyph{}}, {"kernel unlike the training", warned, modelPalette[1], draw.PyramidGlyph{}}} {
		if len(s.xy) == 0 {
			continue
		}
		p, err := plotter.NewScatter(s.xy)
		if err != nil {
			return err
		}
		p.Color, p.Radius, p.Shape = s.color, 2.5, s.shape
		pl.Add(p)
		pl.Legend.Add(s.name, p)
	}
	pl.Legend.Top, pl.Legend.Left, pl.Legend.Padding = true, true, vg.Millimeter
	pl.Title.Padding = 2 * vg.Millimeter
	pl.Legend.XOffs, pl.Legend.YOffs = 3*vg.Millimeter, -2*vg.Millimeter
	return writeSVG(w, pl, 16*vg.Centimeter, 16*vg.Centimeter)
}

// drawParts draws what the intercept and each counter add to each kernel's
// estimate: what adds upward from 0, what takes away downward, the estimate as a
// dot.
func drawParts(w io.Writer, r *predictReport) error {
	pl := plot.New()
	pl.Title.Text = "model " + r.Model + ": what adds to the estimated power"
	pl.Y.Label.Text = "power / W"
	n := len(r.Kernels)
	var names []string
	var dots, measured plotter.XYs
	up, down := make([]float64, n), make([]float64, n)
	for i, k := range r.Kernels {
		names = append(names, cut(k.Name, 28))
		dots = append(dots, plotter.XY{X: float64(i), Y: k.EstimatedW})
		if k.MeasuredW != nil {
			measured = append(measured, plotter.XY{X: float64(i), Y: *k.MeasuredW})
		}
	}
	for s, share := range r.Shares {
		c := interceptGrey
		if s > 0 {
			c = modelPalette[(s-1)%len(modelPalette)]
		}
		layer := func(i int) float64 {
			if s == 0 {
				return *r.Kernels[i].InterceptW
			}
			return r.Kernels[i].Added[s-1].W
		}
		if err := addLayer(pl, share.Counter, c, up, down, layer); err != nil {
			return err
		}
	}
	if err := addDots(pl, "estimate", dots, color.Black, draw.CircleGlyph{}); err != nil {
		return err
	}
	if err := addDots(pl, "measured", measured, color.Black, draw.CrossGlyph{}); err != nil {
		return err
	}
	pl.NominalX(names...)
	pl.X.Label.Text = "kernel"
	pl.X.Tick.Label.Rotation = math.Pi / 2
	pl.X.Tick.Label.XAlign, pl.X.Tick.Label.YAlign = text.XRight, text.YCenter
	pl.X.Min, pl.X.Max = -0.6, float64(n)-0.4
	pl.Y.Max = max(slices.Max(up), 1) * (1.08 + 0.055*float64(len(r.Shares)+2))
	pl.Legend.Top, pl.Legend.Left, pl.Legend.Padding = true, true, vg.Millimeter
	pl.Title.Padding = 2 * vg.Millimeter
	pl.Legend.XOffs, pl.Legend.YOffs = 3*vg.Millimeter, -2*vg.Millimeter
	width := max(20, 0.45*float64(n)+6)
	return writeSVG(w, pl, vg.Length(width)*vg.Centimeter, 16*vg.Centimeter)
}

// addLayer stacks one part on those before.
func addLayer(pl *plot.Plot, name string, c color.Color, up, down []float64, of func(int) float64) error {
	const half = 0.4
	var boxes []plotter.XYer
	for i := range up {
		from := up
		v := of(i)
		if v < 0 {
			from = down
		}
		x, a := float64(i), from[i]
		from[i] += v
		if v != 0 {
			boxes = append(boxes, plotter.XYs{{X: x - half, Y: a}, {X: x + half, Y: a}, {X: x + half, Y: a + v}, {X: x - half, Y: a + v}})
		}
	}
	if len(boxes) == 0 {
		return nil
	}
	for i, b := range boxes {
		p, err := plotter.NewPolygon(b)
		if err != nil {
			return err
		}
		p.Color, p.LineStyle.Width = c, 0
		pl.Add(p)
		if i == 0 {
			pl.Legend.Add(name, p)
		}
	}
	return nil
}

func addDots(pl *plot.Plot, name string, xy plotter.XYs, c color.Color, g draw.GlyphDrawer) error {
	if len(xy) == 0 {
		return nil
	}
	p, err := plotter.NewScatter(xy)
	if err != nil {
		return err
	}
	p.Color, p.Radius, p.Shape = c, 2.5, g
	pl.Add(p)
	pl.Legend.Add(name, p)
	return nil
}

func cut(name string, most int) string {
	r := []rune(short(name))
	if len(r) > most {
		return string(r[:most-1]) + "…"
	}
	return string(r)
}

// writeSVG writes a plot.
func writeSVG(w io.Writer, pl *plot.Plot, width, height vg.Length) error {
	c, err := pl.WriterTo(width, height, "svg")
	if err != nil {
		return fmt.Errorf("plot: %w", err)
	}
	var b bytes.Buffer
	if _, err := c.WriteTo(&b); err != nil {
		return fmt.Errorf("plot: %w", err)
	}
	// Few machines have the font; these have letters of the same widths.
	_, err = w.Write(bytes.ReplaceAll(b.Bytes(), []byte("font-family:Liberation Sans;"), []byte("font-family:Liberation Sans,Arial,Helvetica,sans-serif;")))
	return err
}

package main

import (
	"bytes"
	"fmt"
	"image/color"
	"io"
	"math"
	"strings"

	"github.com/charmbracelet/x/ansi"
	"github.com/guptarohit/asciigraph"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"

	"wattmark/analysis/correct"
)

// phaseColors shade the phases.
var phaseColors = map[correct.PhaseKind]color.Color{
	correct.AtWork:     color.RGBA{0xfd, 0xe7, 0xc8, 0xff},
	correct.Decay:      color.RGBA{0xdc, 0xea, 0xf5, 0xff},
	correct.ActiveIdle: color.RGBA{0xd9, 0xef, 0xe6, 0xff},
	correct.Steps:      color.RGBA{0xf2, 0xe3, 0xee, 0xff},
}

// writeSVG draws readings, corrected power, the level and the phases.
func (r *correctionReport) writeSVG(w io.Writer) error {
	pl := plot.New()
	pl.BackgroundColor = color.White
	pl.Title.Text = "Power as the sensor said, and corrected: it " + r.Sensor.String()
	pl.X.Label.Text, pl.Y.Label.Text = "time / s", "power / W"
	low, high := r.extent()
	if err := r.shade(pl, low, high); err != nil {
		return err
	}
	pl.Add(plotter.NewGrid())
	lines := []pictureLine{
		{"corrected", look{color: color.RGBA{0xd5, 0x5e, 0x00, 0xff}, width: 0.8}, readingPoints(r.truth)},
		{"as read", look{color: color.RGBA{0x00, 0x72, 0xb2, 0xff}, width: 1.6}, readingPoints(r.raw)},
	}
	if l := r.Level; l != nil && len(r.raw) > 0 {
		a, b := float64(r.raw[0].At), float64(r.raw[len(r.raw)-1].At)
		lines = append(lines, pictureLine{
			fmt.Sprintf("work counts above %.1f W", l.ThresholdW),
			look{color: color.Gray{0x50}, width: 0.8, dashed: true},
			plotter.XYs{{X: a, Y: l.ThresholdW}, {X: b, Y: l.ThresholdW}},
		})
	}
	for _, l := range lines {
		if len(l.xy) == 0 {
			continue
		}
		thumb, err := l.draw(pl)
		if err != nil {
			return fmt.Errorf("plot: %s: %w", l.name, err)
		}
		pl.Legend.Add(l.name, thumb)
	}
	pl.Legend.Top, pl.Legend.Left, pl.Legend.Padding = true, true, vg.Millimeter
	pl.Legend.XOffs, pl.Legend.YOffs = 5*vg.Millimeter, -2*vg.Millimeter
	pl.Y.Min, pl.Y.Max = low, high
	c, err := pl.WriterTo(pictureWidth, pictureHeight, "svg")
	if err != nil {
		return fmt.Errorf("plot: %w", err)
	}
	var b bytes.Buffer
	if _, err := c.WriteTo(&b); err != nil {
		return fmt.Errorf("plot: %w", err)
	}
	_, err = w.Write(bytes.ReplaceAll(b.Bytes(), []byte("font-family:Liberation Sans;"), []byte("font-family:Liberation Sans,Arial,Helvetica,sans-serif;")))
	return err
}

// extent bounds the drawing: noise of the slope where the power steps down may swing
// far below zero, and is cut.
func (r *correctionReport) extent() (low, high float64) {
	for _, x := range r.raw {
		high = max(high, float64(x.Power))
	}
	read := high
	for _, x := range r.truth {
		high = max(high, min(float64(x.Power), 1.3*read))
		low = min(low, max(float64(x.Power), -0.15*read))
	}
	return low, 1.6 * high // room for the legend
}

// shade fills the phases, and names them once each in the legend.
func (r *correctionReport) shade(pl *plot.Plot, low, high float64) error {
	named := map[string]bool{}
	for _, p := range r.Phases {
		c, ok := phaseColors[correct.PhaseKind(p.Kind)]
		if !ok {
			continue
		}
		area, err := plotter.NewPolygon(plotter.XYs{{X: p.FromS, Y: low}, {X: p.ToS, Y: low}, {X: p.ToS, Y: high}, {X: p.FromS, Y: high}})
		if err != nil {
			return fmt.Errorf("plot: %w", err)
		}
		area.Color, area.LineStyle.Width = c, 0
		pl.Add(area)
		if !named[p.Kind] {
			pl.Legend.Add(p.Kind, area)
			named[p.Kind] = true
		}
	}
	return nil
}

func readingPoints(rs []correct.Reading) plotter.XYs {
	out := make(plotter.XYs, len(rs))
	for i, x := range rs {
		out[i] = plotter.XY{X: float64(x.At), Y: float64(x.Power)}
	}
	return out
}

// plot draws readings and corrected power in the terminal.
func (r *correctionReport) plot(w io.Writer) {
	if len(r.raw) < 2 || len(r.truth) < 2 {
		return
	}
	columns := plotWidth(w)
	raw, truth := resampled(r.raw, r.raw, columns), resampled(r.truth, r.raw, columns)
	low, high := r.extent()
	for i := range truth {
		truth[i] = max(low, min(high, truth[i]))
	}
	graph := asciigraph.PlotMany([][]float64{truth, raw},
		asciigraph.Height(14), asciigraph.Precision(0), asciigraph.SeriesLegends("corrected", "as read"),
		asciigraph.SeriesColors(asciigraph.Goldenrod, asciigraph.Blue),
		asciigraph.YAxisValueFormatter(func(v float64) string { return fmt.Sprintf("%.0f W", v) }))
	if !isTerminal(w) {
		graph = ansi.Strip(graph)
	}
	first, last := r.raw[0].At, r.raw[len(r.raw)-1].At
	fmt.Fprintf(w, "\n%s\n%s to %s\n", strings.TrimRight(graph, "\n"), fmt.Sprintf("%.3f s", float64(first)), fmt.Sprintf("%.3f s", float64(last)))
}

// resampled is the mean of each column of another's extent.
func resampled(rs, extent []correct.Reading, columns int) []float64 {
	first, last := extent[0].At, extent[len(extent)-1].At
	sum, n := make([]float64, columns), make([]float64, columns)
	for _, x := range rs {
		if c := int(float64(x.At-first) / float64(last-first) * float64(columns)); c >= 0 && c < columns {
			sum[c], n[c] = sum[c]+float64(x.Power), n[c]+1
		}
	}
	before := math.NaN()
	for i := range sum {
		if n[i] > 0 {
			before = sum[i] / n[i]
		}
		sum[i] = before
	}
	return sum
}

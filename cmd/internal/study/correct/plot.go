package correct

import (
	"errors"
	"fmt"
	"image/color"
	"io"
	"math"

	"github.com/guptarohit/asciigraph"
	"github.com/wattmark/wattmark/analysis/correct"
	"github.com/wattmark/wattmark/analysis/figure"
	"github.com/wattmark/wattmark/cmd/internal/out"
	"github.com/wattmark/wattmark/cmd/internal/report"
	"gonum.org/v1/plot/plotter"
)

// phaseColors are the fills of the phases in the drawing.
var phaseColors = map[correct.PhaseKind]color.Color{
	correct.AtWork:     color.RGBA{0xfd, 0xe7, 0xc8, 0xff},
	correct.Decay:      color.RGBA{0xdc, 0xea, 0xf5, 0xff},
	correct.ActiveIdle: color.RGBA{0xd9, 0xef, 0xe6, 0xff},
	correct.Steps:      color.RGBA{0xf2, 0xe3, 0xee, 0xff},
}

// writeSVG draws the readings, the corrected power, the threshold of work and the phases.
func (r *CorrectionReport) writeSVG(w io.Writer) error {
	pl := figure.New("Power as the sensor said, and corrected: it "+r.Sensor.String(), "time / s", "power / W")
	low, high := r.extent()
	// One entry in the legend for each kind of phase.
	named := map[correct.PhaseKind]bool{}
	for _, p := range r.Phases {
		if c, ok := phaseColors[p.Kind]; ok {
			name := string(p.Kind)
			if named[p.Kind] {
				name = ""
			}
			named[p.Kind] = true
			if err := figure.Box(pl, name, c, float64(p.From), low, float64(p.To), high); err != nil {
				return err
			}
		}
	}
	// The grid lies over the phases and under the lines.
	pl.Add(figure.Grid())
	err := errors.Join(
		figure.Add(pl, "corrected", figure.Style{Color: figure.Vermillion, Width: 0.8}, readingPoints(r.truth)),
		figure.Add(pl, "as read", figure.Style{Color: figure.Blue, Width: 1.6}, readingPoints(r.raw)))
	if l := r.Level; l != nil && len(r.raw) > 0 {
		threshold := []correct.Reading{
			{At: r.raw[0].At, Power: l.Threshold}, {At: r.raw[len(r.raw)-1].At, Power: l.Threshold},
		}
		err = errors.Join(err, figure.Add(pl, fmt.Sprintf("work counts above %.1f W", float64(l.Threshold)),
			figure.Style{Color: figure.Rule, Width: 0.8, Dashed: true}, readingPoints(threshold)))
	}
	// Set after the lines: adding them widens the axes.
	pl.Y.Min, pl.Y.Max = low, high
	return errors.Join(err, figure.Save(w, pl, report.PictureWidth, report.PictureHeight))
}

// extent returns the range of power to draw in watts. The slope amplifies noise where the
// power steps, so that corrected values far outside the readings are cut: above 1.3 times
// and below -0.15 times the greatest reading.
func (r *CorrectionReport) extent() (low, high float64) {
	for _, x := range r.raw {
		high = max(high, float64(x.Power))
	}
	// The greatest reading scales the cut.
	read := high
	for _, x := range r.truth {
		high = max(high, min(float64(x.Power), 1.3*read))
		low = min(low, max(float64(x.Power), -0.15*read))
	}
	return low, 1.6 * high // room for the legend
}

// readingPoints converts readings to points of a plot.
func readingPoints(rs []correct.Reading) plotter.XYs {
	out := make(plotter.XYs, len(rs))
	for i, x := range rs {
		out[i] = plotter.XY{X: float64(x.At), Y: float64(x.Power)}
	}
	return out
}

// plot draws the readings and the corrected power in the terminal. It needs two of each.
func (r *CorrectionReport) plot(w io.Writer) {
	if len(r.raw) < 2 || len(r.truth) < 2 {
		return
	}
	// Both series share the time span of the readings.
	columns := out.PlotWidth(w)
	raw, truth := resampled(r.raw, r.raw, columns), resampled(r.truth, r.raw, columns)
	low, high := r.extent()
	for i := range truth {
		truth[i] = max(low, min(high, truth[i]))
	}
	g := out.Graph{
		Series: [][]float64{truth, raw}, Legends: []string{"corrected", "as read"}, Height: 14, Axis: "%.0f W",
		Colours: []asciigraph.AnsiColor{asciigraph.Goldenrod, asciigraph.Blue},
		First:   seconds(r.raw[0].At), Last: seconds(r.raw[len(r.raw)-1].At), Columns: columns,
	}
	fmt.Fprintln(w)
	g.Draw(w)
}

// resampled averages rs to columns over the time span of extent. An empty column repeats
// its predecessor; columns before the first reading are NaN.
func resampled(rs, extent []correct.Reading, columns int) []float64 {
	first, last := extent[0].At, extent[len(extent)-1].At
	sum, n := make([]float64, columns), make([]float64, columns)
	for _, x := range rs {
		if c := int(float64(x.At-first) / float64(last-first) * float64(columns)); c >= 0 && c < columns {
			sum[c], n[c] = sum[c]+float64(x.Power), n[c]+1
		}
	}
	// before is the last column that had readings.
	before := math.NaN()
	for i := range sum {
		if n[i] > 0 {
			before = sum[i] / n[i]
		}
		sum[i] = before
	}
	return sum
}

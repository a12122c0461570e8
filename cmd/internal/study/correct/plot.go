package correct

import (
	"fmt"
	"image/color"

	"github.com/wattmark/wattmark/analysis/correct"
	"github.com/wattmark/wattmark/analysis/figure"
	"gonum.org/v1/plot/plotter"
)

// phaseColors are the fills of the phases in the drawing.
var phaseColors = map[correct.PhaseKind]color.Color{
	correct.AtWork:     color.RGBA{0xfd, 0xe7, 0xc8, 0xff},
	correct.Decay:      color.RGBA{0xdc, 0xea, 0xf5, 0xff},
	correct.ActiveIdle: color.RGBA{0xd9, 0xef, 0xe6, 0xff},
	correct.Steps:      color.RGBA{0xf2, 0xe3, 0xee, 0xff},
}

// chart draws the readings, the corrected power, the threshold of work and the phases.
func (r *CorrectionReport) chart() *figure.Chart {
	low, high := r.extent()
	c := &figure.Chart{
		Title: "Power as the sensor said, and corrected: it " + r.Sensor.String(), X: "time / s", Y: "power / W",
		YRange: [2]float64{low, high}, Headroom: 1.6,
	}
	// One entry in the legend for each kind of phase.
	named := map[correct.PhaseKind]bool{}
	for _, p := range r.Phases {
		colour, ok := phaseColors[p.Kind]
		if !ok {
			continue
		}
		name := string(p.Kind)
		if named[p.Kind] {
			name = ""
		}
		named[p.Kind] = true
		from, to := float64(p.From), float64(p.To)
		c.Areas = append(c.Areas, figure.Area{
			Name: name, Color: colour, Lower: plotter.XYs{{X: from, Y: low}, {X: to, Y: low}},
			Upper: plotter.XYs{{X: from, Y: 1.6 * high}, {X: to, Y: 1.6 * high}},
		})
	}
	c.Line("corrected", figure.Style{Color: figure.Vermillion, Width: 0.8, Sketch: true}, readingPoints(r.truth))
	c.Line("as read", figure.Style{Color: figure.Blue, Width: 1.6, Sketch: true}, readingPoints(r.raw))
	if l := r.Level; l != nil && len(r.raw) > 0 {
		threshold := []correct.Reading{
			{At: r.raw[0].At, Power: l.Threshold}, {At: r.raw[len(r.raw)-1].At, Power: l.Threshold},
		}
		c.Line(fmt.Sprintf("work counts above %.1f W", float64(l.Threshold)),
			figure.Style{Color: figure.Rule, Width: 0.8, Dashed: true}, readingPoints(threshold))
	}
	return c
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
	return low, high
}

// readingPoints converts readings to points of a plot.
func readingPoints(rs []correct.Reading) plotter.XYs {
	out := make(plotter.XYs, len(rs))
	for i, x := range rs {
		out[i] = plotter.XY{X: float64(x.At), Y: float64(x.Power)}
	}
	return out
}

package main

import (
	"fmt"
	"image/color"
	"io"
	"strings"

	"github.com/charmbracelet/x/ansi"
	"github.com/guptarohit/asciigraph"
	"gonum.org/v1/plot/plotter"

	"wattmark/analysis/sensor"
	"wattmark/measure"
)

// The colours of readings and models.
var (
	lookRegister   = look{color: color.RGBA{0xd5, 0x5e, 0x00, 0xff}, width: 1.6}
	lookBoxcar     = look{color: color.RGBA{0x00, 0x72, 0xb2, 0xff}, width: 1.4, dashed: true}
	lookFirstOrder = look{color: color.RGBA{0x00, 0x9e, 0x73, 0xff}, width: 1.4, dashed: true}
)

// sensorPicture draws a field's register, what both models say, and the load.
func sensorPicture(x *sensor.Identified, s *sensorSource) *picture {
	u := x.Updates
	from, to := u[0].At, u[len(u)-1].At
	p := &picture{
		title:  fmt.Sprintf("%s, %s: the register and the models", firstOf(x.Profile.GPU, s.description), x.Profile.Field),
		length: to - from,
	}
	if xy := loadLine(x, s, from, to); len(xy) > 0 {
		p.lines = append(p.lines, pictureLine{"load: " + strings.SplitN(s.truth, " (", 2)[0], looks["truth"], xy})
	}
	var values []measure.Watt
	for _, v := range u {
		values = append(values, v.Power)
	}
	e := x.Profile.Evidence
	for _, l := range []struct {
		name string
		look look
		w    []measure.Watt
	}{
		{"register, " + x.Profile.Field, lookRegister, values},
		{fmt.Sprintf("boxcar of %v, residual %v", e.Boxcar.Constant, e.Boxcar.Residual), lookBoxcar, x.Boxcar},
		{fmt.Sprintf("first order of %v, residual %v", e.FirstOrder.Constant, e.FirstOrder.Residual), lookFirstOrder, x.FirstOrder},
	} {
		p.lines = append(p.lines, pictureLine{l.name, l.look, steps(u, l.w, from)})
	}
	return p
}

// steps is a register's course: it keeps a value until it is renewed.
func steps(u []sensor.Update, w []measure.Watt, from measure.Seconds) (xy plotter.XYs) {
	for i := range u {
		t := float64(u[i].At - from)
		if i > 0 {
			xy = append(xy, plotter.XY{X: t, Y: float64(w[i-1])})
		}
		xy = append(xy, plotter.XY{X: t, Y: float64(w[i])})
	}
	return xy
}

// loadLine is the load as the meter or the events tell it, with the sensor's own
// levels in the latter case.
func loadLine(x *sensor.Identified, s *sensorSource, from, to measure.Seconds) (xy plotter.XYs) {
	if s.load != nil {
		d := (to - from) / pictureColumns
		for t := from; t < to; t += d {
			xy = append(xy, plotter.XY{X: float64(t - from), Y: float64(s.load.Mean(t, t+d))})
		}
		return xy
	}
	level := map[string]float64{}
	rest := 0.0
	for i, l := range bestFit(x.Profile.Evidence).Levels {
		level[l.Name] = float64(l.Power)
		if i == 0 {
			rest = float64(l.Power)
		}
	}
	add := func(t measure.Seconds, w float64) {
		if t >= from && t <= to {
			xy = append(xy, plotter.XY{X: float64(t - from), Y: w})
		}
	}
	for i, p := range s.phases {
		w, ok := level[p.Name]
		if !ok {
			w = level["other kernels"]
		}
		if i == 0 || p.From > s.phases[i-1].To {
			add(p.From, rest)
		}
		add(p.From, w)
		add(p.To, w)
		if i+1 == len(s.phases) || s.phases[i+1].From > p.To {
			add(p.To, rest)
		}
	}
	return xy
}

// plotIdentified draws register and model in the terminal.
func plotIdentified(w io.Writer, x *sensor.Identified) {
	columns := plotWidth(w)
	model := x.Boxcar
	if x.Profile.Model == sensor.FirstOrder {
		model = x.FirstOrder
	}
	u := x.Updates
	from, to := u[0].At, u[len(u)-1].At
	series := [][]float64{make([]float64, columns), make([]float64, columns)}
	at := 0
	for c := range columns {
		t := from + (to-from)*measure.Seconds(c)/measure.Seconds(columns)
		for at+1 < len(u) && u[at+1].At <= t {
			at++
		}
		series[0][c], series[1][c] = float64(u[at].Power), float64(model[at])
	}
	opts := []asciigraph.Option{
		asciigraph.Height(12), asciigraph.Offset(3), asciigraph.Precision(0),
		asciigraph.YAxisValueFormatter(func(v float64) string { return fmt.Sprintf("%.0f W", v) }),
		asciigraph.SeriesLegends("register", string(x.Profile.Model)),
	}
	if isTerminal(w) {
		opts = append(opts, asciigraph.SeriesColors(asciigraph.Red, asciigraph.Blue))
	}
	graph := asciigraph.PlotMany(series, opts...)
	if !isTerminal(w) {
		graph = ansi.Strip(graph)
	}
	fmt.Fprintf(w, "%s\n   %v of readings\n", graph, to-from)
}

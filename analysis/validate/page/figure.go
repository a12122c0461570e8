package page

import (
	"fmt"
	"image/color"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/wattmark/wattmark/analysis/figure"
	"github.com/wattmark/wattmark/analysis/validate"
	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// The size of a figure's row: power over time, and energies beside it.
const (
	powerWidth, energyWidth = 21 * vg.Centimeter, 13 * vg.Centimeter
	rowHeight               = 10.5 * vg.Centimeter
)

// colours gives every method of a report its colour; a column of nvidia-smi has that
// of the field which it shows, unless the field was read too.
func colours(r *validate.Report) []color.NRGBA {
	out := make([]color.NRGBA, len(r.Methods))
	taken := map[color.NRGBA]bool{}
	for i := range r.Methods {
		if c, ok := figure.Methods[r.Methods[i].Name]; ok {
			out[i], taken[c] = c, true
		}
	}
	next := 0
	for i := range r.Methods {
		if out[i] != (color.NRGBA{}) {
			continue
		}
		name := r.Methods[i].Name
		c, ok := figure.Methods[name[strings.LastIndexByte(name, '.')+1:]]
		if !ok || taken[c] {
			c = figure.Others[next%len(figure.Others)]
			next++
		}
		out[i], taken[c] = c, true
	}
	return out
}

// Power returns the power by the meter, with the range of its samples, and by software over
// time. A terminal shows the meter and the method with the largest error.
func Power(r *validate.Report) *figure.Chart {
	origin := r.Work.From
	c := &figure.Chart{
		Title: "Power over time", X: "time since the work began / s", Y: "power / W", FromZero: true,
		// A reading before the picture and one behind it lead their lines to its edges.
		XRange: [2]float64{float64(r.Trace.From - origin), float64(r.Trace.To - origin)},
		// The legend has one line a method above the highest power.
		Headroom: 1.12 + 0.08*float64(len(r.Methods)+1),
	}
	addTruth(c, r, origin)
	far := farthest(r)
	cs := colours(r)
	for i := range r.Methods {
		m := &r.Methods[i]
		// Two rules for one register have the same readings, and make one line.
		same := func(b validate.MethodReport) bool { return len(b.Points) > 0 && slices.Equal(b.Points, m.Points) }
		if slices.ContainsFunc(r.Methods[:i], same) {
			continue
		}
		l := figure.Line{Name: short(m.Name), Style: figure.Style{Color: cs[i], Width: 1.4}}
		l.Sketch = far != nil && (m == far || slices.Equal(m.Points, far.Points))
		l.Dashed = m.Name == "mtsm" || m.Compared == 1
		if m.Name == "sma" {
			l.Radius = 1.3
		}
		l.Points = lists.Map(m.Points, func(x validate.Reading) plotter.XY {
			return plotter.XY{X: float64(x.At - origin), Y: float64(x.Power)}
		})
		if m.Compared == 1 { // one reading stands for the work
			w := float64(r.Mean + m.Bias)
			l.Points = plotter.XYs{{X: 0, Y: w}, {X: float64(r.Work.Length()), Y: w}}
		}
		c.Lines = append(c.Lines, l)
	}
	return c
}

// farthest returns the method with readings and the largest error; nil for none.
func farthest(r *validate.Report) (far *validate.MethodReport) {
	for i := range r.Methods {
		m := &r.Methods[i]
		if len(m.Points) > 1 && measure.Known(m.ErrorPct) &&
			(far == nil || math.Abs(float64(m.ErrorPct)) > math.Abs(float64(far.ErrorPct))) {
			far = m
		}
	}
	return far
}

// addTruth adds the meter's means over the range of its samples.
func addTruth(c *figure.Chart, r *validate.Report, origin measure.Seconds) {
	name := "meter"
	if r.Meter != "" {
		name += ": " + short(r.Meter)
	}
	area := figure.Area{Color: figure.Band}
	var mean plotter.XYs
	n := measure.Seconds(len(r.Trace.Columns))
	for i, x := range r.Trace.Columns {
		if math.IsNaN(float64(x.Mean)) {
			continue
		}
		at := float64(r.Trace.From + (measure.Seconds(i)+0.5)*(r.Trace.To-r.Trace.From)/n - origin)
		mean = append(mean, plotter.XY{X: at, Y: float64(x.Mean)})
		area.Upper = append(area.Upper, plotter.XY{X: at, Y: float64(x.Max)})
		area.Lower = append(area.Lower, plotter.XY{X: at, Y: float64(x.Min)})
	}
	c.Areas = append(c.Areas, area)
	c.Line(name+", mean and range", figure.Style{Color: figure.Truth, Width: 1, Sketch: true}, mean)
}

// energyPlot is the energy by each method with its interval, and the meter's as a
// line with its uncertainty.
func energyPlot(r *validate.Report) (*plot.Plot, error) {
	p := figure.New("Energy of the work", "energy / J (grey: the meter)", "")
	p.Add(figure.Grid())
	truth, u := float64(r.Truth.Energy), float64(r.Truth.U)
	n := len(r.Methods)
	names := make([]string, n)
	top := truth + u
	bottom, ceiling := -0.6, float64(n)-0.4
	if err := figure.Box(p, "", figure.Band, truth-u, bottom, truth+u, ceiling); err != nil {
		return nil, err
	}
	cs := colours(r)
	for i := range r.Methods {
		m := &r.Methods[n-1-i]
		names[i] = short(m.Name)
		e := float64(m.Energy)
		if math.IsNaN(e) || math.IsInf(e, 0) {
			names[i] += " (none)"
			continue
		}
		// The interval is one of the error in percent: scaled to joules of the meter.
		b := bar{at: float64(i), to: e, color: cs[n-1-i]}
		b.lo, b.hi = truth*(1+float64(m.Interval.Lo)/100), truth*(1+float64(m.Interval.Hi)/100)
		top = max(top, e, b.hi)
		p.Add(b)
	}
	line := plotter.XYs{{X: truth, Y: bottom}, {X: truth, Y: ceiling}}
	if err := figure.Add(p, "", figure.Style{Color: figure.Truth, Width: 1.6}, line); err != nil {
		return nil, err
	}
	for i, n := range names {
		// A reader's font may be wider than the one that this is laid out with.
		names[i] = n + strings.Repeat("\u00a0", 1+len(n)/7)
	}
	p.NominalY(names...)
	p.X.Tick.Marker = figure.Ticks(5)
	p.X.Min, p.X.Max = 0, top*1.05
	p.Y.Min, p.Y.Max = bottom, ceiling
	return p, nil
}

// bar is one horizontal bar with an error bar.
type bar struct {
	at, to, lo, hi float64
	color          color.Color
}

// Plot implements plot.Plotter.
func (b bar) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	at := y(b.at)
	thick := min(y(b.at+0.3)-at, 5*vg.Millimeter)
	c.FillPolygon(b.color, c.ClipPolygonXY([]vg.Point{
		{X: x(0), Y: at - thick}, {X: x(b.to), Y: at - thick}, {X: x(b.to), Y: at + thick}, {X: x(0), Y: at + thick},
	}))
	if math.IsNaN(b.lo) || math.IsNaN(b.hi) {
		return
	}
	// The halo in the colour of the ground keeps the error bar visible on a bar of any colour.
	lo, hi, end := x(b.lo), x(b.hi), thick/2
	for _, s := range []draw.LineStyle{{Color: figure.Ground, Width: 3}, {Color: figure.Ink, Width: 1}} {
		c.StrokeLines(s, []vg.Point{{X: lo, Y: at}, {X: hi, Y: at}}, []vg.Point{{X: lo, Y: at - end}, {X: lo, Y: at +
			end}}, []vg.Point{{X: hi, Y: at - end}, {X: hi, Y: at + end}})
	}
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
		left, right, err := plots(r)
		if err != nil {
			return fmt.Errorf("draw %s: %w", r.Name, err)
		}
		bottom := height - vg.Length(i+1)*(rowHeight+title)
		// A panel of the row, with its corner in the coordinates of the whole canvas, whose
		// origin is at the bottom left.
		at := func(x, width vg.Length) draw.Canvas {
			return draw.Canvas{Canvas: c, Rectangle: vg.Rectangle{
				Min: vg.Point{X: x, Y: bottom + 2*vg.Millimeter},
				Max: vg.Point{X: x + width - 4*vg.Millimeter, Y: bottom + rowHeight},
			}}
		}
		left.Draw(at(2*vg.Millimeter, powerWidth))
		right.Draw(at(powerWidth, energyWidth))
		head := left.Title.TextStyle
		head.Font.Size = 12
		head.XAlign, head.YAlign = draw.XLeft, draw.YBottom
		dc.FillText(head, vg.Point{X: 4 * vg.Millimeter, Y: bottom + rowHeight + 1*vg.Millimeter}, heading(r))
	}
	return figure.Encode(w, c)
}

// heading returns a subject's name with its card and driver, printable.
func heading(r *validate.Report) string {
	out := r.Name
	if r.GPU != "" {
		out += " on " + r.GPU
	}
	if r.Driver != "" {
		out += ", driver " + r.Driver
	}
	return measure.Printable(out)
}

// plots draws power over time, and the energies beside it. Their titles are a point smaller.
func plots(r *validate.Report) (power, energy *plot.Plot, err error) {
	if power, err = Power(r).Plot(); err != nil {
		return nil, nil, err
	}
	power.X.Tick.Marker, power.Y.Tick.Marker = figure.Ticks(6), figure.Ticks(5)
	power.Legend.XOffs = 4 * vg.Millimeter
	if energy, err = energyPlot(r); err != nil {
		return nil, nil, err
	}
	power.Title.TextStyle.Font.Size, energy.Title.TextStyle.Font.Size = 11, 11
	return power, energy, nil
}

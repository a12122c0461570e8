package main

import (
	"cmp"
	"context"
	"fmt"
	"image/color"
	"io"
	"maps"
	"math"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"wattmark/analysis/smilog"
	"wattmark/hostagent/measurement"
	"wattmark/hostagent/methods"
	"wattmark/hostagent/sampler"
	"wattmark/measure"
	"wattmark/measure/clock"
	"wattmark/store"
)

// picture is power over time: the truth and what the software methods read.
type picture struct {
	title  string
	length measure.Seconds // of the work, which begins at zero
	lines  []pictureLine
}

// pictureLine is one series, in seconds since the work began and watts.
type pictureLine struct {
	name string // in the legend; empty for a line that goes on
	look look
	xy   plotter.XYs
}

// look is how a series is drawn.
type look struct {
	color  color.Color
	width  vg.Length
	dots   bool
	dashed bool
}

// The colours are Okabe and Ito's, which the colour-blind tell apart.
var looks = map[methods.Method]look{
	"truth":         {color: color.Gray{0xb0}, width: 0.8},
	methods.Instant: {color: color.RGBA{0xd5, 0x5e, 0x00, 0xff}, width: 1.6},
	methods.Average: {color: color.RGBA{0x00, 0x72, 0xb2, 0xff}, width: 1.6},
	methods.SMA:     {color: color.RGBA{0x00, 0x9e, 0x73, 0xff}, dots: true},
	methods.MTSM:    {color: color.RGBA{0xe6, 0x9f, 0x00, 0xff}, width: 1.6, dashed: true},
	methods.PAPI:    {color: color.RGBA{0xcc, 0x79, 0xa7, 0xff}, width: 1.6, dashed: true},
	methods.Counter: {color: color.RGBA{0x00, 0x00, 0x00, 0xff}, width: 1.2},

	// The columns of an imported log of nvidia-smi look like the fields that they show.
	smiPrefix + methods.Method(smilog.Instant): {color: color.RGBA{0xd5, 0x5e, 0x00, 0xff}, width: 1.2},
	smiPrefix + methods.Method(smilog.Draw):    {color: color.RGBA{0x80, 0x00, 0x80, 0xff}, width: 1.2},
	smiPrefix + methods.Method(smilog.Average): {color: color.RGBA{0x00, 0x72, 0xb2, 0xff}, width: 1.2, dashed: true},
}

const (
	pictureWidth, pictureHeight = 24 * vg.Centimeter, 12 * vg.Centimeter
	// pictureColumns is how many means a trace is drawn by.
	pictureColumns = 2000
)

// margin is what is drawn before and after the work.
func (p *picture) margin() measure.Seconds { return max(p.length/20, 0.05) }

// add adds a method's readings, those near the work alone; at places them.
func (p *picture) add(m methods.Method, label string, points []methods.Point, at func(methods.Point) measure.Seconds) {
	var xy plotter.XYs
	switch m {
	case methods.Counter:
		points = powerOf(points)
	case methods.PAPI: // its reading stands for the whole time
		if len(points) > 0 {
			v := points[len(points)-1].Value
			xy = plotter.XYs{{X: 0, Y: v}, {X: float64(p.length), Y: v}}
		}
		points = nil
	}
	from, to := -p.margin(), p.length+p.margin()
	var near bool
	for i, pt := range points {
		// The readings beside what is drawn lead the line to its edges.
		before, behind := i+1 < len(points) && at(points[i+1]) >= from, i > 0 && at(points[i-1]) <= to
		x := at(pt)
		within := x >= from && x <= to
		if (within || (x < from && before) || (x > to && behind)) && !math.IsNaN(pt.Value) {
			xy = append(xy, plotter.XY{X: float64(x), Y: pt.Value})
			near = near || within
		}
	}
	if near || len(xy) > 1 {
		p.lines = append(p.lines, pictureLine{label, looks[m], xy})
	}
}

// powerOf turns a counter's corners into the mean power from each of its updates
// to the next.
func powerOf(points []methods.Point) (out []methods.Point) {
	var last *methods.Point
	for i := 1; i < len(points); i++ {
		a, b := points[i-1], points[i]
		if a.Value == b.Value {
			continue
		}
		// It moved between the last reading of the old value and the first of the new.
		now := methods.Point{At: a.At.Add(b.At.Sub(a.At) / 2), Value: b.Value}
		if last != nil {
			w := (now.Value - last.Value) / now.At.Sub(last.At).Seconds()
			out = append(out, methods.Point{At: last.At, Value: w}, methods.Point{At: now.At, Value: w})
		}
		last = &now
	}
	return out
}

// writeSVG draws the picture.
func (p *picture) writeSVG(w io.Writer) error {
	pl := plot.New()
	pl.Title.Text = p.title
	pl.X.Label.Text, pl.Y.Label.Text = "time since the work began / s", "power / W"
	pl.Add(plotter.NewGrid())
	pl.Legend.Top, pl.Legend.Left, pl.Legend.Padding = true, true, vg.Millimeter
	pl.Legend.XOffs, pl.Legend.YOffs = 5*vg.Millimeter, -2*vg.Millimeter
	for _, l := range p.lines {
		thumb, err := l.draw(pl)
		if err != nil {
			return fmt.Errorf("plot: %s: %w", l.name, err)
		}
		if l.name != "" {
			pl.Legend.Add(l.name, thumb)
		}
	}
	pl.X.Min, pl.X.Max = float64(-p.margin()), float64(p.length+p.margin()) // also where readings lie beside it
	pl.Y.Min = 0
	pl.Y.Max *= 1.45 // room for the legend
	return writeSVG(w, pl, pictureWidth, pictureHeight)
}

func init() {
	plot.DefaultFont = font.Font{Typeface: "Liberation", Variant: "Sans"}
	plotter.DefaultFont = plot.DefaultFont
}

func (l *pictureLine) draw(pl *plot.Plot) (plot.Thumbnailer, error) {
	if l.look.dots {
		s, err := plotter.NewScatter(l.xy)
		if err != nil {
			return nil, err
		}
		s.Color, s.Radius, s.Shape = l.look.color, 1.2, draw.CircleGlyph{}
		pl.Add(s)
		return s, nil
	}
	s, err := plotter.NewLine(l.xy)
	if err != nil {
		return nil, err
	}
	s.Color, s.Width = l.look.color, l.look.width
	if l.look.dashed {
		s.Dashes = []vg.Length{4, 3}
	}
	pl.Add(s)
	return s, nil
}

// taskPicture draws a task: the meter's trace around its window, and the readings
// that software made meanwhile.
func taskPicture(ctx context.Context, db *store.DB, t *store.Task) (*picture, error) {
	if t.Result == nil || t.Scans == 0 {
		return nil, fmt.Errorf("task %d has no window to draw: see wattmark show %d", t.ID, t.ID)
	}
	from, to := t.Result.From, t.Result.To
	p := &picture{
		title:  fmt.Sprintf("%s on %s: power by the meter (%s) and by software", t.Name, t.GPU, t.Instrument.Kind),
		length: to - from,
	}
	tr, err := drawTrace(ctx, db, t, from-p.margin(), to+p.margin(), pictureColumns)
	if err != nil {
		return nil, err
	}
	name := "meter: " + t.Instrument.Kind
	var xy plotter.XYs
	for i, w := range append(tr.total, math.NaN()) {
		if !math.IsNaN(w) {
			at := float64(tr.from) + (float64(i)+0.5)*float64(tr.to-tr.from)/float64(len(tr.total))
			xy = append(xy, plotter.XY{X: at - float64(from), Y: w})
		} else if len(xy) > 0 { // where samples were lost the line has a hole
			p.lines = append(p.lines, pictureLine{name, looks["truth"], xy})
			name, xy = "", nil
		}
	}
	return p, p.addReadings(ctx, db, t, from)
}

// addReadings adds the software's readings of a task.
func (p *picture) addReadings(ctx context.Context, db *store.DB, t *store.Task, from measure.Seconds) error {
	readings, err := db.Readings(ctx, t.ID)
	if err != nil {
		return err
	}
	by := map[string][]methods.Point{}
	for _, r := range readings {
		by[r.Method] = append(by[r.Method], methods.Point{At: r.At, Value: r.Value})
	}
	at := func(pt methods.Point) measure.Seconds { return measure.SecondsOf(pt.At.Sub(t.Started)) - from }
	if t.Clock != nil {
		at = fitted(t.Clock, from)
	}
	for _, m := range pictured {
		p.add(m.method, m.label, by[cmp.Or(m.stored, measurement.MethodPrefix+string(m.method))], at)
	}
	for _, name := range slices.Sorted(maps.Keys(by)) {
		if importedName(name) != "" {
			p.add(methods.Method(name), name, by[name], at)
		}
	}
	return nil
}

func fitted(f *clock.Fit, from measure.Seconds) func(methods.Point) measure.Seconds {
	return func(pt methods.Point) measure.Seconds {
		s, _ := f.Meter(measurement.HostSeconds(*f, pt.At))
		return s - from
	}
}

// pictured are the methods in the order of drawing, with the names of readings
// that were not stored by the methods themselves.
var pictured = []struct {
	method methods.Method
	label  string
	stored string
}{
	{methods.Counter, "counter, between its updates", ""},
	{methods.Average, "average field", sampler.Average},
	{methods.MTSM, "MTSM (GetPowerUsage)", ""},
	{methods.SMA, "SMA, every 15 ms", ""},
	{methods.PAPI, "PAPI, one reading", ""},
	{methods.Instant, "instant field", sampler.Instant},
}

// addTraces adds what a watcher read, where there is no task.
func (p *picture) addTraces(traces []methods.Trace, at func(methods.Point) measure.Seconds) {
	for _, m := range pictured {
		if i := slices.IndexFunc(traces, func(t methods.Trace) bool { return t.Method == m.method }); i >= 0 {
			p.add(m.method, m.label, traces[i].Points, at)
		}
	}
}

// drawTask writes a task's picture.
func (a *app) drawTask(ctx context.Context, db *store.DB, t *store.Task, path string) error {
	p, err := taskPicture(ctx, db, t)
	if err != nil {
		return err
	}
	return writeFile(path, p.writeSVG)
}

package report

import (
	"cmp"
	"context"
	"fmt"
	"image/color"
	"io"
	"maps"
	"math"
	"slices"

	"github.com/wattmark/wattmark/analysis/figure"
	"github.com/wattmark/wattmark/analysis/smilog"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/hostagent/measurement"
	"github.com/wattmark/wattmark/hostagent/sensor"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/store"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
)

// Picture is a plot of power over time: the meter's trace and the readings of software.
type Picture struct {
	Title  string
	Length measure.Seconds // of the work, which begins at zero
	Lines  []PictureLine
}

// PictureLine is one series, in seconds since the work began and watts.
type PictureLine struct {
	Name string // in the legend; empty for a continued line
	Look figure.Style
	Xy   plotter.XYs
}

// Looks are the styles by method.
var Looks = map[sensor.Method]figure.Style{
	"truth":             {Color: color.Gray{0xb0}, Width: 0.8},
	sensor.InstantField: {Color: figure.Vermillion, Width: 1.6},
	sensor.AverageField: {Color: figure.Blue, Width: 1.6},
	sensor.SMA:          {Color: figure.Green, Radius: 1.2},
	sensor.MTSM:         {Color: figure.Orange, Width: 1.6, Dashed: true},
	sensor.PAPI:         {Color: figure.Pink, Width: 1.6, Dashed: true},
	sensor.Counter:      {Color: figure.Ink, Width: 1.2},

	// The columns of an imported log of nvidia-smi have the colours of the fields they show.
	cli.SmiPrefix + sensor.Method(smilog.Instant): {Color: figure.Vermillion, Width: 1.2},
	cli.SmiPrefix + sensor.Method(smilog.Draw):    {Color: figure.Others[1], Width: 1.2},
	cli.SmiPrefix + sensor.Method(smilog.Average): {Color: figure.Blue, Width: 1.2, Dashed: true},
}

const (
	PictureWidth, PictureHeight = 24 * vg.Centimeter, 12 * vg.Centimeter
	// PictureColumns is the number of means that a trace is drawn with.
	PictureColumns = 2000
)

// margin returns the time drawn before and after the work: 5 % of it, at least 50 ms.
func (p *Picture) margin() measure.Seconds { return max(p.Length/20, 0.05) }

// add adds a method's readings as a line, clipped to the work and its margins. at returns
// the time of a reading since the work began. Nothing is added if no reading is near.
func (p *Picture) add(m sensor.Method, label string, points []sensor.Point, at func(sensor.Point) measure.Seconds) {
	var xy plotter.XYs
	switch m {
	case sensor.Counter:
		points = PowerOf(points)
	case sensor.PAPI: // one reading is its result for the whole work
		if len(points) > 0 {
			v := points[len(points)-1].Value
			xy = plotter.XYs{{X: 0, Y: v}, {X: float64(p.Length), Y: v}}
		}
		points = nil
	}
	from, to := -p.margin(), p.Length+p.margin()
	var near bool
	for i, pt := range points {
		// The last reading before and the first behind the margins extend the line to the edges.
		before, behind := i+1 < len(points) && at(points[i+1]) >= from, i > 0 && at(points[i-1]) <= to
		x := at(pt)
		within := x >= from && x <= to
		if (within || (x < from && before) || (x > to && behind)) && !math.IsNaN(pt.Value) {
			xy = append(xy, plotter.XY{X: float64(x), Y: pt.Value})
			near = near || within
		}
	}
	if near || len(xy) > 1 {
		p.Lines = append(p.Lines, PictureLine{label, Looks[m], xy})
	}
}

// PowerOf converts readings of an energy counter in joules to its mean power in watts, two
// points for each interval between updates: (E2 − E1)/(t2 − t1). Readings that repeat a value
// are skipped.
func PowerOf(points []sensor.Point) (out []sensor.Point) {
	var last *sensor.Point
	for i := 1; i < len(points); i++ {
		a, b := points[i-1], points[i]
		if a.Value == b.Value {
			continue
		}
		// The update lies between the last reading of the old value and the first of the new:
		// take the middle.
		now := sensor.Point{At: a.At.Add(b.At.Sub(a.At) / 2), Value: b.Value}
		if last != nil {
			w := (now.Value - last.Value) / now.At.Sub(last.At).Seconds()
			out = append(out, sensor.Point{At: last.At, Value: w}, sensor.Point{At: now.At, Value: w})
		}
		last = &now
	}
	return out
}

// WriteSVG writes the picture as SVG.
func (p *Picture) WriteSVG(w io.Writer) error {
	pl := figure.New(p.Title, "time since the work began / s", "power / W")
	pl.Add(figure.Grid())
	for _, l := range p.Lines {
		if err := figure.Add(pl, l.Name, l.Look, l.Xy); err != nil {
			return err
		}
	}
	pl.X.Min, pl.X.Max = float64(-p.margin()), float64(p.Length+p.margin()) // clips readings beyond the margins
	pl.Y.Min = 0
	pl.Y.Max *= 1.45 // room for the legend
	return figure.Save(w, pl, PictureWidth, PictureHeight)
}

// taskPicture returns the picture of a task: the meter's trace around its window, and the
// readings of software in the same time. A task without a window is an error.
func taskPicture(ctx context.Context, db *store.DB, t *store.Task) (*Picture, error) {
	if t.Result == nil || t.Scans == 0 {
		return nil, fmt.Errorf("task %d has no window to draw: see wattmark show %d", t.ID, t.ID)
	}
	from, to := t.Result.From, t.Result.To
	p := &Picture{
		Title:  fmt.Sprintf("%s on %s: power by the meter (%s) and by software", t.Name, t.GPU, t.Instrument.Kind),
		Length: to - from,
	}
	tr, err := drawTrace(ctx, db, t, from-p.margin(), to+p.margin(), PictureColumns)
	if err != nil {
		return nil, err
	}
	name := "meter: " + t.Instrument.Kind
	var xy plotter.XYs
	for i, w := range append(tr.total, math.NaN()) {
		if !math.IsNaN(w) {
			at := float64(tr.from) + (float64(i)+0.5)*float64(tr.to-tr.from)/float64(len(tr.total))
			xy = append(xy, plotter.XY{X: at - float64(from), Y: w})
		} else if len(xy) > 0 { // lost samples are a hole in the line
			p.Lines = append(p.Lines, PictureLine{name, Looks["truth"], xy})
			name, xy = "", nil
		}
	}
	return p, p.addReadings(ctx, db, t, from)
}

// addReadings adds the readings of software of a task whose window begins at from, in device
// time. Without a clock fit they are placed by the recorded start time.
func (p *Picture) addReadings(ctx context.Context, db *store.DB, t *store.Task, from measure.Seconds) error {
	readings, err := db.Readings(ctx, t.ID)
	if err != nil {
		return err
	}
	by := map[string][]sensor.Point{}
	for _, r := range readings {
		by[r.Method] = append(by[r.Method], sensor.Point{At: r.At, Value: r.Value})
	}
	at := func(pt sensor.Point) measure.Seconds { return measure.SecondsOf(pt.At.Sub(t.Started)) - from }
	if t.Clock != nil {
		at = func(pt sensor.Point) measure.Seconds {
			s, _ := t.Clock.Meter(measurement.HostSeconds(*t.Clock, pt.At))
			return s - from
		}
	}
	for _, m := range pictured {
		p.add(m.method, m.label, by[cmp.Or(m.stored, measurement.MethodPrefix+string(m.method))], at)
	}
	for _, name := range slices.Sorted(maps.Keys(by)) {
		if cli.ImportedName(name) != "" {
			p.add(sensor.Method(name), name, by[name], at)
		}
	}
	return nil
}

// pictured are the methods in the order of drawing. stored is the name of their readings in
// the database, if it is not the method's own.
var pictured = []struct {
	method sensor.Method
	label  string
	stored string
}{
	{sensor.Counter, "counter, between its updates", ""},
	{sensor.AverageField, "average field", sensor.AveragePower},
	{sensor.MTSM, "MTSM (GetPowerUsage)", ""},
	{sensor.SMA, "SMA, every 15 ms", ""},
	{sensor.PAPI, "PAPI, one reading", ""},
	{sensor.InstantField, "instant field", sensor.InstantPower},
}

// AddTraces adds readings that were recorded without a task.
func (p *Picture) AddTraces(traces []sensor.Trace, at func(sensor.Point) measure.Seconds) {
	for _, m := range pictured {
		if i := slices.IndexFunc(traces, func(t sensor.Trace) bool { return t.Method == m.method }); i >= 0 {
			p.add(m.method, m.label, traces[i].Points, at)
		}
	}
}

// DrawTask writes a task's picture as SVG to a new file.
func DrawTask(a *cli.App, ctx context.Context, db *store.DB, t *store.Task, path string) error {
	p, err := taskPicture(ctx, db, t)
	if err != nil {
		return err
	}
	return cli.WriteFile(path, p.WriteSVG)
}

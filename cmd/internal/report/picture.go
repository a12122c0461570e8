package report

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"image/color"
	"io"
	"iter"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/guptarohit/asciigraph"
	"github.com/wattmark/wattmark/analysis/figure"
	"github.com/wattmark/wattmark/analysis/smilog"
	"github.com/wattmark/wattmark/analysis/validate"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/out"
	"github.com/wattmark/wattmark/hostagent/measurement"
	"github.com/wattmark/wattmark/hostagent/sensor"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/chunk"
	"github.com/wattmark/wattmark/store"
	"gonum.org/v1/plot/plotter"
)

// Picture is a plot of power over time: the meter's trace and the readings of software, in
// seconds since the work began and watts.
type Picture struct {
	figure.Chart
	length measure.Seconds // of the work
}

// NewPicture returns a picture of work of a length, without lines yet. It reaches beyond the
// work by 5 % of it, at least 50 ms.
func NewPicture(title string, length measure.Seconds) *Picture {
	p := &Picture{length: length}
	p.Chart = figure.Chart{
		Title: title, X: "time since the work began / s", Y: "power / W", FromZero: true, Headroom: 1.45,
		XRange: [2]float64{float64(-p.margin()), float64(length + p.margin())},
	}
	return p
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

// PictureColumns is the number of means that a trace is drawn with.
const PictureColumns = 2000

// margin returns the time drawn before and after the work: 5 % of it, at least 50 ms.
func (p *Picture) margin() measure.Seconds { return max(p.length/20, 0.05) }

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
			xy = plotter.XYs{{X: 0, Y: v}, {X: float64(p.length), Y: v}}
		}
		points = nil
	}
	from, to := -p.margin(), p.length+p.margin()
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
		p.Line(label, Looks[m], xy)
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
		// The update lies between the last reading of the old value and the first of the new.
		now := sensor.Point{At: a.At.Add(b.At.Sub(a.At) / 2), Value: b.Value}
		if last != nil {
			w := (now.Value - last.Value) / now.At.Sub(last.At).Seconds()
			out = append(out, sensor.Point{At: last.At, Value: w}, sensor.Point{At: now.At, Value: w})
		}
		last = &now
	}
	return out
}

// DrawTask writes the picture of a task as SVG to a new file: the meter's trace around its
// window, and the readings of software in the same time. A task without a window is an error.
func DrawTask(ctx context.Context, db *store.DB, t *store.Task, path string) error {
	if t.Result == nil || t.Scans == 0 {
		return fmt.Errorf("task %d has no window to draw: see wattmark show %d", t.ID, t.ID)
	}
	from, to := t.Result.From, t.Result.To
	title := fmt.Sprintf("%s on %s: power by the meter (%s) and by software", t.Name, t.GPU, t.Instrument.Kind)
	p := NewPicture(title, to-from)
	tr, err := drawTrace(ctx, db, t, from-p.margin(), to+p.margin(), PictureColumns)
	if err != nil {
		return err
	}
	name := "meter: " + t.Instrument.Kind
	var xy plotter.XYs
	for i, w := range append(tr.total, math.NaN()) {
		if !math.IsNaN(w) {
			at := float64(tr.from) + (float64(i)+0.5)*float64(tr.to-tr.from)/float64(len(tr.total))
			xy = append(xy, plotter.XY{X: at - float64(from), Y: w})
		} else if len(xy) > 0 { // lost samples are a hole in the line
			p.Line(name, Looks["truth"], xy)
			name, xy = "", nil
		}
	}
	if err := p.addReadings(ctx, db, t, from); err != nil {
		return err
	}
	return cli.WriteFile(path, p.WriteSVG)
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
		if strings.HasPrefix(name, cli.SmiPrefix) {
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

// trace is a task's power in columns: the mean of the scans in each, NaN if there are none.
// Until finish, rails and total hold sums.
type trace struct {
	from, to measure.Seconds // device time
	names    []string
	rails    [][]float64 // watts, [rail][column]
	total    []float64   // watts
	counts   []int       // scans, [column]
}

// newTrace returns an empty trace of a span of device time.
func newTrace(from, to measure.Seconds, names []string, columns int) *trace {
	t := &trace{from: from, to: to, names: names, total: make([]float64, columns), counts: make([]int, columns)}
	for range names {
		t.rails = append(t.rails, make([]float64, columns))
	}
	return t
}

// finish turns sums into means. A run of empty columns repeats the value before it if the
// samples on both sides are at most 2.5 columns or sample periods apart, as of a slow meter;
// a longer run means lost samples and is NaN, which the plot leaves blank.
func (t *trace) finish(period measure.Seconds) {
	columns := len(t.counts)
	width := (t.to - t.from) / measure.Seconds(columns)
	reach := 2.5 * max(width, period)
	for _, s := range append([][]float64{t.total}, t.rails...) {
		last, v := -1, math.NaN() // the last column with samples, and its mean
		for c := range columns + 1 {
			if c < columns && t.counts[c] == 0 {
				continue
			}
			if measure.Seconds(c-last)*width > reach {
				v = math.NaN()
			}
			for i := last + 1; i < c; i++ {
				s[i] = v
			}
			if last = c; c < columns {
				s[c] /= float64(t.counts[c])
				v = s[c]
			}
		}
	}
}

// plot draws the total and the rails, and below them a ruler with the markers and the window.
// The legend wraps at room columns; 0 for no limit.
func (t *trace) plot(w io.Writer, r *Report, room int) {
	g := out.Graph{
		Series: [][]float64{t.total}, Height: 14, Axis: "%.0f W", Options: []asciigraph.Option{asciigraph.LowerBound(0)},
		Ruler: t.ruler(r), Key: "M marker, ═ window", First: fmt.Sprintf("%.3f s", float64(t.from)),
		Last: fmt.Sprintf("%.3f s", float64(t.to)), Columns: len(t.counts), Room: room,
	}
	if len(t.rails) > 1 {
		g.Series, g.Legends = append(g.Series, t.rails...), append([]string{"total"}, t.names...)
		g.Colours = []asciigraph.AnsiColor{asciigraph.Default}
		palette := []asciigraph.AnsiColor{
			asciigraph.Blue, asciigraph.Green, asciigraph.Red, asciigraph.Goldenrod, asciigraph.Magenta, asciigraph.Cyan,
		}
		for i := range t.rails {
			g.Colours = append(g.Colours, palette[i%len(palette)])
		}
	}
	g.Draw(w)
}

// ruler returns the line below the plot: M at the markers, ═ over the window.
func (t *trace) ruler(r *Report) string {
	line := []rune(strings.Repeat(" ", len(t.counts)))
	if r.Window != nil {
		out.Mark(line, t.from, t.to, r.Window.From, r.Window.To, '═')
	}
	for _, m := range []*MarkerReport{r.Markers.Start, r.Markers.Stop} {
		if m != nil {
			out.Mark(line, t.from, t.to, m.begin, m.end, 'M')
		}
	}
	return string(line)
}

// errStopped ends the power stream early after the consumer has stopped the iteration.
var errStopped = errors.New("stopped")

// TaskTruth yields the sum of a task's rails, scan by scan, with at for the time of an
// instant of the meter's clock; nil for device time. Gaps yield no samples. Each iteration
// reads the chunks from the database anew.
func TaskTruth(ctx context.Context, db *store.DB, t *store.Task,
	at func(measure.Seconds) measure.Seconds,
) iter.Seq2[validate.Sample, error] {
	if at == nil {
		at = func(device measure.Seconds) measure.Seconds { return device }
	}
	return func(yield func(validate.Sample, error) bool) {
		// A sample is timed by the mean instant of its rails.
		tb, skew := t.Setup.Timebase, measure.Seconds(0)
		for _, r := range t.Setup.Rails {
			skew += t.Setup.Instant(r.X)
		}
		skew /= measure.Seconds(max(len(t.Setup.Rails), 1))
		// The stream aligns the rails, which are converted one after the other, to one instant.
		stream, err := measure.NewPowerStream(&t.Setup, func(p *measure.Powers) error {
			for i := range p.Scans() {
				var w measure.Watt
				for r := range p.Rails {
					w += p.Rails[r].P[i]
				}
				if !yield(validate.Sample{At: at(tb.Seconds(p.Tick(i)) + skew), Power: w}, nil) {
					return errStopped
				}
			}
			return nil
		})
		// Close flushes the scans that wait for their neighbours: after the last block alone.
		for b, e := range chunk.DecodeAll(db.Chunks(ctx, t.ID, 0), &t.Setup) {
			if err = cmp.Or(err, e); err == nil {
				err = stream.Add(b)
			}
			if err != nil {
				break
			}
		}
		if err == nil {
			err = stream.Close()
		}
		if err != nil && !errors.Is(err, errStopped) {
			yield(validate.Sample{}, err)
		}
	}
}

// drawTrace returns the trace of a span of device time. It reads the task's pyramid of sums,
// so that the cost follows the number of columns rather than of samples.
func drawTrace(ctx context.Context, db *store.DB, t *store.Task, from, to measure.Seconds, columns int,
) (*trace, error) {
	e, err := db.Envelope(ctx, t.ID, from, to, columns)
	if err != nil {
		return nil, err
	}
	rails := len(t.Setup.Rails)
	tr := newTrace(e.From, e.To, e.Series[:rails], columns)
	for c := range columns {
		tr.counts[c] = int(e.Columns[0][c].N)
		for r := range rails {
			tr.rails[r][c] = e.Columns[r][c].Sum
			tr.total[c] += e.Columns[r][c].Sum
		}
	}
	// The sample period in seconds distinguishes lost samples from a slow meter.
	tb := t.Setup.Timebase
	tr.finish(measure.Seconds(float64(tb.TicksPerScan) / float64(tb.TickHz)))
	return tr, nil
}

// plotAxis is the width reserved for the axis beside a plot, in columns: "   1000 W ┤".
const plotAxis = 12

// PlotTask plots the power of a task's stored samples: as wide as the terminal, 90 columns
// into a file.
func PlotTask(a *cli.App, ctx context.Context, db *store.DB, t *store.Task, r *Report) error {
	columns, room := 90, out.Room(a.Out)
	if room > 0 {
		columns = min(max(room-plotAxis, out.LeastPlot), 160)
	}
	from, to, err := db.Extent(ctx, t.ID)
	if err != nil {
		return err
	}
	tr, err := drawTrace(ctx, db, t, from, to, columns)
	if err != nil {
		return err
	}
	fmt.Fprintln(a.Out)
	tr.plot(a.Out, r, room)
	return nil
}

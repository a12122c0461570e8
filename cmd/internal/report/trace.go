package report

import (
	"context"
	"fmt"
	"io"
	"iter"
	"math"
	"strings"

	"github.com/guptarohit/asciigraph"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/out"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/chunk"
	"github.com/wattmark/wattmark/store"
)

// trace is a task's power in columns: the mean of the scans in each, NaN if there are none.
// Until finish, rails and total hold sums.
type trace struct {
	from, to measure.Seconds // device time
	names    []string
	rails    [][]float64 // watts, [rail][column]
	total    []float64   // watts
	counts   []int       // scans, [column]
}

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
	width := (t.to - t.from) / measure.Seconds(len(t.counts))
	reach := 2.5 * max(width, period)
	all := append([][]float64{t.total}, t.rails...)
	for c := 0; c < len(t.counts); {
		if n := t.counts[c]; n > 0 {
			for _, s := range all {
				s[c] /= float64(n)
			}
			c++
			continue
		}
		end := c // of the run of empty columns
		for end < len(t.counts) && t.counts[end] == 0 {
			end++
		}
		for _, s := range all {
			v := math.NaN()
			if c > 0 && measure.Seconds(end-c+1)*width <= reach {
				v = s[c-1]
			}
			for i := c; i < end; i++ {
				s[i] = v
			}
		}
		c = end
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

// Blocks decodes a task's stored scans in order. The block is reused: it is valid until the
// next iteration.
func Blocks(ctx context.Context, db *store.DB, t *store.Task) iter.Seq2[*measure.Block, error] {
	return chunk.DecodeAll(db.Chunks(ctx, t.ID, 0), &t.Setup)
}

// loadTrace returns the trace of all stored scans of a task.
func loadTrace(ctx context.Context, db *store.DB, t *store.Task, columns int) (*trace, error) {
	from, to, err := db.Extent(ctx, t.ID)
	if err != nil {
		return nil, err
	}
	return drawTrace(ctx, db, t, from, to, columns)
}

// drawTrace returns the trace of a span of device time. It reads the task's pyramid of sums,
// so that the cost follows the number of columns rather than of samples.
func drawTrace(ctx context.Context, db *store.DB, t *store.Task, from, to measure.Seconds, columns int) (*trace,
	error,
) {
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
	columns, room := 90, 0
	if out.IsTerminal(a.Out) {
		room = out.TerminalWidth(a.Out)
		columns = min(max(room-plotAxis, out.LeastPlot), 160)
	}
	tr, err := loadTrace(ctx, db, t, columns)
	if err != nil {
		return err
	}
	fmt.Fprintln(a.Out)
	tr.plot(a.Out, r, room)
	return nil
}

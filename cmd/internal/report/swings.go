package report

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/guptarohit/asciigraph"
	"github.com/wattmark/wattmark/analysis/swings"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/out"
	"github.com/wattmark/wattmark/hostagent/measurement"
	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/store"
)

// AddSwings adds how the power varies within the window.
func (r *Report) AddSwings(a *cli.App, ctx context.Context, db *store.DB, step string) (err error) {
	p := a.Progress("reading samples")
	defer p.End()
	r.Swings, err = Swings(ctx, db, r.task, step, func(done int) { p.Set(done, int(r.task.Scans)) })
	return err
}

// Swings returns how a task's power varies within its window. It reads all its samples, and calls progress with how
// many it has read. The step is a part of the name of the kernels, recorded or noted, that each begin a step; empty for
// no course of one.
func Swings(ctx context.Context, db *store.DB, t *store.Task, step string, progress func(done int)) (
	*swings.Swings, error,
) {
	if t.Result == nil {
		return nil, cli.WithCode(cli.ExitUsage, fmt.Errorf("task %d has no window: set one with wattmark trim", t.ID))
	}
	cfg := swingsOf(t)
	var note string
	var err error
	if step != "" {
		if cfg.Starts, note, err = startsOf(ctx, db, t, step); err != nil {
			return nil, err
		}
	}
	m, err := swings.New(cfg)
	if err != nil {
		return nil, err
	}
	done := 0
	for x, err := range TaskTruth(ctx, db, t, nil) {
		if err != nil {
			return nil, err
		}
		if done++; done%(1<<16) == 0 {
			progress(done)
		}
		m.Add(x.At, x.Power)
	}
	out, err := m.Result()
	if err == nil && note != "" {
		out.Notes = append(out.Notes, note)
	}
	return out, err
}

// startsOf returns the begins of the kernels whose names contain step, in device time.
func startsOf(ctx context.Context, db *store.DB, t *store.Task, step string) (
	out []measure.Seconds, note string, err error,
) {
	if t.Clock == nil {
		return nil, "", cli.Usagef("task %d: nothing relates its kernels to the meter's time: leave out --step", t.ID)
	}
	kernels, note, err := TaskKernels(ctx, db, t, func(at time.Time) measure.Seconds {
		device, _ := t.Clock.Meter(measurement.HostSeconds(*t.Clock, at))
		return device
	})
	for _, k := range kernels {
		if strings.Contains(k.Name, step) {
			out = append(out, k.From)
		}
	}
	if err == nil && len(out) < 3 {
		return nil, "", cli.Usagef("--step %s: task %d has %s with it in the name, want 3 or more: wattmark show %d --kernels "+
			"lists them", step, t.ID, measure.Plural(uint64(len(out)), "kernel"), t.ID)
	}
	return out, note, err
}

// swingsOf returns the span, what the meter follows, and its gain and noise as the budget of the window has them.
func swingsOf(t *store.Task) swings.Config {
	tb, resp := t.Setup.Timebase, t.Setup.Response
	cfg := swings.Config{
		Window: measure.Window{From: t.Result.From, To: t.Result.To}, Step: tb.Seconds(tb.TicksPerScan),
	}
	// A boxcar halves the power at 0.44 over its length, a first-order lag at 1/(2π tau).
	if w := max(resp.Window, resp.Update, 0.44*2*math.Pi*resp.Tau); w > 0 {
		cfg.Limit = measure.Hertz(0.44 / w)
	}
	var common, own float64
	for _, c := range t.Result.Budget {
		if c.Systematic {
			common += float64(c.U * c.U)
		} else {
			own += float64(c.U * c.U)
		}
	}
	length := float64(t.Result.To - t.Result.From)
	cfg.Gain = math.Sqrt(common) / math.Abs(float64(t.Result.Total.Energy))
	cfg.Noise = measure.Watt(math.Sqrt(own / length))
	return cfg
}

// RenderSwings writes how the power varies.
func RenderSwings(a *cli.App, s *swings.Swings) {
	fmt.Fprintf(a.Out, "\nSwings: mean %v, rms %v, highest sample %v (crest factor %.3g)\n", s.Mean, s.RMS, s.Peak, s.Crest)
	if len(s.Scales) > 0 {
		fmt.Fprintln(a.Out, "\nMeans over a width, against the mean:")
		head := out.Row{">width", ">least", ">1 %", ">99 %", ">most", ">±", ">steepest rise", ">fall"}
		out.Table(a.Out, head, s.Scales, func(x swings.Scale) out.Row {
			q := map[float64]measure.Watt{}
			for _, e := range x.Quantiles {
				q[e.P] = e.Power
			}
			slope := func(perSecond float64) string { return measure.Watt(perSecond).String() + "/s" }
			return out.Row{x.Width, q[0], q[0.01], q[0.99], q[1], x.U, slope(x.Rise.PerSecond), slope(x.Fall.PerSecond)}
		})
	}
	if len(s.Bands) > 0 {
		fmt.Fprintln(a.Out, "\nRoot mean square by frequency:")
		out.Table(a.Out, out.Row{">from", ">to", ">rms (k = 2)", ">the meter's noise alone"}, s.Bands,
			func(b swings.Band) out.Row {
				return out.Row{b.From, b.To, out.WithU(b.RMS, b.U, "W"), b.Floor}
			})
	}
	if c := s.Course; c != nil {
		fmt.Fprintf(a.Out, "\nA step: %s each, over %s of %v ± %v (sd); %d left out\n",
			out.EnergyText(c.Energy, c.U), measure.Plural(uint64(c.Steps), "step"), c.Length, c.SD, c.Out)
		values := lists.Map(c.Phases, func(p swings.Phase) float64 { return float64(p.Power) })
		width := min(len(values), out.PlotWidth(a.Out))
		g := out.Graph{
			Series: [][]float64{values}, Height: 10, Axis: "%.0f W", Options: []asciigraph.Option{asciigraph.Width(width)},
			First: "0", Last: "1", Columns: width,
		}
		g.Draw(a.Out)
	}
	out.Each(a.Out, "  note: %s\n", s.Notes)
}

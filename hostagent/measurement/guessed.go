package measurement

import (
	"fmt"
	"math"

	"wattmark/measure"
	"wattmark/measure/clock"
	"wattmark/store"
)

// guessed says what it means that the length of gaps was estimated: where a meter
// was away, nobody counted the scans that are missing. The markers' line then runs
// over a jump of the device's time, and what looks like a clock that is off is the
// error of the estimate: the energy within the gaps is off by as much of its time.
type guessed struct {
	error measure.Seconds // of the gaps' length together, positive where they were taken for too long
	inside, before,
	behind bool // where such gaps lie, of the window
}

// guess looks at a task's gaps between its markers.
func guess(t *store.Task, b bounds, f *clock.Fit, w Window) (g guessed) {
	if f == nil || b.start == nil || b.stop == nil {
		return g
	}
	tb := t.Setup.Timebase
	for _, e := range t.Events {
		at := tb.Seconds(float64(e.FirstScan) * tb.TicksPerScan)
		switch {
		case e.Kind != measure.EventGap || e.Exact || at < b.start.T || at > b.stop.End:
		case at < w.From:
			g.before = true
		case at < w.To:
			g.inside = true
		default:
			g.behind = true
		}
	}
	if g.any() {
		g.error = measure.Seconds(f.B-1) * (b.stop.T - b.start.T)
	}
	return g
}

func (g guessed) any() bool { return g.inside || g.before || g.behind }

// edges adds what is not known because of it.
func (g guessed) edges(e measure.Edges) measure.Edges {
	u := math.Abs(float64(g.error))
	if g.inside {
		e.Gaps = measure.Seconds(u)
	}
	if g.before {
		e.UFrom = measure.Seconds(math.Hypot(float64(e.UFrom), u))
	}
	if g.behind {
		e.UTo = measure.Seconds(math.Hypot(float64(e.UTo), u))
	}
	return e
}

// note says so.
func (g guessed) note() string {
	than := "longer"
	if g.error < 0 {
		than = "shorter"
	}
	return fmt.Sprintf("what was lost was counted by the clock, and taken for %.3g ms %s than the markers say: the budget holds it",
		1e3*math.Abs(float64(g.error)), than)
}

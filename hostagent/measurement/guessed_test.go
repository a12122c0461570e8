package measurement

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/clock"
	"github.com/wattmark/wattmark/measure/marker"
	"github.com/wattmark/wattmark/store"
)

// A meter was away for two seconds, and what it lost was taken for 8 ms too much: the
// line through the markers seems to run fast, but the clock is not blamed for it.
func TestGapsWhoseLengthWasGuessed(t *testing.T) {
	const late = 8e-3
	host := func(m float64) time.Time {
		if m > 5 {
			m -= late
		}
		return after(100 + m)
	}
	played := append(playedAs(host, marker.Start, 1), playedAs(host, marker.Stop, 11)...)
	start, stop := found(marker.Start, 1), found(marker.Stop, 11)
	task := &store.Task{}
	task.Setup.Timebase = measure.Timebase{TickHz: 1e5, UTickHz: 29e-6, TicksPerScan: 1}
	fit, err := relate(&task.Setup, played, []marker.Found{start, stop})
	if err != nil {
		t.Fatal(err)
	}
	if offRate(task.Setup.Timebase, fit) == "" {
		t.Fatal("the clock is not told to be off")
	}
	work, sure := Window{From: 2, To: 10}, measure.Edges{UFrom: 1e-6, UTo: 1e-6}
	for name, c := range map[string]struct {
		scan             uint64
		exact            bool
		from, to, inside bool // what is less sure
	}{
		"within the work":                   {500_000, false, false, false, true},
		"behind the start marker":           {150_000, false, true, false, false},
		"before the stop marker":            {1_050_000, false, false, true, false},
		"counted by the device":             {500_000, true, false, false, false},
		"before the start marker, not ours": {50_000, false, false, false, false},
	} {
		task.Events = []measure.Event{{
			Kind: measure.EventGap, FirstScan: c.scan, Scans: 1000, Exact: c.exact,
			Channel: -1,
		}}
		g := guess(task, bounds{&start, &stop}, fit, work)
		e := g.edges(sure)
		as := func(what string, u measure.Seconds, loose bool) {
			want := 0.0
			if loose {
				want = late
			} else if what != "gaps" {
				want = 1e-6
			}
			if math.Abs(float64(u)-want) > 0.02*late {
				t.Errorf("%s: %s ± %v, want %v", name, what, u, want)
			}
		}
		as("from", e.UFrom, c.from)
		as("to", e.UTo, c.to)
		as("gaps", e.Gaps, c.inside)
		if loose := c.from || c.to || c.inside; g.any() != loose || loose && !strings.Contains(g.note(), "ms longer") {
			t.Errorf("%s: %+v: %s", name, g, g.note())
		}
	}
	if g := guess(task, bounds{}, &clock.Fit{}, work); g.any() {
		t.Errorf("without markers: %+v", g)
	}
}

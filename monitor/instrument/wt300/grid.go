package wt300

import (
	"math"
	"time"

	"wattmark/monitor/instrument/series"
)

// grid follows the meter's updates with the host's clock: they come evenly, and
// what delays a reply only ever makes it late.
type grid struct {
	period time.Duration
	rate   series.Rate
	n      int64 // the update that the last reading showed; the first is 0
	begun  bool
}

func newGrid(period time.Duration) grid {
	return grid{period: period, rate: series.Rate{Nominal: 1 / period.Seconds()}}
}

// slack is the part of an update by which a reply may be early or late and still
// be believed to come with its update.
const slack = 0.25

// seen tells which update a reading shows, and how many went by unread since the
// one before. The meter replies at once where updates were complete when it was
// asked, with the last of them; else with the next. A reply that comes late, or an
// update that does, is no loss by itself. After an exchange that failed nobody
// knows what the meter carried out; the time of the reply then decides.
func (g *grid) seen(asked, came time.Time, failed bool) (at time.Time, missed uint64) {
	if !g.begun {
		g.begun = true
		g.rate.Seen(came, 0)
		return came, 0
	}
	complete, _ := g.rate.At(asked)
	n := max(g.n+1, int64(math.Floor(complete)))
	if failed {
		complete, _ = g.rate.At(came)
		n = max(g.n+1, int64(math.Floor(complete+slack)))
	}
	missed = uint64(n - g.n - 1)
	g.n = n
	g.rate.Seen(came, n)
	due, _ := g.rate.At(came) // how far the updates are by now
	if late := due - float64(n); late > slack {
		return came.Add(-time.Duration(late * float64(g.period))), missed
	}
	return came, missed
}

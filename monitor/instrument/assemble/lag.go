package assemble

import (
	"math"
	"time"
)

// lagWindows is how many windows of Settle the usual lag is learned from.
const lagWindows = 20

// lag follows how far the host's clock runs behind the device's: arrival minus
// device time. Buffers only ever delay, so the least lag of a window is close to
// the truth; how much these minima vary says how far one can be trusted.
type lag struct {
	epoch  time.Time
	ring   [lagWindows]float64
	n      int
	window float64
	since  time.Time

	silence  time.Duration // the longest between two reads of this window
	silences [lagWindows]time.Duration
}

func (l *lag) reset() { *l = lag{window: math.Inf(1)} }

// at is the lag in seconds, from an arbitrary zero.
func (l *lag) at(t time.Time, tick int64, tickHz float64) float64 {
	if l.epoch.IsZero() {
		l.epoch = t
	}
	return t.Sub(l.epoch).Seconds() - float64(tick)/tickHz
}

// learn adds one observation.
func (l *lag) learn(t time.Time, v float64, window time.Duration) {
	if l.since.IsZero() {
		l.since = t
	}
	l.window = min(l.window, v)
	if t.Sub(l.since) >= window {
		l.ring[l.n%lagWindows], l.silences[l.n%lagWindows] = l.window, l.silence
		l.n++
		l.window, l.silence, l.since = math.Inf(1), 0, t
	}
}

// usual returns the least and the most of the windows' lags; ok is false before
// the first.
func (l *lag) usual() (least, most float64, ok bool) {
	least, most = l.window, math.Inf(-1)
	for _, w := range l.ring[:min(l.n, lagWindows)] {
		least, most = min(least, w), max(most, w)
	}
	return least, max(most, least), !math.IsInf(least, 1)
}

// raised tells whether a lag lies so far above the usual ones that a turn may
// have passed unseen. Before the first it cannot be told, and is not.
func (l *lag) raised(v, turn float64) bool {
	_, most, ok := l.usual()
	return ok && v > most+turn/2
}

// turns estimates how many turns (of so many seconds) passed unseen when the lag
// was v afterwards, raised for good or not; fit says how many ticks a number of
// turns leaves the scans off their grid. sure says that the host's clock was fine
// enough to tell.
func (l *lag) turns(v, turn float64, raised bool, fit func(int64) float64) (n int64, sure bool) {
	least, most, ok := l.usual()
	if !ok {
		return 0, false
	}
	spread, guess := most-least, int64(0)
	if raised {
		guess = int64(math.Round((v - least) / turn))
	}
	// Weigh the clock's doubt against a tick of doubt in the stamps.
	sigma, best := max(turn/2, spread)/turn, math.Inf(1)
	for m := max(0, guess-8); m <= guess+8; m++ {
		off := float64(m-guess) / sigma
		if cost := off*off + fit(m)*fit(m); cost < best {
			best, n = cost, m
		}
	}
	return n, n == 0 && l.n > 1 && spread < turn/2 && v <= most+turn/2
}

// unusual is how long a silence must be to be worth a second look: half as long
// again as any of late, and long enough for a turn (in seconds) to pass unseen.
func (l *lag) unusual(turn float64, most time.Duration) time.Duration {
	if l.n == 0 {
		return most
	}
	longest := time.Duration(2 * turn * 1e9)
	for _, s := range l.silences[:min(l.n, lagWindows)] {
		longest = max(longest, s*3/2)
	}
	return min(longest, most)
}

package assemble

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/wattmark/wattmark/measure"
)

// A silence costs nothing if the reader was late, and whole turns if the device
// was. Both look alike until the backlog was read: then the lag of a late
// reader is back where it was, and that of a device that lost scans stays up, by
// the same amount for good. So the least lag is taken over windows of several
// settle each; any of them at the usual lag acquits the line at once, and only
// windows that agree with each other, well above the usual lag, convict it.
const (
	agreeing = 3  // windows that must agree
	wide     = 4  // settles a window: 0.1 s
	patience = 24 // settles until it is given up: 0.6 s, within a stop's grace (capture.Config)
)

// pending is a discontinuity whose whole turns are not yet known. All scans of
// the block lie behind it.
type pending struct {
	active bool
	fits   bool  // the stamp alone shows no loss: there was a silence, no more
	delta  int64 // ticks to the scan before, modulo Modulus
	since  time.Time

	least  float64 // lag of all reads, in seconds
	window float64 // lag of the reads of this window
	begun  time.Time
	minima [agreeing]float64 // of the last windows
	n      int               // windows
}

// observe takes the lag of a read behind which nothing more was waiting.
func (p *pending) observe(at time.Time, lag float64) {
	p.least, p.window = min(p.least, lag), min(p.window, lag)
	if at.Sub(p.begun) >= wide*settle {
		p.minima[p.n%agreeing] = p.window
		p.n++
		p.window, p.begun = math.Inf(1), at
	}
}

// steady returns the lag that the last windows agree on to half a turn.
func (p *pending) steady(turn float64) (lag float64, ok bool) {
	if p.n < agreeing {
		return 0, false
	}
	least, most := slices.Min(p.minima[:]), slices.Max(p.minima[:])
	return least, most-least < turn/2
}

// open begins a stretch behind a discontinuity of d ticks, modulo the stamp. One
// that was pending is decided by the present knowledge: if the clock shows a loss, it
// still does so behind this one.
func (a *Assembler) open(d int64, fits bool) error {
	if err := a.Flush(); err != nil {
		return err
	}
	a.stalled = false
	a.pending = pending{
		active: true, fits: fits, delta: d, since: a.at, begun: a.at, least: math.Inf(1), window: math.Inf(1),
	}
	return nil
}

// judged reports whether enough was read after a discontinuity to judge it.
func (a *Assembler) judged() bool {
	p := &a.pending
	if !a.lag.raised(p.least, a.turn()) {
		return true
	}
	_, steady := p.steady(a.turn())
	return steady
}

// fit is how far, in ticks, so many turns leave the next scan off the grid.
func (a *Assembler) fit(turns int64) float64 {
	if a.cfg.Grid == 0 {
		return 0
	}
	off := (a.pending.delta + turns*a.cfg.Modulus) % a.cfg.Grid
	return float64(min(off, a.cfg.Grid-off))
}

// turns describes how many turns of the stamp the pending discontinuity hid, and
// whether that is certain.
func (a *Assembler) turns() (n int64, sure bool) {
	p := &a.pending
	lag, steady := p.steady(a.turn())
	if steady = steady && a.lag.raised(p.least, a.turn()); !steady {
		lag = p.least
		if p.fits {
			return 0, false
		}
	}
	return a.lag.turns(lag, a.turn(), steady, a.fit)
}

// decide settles how many turns of the stamp a discontinuity hid and moves the
// scans held behind it to their place.
func (a *Assembler) decide() error {
	p := a.pending
	if !p.active {
		return nil
	}
	a.pending.active = false
	turns, sure := a.turns()
	delta, late := p.delta+turns*a.cfg.Modulus, turns*a.cfg.Modulus
	a.lastTick += late
	lost, exact := a.cfg.Lost(delta)
	return a.out.Late(late, lost, exact && sure && turns == 0, fmt.Sprintf("%s did not arrive (%.3g ms)",
		measure.Plural(lost, "scan"), 1e3*float64(delta)/a.hz))
}

// lagWindows is how many windows of settle the usual lag is learned from.
const lagWindows = 20

// lag follows how far the host's clock runs behind the device's: arrival minus
// device time. Buffers only ever delay, so the least lag of a window is close to
// the truth; how much these minima vary describes how far one can be trusted.
type lag struct {
	epoch  time.Time
	ring   [lagWindows]float64
	n      int
	window float64
	since  time.Time

	silence  time.Duration // the longest between two reads of this window
	silences [lagWindows]time.Duration
}

// at is the lag in seconds, from an arbitrary zero.
func (l *lag) at(t time.Time, tick int64, tickHz float64) float64 {
	if l.epoch.IsZero() {
		l.epoch = t
	}
	return t.Sub(l.epoch).Seconds() - float64(tick)/tickHz
}

// learn adds one observation.
func (l *lag) learn(t time.Time, v float64) {
	if l.since.IsZero() {
		l.since = t
	}
	l.window = min(l.window, v)
	if t.Sub(l.since) >= settle {
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

// raised reports whether a lag lies so far above the usual ones that a turn may
// have passed unseen. Before the first window that is unknown, and the result is false.
func (l *lag) raised(v, turn float64) bool {
	_, most, ok := l.usual()
	return ok && v > most+turn/2
}

// turns estimates how many turns (of so many seconds) passed unseen when the lag
// was v afterwards, raised for good or not; fit describes how many ticks a number of
// turns leaves the scans off their grid. sure reports that the host's clock was fine
// enough to decide.
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

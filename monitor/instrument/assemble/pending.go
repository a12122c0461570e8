package assemble

import (
	"fmt"
	"math"
	"time"

	"wattmark/measure"
)

// pending is a discontinuity whose whole turns are not yet known. All scans of
// the block lie behind it.
type pending struct {
	active bool
	delta  int64 // ticks to the scan before, modulo Modulus
	since  time.Time
	lag    float64
	reads  int
}

// open begins a stretch behind a discontinuity of d ticks, modulo the stamp.
func (a *Assembler) open(d int64) error {
	if a.pending.active && !a.settled() {
		// What came since may still be what had piled up before: its arrival says
		// nothing. The clock will show any loss at this discontinuity.
		a.pending.reads = 0
	}
	if err := a.Flush(); err != nil {
		return err
	}
	a.stalled = false
	a.pending = pending{active: true, delta: d, since: a.at, lag: math.Inf(1)}
	return nil
}

// settled tells whether enough was read after a discontinuity to judge it.
func (a *Assembler) settled() bool {
	return a.pending.reads >= 3 && a.at.Sub(a.pending.since) >= a.cfg.Settle
}

// fit is how far, in ticks, so many turns leave the next scan off the grid.
func (a *Assembler) fit(turns int64) float64 {
	if a.cfg.Grid == 0 {
		return 0
	}
	off := (a.pending.delta + turns*a.cfg.Modulus) % a.cfg.Grid
	return float64(min(off, a.cfg.Grid-off))
}

// decide settles how many turns of the stamp a discontinuity hid and moves the
// scans held behind it to their place.
func (a *Assembler) decide() error {
	p := a.pending
	if !p.active {
		return nil
	}
	a.pending.active = false
	turns, sure := int64(0), false
	if p.reads > 0 {
		turns, sure = a.lag.turns(p.lag, a.turn(), a.fit)
	}
	delta, before := p.delta+turns*a.cfg.Modulus, a.block.FirstScan
	for i := range a.block.Ticks {
		a.block.Ticks[i] += turns * a.cfg.Modulus
	}
	a.block.FirstTick += turns * a.cfg.Modulus
	a.lastTick += turns * a.cfg.Modulus
	lost, exact := a.cfg.Lost(delta)
	if lost == 0 {
		return nil
	}
	a.block.FirstScan += lost
	a.nextScan += lost
	return a.sink.Event(measure.Event{
		Kind: measure.EventGap, FirstScan: before, Scans: lost, Exact: exact && sure && turns == 0, Channel: -1,
		Detail: fmt.Sprintf("%d scans did not arrive (%.3g ms)", lost, 1e3*float64(delta)/float64(a.cfg.TickHz)),
	})
}

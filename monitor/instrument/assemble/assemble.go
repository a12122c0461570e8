// Package assemble turns the scans of a device with a short, wrapping time stamp
// into blocks with true device time, and reports losses on the way.
//
// A stamp counts ticks modulo some small number: 1024 µs on a PowerSensor3, 22 ms
// on a PMD-USB. As long as scans follow each other the stamp alone gives the
// time. After a loss it leaves whole turns open; those are counted with the
// host's clock, and the gap then reports that its size is an estimate.
package assemble

import (
	"math"
	"time"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/monitor/instrument"
	"github.com/wattmark/wattmark/monitor/instrument/series"
)

// Config describes the device's stamps.
type Config struct {
	// Modulus is where the stamp wraps, in ticks.
	Modulus int64
	// MinStep and MaxStep bound the ticks between two neighbouring scans,
	// MinStep ≤ step < MaxStep. A longer step means lost scans.
	MinStep, MaxStep int64
	// Grid is the distance of scans where it is the same for all, in ticks, else 0.
	// Only few numbers of turns bring a scan back onto the grid.
	Grid int64
	// Lost describes how many scans are missing between two that lie delta ticks apart,
	// and whether that number is certain.
	Lost func(delta int64) (scans uint64, exact bool)
	// FlushTicks is how much time a block covers before it is delivered.
	FlushTicks int64
}

// settle is the window from which the host's clock takes one least lag. See pending for how such windows
// decide how many turns of the stamp a silence hid.
const settle = 25 * time.Millisecond

// stallAfter is a silence on the line after which whole turns of the stamp may
// have passed unseen even if the next stamp fits. A line that is usually prompt
// is suspected sooner.
const stallAfter = 50 * time.Millisecond

// maxHeld bounds the scans that are held back.
const maxHeld = 1 << 15

// Assembler builds blocks. It is used by one goroutine:
//
//	Arrived, then Scan and Skipped for the contents of the bytes, then ReadDone.
type Assembler struct {
	cfg Config
	hz  float64 // ticks a second
	out *series.Builder

	lastStamp, lastTick int64

	suspect suspect
	pending pending
	stalled bool
	lag     lag
	at      time.Time // arrival of the bytes now being parsed
	full    bool
	scanned bool // scans came with these bytes
}

// suspect is a scan whose stamp does not fit; the next one decides whether scans
// were lost or the stamp was corrupted.
type suspect struct {
	valid  bool
	stamp  int64
	counts []measure.Count
}

// New makes an assembler of a device's scans that delivers to sink.
func New(cfg Config, in instrument.Inputs, sink instrument.Sink) *Assembler {
	a := &Assembler{cfg: cfg, hz: float64(in.Timebase.TickHz), out: series.New(in, 1024, sink)}
	a.suspect.counts = make([]measure.Count, len(in.Channels))
	a.lag.window = math.Inf(1)
	return a
}

// Arrived reports when bytes came in and whether more may have been waiting behind
// them (then their arrival is a poor measure of the device's clock).
func (a *Assembler) Arrived(at time.Time, full bool) {
	if !a.at.IsZero() {
		silence := at.Sub(a.at)
		a.stalled = a.stalled || silence >= a.lag.unusual(a.turn(), stallAfter)
		a.lag.silence = max(a.lag.silence, silence)
	}
	a.at, a.full, a.scanned = at, full, false
}

// Skipped reports that n bytes were no part of a scan.
func (a *Assembler) Skipped(n uint64) { a.out.Skipped(n) }

// Next is the index that the next scan will have if nothing is lost before it.
func (a *Assembler) Next() uint64 { return a.out.Next() }

// Scan takes one scan: its stamp (0 ≤ stamp < Modulus) and a count for each
// channel, which are copied.
func (a *Assembler) Scan(stamp int64, counts []measure.Count) error {
	if a.suspect.valid {
		return a.resolve(stamp, counts)
	}
	if !a.out.Begun() {
		a.hold(stamp, counts)
		return nil
	}
	d := a.delta(a.lastStamp, stamp)
	switch {
	case a.normal(d):
		if a.stalled {
			if err := a.open(d, true); err != nil {
				return err
			}
		}
		a.append(a.lastTick+d, stamp, counts)
	case d == 0 && a.out.Repeats(counts):
		a.out.Restamped() // the line delivered a scan twice
	default:
		a.hold(stamp, counts)
	}
	return nil
}

// resolve judges a suspect by the scan that follows it.
func (a *Assembler) resolve(stamp int64, counts []measure.Count) error {
	s := &a.suspect
	s.valid = false
	ds := a.delta(s.stamp, stamp)
	if a.normal(ds) { // two stamps agree: the time did jump
		if a.out.Begun() {
			if err := a.open(a.delta(a.lastStamp, s.stamp), false); err != nil {
				return err
			}
		}
		a.append(a.lastTick+a.delta(a.lastStamp, s.stamp), s.stamp, s.counts)
		a.append(a.lastTick+ds, stamp, counts)
		return nil
	}
	if a.out.Begun() {
		d := a.delta(a.lastStamp, stamp)
		switch {
		case a.normal(d): // the suspect does not belong here
			a.out.Restamped()
			a.append(a.lastTick+d, stamp, counts)
			return nil
		case d >= 2*a.cfg.MinStep && d < 2*a.cfg.MaxStep: // its stamp alone was wrong
			a.out.Restamped()
			last := a.lastTick
			a.append(last+d/2, s.stamp, s.counts)
			a.append(last+d, stamp, counts)
			return nil
		}
	}
	a.hold(stamp, counts)
	return nil
}

// hold keeps a scan whose stamp does not fit until the next one decides.
func (a *Assembler) hold(stamp int64, counts []measure.Count) {
	a.suspect.valid, a.suspect.stamp = true, stamp
	copy(a.suspect.counts, counts)
}

// delta is the ticks from one stamp to a later one, less whole turns.
func (a *Assembler) delta(from, to int64) int64 {
	return ((to-from)%a.cfg.Modulus + a.cfg.Modulus) % a.cfg.Modulus
}

// turn is how long the stamp takes to wrap, in seconds.
func (a *Assembler) turn() float64 { return float64(a.cfg.Modulus) / a.hz }

// normal reports whether two scans d ticks apart can be neighbours.
func (a *Assembler) normal(d int64) bool { return d >= a.cfg.MinStep && d < a.cfg.MaxStep }

// append adds a scan to the block with its true tick.
func (a *Assembler) append(tick, stamp int64, counts []measure.Count) {
	if !a.out.Begun() {
		tick = 0 // device time zero is the first scan
	}
	a.out.Hold(tick, counts)
	a.lastTick, a.lastStamp, a.scanned = tick, stamp, true
}

// ReadDone ends the bytes of one read: it learns from its time of arrival and
// delivers the scans that are due.
func (a *Assembler) ReadDone() error {
	timed := !a.at.IsZero()
	if timed && a.scanned && !a.full {
		l := a.lag.at(a.at, a.lastTick, a.hz)
		if a.pending.active {
			a.pending.observe(a.at, l)
		} else {
			a.lag.learn(a.at, l)
		}
	}
	scans, ticks := a.out.Held()
	wait := ticks < a.cfg.FlushTicks
	if a.pending.active {
		wait = timed && !a.judged() && a.at.Sub(a.pending.since) < patience*settle && scans < maxHeld
	}
	if wait {
		return nil
	}
	return a.Flush()
}

// Flush delivers everything that is certain; it is also for a line that has
// fallen silent, and for the end. Call it between Scan calls.
func (a *Assembler) Flush() error {
	if err := a.decide(); err != nil {
		return err
	}
	return a.out.Flush()
}

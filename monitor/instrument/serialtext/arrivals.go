package serialtext

import (
	"math"
	"time"

	"wattmark/measure"
	"wattmark/monitor/instrument/series"
)

const (
	// A line that is late by more was lost, with others: 50 ms and 20 lines.
	lateTime  = 50e6
	lateLines = 20
	// Buffers only ever delay: a line that comes early corrects the clock fast, one
	// that comes late slowly.
	pullEarly, pullLate = 0.5, 0.01
	maxHeld             = 1 << 13
)

// arrivals places samples by the host's clock, for boards that tell no time: at
// the stated rate, drawn towards the arrival of the least delayed ones.
type arrivals struct {
	period float64 // ns
	out    *series.Builder

	epoch  time.Time
	last   float64 // ns since epoch, of the last sample
	width  int
	counts []measure.Count // of the samples held, one after another
	steps  []int64         // from one to the next: more than 1 behind a bad line
	bad    int64
}

func newArrivals(rate float64, channels int, out *series.Builder) *arrivals {
	return &arrivals{period: 1e9 / rate, width: channels, out: out}
}

func (a *arrivals) lines(n uint64) { a.bad += int64(n) }

func (a *arrivals) sample(s *sample, at time.Time) error {
	a.counts = append(a.counts, s.counts...)
	a.steps = append(a.steps, 1+a.bad)
	a.bad = 0
	if len(a.steps) >= maxHeld {
		return a.readDone(at, false)
	}
	return nil
}

func (a *arrivals) settle() error { return nil }

// readDone places what has come once nothing more waits behind it: the arrival
// of the last line then tells when that was sent.
func (a *arrivals) readDone(at time.Time, full bool) error {
	if len(a.steps) == 0 || full && len(a.steps) < maxHeld {
		return nil
	}
	n := int64(0)
	for _, s := range a.steps {
		n += s
	}
	if a.epoch.IsZero() {
		a.epoch = at
		a.last = -float64(n) * a.period
	}
	late := float64(at.Sub(a.epoch)) - (a.last + float64(n)*a.period)
	if late > max(lateTime, lateLines*a.period) {
		lost := math.Round(late / a.period)
		a.steps[0] += int64(lost)
		n += int64(lost)
		late -= lost * a.period
	}
	pull := late * pullLate
	if late < 0 {
		pull = max(late*pullEarly, -0.4*float64(n)*a.period)
	}
	return a.deliver(a.period + pull/float64(n))
}

// deliver hands on what is held, so many nanoseconds apart.
func (a *arrivals) deliver(period float64) error {
	for i, s := range a.steps {
		if err := gap(a.out, s-1, false); err != nil {
			return err
		}
		a.last += float64(s) * period
		if err := a.out.Scan(int64(a.last), a.counts[i*a.width:(i+1)*a.width]); err != nil {
			return err
		}
	}
	a.counts, a.steps = a.counts[:0], a.steps[:0]
	return nil
}

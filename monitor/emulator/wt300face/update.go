package wt300face

import (
	"math"
	"time"

	"wattmark/measure"
)

// infinite and nothing are what FLOAT sends for over-range and for no data.
const (
	infinite = 9.9e37
	nothing  = 9.91e37
)

// Late lets the next update be completed so much later than it is due, by less
// than one update; its average ends when it was due.
func (f *Face) Late(d time.Duration) { f.Do(func() { f.update(); f.late = d }) }

// NoData makes the next reads give no data.
func (f *Face) NoData(reads int) { f.Do(func() { f.noData = reads }) }

// Overload makes the next reads give over-range.
func (f *Face) Overload(reads int) { f.Do(func() { f.overload = reads }) }

// Reads are the reads of the last time, at most some thousands.
func (f *Face) Reads() (out []Read) {
	f.Do(func() { out = append(out, f.reads...) })
	return out
}

const keptReads = 4096

// setRate begins a new grid of updates.
func (f *Face) setRate(d time.Duration) {
	f.base += f.count
	f.rate, f.origin, f.count, f.late = d, f.cfg.Now(), 0, 0
}

// period is the true distance of updates.
func (f *Face) period() float64 { return float64(f.rate) * (1 + f.cfg.Clock) }

// due is the board's time of update n, without its delay.
func (f *Face) due(n int64) time.Duration {
	return f.origin + time.Duration(math.Round(float64(n)*f.period()))
}

// update completes the updates that are due and returns how long it is to the
// next.
func (f *Face) update() time.Duration {
	now := f.cfg.Now()
	if next := f.due(f.count+1) + f.late; now < next {
		return next - now
	}
	f.late = 0
	f.count = max(f.count+1, int64(float64(now-f.origin)/f.period()))
	if !f.hold {
		f.latch(f.due(f.count)-time.Duration(f.period()), f.due(f.count))
	}
	if f.filter[0] == "FALL" || f.filter[0] == "BOTH" {
		f.events |= 1
	}
	return max(f.due(f.count+1)-now, time.Microsecond)
}

// latch works out what the elements show for an interval.
func (f *Face) latch(from, to time.Duration) {
	mean := f.board.MeanPower(from, to)
	f.board.Observe(to)
	for n := range f.elements {
		e := &f.elements[n]
		v := &f.shown[n]
		*v = values{e.offsetU, e.offsetI, e.zero}
		if !e.there || e.rail < 0 || math.IsNaN(float64(mean)) {
			continue
		}
		r := f.board.Rail(e.rail, measure.Watt(mean))
		v[0] += float64(r.V) * e.gainU
		v[1] += float64(r.I) * e.gainI
		v[2] += float64(r.P) * e.gainP
		if overU, overI := v[0] > 1.4*f.volts, v[1] > 1.4*f.amperes; overU || overI {
			v[2] = infinite
			if overU {
				v[0] = infinite
			}
			if overI {
				v[1] = infinite
			}
		}
	}
}

package measure

import (
	"fmt"
	"math"
)

// A multiplexed converter reads its channels one after another: a channel's
// reading is Skew later than its scan's tick. Two things follow for a rail.
//
//   - Its two readings are of two instants. The second channel (voltage, or the
//     load side of a shunt) is brought to the instant of the first by a
//     fractional delay (aligner). The first stays as it was read: a current
//     steps, and an interpolated step rings.
//   - The pair is of the first channel's instant, its Skew behind the tick. The
//     rail is integrated over the window moved by that (edge.span).
//
// Where readings cannot be interpolated they are taken as they stand, and what
// the skew may do is bounded in the budget: on stamped timebases, whose scans
// need not lie evenly, and for instruments that show each value several times.

// uSkew is the relative standard uncertainty that a stated skew is taken to
// have. Data sheets and bench files state it in one or two figures.
const uSkew = 0.1

// maxSkewScans is the longest delay in scans, of a channel behind its tick and
// of a rail's two channels, that is corrected.
const maxSkewScans = 1 << 16

// lag is how long a rail's second reading comes after its first.
func (s *Setup) lag(r Rail) Seconds {
	if r.Y < 0 {
		return 0
	}
	return s.Channels[r.Y].Skew - s.Channels[r.X].Skew
}

// aligns reports whether the second reading of the rail is brought to the
// instant of the first.
func (s *Setup) aligns(r Rail) bool {
	return s.lag(r) != 0 && !s.Timebase.Stamped && holdScans(s) == 1
}

// needsAligner reports whether any rail is aligned.
func (s *Setup) needsAligner() bool {
	for _, r := range s.Rails {
		if s.aligns(r) {
			return true
		}
	}
	return false
}

// checkSkew refuses delays that no memory of flat size can hold.
func (s *Setup) checkSkew() error {
	limit := float64(s.Timebase.Seconds(maxSkewScans * s.Timebase.TicksPerScan))
	for _, r := range s.Rails {
		x := s.Channels[r.X]
		if math.Abs(float64(x.Skew)) > limit {
			return fmt.Errorf("channel %s: a skew of %v is more than %d scans: state the delay behind its own scan", x.Name, x.Skew, maxSkewScans)
		}
		if s.aligns(r) && math.Abs(float64(s.lag(r))) > limit {
			return fmt.Errorf("rail %s: its readings lie %v apart, more than %d scans: state the delays behind their own scan", r.Name, s.lag(r), maxSkewScans)
		}
	}
	return nil
}

// noiseGain is the variance of one aligned second reading of the rail by that
// of a reading of its channel: 1 where it is not interpolated.
func (s *Setup) noiseGain(r Rail) float64 {
	if !s.aligns(r) {
		return 1
	}
	_, share := splitLag(s.Timebase, s.lag(r))
	f := newFractional(share)
	return f.noiseGain()
}

// splitLag splits the way from the second reading to the first, which lies lag
// before it, into whole scans and a share of one in [0, 1).
func splitLag(tb Timebase, lag Seconds) (scans int, share float64) {
	way := -tb.Ticks(lag) / tb.TicksPerScan
	whole := math.Floor(way)
	return int(whole), way - whole
}

package series

import (
	"math"
	"time"
)

// Behind tells when a count of scans has fallen behind the host's clock for good:
// what a device that neither numbers nor stamps its scans has lost. Buffers only
// delay, and what they delay comes: so a count that stays behind at its least
// delayed scan, window after window, misses scans.
type Behind struct {
	// Nominal scans a second.
	Nominal float64

	epoch       time.Time
	since       float64 // of the window, in seconds
	best        float64 // greatest lead of the window, in scans
	heard, have bool
	ref         float64 // lead of the last window that was not behind
	low         int
}

const (
	behindWindow  = 0.5  // seconds
	behindWindows = 3    // in a row
	behindTime    = 0.05 // seconds: less is lost in the host's own delays
	behindScans   = 4
)

// Seen tells that n scans had come at an instant; full says that more were
// waiting, so that the instant says little. It returns how many are missing,
// once, and expects them to be counted from then on.
func (b *Behind) Seen(at time.Time, n int64, full bool) (missing int64) {
	if b.epoch.IsZero() {
		b.epoch, b.best = at, math.Inf(-1)
	}
	t := at.Sub(b.epoch).Seconds()
	if !full {
		b.best, b.heard = max(b.best, float64(n)-t*b.Nominal), true
	}
	if t-b.since < behindWindow || !b.heard {
		return 0
	}
	best := b.best
	b.since, b.best, b.heard = t, math.Inf(-1), false
	switch {
	case !b.have || b.ref-best < max(behindTime*b.Nominal, behindScans):
		b.have, b.ref, b.low = true, best, 0
		return 0
	case b.low+1 < behindWindows:
		b.low++
		return 0
	}
	b.low = 0
	return int64(math.Round(b.ref - best)) // which brings the lead back to ref
}

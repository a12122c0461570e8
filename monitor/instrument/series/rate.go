package series

import (
	"math"
	"time"
)

// Rate follows a device's count of scans with the host's clock: what the count
// should be at an instant, and how fast it really goes. Buffers only ever delay,
// so the least delayed scan of a window is close to the truth.
type Rate struct {
	// Nominal scans a second; what the host's clock is compared with.
	Nominal float64

	epoch         time.Time
	best          float64 // greatest lead of the current window, in scans
	bestAt, since float64
	known         bool
	lead, leadAt  float64 // of the last whole window
	first, firstT float64 // of the first whole window
	windows       int
}

// rateWindow is how long the least delay is looked for, in seconds.
const rateWindow = 1.0

// Seen tells that scan n arrived. Its lead is how far the count runs ahead of
// the nominal rate: the greater, the less the scan was delayed.
func (r *Rate) Seen(at time.Time, n int64) {
	if r.epoch.IsZero() {
		r.epoch, r.best = at, math.Inf(-1)
	}
	t := at.Sub(r.epoch).Seconds()
	lead := float64(n) - t*r.Nominal
	if lead > r.best {
		r.best, r.bestAt = lead, t
	}
	if !r.known {
		r.known, r.lead, r.leadAt = true, lead, t
	}
	if t-r.since < rateWindow {
		return
	}
	r.lead, r.leadAt = r.best, r.bestAt
	if r.windows == 0 {
		r.first, r.firstT = r.best, r.bestAt
	}
	r.windows++
	r.best, r.since = math.Inf(-1), t
}

// At is the count that the host's clock expects at an instant; ok is false
// before the first scan.
func (r *Rate) At(at time.Time) (n float64, ok bool) {
	if !r.known {
		return 0, false
	}
	lead := r.lead
	if !math.IsInf(r.best, -1) {
		lead = max(lead, r.best)
	}
	return at.Sub(r.epoch).Seconds()*r.Nominal + lead, true
}

// Measured is the rate by the host's clock in scans a second over the windows
// seen so far, and the seconds that they span; the span is 0 before there are two.
func (r *Rate) Measured() (rate, span float64) {
	if r.windows < 2 {
		return 0, 0
	}
	span = r.leadAt - r.firstT
	return r.Nominal + (r.lead-r.first)/span, span
}

// Forget begins anew, after the count itself began anew.
func (r *Rate) Forget() { *r = Rate{Nominal: r.Nominal} }

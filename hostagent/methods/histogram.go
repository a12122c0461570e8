package methods

import (
	"math"
	"math/bits"
	"time"

	"wattmark/measure"
	"wattmark/store"
)

// histogram counts durations in flat memory: sixteen buckets an octave, so a
// quantile is told within 6 %.
type histogram struct {
	n       uint64
	max     time.Duration
	buckets [64 << 4]uint64
}

func (h *histogram) add(d time.Duration) {
	d = max(d, 0)
	h.n++
	h.max = max(h.max, d)
	h.buckets[bucket(uint64(d))]++
}

// bucket numbers durations below 16 ns one by one, and octaves by sixteenths.
func bucket(ns uint64) int {
	if ns < 16 {
		return int(ns)
	}
	octave := bits.Len64(ns) - 5
	return octave<<4 + int(ns>>octave)
}

// middle is the duration in the middle of a bucket.
func middle(b int) float64 {
	if b < 32 {
		return float64(b)
	}
	octave := b>>4 - 1
	return math.Ldexp(float64(b&15|16)+0.5, octave)
}

// quantile is NaN for nothing, and never more than the longest.
func (h *histogram) quantile(q float64) measure.Seconds {
	if h.n == 0 {
		return measure.Seconds(math.NaN())
	}
	left := uint64(math.Ceil(q * float64(h.n)))
	for b, n := range h.buckets {
		if n >= left {
			return measure.Seconds(min(middle(b), float64(h.max)) / 1e9)
		}
		left -= n
	}
	return measure.SecondsOf(h.max)
}

func (h *histogram) timing() store.Timing {
	longest := measure.Seconds(math.NaN())
	if h.n > 0 {
		longest = measure.SecondsOf(h.max)
	}
	return store.Timing{N: h.n, P50: h.quantile(0.5), P99: h.quantile(0.99), Max: longest}
}

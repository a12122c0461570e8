package ps3dump

import (
	"math"
	"strconv"
	"strings"
)

// hostClock follows the host's time from row to row. A row has it twice: as seconds in
// six digits, which resolve 10 µs before 10 s and 100 ms after hours, and as the whole
// microseconds since the row before, which lack what is below one.
type hostClock struct {
	lo, hi float64 // µs, the bounds of the last row
	print  float64 // as it is printed, where that is good to some µs
	rel    float64 // µs since the first row
	some   bool
}

// coarse is the step of a printed time, in µs, from which on it bounds nothing: the
// seconds since 1970 in six digits have one of 10 000 s.
const coarse = 1e6

// next takes a row's time, its resolution, and the microseconds since the row before.
func (h *hostClock) next(printed, step float64, dt int64) {
	h.print = math.NaN()
	if step <= 10 {
		h.print = printed
	}
	lo, hi := printed-step/2, printed+step/2
	if !h.some {
		h.lo, h.hi, h.some = lo, hi, true
		return
	}
	if dt < 0 { // not a number that an int holds
		dt = max(0, int64(printed-(h.lo+h.hi)/2))
	}
	h.rel += float64(dt) + 0.5 // half of what was cut off, on average
	switch sum := h.lo + float64(dt); {
	case step >= coarse:
		h.lo, h.hi = sum, h.hi+float64(dt)+1
	case max(lo, sum) > min(hi, h.hi+float64(dt)+1): // the host's clock was set
		h.lo, h.hi = lo, hi
	default:
		h.lo, h.hi = max(lo, sum), min(hi, h.hi+float64(dt)+1)
	}
}

// time is the time of the last row in µs, and its uncertainty.
func (h *hostClock) time() (at, u float64) {
	if at = h.print; math.IsNaN(at) {
		at = (h.lo + h.hi) / 2
	}
	return at, (h.hi - h.lo) / 2
}

// printed reads a time as the library prints it, in µs, with the step of its last
// digit. The stream writes six significant digits and leaves zeros at the end out, or
// six decimal places.
func printed(s string) (micros, step float64, ok bool) {
	v, err := strconv.ParseFloat(s, 64)
	if err != nil || math.IsNaN(v) || math.Abs(v) > 1e12 || strings.ContainsAny(s, "xX") {
		return 0, 0, false
	}
	mantissa, _, scientific := strings.Cut(strings.ToLower(s), "e")
	whole, fraction, _ := strings.Cut(strings.TrimLeft(mantissa, "+-0"), ".")
	digits := len(whole) + len(fraction)
	last := -len(fraction)
	if scientific || digits <= 6 {
		last = -5
		if v != 0 {
			last = int(math.Floor(math.Log10(math.Abs(v)))) - 5
		}
	}
	return v * 1e6, math.Pow10(last + 6), true
}

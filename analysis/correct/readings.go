package correct

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"wattmark/analysis/validate"
	"wattmark/measure"
)

// Reading is one value of the sensor: when it was read, and watts.
type Reading = validate.Reading

// Span is a stretch of time on the readings' clock.
type Span = validate.Span

// ErrReadings is wrapped by errors about readings that cannot be corrected.
var ErrReadings = errors.New("the readings cannot be corrected")

const (
	// Near is how far apart equal readings are repeats of one look of the sensor
	// (Burtscher et al., section 5, step 2).
	Near measure.Seconds = 0.004
	// K20Period is the K20's time from one look to the next: 66.7 Hz (section 4.3).
	K20Period measure.Seconds = 0.015
)

// Check reports what makes readings unfit: fewer than three, a clock that steps
// back, values that are no numbers.
func Check(rs []Reading) error {
	if len(rs) < 3 {
		return fmt.Errorf("correct: %w: %d of them: a slope needs three", ErrReadings, len(rs))
	}
	for i, r := range rs {
		if bad(float64(r.At)) || bad(float64(r.Power)) {
			return fmt.Errorf("correct: %w: reading %d is %v at %v", ErrReadings, i+1, r.Power, r.At)
		}
		if i > 0 && r.At <= rs[i-1].At {
			return fmt.Errorf("correct: %w: reading %d at %.6f s does not come after the one before at %.6f s: put them in order of time, each time once", ErrReadings, i+1, float64(r.At), float64(rs[i-1].At))
		}
	}
	return nil
}

func bad(v float64) bool { return math.IsNaN(v) || math.IsInf(v, 0) }

// Tidy puts readings in a form that [Check] takes: of several at one instant the
// last stays, as a log to the millisecond has them. The order is kept.
func Tidy(rs []Reading) []Reading {
	out := make([]Reading, 0, len(rs))
	for _, r := range rs {
		if n := len(out); n > 0 && out[n-1].At == r.At {
			out[n-1] = r
			continue
		}
		out = append(out, r)
	}
	return out
}

// Collapse drops readings that repeat the one before: equal, and at most near
// later (step 2). A register that stands still for longer than a period was
// renewed with the same value, which is news: so one equal reading a period stays,
// and no hole is left that a trapezoid would bridge by a ramp. It keeps the first
// and the last reading.
func Collapse(rs []Reading, near, period measure.Seconds) []Reading {
	out := make([]Reading, 0, len(rs))
	for i, r := range rs {
		if i > 0 && i < len(rs)-1 && r.Power == rs[i-1].Power && r.At-rs[i-1].At <= near && r.At-out[len(out)-1].At <= period {
			continue
		}
		out = append(out, r)
	}
	return out
}

// Changes keeps the first reading of each run of equal ones, and the very last: the
// register's changes, as arXiv 2312.02741 treats readings. Where the power rests
// this leaves a hole that ends in a ramp: use it to compare, not to integrate.
func Changes(rs []Reading) []Reading {
	out := make([]Reading, 0, len(rs))
	for i, r := range rs {
		if i == 0 || i == len(rs)-1 || r.Power != rs[i-1].Power {
			out = append(out, r)
		}
	}
	return out
}

// Renewals tells when the register was renewed and with what: its changes, each
// placed half a poll before it was first seen, and, where it stood still for
// more than one and a half periods, renewals with the same value between.
func Renewals(rs []Reading, period measure.Seconds) []Reading {
	var out []Reading
	for i, r := range rs {
		if i > 0 && r.Power == rs[i-1].Power {
			continue
		}
		at := r.At
		if i > 0 {
			at -= (r.At - rs[i-1].At) / 2
		}
		if n := len(out); n > 0 {
			last := out[n-1]
			for k := 1; at-last.At-measure.Seconds(k)*period > period/2; k++ {
				out = append(out, Reading{At: last.At + measure.Seconds(k)*period, Power: last.Power})
			}
		}
		out = append(out, Reading{At: at, Power: r.Power})
	}
	if len(out) == 0 {
		return nil
	}
	for last := out[len(out)-1]; rs[len(rs)-1].At-last.At > period; {
		last.At += period
		out = append(out, last)
	}
	return out
}

// Spacing is the median time between readings.
func Spacing(rs []Reading) measure.Seconds {
	if len(rs) < 2 {
		return measure.Seconds(math.NaN())
	}
	gaps := make([]float64, len(rs)-1)
	for i := range gaps {
		gaps[i] = float64(rs[i+1].At - rs[i].At)
	}
	return measure.Seconds(median(gaps))
}

// median sorts its argument; NaN for none.
func median(v []float64) float64 {
	if len(v) == 0 {
		return math.NaN()
	}
	slices.Sort(v)
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}

// Noise is a reading's standard deviation about a smooth course: robust, from how
// far each lies off the line between its neighbours, and not less than what
// rounding to the sensor's smallest step makes.
func Noise(rs []Reading) measure.Watt {
	var off []float64
	step := math.Inf(1)
	for i := 1; i+1 < len(rs); i++ {
		a, b, c := rs[i-1], rs[i], rs[i+1]
		if d := math.Abs(float64(b.Power - a.Power)); d > 1e-9 {
			step = min(step, d)
		}
		if a.Power == b.Power && b.Power == c.Power {
			continue // one look of the sensor, read three times
		}
		f := float64((b.At - a.At) / (c.At - a.At))
		line := (1-f)*float64(a.Power) + f*float64(c.Power)
		off = append(off, math.Abs(float64(b.Power)-line)/math.Sqrt(1+f*f+(1-f)*(1-f)))
	}
	if len(off) == 0 {
		return 0
	}
	return measure.Watt(max(median(off)/0.6745, step/math.Sqrt(12)))
}

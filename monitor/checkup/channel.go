package checkup

import (
	"math"

	"wattmark/measure"
)

// tally sums readings of one quantity. Sums are taken from the first reading on,
// so that small scatter on a large value keeps its digits.
type tally struct {
	n           uint64
	origin      float64
	sum, square float64
	least, most float64
}

func (t *tally) add(v float64) {
	if t.n == 0 {
		t.origin, t.least, t.most = v, v, v
	}
	t.n++
	d := v - t.origin
	t.sum += d
	t.square += d * d
	t.least, t.most = min(t.least, v), max(t.most, v)
}

func (t *tally) mean() float64 {
	if t.n == 0 {
		return math.NaN()
	}
	return t.origin + t.sum/float64(t.n)
}

// deviation is the sample standard deviation; zero of a single reading.
func (t *tally) deviation() float64 {
	if t.n < 2 {
		return 0
	}
	n := float64(t.n)
	return math.Sqrt(max(t.square-t.sum*t.sum/n, 0) / (n - 1))
}

// scaled is the tally of offset + gain·reading.
func (t *tally) scaled(gain, offset float64) Spread {
	s := Spread{
		N: t.n, Mean: offset + gain*t.mean(), Deviation: math.Abs(gain) * t.deviation(),
		Least: offset + gain*t.least, Most: offset + gain*t.most,
	}
	if gain < 0 {
		s.Least, s.Most = s.Most, s.Least
	}
	return s
}

// Spread is how a quantity's readings lie, in the quantity's unit.
type Spread struct {
	N           uint64  // readings
	Mean        float64 // NaN without readings
	Deviation   float64 // sample standard deviation
	Least, Most float64
}

// channelTally is one channel's readings, in counts.
type channelTally struct {
	tally
	low, high uint64 // counts at either end of the converter's range
}

func (t *channelTally) observe(c measure.Channel, counts []measure.Count) {
	ranged := c.MinCount != c.MaxCount
	for _, n := range counts {
		t.add(float64(n))
		if ranged && n <= c.MinCount {
			t.low++
		}
		if ranged && n >= c.MaxCount {
			t.high++
		}
	}
}

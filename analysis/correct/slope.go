package correct

import (
	"fmt"
	"strconv"
	"strings"

	"wattmark/measure"
)

// Slope is a way to take the slope of readings, which need not be evenly spaced.
// The zero value is the paper's: the difference of the two neighbours.
type Slope struct {
	half int // readings on either side that a parabola is laid through; 0 for the paper's
}

// Symmetric is the paper's formula: the neighbours' difference over their time.
var Symmetric = Slope{}

// Parabola fits a parabola through a reading and n on either side by least squares
// and takes its slope there. On even spacing that is Savitzky and Golay's filter
// (1964): noise shrinks as n^-1.5, and a step is smeared over 2n readings. n is at
// least 1.
func Parabola(n int) Slope { return Slope{max(n, 1)} }

// ParseSlope reads "symmetric", "five-point" or "savitzky-golay:N" with N readings in
// all, which is odd and from 3 to 101.
func ParseSlope(s string) (Slope, error) {
	switch s {
	case "", "symmetric":
		return Symmetric, nil
	case "five-point":
		return Parabola(2), nil
	}
	if rest, ok := strings.CutPrefix(s, "savitzky-golay:"); ok {
		if n, err := strconv.Atoi(rest); err == nil && n >= 3 && n <= 101 && n%2 == 1 {
			return Parabola(n / 2), nil
		}
	}
	return Slope{}, fmt.Errorf("slope %q: want symmetric, five-point, or savitzky-golay:N with an odd N from 3 to 101", s)
}

func (s Slope) String() string {
	switch s.half {
	case 0:
		return "symmetric"
	case 2:
		return "five-point"
	}
	return fmt.Sprintf("savitzky-golay:%d", 2*s.half+1)
}

// reach is how many readings on either side a slope takes in.
func (s Slope) reach() int { return max(s.half, 1) }

// weights returns the first reading and the weights, in 1/s, whose sum over the
// readings is the slope at reading i. w is reused. At the ends there are fewer.
func (s Slope) weights(rs []Reading, i int, w []float64) (int, []float64) {
	lo, hi := max(i-s.reach(), 0), min(i+s.reach(), len(rs)-1)
	w = append(w[:0], make([]float64, hi-lo+1)...)
	if s.half == 0 || hi-lo < 2 {
		d := 1 / float64(rs[hi].At-rs[lo].At)
		w[0], w[len(w)-1] = -d, d
		return lo, w
	}
	scale := float64(rs[hi].At - rs[lo].At)
	x := func(j int) float64 { return float64(rs[lo+j].At-rs[i].At) / scale }
	var m [5]float64 // Σ x^k
	for j := range w {
		p := 1.0
		for k := range m {
			m[k] += p
			p *= x(j)
		}
	}
	// The second row of the inverse of the normal equations for 1, x, x².
	c0 := m[2]*m[3] - m[1]*m[4]
	c1 := m[0]*m[4] - m[2]*m[2]
	c2 := m[1]*m[2] - m[0]*m[3]
	det := m[1]*c0 + m[2]*c1 + m[3]*c2
	for j := range w {
		w[j] = (c0 + c1*x(j) + c2*x(j)*x(j)) / det / scale
	}
	return lo, w
}

// True returns the power that a sensor of the constant c followed when it said
// these readings, at the same instants. Readings are as [Check] wants them.
func True(rs []Reading, c measure.Seconds, s Slope) []Reading {
	out := make([]Reading, len(rs))
	var w []float64
	for i, r := range rs {
		var lo int
		lo, w = s.weights(rs, i, w)
		slope := 0.0
		for j, x := range w {
			slope += x * float64(rs[lo+j].Power)
		}
		out[i] = Reading{At: r.At, Power: r.Power + measure.Watt(float64(c)*slope)}
	}
	return out
}

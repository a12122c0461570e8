package sensor

import (
	"math"
)

// weigh says how much each renewal is to be believed. Its variance is that of a
// value at rest, and, where the prediction is steep, the square of the slope times
// how well the renewal's instant is known: the polls lie some way apart, and the
// beat jitters. What no model explains although the load is said to rest there (a
// kernel whose power changes meanwhile) is left out.
//
// slope is the steeper of the models' predictions, in W/s, r the smaller of their
// residuals: so neither model is favoured.
func weigh(r, slope, when []float64, least float64) (w []float64, noise float64, left int) {
	n := len(r)
	quiet := make([]float64, n)
	for i := range r {
		quiet[i] = math.Abs(r[i])
	}
	noise = max(1.4826*float64(median(quiet)), least)
	scale := 1.0
	for range 3 {
		var rest, steep []float64
		for i := range r {
			if s := slope[i] * when[i]; s < noise {
				rest = append(rest, math.Abs(r[i]))
			} else {
				steep = append(steep, math.Abs(r[i])/math.Hypot(noise, scale*s))
			}
		}
		if len(rest) >= fewest {
			noise = max(1.4826*float64(median(rest)), least)
		}
		if len(steep) >= 8 {
			scale = min(max(scale*1.4826*float64(median(steep)), 0.5), 4)
		}
	}
	const far = 6 // standard deviations
	w = make([]float64, n)
	for i := range r {
		s := math.Hypot(noise, scale*slope[i]*when[i])
		if math.Abs(r[i]) > far*s {
			left++
			continue
		}
		w[i] = 1 / (s * s)
	}
	// Where the models miss a good part, it is the models that are wrong.
	if left > n/4 {
		for i := range w {
			s := math.Hypot(noise, scale*slope[i]*when[i])
			w[i] = 1 / (s * s)
		}
		left = 0
	}
	return w, noise, left
}

// slopes is how steep the prediction is around each renewal: the change over the
// uncertainty of its instant on both sides, so that a kink counts too.
func (l *linear) slopes(r response, when []float64) []float64 {
	n := len(l.y)
	weights := append([]float64(nil), l.x.RawVector().Data...)
	at := func(sign float64) []float64 {
		t := make([]float64, n)
		for i := range t {
			t[i] = l.at[i] + sign*when[i]
			if i > 0 && t[i] < t[i-1] {
				t[i] = t[i-1]
			}
		}
		l.k.columns(r, t, l.cols)
		out := make([]float64, n)
		for i := range out {
			for j, x := range weights {
				out[i] += x * l.cols[i*l.k.k+j]
			}
		}
		return out
	}
	a, b := at(-1), at(1)
	for i := range a {
		a[i] = math.Abs(b[i]-a[i]) / (2 * when[i])
	}
	return a
}

// instants is how well each renewal's instant is known, as a standard deviation: it
// was seen between two polls, anywhere.
func instants(list []Update, jitter, polling float64) []float64 {
	out := make([]float64, len(list))
	for i, u := range list {
		width := float64(u.Late - u.Early)
		if width == 0 {
			width = polling
		}
		out[i] = math.Hypot(width/math.Sqrt(12), jitter) + 1e-6
	}
	return out
}

package referee

import (
	"math"
	"math/rand/v2"
)

// Noise makes the errors of successive readings, of standard deviation 1 where there is one.
type Noise func(rng *rand.Rand, n int) []float64

// White is independent and normal.
func White(rng *rand.Rand, n int) []float64 {
	v := make([]float64, n)
	for i := range v {
		v[i] = rng.NormFloat64()
	}
	return v
}

// AR1 is a first-order Markov process.
func AR1(rho float64) Noise {
	return func(rng *rand.Rand, n int) []float64 {
		v := White(rng, n)
		for i := 1; i < n; i++ {
			v[i] = rho*v[i-1] + math.Sqrt(1-rho*rho)*v[i]
		}
		return v
	}
}

// Pink is 1/f noise over the whole recording: a sum of Markov processes an octave apart.
func Pink(rng *rand.Rand, n int) []float64 {
	v := make([]float64, n)
	octaves := math.Floor(math.Log2(float64(max(n, 2))))
	for k := range int(octaves) {
		for i, x := range AR1(math.Exp(-math.Ldexp(1, -k)))(rng, n) {
			v[i] += x / math.Sqrt(octaves)
		}
	}
	return v
}

// Student is independent, of so many degrees of freedom; below three it has no variance and is not scaled.
func Student(dof int) Noise {
	return func(rng *rand.Rand, n int) []float64 {
		v := make([]float64, n)
		for i := range v {
			var q float64
			for range dof {
				x := rng.NormFloat64()
				q += x * x
			}
			v[i] = rng.NormFloat64() / math.Sqrt(q/float64(dof))
			if dof > 2 {
				v[i] *= math.Sqrt(float64(dof-2) / float64(dof))
			}
		}
		return v
	}
}

// Spiky is white, with one reading in 500 too high by up to 60 standard deviations.
func Spiky(rng *rand.Rand, n int) []float64 {
	v := White(rng, n)
	for i := range v {
		if rng.IntN(500) == 0 {
			v[i] += 60 * rng.Float64()
		}
	}
	return v
}

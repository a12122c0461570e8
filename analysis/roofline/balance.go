package roofline

import (
	"math"
	"math/rand/v2"
	"slices"

	"gonum.org/v1/gonum/mat"
)

// derive works out the balances, with intervals from draws of the unknowns: they
// are ratios, whose errors are not normal where a denominator is small.
func (m *Model) derive(s *solution, c Common) {
	gap, balance, best := m.balances(s.theta)
	const draws = 2000
	rng := rand.New(rand.NewPCG(1, uint64(s.dof)))
	root := rootOf(s.cov)
	list := [3][]float64{}
	for range draws {
		t := s.draw(rng, root, c)
		g, b, f := m.balances(t)
		for i, v := range []float64{g, b, f} {
			list[i] = append(list[i], v)
		}
	}
	half := func(v []float64) float64 {
		slices.Sort(v)
		return (v[int((1+Level)/2*draws)] - v[int((1-Level)/2*draws)]) / 2
	}
	m.Gap, m.EnergyBalance, m.BestFlop = Figure{gap, half(list[0])}, Figure{balance, half(list[1])}, Figure{best, half(list[2])}
}

// balances are B_ε, the intensity of half of the best flops a joule, and ε̂.
func (m *Model) balances(t theta) (gap, balance, best float64) {
	gap = t[1] / t[0]
	best = t[0] + t[2]/m.Peaks.Flops
	eta := t[0] / best
	if balance = eta * gap; balance < m.TimeBalance { // I = η B_ε + (1 − η)(B_τ − I)
		balance = (eta*gap + (1-eta)*m.TimeBalance) / (2 - eta)
	}
	return gap, balance, best
}

// rootOf is a root of a covariance: draws of unit variance become draws of it.
func rootOf(cov *mat.SymDense) [unknowns][unknowns]float64 {
	var out [unknowns][unknowns]float64
	var eig mat.EigenSym
	// Unknowns decades apart: of length one first.
	var d theta
	scaled := mat.NewSymDense(unknowns, nil)
	for i := range d {
		if d[i] = math.Sqrt(cov.At(i, i)); d[i] == 0 {
			d[i] = 1
		}
	}
	for i := range d {
		for j := i; j < unknowns; j++ {
			scaled.SetSym(i, j, cov.At(i, j)/d[i]/d[j])
		}
	}
	if !eig.Factorize(scaled, true) {
		return out
	}
	var v mat.Dense
	eig.VectorsTo(&v)
	for i := range d {
		for j, l := range eig.Values(nil) {
			out[i][j] = d[i] * v.At(i, j) * math.Sqrt(max(l, 0))
		}
	}
	return out
}

// draw is one guess of the unknowns.
func (s *solution) draw(rng *rand.Rand, root [unknowns][unknowns]float64, c Common) (t theta) {
	wide := 1.0
	if s.dof > 0 { // Student's t of several variables
		var chi float64
		for range s.dof {
			z := rng.NormFloat64()
			chi += z * z
		}
		wide = math.Sqrt(float64(s.dof) / chi)
	}
	var z theta
	for i := range z {
		z[i] = wide * rng.NormFloat64()
	}
	gain, offset := 1+c.Gain*rng.NormFloat64(), float64(c.Offset)*rng.NormFloat64()
	for i := range t {
		t[i] = s.theta[i]
		for j := range z {
			t[i] += root[i][j] * z[j]
		}
		t[i] *= gain
	}
	t[2] += offset
	return t
}

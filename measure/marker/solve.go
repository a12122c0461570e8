package marker

import "math"

const (
	// enough is the relative gain of the sum of squares that a step is not taken
	// for: of a thousand points it moves t0 by a thirtieth of its uncertainty.
	enough = 1e-6
	// leastDamp is the damping after a step that failed: points that change sides
	// of an edge make it do so, and less would not help.
	leastDamp = 0.05
)

// solve minimises the model's sum of squares by Levenberg and Marquardt's
// method from the parameters at hand, within the bounds of ln tau and of t0,
// and returns the inverse of JᵀJ there. ok is false where no minimum is found.
func (m *model) solve(lowTau, highTau, reach float64) (cost float64, inverse [params]vector, ok bool) {
	var h, trialH [params]vector
	var g, trialG vector
	cost = m.normal(&m.par, &h, &g)
	damp := 1e-3
	for range 40 {
		damped := h
		for a := range params {
			damped[a][a] *= 1 + damp
		}
		step, good := cholesky(&damped, &g)
		if !good {
			return cost, inverse, false
		}
		trial, promise := m.par, 0.0
		for a := range params {
			trial[a] += step[a]
			promise += step[a] * g[a]
		}
		if promise < enough*cost {
			break
		}
		trial[parTau] = min(max(trial[parTau], lowTau), highTau)
		trial[parFall] = min(max(trial[parFall], lowTau), highTau)
		trial[parT0] = min(max(trial[parT0], -reach), reach)
		next := m.normal(&trial, &trialH, &trialG)
		if !(next < cost) {
			if damp = max(8*damp, leastDamp); damp > 1e9 || math.IsNaN(next) {
				break
			}
			continue
		}
		gain := cost - next
		m.par, h, g, cost = trial, trialH, trialG, next
		damp = max(damp/6, 1e-9)
		if gain < 1e-7*cost {
			break
		}
	}
	inverse, ok = invert(&h)
	return cost, inverse, ok
}

// cholesky solves h·x = g for a symmetric positive definite h, after scaling
// its diagonal to 1: seconds and watts differ by many powers of ten.
func cholesky(h *[params]vector, g *vector) (x vector, ok bool) {
	var l [params]vector
	var scale vector
	for a := range params {
		if !(h[a][a] > 0) {
			return x, false
		}
		scale[a] = 1 / math.Sqrt(h[a][a])
	}
	for a := range params {
		for b := 0; b <= a; b++ {
			s := h[a][b] * scale[a] * scale[b]
			for k := range b {
				s -= l[a][k] * l[b][k]
			}
			if a != b {
				l[a][b] = s / l[b][b]
				continue
			}
			if !(s > 1e-13) {
				return x, false
			}
			l[a][a] = math.Sqrt(s)
		}
	}
	for a := range params {
		s := g[a] * scale[a]
		for k := range a {
			s -= l[a][k] * x[k]
		}
		x[a] = s / l[a][a]
	}
	for a := params - 1; a >= 0; a-- {
		s := x[a]
		for k := a + 1; k < params; k++ {
			s -= l[k][a] * x[k]
		}
		x[a] = s / l[a][a]
	}
	for a := range params {
		x[a] *= scale[a]
	}
	return x, true
}

// invert returns the inverse of a symmetric positive definite matrix.
func invert(h *[params]vector) (inv [params]vector, ok bool) {
	for a := range params {
		var unit vector
		unit[a] = 1
		col, good := cholesky(h, &unit)
		if !good {
			return inv, false
		}
		inv[a] = col
	}
	return inv, true
}

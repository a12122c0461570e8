package marker

import "math"

// settle is the number of time constants after which a step counts as done:
// what is left, 6e-6 of it, is below every converter's resolution.
const settle = 12

// stepAt returns the response at time t to a unit step at time 0 that passes a
// first-order lag tau and is then averaged over a centred window box, and its
// derivatives by t and by ln tau. Seconds; box may be 0.
func stepAt(t, box, tau float64) (s, dt, dlnTau float64) {
	if t <= -box/2 {
		return 0, 0, 0
	}
	if t-box/2 >= settle*tau {
		return 1, 0, 0
	}
	if box < 1e-3*tau {
		e := math.Exp(-t / tau)
		if t <= 0 {
			return 0, 0, 0
		}
		return 1 - e, e / tau, -t / tau * e
	}
	// With R(t) = t − τ(1 − e^(−t/τ)), the integral of the lag's answer, the
	// average is (R(t+box/2) − R(t−box/2)) / box.
	hi := t + box/2
	e := math.Exp(-hi / tau)
	s = hi - tau*(1-e)
	dt = 1 - e
	dlnTau = -tau + (tau+hi)*e
	if lo := t - box/2; lo > 0 {
		e := math.Exp(-lo / tau)
		s -= lo - tau*(1-e)
		dt -= 1 - e
		dlnTau -= -tau + (tau+lo)*e
	}
	return s / box, dt / box, dlnTau / box
}

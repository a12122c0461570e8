package board

import (
	"math"
	"math/rand/v2"
	"time"
)

// segment is a stretch of constant load. Its times are seconds since start.
type segment struct {
	start   time.Duration
	target  float64 // watts that the load settles at, cool
	forever bool    // it began before all times: no transient is left in it

	p0, theta0 float64 // load power and its thermal average at start, W
	// P(t) = c0 + c1·e^(−t/tau) + c2·e^(−t/heat)
	c0, c1, c2 float64
	tau, heat  float64
	thetaC     float64 // θ(t) = target + thetaC·e^(−t/tau) + thetaD·e^(−t/heat)
	thetaD     float64
}

// steady is the segment of a level that has lasted for ever.
func (b *Board) steady(level float64) segment {
	s := segment{start: math.MinInt64, target: level, forever: true, p0: level, theta0: level}
	b.solve(&s)
	return s
}

// solve works out the exponentials from the state at the segment's start:
// p' = (target − p)/τ and θ' = (p − θ)/τθ, and the leakage is Drift·(θ − idle).
func (b *Board) solve(s *segment) {
	s.tau, s.heat = b.cfg.TauUp.Seconds(), b.cfg.TauThermal.Seconds()
	if s.target < s.p0 {
		s.tau = b.cfg.TauDown.Seconds()
	}
	a := s.p0 - s.target
	s.thetaC = -a * s.tau / (s.heat - s.tau)
	s.thetaD = s.theta0 - s.target - s.thetaC
	k := b.cfg.Drift
	s.c0 = s.target + k*(s.target-float64(b.cfg.Levels.Idle))
	s.c1 = a + k*s.thetaC
	s.c2 = k * s.thetaD
}

// relink carries the state over from segment i−1 to i and on to the last.
func (b *Board) relink(i int) {
	for ; i < len(b.segs); i++ {
		s := &b.segs[i]
		if i == 0 {
			if s.forever {
				*s = b.steady(s.target)
			} else {
				b.solve(s)
			}
			continue
		}
		s.p0, s.theta0 = b.segs[i-1].state(s.start)
		b.solve(s)
	}
}

// state returns the load power and its thermal average at an instant.
func (s *segment) state(at time.Duration) (p, theta float64) {
	if s.forever {
		return s.target, s.target
	}
	t := (at - s.start).Seconds()
	e1, e2 := math.Exp(-t/s.tau), math.Exp(-t/s.heat)
	return s.target + (s.p0-s.target)*e1, s.target + s.thetaC*e1 + s.thetaD*e2
}

// power returns the total power, t seconds after the segment's start.
func (s *segment) power(t float64) float64 {
	if s.forever {
		return s.c0
	}
	return s.c0 + s.c1*math.Exp(-t/s.tau) + s.c2*math.Exp(-t/s.heat)
}

// energy returns the integral of the power over [from, from+d] seconds after
// the segment's start. Expm1 keeps the digits of short spans.
func (s *segment) energy(from, d float64) float64 {
	if s.forever {
		return s.c0 * d
	}
	part := func(c, tau float64) float64 {
		return -c * tau * math.Exp(-from/tau) * math.Expm1(-d/tau)
	}
	return s.c0*d + part(s.c1, s.tau) + part(s.c2, s.heat)
}

// line is one sine of the ripple: amp·cos(omega·t + phase).
type line struct{ amp, omega, phase float64 }

// drawLines spreads the sines over the band, one to each equal part of it, so
// that no seed leaves a part of the band empty.
func drawLines(r Ripple, rng *rand.Rand) []line {
	if r.RMS == 0 {
		return nil
	}
	out := make([]line, r.Lines)
	width := float64(r.High-r.Low) / float64(r.Lines)
	for i := range out {
		f := float64(r.Low) + width*(float64(i)+rng.Float64())
		out[i] = line{float64(r.RMS) * math.Sqrt(2/float64(r.Lines)), 2 * math.Pi * f, 2 * math.Pi * rng.Float64()}
	}
	return out
}

func (b *Board) ripple(t float64) float64 {
	sum := 0.0
	for _, l := range b.lines {
		sum += l.amp * math.Cos(l.omega*t+l.phase)
	}
	return sum
}

// rippleEnergy is the exact integral of ripple over [from, to] in seconds.
func (b *Board) rippleEnergy(from, to float64) float64 {
	sum := 0.0
	for _, l := range b.lines {
		// sin b − sin a as a product: the difference of two near sines would lose digits.
		mid, half := l.omega*(from+to)/2+l.phase, l.omega*(to-from)/2
		sum += l.amp / l.omega * 2 * math.Cos(mid) * math.Sin(half)
	}
	return sum
}

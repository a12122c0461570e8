package measure

import (
	"cmp"
	"math"
	"slices"
)

// The budget follows JCGM 100:2008 (GUM), chapter 5: every source has a
// standard uncertainty and a sensitivity coefficient, the derivative of the
// energy by the source. The derivatives are exact, from the rail's moments.
//
//   - A gain, an offset, a shunt, an assumed voltage is one unknown for the
//     whole window: it does not average out. What it does to current and to
//     voltage of the same rail is added before squaring. Different sources are
//     independent.
//   - Noise is new with every reading and averages out.
//   - Quantisation is in part the one, in part the other (see quantisation).
//   - The tick rate, the window's ends and gaps act on all rails at once: the
//     total's contribution comes from the total power, not from a root of squares.

// coverage is k: about 95 % for a normal distribution (GUM, 6.3.3).
const coverage = 2

// railStats is what a rail's budget is made from.
type railStats struct {
	rail   Rail
	x, y   Channel // y is zero for a rail of one channel
	nx, ny float64 // scatter of a reading in counts
	m      Moments
	// spacing is the mean distance of two independent readings, in seconds.
	spacing float64
	// gainY is the variance of one second reading by that of the converter's: less
	// than one where it was interpolated.
	gainY float64
}

// sensitivities are the derivatives of power by the value of each channel, and
// the parts of the channels' values that their gains scale, as linear forms of
// the counts.
type sensitivities struct{ dx, dy, gainX, gainY form }

func (s *railStats) sensitivities() sensitivities {
	i, v := s.rail.Linear([]Channel{s.x, s.y}).forms()
	out := sensitivities{dx: v, gainX: form{c: s.x.Offset, x: s.x.Gain}, gainY: form{c: s.y.Offset, y: s.y.Gain}}
	switch s.rail.Wiring {
	case WiringShunt: // P = (X − Y)·Y/R
		k := 1 / float64(s.rail.Shunt)
		out.dx, out.dy = v.scale(k), i.plus(v.scale(-k))
	case WiringClamp: // P = X·Y
		out.dy = i
	}
	return out
}

// budget lists the contributions that belong to this rail alone.
func (s *railStats) budget() []Contribution {
	var out []Contribution
	add := func(source string, u float64, systematic bool) {
		if u = math.Abs(u); u > 0 {
			out = append(out, Contribution{Source: source, U: Joule(u), Systematic: systematic})
		}
	}
	d := s.sensitivities()
	channel := func(c Channel, sigma float64, d, gain form) {
		add("gain "+c.Name, c.UGain*s.m.product(gain, d), true)
		add("offset "+c.Name, c.UOffset*s.m.integral(d), true)
		random := math.Abs(c.Gain) * math.Sqrt(s.spacing*max(s.m.product(d, d), 0))
		add("noise "+c.Name, sigma*random, false)
		fixed, dithered := quantisation(sigma)
		fixedU, ditheredU := fixed*c.Gain*s.m.integral(d), dithered*random
		add("quantisation "+c.Name, math.Hypot(fixedU, ditheredU), math.Abs(fixedU) > ditheredU)
	}
	channel(s.x, s.nx, d.dx, d.gainX)
	if s.rail.Y >= 0 {
		channel(s.y, s.ny, d.dy, d.gainY)
	}
	i, v := s.rail.Linear([]Channel{s.x, s.y}).forms()
	switch s.rail.Wiring {
	case WiringShunt:
		add("shunt "+s.rail.Name, s.rail.UShunt*s.m.product(i, v), true)
		// Y enters squared, so its scatter shifts the mean by σ²/R. It is not
		// corrected: scatter that both channels share would not do it.
		_, dithered := quantisation(s.ny)
		scatter := s.gainY * (s.ny*s.ny + dithered*dithered) * s.y.Gain * s.y.Gain
		add("squared noise "+s.y.Name, scatter/float64(s.rail.Shunt)*float64(s.m.One), true)
	case WiringAssumed:
		add("assumed voltage "+s.rail.Name, float64(s.rail.UAssumed)*s.m.integral(i), true)
	}
	return out
}

// quantisation splits the standard uncertainty of rounding to whole counts,
// 1/√12, into the part that stays the same while the signal rests and the part
// that is new with every reading, both in counts. Without noise every reading of
// a resting signal is rounded alike, and nothing averages out; noise of σ counts
// smears the rounding: the mean error of a signal that rests at phase φ of a
// count is Σ (−1)^k/(πk)·exp(−2π²k²σ²)·sin(2πkφ), whose mean square over φ is
// taken here (B. Widrow, I. Kollár, Quantization Noise, 2008, chapters 4 and
// 19). At σ = 0.5 the fixed part is 0.0016 count.
func quantisation(sigma float64) (fixed, dithered float64) {
	const full = 1.0 / 12
	var v float64
	if sigma < 0.02 {
		return math.Sqrt(full), 0 // the series converges slowly, and to this
	}
	for k := 1.0; k <= 100; k++ {
		term := math.Exp(-4*math.Pi*math.Pi*k*k*sigma*sigma) / (2 * math.Pi * math.Pi * k * k)
		v += term
		if term < 1e-12 {
			break
		}
	}
	v = min(v, full)
	return math.Sqrt(v), math.Sqrt(full - v)
}

// edgeVariance returns the variance of the energy from the window's ends, in J².
// A shift δ of an end changes the energy by mid·δ + half·|δ|, where the power
// steps there; for normal δ with correlation ρ, E|δ₁δ₂| = u₁u₂·(2/π)·(√(1−ρ²)
// + ρ·asin ρ).
func edgeVariance(from, to levels, e Edges) float64 {
	uf, ut, rho := float64(e.UFrom), float64(e.UTo), e.Correlation
	abs := 2 / math.Pi * (math.Sqrt(1-rho*rho) + rho*math.Asin(rho))
	square := func(l levels) float64 { return l.mid()*l.mid() + l.half()*l.half() }
	cov := from.mid()*to.mid()*rho + from.half()*to.half()*abs
	return max(square(from)*uf*uf+square(to)*ut*ut-2*cov*uf*ut, 0)
}

// gapVariance returns the variance of the energy of the bridged gaps, in J². A
// gap of length g between powers P₀ and P₁ has g²·((P₁ − P₀)²/12 + s²): the
// first term is a step that fell anywhere within it, as likely here as there;
// the second is what else the power may have done meanwhile, taken as its
// standard deviation s over the window for the whole of the gap. Gaps are
// independent of each other.
func (s *railSums) gapVariance(one, mean, gap2, tick float64) float64 {
	if gap2 == 0 {
		return 0
	}
	spread := max(s.pp.value()/one-mean*mean, 0)
	return (s.step2 + spread*gap2) * tick * tick
}

// expand returns twice the root of the sum of squares, largest line first in
// the budget.
func expand(budget []Contribution) Joule {
	var s float64
	for _, c := range budget {
		s += float64(c.U) * float64(c.U)
	}
	slices.SortStableFunc(budget, func(a, b Contribution) int { return cmp.Compare(b.U, a.U) })
	return Joule(coverage * math.Sqrt(s))
}

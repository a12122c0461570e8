package compare

import (
	"fmt"
	"math"
)

// Work is an amount of work that a run does, exactly known: 4.4e12 flop.
type Work struct {
	Unit   string
	Amount float64
}

// PerWork is energy by work.
type PerWork struct {
	Unit           string
	WorkA, WorkB   float64
	A, B           Mean    // in joules a unit
	Ratio          float64 // B over A, each by its own work
	Low, High      float64
	RateA, RateB   float64 // units a second
	P              float64
	SameAmountBoth bool // then the ratio is that of the energies
}

// Per divides the energies by the work of a run of A and of B, which must be of
// one unit. energy and time are the effects in these quantities.
func Per(energy, time *Effect, a, b Work) (PerWork, error) {
	for _, w := range []Work{a, b} {
		if !(w.Amount > 0) || math.IsInf(w.Amount, 0) || w.Unit == "" {
			return PerWork{}, fmt.Errorf("%w: work %q of %v: want a unit and a positive amount", ErrRuns, w.Unit, w.Amount)
		}
	}
	if a.Unit != b.Unit {
		return PerWork{}, fmt.Errorf("%w: A's work is in %s and B's in %s", ErrRuns, a.Unit, b.Unit)
	}
	scale := a.Amount / b.Amount
	out := PerWork{
		Unit: a.Unit, WorkA: a.Amount, WorkB: b.Amount, A: energy.A.by(a.Amount), B: energy.B.by(b.Amount),
		Ratio: energy.Ratio * scale, Low: energy.Low * scale, High: energy.High * scale,
		RateA: a.Amount / time.A.Value, RateB: b.Amount / time.B.Value, P: energy.P, SameAmountBoth: scale == 1,
	}
	if scale != 1 {
		out.P = energy.chanceOf(math.Log(out.Ratio))
	}
	return out, nil
}

func (m Mean) by(amount float64) Mean {
	m.Value, m.Low, m.High = m.Value/amount, m.Low/amount, m.High/amount
	return m
}

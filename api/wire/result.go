package wire

import (
	"errors"
	"fmt"
	"math"

	"wattmark/api/wattmarkv1"
	"wattmark/measure"
	"wattmark/measure/clock"
)

// Energy converts an energy with its expanded uncertainty (k = 2) to its message.
func Energy(e measure.Estimate) *wattmarkv1.Energy {
	return &wattmarkv1.Energy{EnergyJ: float64(e.Energy), EnergyUJ: float64(e.U)}
}

// ParseEnergy converts an energy; its uncertainty must not be negative.
func ParseEnergy(p *wattmarkv1.Energy) (measure.Estimate, error) {
	if p == nil {
		return measure.Estimate{}, refuse("no energy")
	}
	if err := finite("energy", field{"energy_j", p.EnergyJ}, field{"energy_u_j", p.EnergyUJ}); err != nil {
		return measure.Estimate{}, err
	}
	if p.EnergyUJ < 0 {
		return measure.Estimate{}, refuse("energy: energy_u_j is %v J: must not be negative", p.EnergyUJ)
	}
	return measure.Estimate{Energy: measure.Joule(p.EnergyJ), U: measure.Joule(p.EnergyUJ)}, nil
}

// RailResult converts one rail over a window to its message. The role is in
// the setup; the budget does not travel.
func RailResult(r measure.RailResult) *wattmarkv1.RailResult {
	return &wattmarkv1.RailResult{Name: Text(r.Name), Energy: Energy(r.Energy), MeanW: float64(r.Mean), PeakW: float64(r.Peak), Budget: Budget(r.Budget)}
}

// ParseRailResult converts one rail over a window.
func ParseRailResult(p *wattmarkv1.RailResult) (measure.RailResult, error) {
	if p == nil {
		return measure.RailResult{}, refuse("an empty rail result")
	}
	e, err := ParseEnergy(p.Energy)
	if err != nil {
		return measure.RailResult{}, err
	}
	if err := finite("rail "+quote(p.Name), field{"mean_w", p.MeanW}, field{"peak_w", p.PeakW}); err != nil {
		return measure.RailResult{}, err
	}
	budget, err := ParseBudget(p.Budget)
	if err != nil {
		return measure.RailResult{}, fmt.Errorf("rail %s: %w", quote(p.Name), err)
	}
	return measure.RailResult{
		Name: p.Name, Energy: e, Mean: measure.Watt(p.MeanW), Peak: measure.Watt(p.PeakW), Budget: budget,
	}, text("rail", p.Name)
}

// Budget converts the lines of an uncertainty budget to their messages.
func Budget(lines []measure.Contribution) (out []*wattmarkv1.Contribution) {
	for _, c := range lines {
		out = append(out, &wattmarkv1.Contribution{Source: Text(c.Source), UJ: float64(c.U), Systematic: c.Systematic})
	}
	return out
}

// ParseBudget converts the lines of an uncertainty budget; none of them negative.
func ParseBudget(p []*wattmarkv1.Contribution) (out []measure.Contribution, err error) {
	for _, c := range p {
		if c == nil {
			return nil, refuse("budget: an empty line")
		}
		if err := errors.Join(text("source", c.Source), finite("budget "+quote(c.Source), field{"u_j", c.UJ})); err != nil {
			return nil, err
		}
		if c.UJ < 0 {
			return nil, refuse("budget %s: u_j is %v J: must not be negative", quote(c.Source), c.UJ)
		}
		out = append(out, measure.Contribution{Source: c.Source, U: measure.Joule(c.UJ), Systematic: c.Systematic})
	}
	return out, nil
}

// Clock converts a clock fit to its message. u_s is the larger of the standard
// uncertainties that the fit's covariance gives the two ends of the window.
func Clock(f clock.Fit, from, to measure.Seconds) *wattmarkv1.Clock {
	return &wattmarkv1.Clock{
		AS: float64(f.A), B: f.B, US: math.Max(mapped(f, from), mapped(f, to)), RmsS: float64(f.RMS),
		Observations: toUint32(f.Used), Rejected: toUint32(f.Rejected),
		OriginS: float64(f.Origin), VarAS2: f.VarA, VarB: f.VarB, CovAbS: f.CovAB,
	}
}

// mapped is the standard uncertainty of a + b·δ at the host time δ that maps
// to device time t: u² = var a + 2 δ cov(a, b) + δ² var b (GUM, 5.2.2).
func mapped(f clock.Fit, t measure.Seconds) float64 {
	if f.B == 0 {
		return 0
	}
	d := float64(t-f.A) / f.B
	return math.Sqrt(math.Max(0, f.VarA+2*d*f.CovAB+d*d*f.VarB))
}

// ParseClock converts a clock fit; an unset message is nil.
func ParseClock(p *wattmarkv1.Clock) (*clock.Fit, error) {
	if p == nil {
		return nil, nil
	}
	err := finite("clock", field{"a_s", p.AS}, field{"b", p.B}, field{"u_s", p.US}, field{"rms_s", p.RmsS},
		field{"origin_s", p.OriginS}, field{"var_a_s2", p.VarAS2}, field{"var_b", p.VarB}, field{"cov_ab_s", p.CovAbS})
	switch {
	case err != nil:
		return nil, err
	case !(p.B > 0):
		return nil, refuse("clock: rate b is %v: must be positive", p.B)
	case p.VarAS2 < 0 || p.VarB < 0 || p.RmsS < 0 || p.US < 0:
		return nil, refuse("clock: a variance or an uncertainty is negative")
	}
	return &clock.Fit{
		Origin: seconds(p.OriginS), A: seconds(p.AS), B: p.B, VarA: p.VarAS2, VarB: p.VarB, CovAB: p.CovAbS,
		RMS: seconds(p.RmsS), Used: int(p.Observations), Rejected: int(p.Rejected),
	}, nil
}

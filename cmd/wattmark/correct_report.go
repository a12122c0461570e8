package main

import (
	"fmt"
	"math"

	"wattmark/analysis/correct"
	"wattmark/analysis/sensor"
	"wattmark/measure"
)

// correctionReport is what correct says of a file.
type correctionReport struct {
	Readings   string            `json:"readings"`
	Field      string            `json:"field,omitempty"`
	Sensor     correctedSensor   `json:"sensor"`
	SpacingS   *float64          `json:"spacing_s"` // between readings, median
	Used       int               `json:"readings_used"`
	Level      *levelReport      `json:"level,omitempty"`
	Work       []pieceReport     `json:"work"`
	TotalJ     *float64          `json:"energy_j"`
	TotalUJ    *float64          `json:"energy_u_j"` // k = 2
	Phases     []phaseReport     `json:"phases,omitempty"`
	Bound      *unseenReport     `json:"bound,omitempty"`
	NoiseW     *float64          `json:"corrected_noise_w,omitempty"`
	Warnings   []string          `json:"warnings,omitempty"`
	Picture    string            `json:"picture,omitempty"`
	raw, truth []correct.Reading // to draw
}

type correctedSensor struct {
	Model     string  `json:"model"`
	ConstantS float64 `json:"constant_s,omitempty"`
	UConstant float64 `json:"constant_u_s,omitempty"`
	WindowS   float64 `json:"window_s,omitempty"`
	PeriodS   float64 `json:"period_s"`
	DelayS    float64 `json:"delay_s"`
	Slope     string  `json:"slope,omitempty"`
}

type levelReport struct {
	IdleW      float64 `json:"idle_w"`
	ActiveW    float64 `json:"active_idle_w"`
	ThresholdW float64 `json:"threshold_w"`
	Clear      bool    `json:"clear"`
	Statement  string  `json:"statement"`
}

type pieceReport struct {
	FromS    float64        `json:"from_s"`
	ToS      float64        `json:"to_s"`
	EnergyJ  *float64       `json:"energy_j"`
	UJ       *float64       `json:"energy_u_j"` // k = 2
	MeanW    *float64       `json:"mean_w"`
	RawJ     *float64       `json:"raw_energy_j"`
	Budget   []budgetReport `json:"budget,omitempty"`
	Warnings []string       `json:"warnings,omitempty"`
}

type phaseReport struct {
	Kind  string   `json:"kind"`
	FromS float64  `json:"from_s"`
	ToS   float64  `json:"to_s"`
	RawJ  *float64 `json:"raw_energy_j"`
}

type unseenReport struct {
	Share  float64 `json:"share_seen"`
	LowJ   float64 `json:"low_j"`
	HighJ  float64 `json:"high_j"`
	FloorW float64 `json:"floor_w"`
	CapW   float64 `json:"cap_w"`
}

func newCorrectedSensor(p *sensor.Profile, slope string) correctedSensor {
	r := correctedSensor{Model: string(p.Model), WindowS: float64(p.Window), PeriodS: float64(p.Period), DelayS: float64(p.Delay)}
	if p.Model == sensor.FirstOrder {
		l := correct.FromProfile(p)
		r.ConstantS, r.UConstant, r.Slope = float64(l.C), float64(l.U), slope
	}
	return r
}

func newPieceReport(e correct.Energy, warnings []string) pieceReport {
	p := pieceReport{
		FromS: float64(e.From), ToS: float64(e.To), EnergyJ: number(float64(e.Energy)), UJ: number(float64(e.U)),
		MeanW: number(float64(e.Mean())), RawJ: number(float64(e.Raw)), Warnings: warnings,
	}
	for _, c := range e.Budget {
		p.Budget = append(p.Budget, budgetReport{Source: c.Source, UJ: float64(c.U), Systematic: c.Systematic})
	}
	return p
}

// correctLag corrects a file of a sensor that lags.
func correctLag(rs []correct.Reading, p *sensor.Profile, o correct.Options) (*correctionReport, error) {
	moved := make([]correct.Reading, len(rs))
	for i, x := range rs {
		moved[i] = correct.Reading{At: x.At - p.Delay, Power: x.Power}
	}
	res, err := correct.Run(moved, o)
	if err != nil {
		return nil, err
	}
	e, u := res.Total()
	r := &correctionReport{
		Sensor: newCorrectedSensor(p, o.Lag.Slope.String()), SpacingS: number(float64(correct.Spacing(rs))), Used: len(res.Readings),
		TotalJ: number(float64(e)), TotalUJ: number(float64(u)), NoiseW: number(float64(res.Sigma)), Warnings: res.Warnings,
		raw: res.Readings, truth: res.Corrected,
	}
	if o.Lag.U == 0 {
		r.Warnings = append(r.Warnings, "± U leaves out what the constant's own uncertainty makes: give it by --tau-u, as correct fit tells it")
	}
	if l := res.Level; l != nil {
		r.Level = &levelReport{float64(l.Idle), float64(l.Active), float64(l.Threshold), l.Clear, l.Statement}
	}
	for _, w := range res.Work {
		r.Work = append(r.Work, newPieceReport(w.Energy, w.Warnings))
	}
	for _, x := range res.Phases {
		r.Phases = append(r.Phases, phaseReport{string(x.Kind), float64(x.From), float64(x.To), number(float64(x.Raw))})
	}
	return r, nil
}

// correctWindow corrects a file of a sensor that shows means.
func correctWindow(rs []correct.Reading, p *sensor.Profile, kernel correct.Span, f correctFlags) (*correctionReport, error) {
	renewals := correct.Renewals(rs, p.Period)
	if err := correct.Check(renewals); err != nil {
		return nil, fmt.Errorf("%w (renewals of the register in %d readings)", err, len(rs))
	}
	r := &correctionReport{Sensor: newCorrectedSensor(p, ""), SpacingS: number(float64(correct.Spacing(rs))), Used: len(renewals), raw: rs}
	if kernel == (correct.Span{}) {
		kernel = correct.Span{From: renewals[0].At - p.Delay, To: renewals[len(renewals)-1].At - p.Delay}
	}
	if p.Window < p.Period {
		low, high := powerRange(rs, f)
		u, err := correct.FindUnseen(renewals, p, kernel, low, high)
		if err != nil {
			return nil, err
		}
		r.Bound = &unseenReport{u.Share(), float64(u.Low), float64(u.High), float64(u.Floor), float64(u.Cap)}
		raw, err := correct.Integrate(rs, kernel)
		if err != nil {
			return nil, err
		}
		r.Work = []pieceReport{{FromS: float64(kernel.From), ToS: float64(kernel.To), RawJ: number(float64(raw))}}
		r.Warnings = append(r.Warnings, "the sensor does not look all the time: no number, a bound. Of a task whose kernels are known there is one: wattmark correct TASK")
		return r, nil
	}
	s, e, err := correct.SmoothEnergy(renewals, p, measure.Watt(f.floor), kernel)
	if err != nil {
		return nil, err
	}
	if raw, err := correct.Integrate(rs, kernel); err == nil {
		e.Raw = raw
	}
	r.truth, r.NoiseW = s.Readings(), number(float64(s.Noise))
	r.Work = []pieceReport{newPieceReport(e, nil)}
	r.TotalJ, r.TotalUJ = r.Work[0].EnergyJ, r.Work[0].UJ
	return r, nil
}

// powerRange is between what a card's power lies: as given, or as it was read.
func powerRange(rs []correct.Reading, f correctFlags) (low, high measure.Watt) {
	low, high = measure.Watt(math.Inf(1)), measure.Watt(math.Inf(-1))
	for _, x := range rs {
		low, high = min(low, x.Power), max(high, x.Power)
	}
	if f.floor > 0 {
		low = measure.Watt(f.floor)
	}
	if f.cap > 0 {
		high = measure.Watt(f.cap)
	}
	return low, high
}

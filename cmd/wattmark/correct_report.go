package main

import (
	"fmt"
	"io"
	"math"

	"github.com/jedib0t/go-pretty/v6/table"

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
	s, err := correct.Deconvolve(renewals, p, 0, measure.Watt(f.floor))
	if err != nil {
		return nil, err
	}
	e, err := s.Energy(kernel)
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

func (s correctedSensor) String() string {
	if s.Model == string(sensor.FirstOrder) {
		u := ""
		if s.UConstant > 0 {
			u = fmt.Sprintf(" ± %v", measure.Seconds(s.UConstant))
		}
		return fmt.Sprintf("lags by %v%s; slope %s", measure.Seconds(s.ConstantS), u, s.Slope)
	}
	return fmt.Sprintf("shows the mean of %v every %v", measure.Seconds(s.WindowS), measure.Seconds(s.PeriodS))
}

// render writes the report for a person.
func (r *correctionReport) render(w io.Writer, plot bool) {
	fmt.Fprintf(w, "%s  %s\n", r.Readings, r.Field)
	fmt.Fprintf(w, "  sensor   %v\n", r.Sensor)
	if r.SpacingS != nil {
		fmt.Fprintf(w, "  read     every %v; %d %s used", measure.Seconds(*r.SpacingS), r.Used, map[bool]string{true: "renewals", false: "readings"}[r.Sensor.WindowS > 0])
		if r.NoiseW != nil && r.Sensor.ConstantS > 0 {
			fmt.Fprintf(w, "; one of them corrected is uncertain by %v (k = 1)", measure.Watt(*r.NoiseW))
		}
		fmt.Fprintln(w)
	}
	if r.Level != nil {
		fmt.Fprintf(w, "  level    %s\n", r.Level.Statement)
	}
	for _, x := range r.Warnings {
		fmt.Fprintf(w, "  caution  %s\n", x)
	}
	fmt.Fprintln(w)
	t := newTable(w)
	t.AppendHeader(table.Row{"work", "from", "to", "as read", "corrected (k = 2)", "mean"})
	for i, p := range r.Work {
		row := table.Row{i + 1, fmt.Sprintf("%.3f s", p.FromS), fmt.Sprintf("%.3f s", p.ToS), "", "", ""}
		if p.RawJ != nil {
			row[3] = fmt.Sprintf("%.2f J", *p.RawJ)
		}
		if p.EnergyJ != nil && p.UJ != nil {
			row[4], row[5] = energyText(*p.EnergyJ, *p.UJ), measure.Watt(*p.MeanW)
		}
		t.AppendRow(row)
	}
	if len(r.Work) > 1 && r.TotalJ != nil {
		t.AppendFooter(table.Row{"", "", "", "total", energyText(*r.TotalJ, *r.TotalUJ), ""})
	}
	t.Render()
	for i, p := range r.Work {
		for _, x := range p.Warnings {
			fmt.Fprintf(w, "Work %d: %s\n", i+1, x)
		}
	}
	if b := r.Bound; b != nil {
		fmt.Fprintf(w, "The sensor looked at %.0f %% of it. With %v to %v in the rest the energy lies between %.1f J and %.1f J.\n",
			100*b.Share, measure.Watt(b.FloorW), measure.Watt(b.CapW), b.LowJ, b.HighJ)
	}
	r.renderPhases(w)
	if plot {
		r.plot(w)
	}
	if r.Picture != "" {
		fmt.Fprintf(w, "\nDrawn into %s\n", r.Picture)
	}
}

func (r *correctionReport) renderPhases(w io.Writer) {
	if len(r.Phases) == 0 {
		return
	}
	fmt.Fprintln(w, "\nPhases, with what the readings integrate to uncorrected:")
	t := newTable(w)
	t.AppendHeader(table.Row{"phase", "from", "lasts", "as read"})
	for _, p := range r.Phases {
		raw := ""
		if p.RawJ != nil {
			raw = fmt.Sprintf("%.2f J", *p.RawJ)
		}
		t.AppendRow(table.Row{p.Kind, fmt.Sprintf("%.3f s", p.FromS), fmt.Sprintf("%.3f s", p.ToS-p.FromS), raw})
	}
	t.Render()
}

package sensor

import (
	"fmt"
	"math"

	"gonum.org/v1/gonum/stat/distuv"

	"wattmark/measure"
)

// Segment is a run of repetitions without a pause.
type Segment struct {
	From, To    measure.Seconds
	Repetitions int
}

// Trial is what was read and done in one trial, on one clock.
type Trial struct {
	Polls    []Poll
	Segments []Segment
}

// TrialResult is what one trial came to.
type TrialResult struct {
	Mean     measure.Watt    `json:"mean_w"`   // while the work ran, static line undone
	Energy   measure.Joule   `json:"energy_j"` // of one repetition
	Length   measure.Seconds `json:"length_s"` // of one repetition, launches included
	Renewals int             `json:"renewals"`
}

// Estimate is the energy of one repetition by the sensor alone. U is expanded, at
// 95 %; UScatter is the trials' share of it, UStatic that of gain and offset.
type Estimate struct {
	Energy   measure.Joule   `json:"energy_j"`
	U        measure.Joule   `json:"energy_u_j"`
	UScatter measure.Joule   `json:"energy_u_scatter_j"`
	UStatic  measure.Joule   `json:"energy_u_static_j"`
	Mean     measure.Watt    `json:"mean_w"`
	Length   measure.Seconds `json:"length_s"`
	Trials   []TrialResult   `json:"trials"`
	Notes    []string        `json:"notes,omitempty"`
}

// UnknownGain is the expanded relative uncertainty of a sensor that was not held
// against a meter: static errors of about five percent are what arXiv 2312.02741
// found, and what vendors state.
const UnknownGain = 0.05

// Evaluate works out the energy of a repetition from trials: each one's mean is that
// of the renewals that tell of the work alone, and the scatter of the trials, each of
// which began at another phase, is the uncertainty. Errors wrap ErrSeries.
func (p *Profile) Evaluate(trials []Trial) (*Estimate, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	e := &Estimate{}
	for i := range trials {
		r, err := p.trial(&trials[i])
		if err != nil {
			return nil, fmt.Errorf("trial %d: %w", i+1, err)
		}
		e.Trials = append(e.Trials, r)
	}
	n := float64(len(e.Trials))
	if n < 2 {
		return nil, fmt.Errorf("sensor: %w: %d trials: the scatter of one is not known, want 2", ErrSeries, len(e.Trials))
	}
	for _, r := range e.Trials {
		e.Energy += r.Energy / measure.Joule(n)
		e.Mean += r.Mean / measure.Watt(n)
		e.Length += r.Length / measure.Seconds(n)
	}
	var s float64
	for _, r := range e.Trials {
		s += math.Pow(float64(r.Energy-e.Energy), 2)
	}
	t := distuv.StudentsT{Mu: 0, Sigma: 1, Nu: n - 1}.Quantile(0.975)
	e.UScatter = measure.Joule(t * math.Sqrt(s/(n-1)/n))
	e.UStatic = measure.Joule(UnknownGain) * e.Energy
	if p.Calibrated {
		g := float64(e.Energy) * p.UGain / p.gain()
		o := float64(p.UOffset) / p.gain() * float64(e.Length)
		e.UStatic = measure.Joule(math.Hypot(g, o))
	} else {
		e.Notes = append(e.Notes, fmt.Sprintf("the sensor was not held against a meter: a static error of %.0f %% is allowed for", 100*UnknownGain))
	}
	e.U = measure.Joule(math.Hypot(float64(e.UScatter), float64(e.UStatic)))
	return e, nil
}

// trial is the mean over one trial's segments.
func (p *Profile) trial(t *Trial) (TrialResult, error) {
	var r TrialResult
	var length measure.Seconds
	repetitions := 0
	var sum float64
	for _, s := range t.Segments {
		for _, v := range p.renewals(t.Polls, s) {
			sum += float64(v)
			r.Renewals++
		}
		length += s.To - s.From
		repetitions += s.Repetitions
	}
	if r.Renewals == 0 || repetitions == 0 {
		return r, fmt.Errorf("sensor: %w: no renewal tells of the work alone: %v are discarded at a segment's beginning, and segments last %v", ErrSeries, p.memory(), length/measure.Seconds(max(len(t.Segments), 1)))
	}
	r.Mean = (measure.Watt(sum/float64(r.Renewals)) - p.Offset) / measure.Watt(p.Gain)
	r.Length = length / measure.Seconds(repetitions)
	r.Energy = measure.Joule(float64(r.Mean) * float64(r.Length))
	return r, nil
}

// renewals are the values that tell of a segment alone: one a period, read in the
// middle of the time for which the register keeps it. When it is renewed is seen in
// the polls around.
func (p *Profile) renewals(polls []Poll, s Segment) (out []measure.Watt) {
	phase, ok := phaseIn(polls, p.Period, s)
	if !ok {
		return nil
	}
	late := max(p.Delay, 0)
	first := s.From + late + p.discard((s.To-s.From)/measure.Seconds(max(s.Repetitions, 1)), s.Repetitions)
	k := math.Ceil(float64((first - phase) / p.Period))
	i := 0
	for t := phase + measure.Seconds(k)*p.Period; t <= s.To+late; t += p.Period {
		look := t + p.Period/2
		for i < len(polls) && polls[i].At < look {
			i++
		}
		if i == len(polls) || polls[i].At > t+p.Period {
			continue // nobody looked
		}
		out = append(out, polls[i].Power)
	}
	return out
}

// phaseIn is when the register was renewed, modulo the period, around a segment:
// the circular mean of when its value changed.
func phaseIn(polls []Poll, period measure.Seconds, s Segment) (measure.Seconds, bool) {
	var re, im float64
	for i := 1; i < len(polls); i++ {
		a, b := polls[i-1], polls[i]
		if b.At < s.From-2*period || a.At > s.To+2*period || a.Power == b.Power || b.At-a.At > period/2 {
			continue
		}
		y, x := math.Sincos(2 * math.Pi * float64((a.At+b.At)/2-s.From) / float64(period))
		re, im = re+x, im+y
	}
	if re == 0 && im == 0 {
		return 0, false
	}
	return s.From + period*measure.Seconds(math.Atan2(im, re)/(2*math.Pi)), true
}

package sensor

import (
	"cmp"
	"errors"
	"fmt"
	"math"

	"github.com/wattmark/wattmark/analysis/stats"
	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
	"gonum.org/v1/gonum/stat"
)

// Wanted is the aim of a measurement with the sensor alone.
type Wanted struct {
	// Kernel is the duration of one repetition.
	Kernel measure.Seconds
	// U is the wanted relative expanded uncertainty, without the sensor's static error;
	// 0.02 when zero.
	U float64
	// Swing is the assumed range of the power within a repetition, relative to its mean:
	// half of the repetition at 1 + Swing/2, half at 1 − Swing/2. 1 when zero, which is
	// work that pauses for half of the time at a third of its power.
	Swing float64
	// Mean is the mean power, for the noise's share; 300 W when zero.
	Mean measure.Watt
}

// Plan is how to measure: trials, each after a random delay, of segments of
// repetitions, with a pause between two segments that shifts the phase between
// work and sensor. The rules are those of arXiv 2312.02741.
type Plan struct {
	Repetitions int             `json:"repetitions"` // of a trial
	Segments    int             `json:"segments"`    // of a trial
	PerSegment  int             `json:"repetitions_per_segment"`
	Shift       measure.Seconds `json:"shift_s"`     // pause between two segments
	MostDelay   measure.Seconds `json:"max_delay_s"` // of the random delay before a trial
	Trials      int             `json:"trials"`
	Discard     measure.Seconds `json:"discard_s"` // of each segment's beginning: the rise
	Trial       measure.Seconds `json:"trial_s"`   // a trial lasts so long
	Total       measure.Seconds `json:"total_s"`
	Renewals    int             `json:"renewals"` // of the register that count, in a trial

	// OneTrial and StandardError are the expected relative standard errors of one
	// trial and of the mean of all; U the expanded one. Single is that of a single
	// repetition read once, for comparison.
	OneTrial      float64 `json:"one_trial_rel"`
	StandardError float64 `json:"standard_error_rel"`
	U             float64 `json:"u_rel"`
	Single        float64 `json:"single_rel"`
}

// The rules of arXiv 2312.02741.
const (
	leastRepetitions = 32
	leastTime        = measure.Seconds(5)
	leastTrials      = 4
	mostTrials       = 64
	mostSegments     = 8
)

// ErrPlan is wrapped by errors about impossible plans.
var ErrPlan = errors.New("this cannot be planned")

// memory returns the time that a value depends on, which is discarded at a segment's
// beginning: a window, or 5 τ.
func (p *Profile) memory() measure.Seconds {
	if p.Model == FirstOrder {
		return 5 * p.Tau
	}
	return p.Window
}

// discard returns the time left out at the beginning of a segment of repetitions: whole
// ones, so that whole ones are counted, unless there are too few.
func (p *Profile) discard(kernel measure.Seconds, repetitions int) measure.Seconds {
	rise := p.memory()
	if k := math.Ceil(float64(rise / kernel)); k < float64(repetitions) {
		return kernel * measure.Seconds(k)
	}
	return rise
}

// NewPlan plans a measurement with a sensor. Errors wrap ErrProfile or ErrPlan.
func NewPlan(p *Profile, w Wanted) (*Plan, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	w = w.defaults()
	if !(w.Kernel > 0) || w.Kernel > 3600 || !(w.U > 0) || w.U > 1 || w.Swing < 0 || w.Swing > 2 || !(w.Mean > 0) {
		return nil, fmt.Errorf("sensor: %w: kernel of %v, wanted uncertainty %g, swing %g, mean %v: want a kernel "+
			"up to an hour, an uncertainty up to 1, a swing up to 2, a positive mean",
			ErrPlan, w.Kernel, w.U, w.Swing, w.Mean)
	}
	x := &Plan{Segments: 1}
	// A window shorter than the period always misses the same part of a load in step with
	// it: shifts between segments move the rest into view.
	if seen := p.Seen; p.Model == Boxcar && p.Window < p.Period || p.Model == FirstOrder && seen > 0 && seen < 1 {
		sees := p.Window
		if p.Model == FirstOrder {
			sees = 2 * p.Tau
		}
		x.Segments = min(max(int(math.Ceil(float64(p.Period/max(sees, p.Period/mostSegments)))), 2), mostSegments)
		x.Shift = p.Period / measure.Seconds(x.Segments)
	}
	// A segment must hold some renewals behind its rise.
	rise := measure.Seconds(math.Ceil(float64(p.memory()/w.Kernel))) * w.Kernel
	least := max(leastTime/measure.Seconds(x.Segments), rise+5*p.Period)
	// At least 32 repetitions as well, unless they last longer than 5 s.
	x.PerSegment = int(math.Ceil(float64(least / w.Kernel)))
	if n := leastRepetitions / x.Segments; x.PerSegment < n && w.Kernel*measure.Seconds(n) < leastTime {
		x.PerSegment = n
	}
	x.PerSegment = max(x.PerSegment, 1)
	x.MostDelay = p.Period
	x.count(p, w)
	return x, x.trials(w)
}

// count derives the times and errors from the numbers of segments and repetitions.
func (x *Plan) count(p *Profile, w Wanted) {
	x.Repetitions = x.Segments * x.PerSegment
	x.Discard = p.discard(w.Kernel, x.PerSegment)
	segment := w.Kernel * measure.Seconds(x.PerSegment)
	x.Trial = measure.Seconds(x.Segments)*(segment+x.Shift) + p.Period/2 + p.memory()
	x.Renewals = x.Segments * max(1, int(float64((segment-x.Discard)/p.Period)))
	x.OneTrial = x.trialError(p, w)
	// Single is the error of one value read once, at any phase.
	noise := float64(p.Noise) / p.gain() / float64(w.Mean)
	x.Single = math.Sqrt(stat.PopVariance(responseOver(p, w), nil) + noise*noise)
}

// Recount derives the expected errors after Segments, PerSegment or Trials were set by
// hand; Trials is at least 2.
func (x *Plan) Recount(p *Profile, w Wanted) {
	w = w.defaults()
	if x.Segments > 1 && x.Shift == 0 {
		x.Shift = p.Period / measure.Seconds(x.Segments)
	}
	x.count(p, w)
	x.expect()
}

// expect derives the error of the mean of all trials.
func (x *Plan) expect() {
	t := stats.Student(0.975, float64(max(x.Trials-1, 1)))
	x.StandardError = x.OneTrial / math.Sqrt(float64(x.Trials))
	x.U = t * x.StandardError
	x.Total = x.Trial * measure.Seconds(x.Trials)
}

// defaults replaces zeros.
func (w Wanted) defaults() Wanted {
	w.U, w.Swing, w.Mean = cmp.Or(w.U, 0.02), cmp.Or(w.Swing, 1), cmp.Or(w.Mean, 300)
	return w
}

// trials finds the number of trials for the wanted uncertainty, from 4 to 64.
func (x *Plan) trials(w Wanted) error {
	for n := leastTrials; ; n++ {
		x.Trials = n
		x.expect()
		if x.U <= w.U {
			return nil
		}
		if n == mostTrials {
			return fmt.Errorf("sensor: %w: even %d trials (%v) come to ± %.2g %%, wanted were %.2g %%: accept that "+
				"with --until-u %.2g, or use a meter", ErrPlan, n, x.Total, 100*x.U, 100*w.U, math.Ceil(1000*x.U)/1000)
		}
	}
}

// square returns the assumed repetition, many times, with a mean of one.
func (w Wanted) square(times int) *Load {
	at, watts := []measure.Seconds{0}, []measure.Watt(nil)
	for i := range times {
		t := w.Kernel * measure.Seconds(i)
		at = append(at, t+w.Kernel/2, t+w.Kernel)
		watts = append(watts, measure.Watt(1+w.Swing/2), measure.Watt(1-w.Swing/2))
	}
	l, _ := NewLoad(at, watts) // they are as it wants them
	return l
}

// startPhases is the number of phases between work and sensor, evenly over a period, at
// which the expected error is computed.
const startPhases = 96

// trialError returns the relative standard error of a trial's mean, by the random phase
// between work and sensor and by the noise of its values. It evaluates the sensor's model
// over the repetitions at every phase, without approximation.
func (x *Plan) trialError(p *Profile, w Wanted) float64 {
	segment := w.Kernel * measure.Seconds(x.PerSegment)
	// The response repeats with the kernel: one repetition is tabulated once.
	table := responseOver(p, w)
	var square float64
	// The sensor's phase against the work is random: average the squared error over it.
	for i := range startPhases {
		phase := p.Period * measure.Seconds(float64(i)+0.5) / startPhases
		var mean, n float64
		for s := range x.Segments {
			// The first renewal whose memory lies wholly within the segment.
			begin := measure.Seconds(s) * (segment + x.Shift)
			first := begin + x.Discard + max(p.Delay, 0)
			k := math.Ceil(float64((first - phase) / p.Period))
			for t := phase + measure.Seconds(k)*p.Period; t <= begin+segment+max(p.Delay, 0); t += p.Period {
				mean += table.at(float64((t - begin) / w.Kernel))
				n++
			}
		}
		mean /= max(n, 1)
		square += (mean - 1) * (mean - 1) // includes a bias common to all phases
	}
	v := square / startPhases
	noise := float64(p.Noise) / p.gain() / float64(w.Mean)
	return math.Sqrt(v + noise*noise/float64(x.Renewals))
}

// gain returns the size of the gain.
func (p *Profile) gain() float64 { return math.Abs(p.Gain) }

// responseTable is the settled reading at each phase of a repetition, relative to its
// mean power.
type responseTable []float64

// at returns the reading after so many repetitions, by their fraction.
func (t responseTable) at(repetitions float64) float64 {
	f := repetitions - math.Floor(repetitions)
	return t[min(int(f*float64(len(t))), len(t)-1)]
}

// responseOver tabulates the last of so many repetitions that the sensor has settled.
func responseOver(p *Profile, w Wanted) responseTable {
	const points = 400
	times := int(math.Ceil(float64(p.memory()/w.Kernel))) + 2
	if times > 20000 { // far shorter than the window, which averages it out
		return responseTable{1}
	}
	l := w.square(times)
	at := make([]measure.Seconds, points)
	for i := range at {
		at[i] = w.Kernel * (measure.Seconds(times-1) + (measure.Seconds(i)+0.5)/points)
	}
	out := make(responseTable, points)
	for i, v := range p.response().at(l, at) {
		out[i] = float64(v)
	}
	return out
}

// Segment is a run of repetitions without a pause.
type Segment struct {
	From, To    measure.Seconds
	Repetitions int
}

// Trial holds the polls and the segments of one trial, on one clock.
type Trial struct {
	Polls    []Poll
	Segments []Segment
}

// TrialResult is the result of one trial.
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

// UnknownGain is the expanded relative uncertainty of a sensor that was not calibrated
// with a meter: arXiv 2312.02741 found static errors of about five percent, as vendors
// state.
const UnknownGain = 0.05

// Evaluate returns the energy of a repetition from at least two trials. A trial's mean is that of the renewals whose
// memory holds the work alone; the uncertainty is the scatter of the trials, which began at random phases, and the
// static line's. Errors wrap ErrSeries or ErrProfile.
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
		return nil, fmt.Errorf("sensor: %w: %d trials: the scatter of one is not known, want 2", ErrSeries,
			len(e.Trials))
	}
	for _, r := range e.Trials {
		e.Energy += r.Energy / measure.Joule(n)
		e.Mean += r.Mean / measure.Watt(n)
		e.Length += r.Length / measure.Seconds(n)
	}
	energies := lists.Map(e.Trials, func(r TrialResult) float64 { return float64(r.Energy) })
	e.UScatter = measure.Joule(stats.Student(0.975, n-1) * stat.StdErr(stat.StdDev(energies, nil), n))
	e.UStatic = measure.Joule(UnknownGain) * e.Energy
	if p.Calibrated {
		g := float64(e.Energy) * p.UGain / p.gain()
		o := float64(p.UOffset) / p.gain() * float64(e.Length)
		e.UStatic = measure.Joule(math.Hypot(g, o))
	} else {
		e.Notes = append(e.Notes, fmt.Sprintf("the sensor was not held against a meter: a static error of %.0f %% "+
			"is allowed for", 100*UnknownGain))
	}
	e.U = measure.Joule(math.Hypot(float64(e.UScatter), float64(e.UStatic)))
	return e, nil
}

// trial returns the mean over one trial's segments.
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
		return r, fmt.Errorf("sensor: %w: no renewal tells of the work alone: %v are discarded at a segment's "+
			"beginning, and segments last %v", ErrSeries, p.memory(), length/measure.Seconds(max(len(t.Segments), 1)))
	}
	r.Mean = (measure.Watt(sum/float64(r.Renewals)) - p.Offset) / measure.Watt(p.Gain)
	r.Length = length / measure.Seconds(repetitions)
	r.Energy = measure.Joule(float64(r.Mean) * float64(r.Length))
	return r, nil
}

// renewals returns the values that depend on a segment alone: one a period, read in the
// middle of the time for which the register holds it, by the phase of the polls around.
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
			continue // not polled
		}
		out = append(out, polls[i].Power)
	}
	return out
}

// phaseIn returns an instant of a renewal around a segment: the circular mean, modulo the
// period, of the instants at which the value changed; false without any change.
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

package sensor

import (
	"errors"
	"fmt"
	"math"

	"gonum.org/v1/gonum/stat/distuv"

	"wattmark/measure"
)

// Wanted is what a measurement with the sensor alone is planned for.
type Wanted struct {
	// Kernel is how long one repetition lasts.
	Kernel measure.Seconds
	// U is the relative expanded uncertainty that is wanted, without the sensor's
	// static error; 0.02 when zero.
	U float64
	// Swing is how far the power is thought to go up and down within a repetition,
	// relative to its mean: half of the repetition at 1 + Swing/2, half at
	// 1 − Swing/2. 1 when zero, which is work that pauses for half of the time at a
	// third of its power.
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

// ErrPlan is wrapped by errors about what cannot be planned.
var ErrPlan = errors.New("this cannot be planned")

// memory is the stretch of time that a value tells of: what is discarded at a
// segment's beginning.
func (p *Profile) memory() measure.Seconds {
	if p.Model == FirstOrder {
		return 5 * p.Tau
	}
	return p.Window
}

// discard is what is left out at the beginning of a segment of repetitions: whole
// ones, so that whole ones are counted, unless there are too few.
func (p *Profile) discard(kernel measure.Seconds, repetitions int) measure.Seconds {
	rise := p.memory()
	if k := math.Ceil(float64(rise / kernel)); k < float64(repetitions) {
		return kernel * measure.Seconds(k)
	}
	return rise
}

// NewPlan plans a measurement with a sensor.
func NewPlan(p *Profile, w Wanted) (*Plan, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	w = w.defaults()
	if !(w.Kernel > 0) || w.Kernel > 3600 || !(w.U > 0) || w.U > 1 || w.Swing < 0 || w.Swing > 2 || !(w.Mean > 0) {
		return nil, fmt.Errorf("sensor: %w: kernel of %v, wanted uncertainty %g, swing %g, mean %v: want a kernel up to an hour, an uncertainty up to 1, a swing up to 2, a positive mean", ErrPlan, w.Kernel, w.U, w.Swing, w.Mean)
	}
	x := &Plan{Segments: 1}
	// A window shorter than the period leaves out the same part of a load that keeps
	// step with it: shifts bring the rest before it.
	if seen := p.Seen; p.Model == Boxcar && p.Window < p.Period || p.Model == FirstOrder && seen > 0 && seen < 1 {
		sees := p.Window
		if p.Model == FirstOrder {
			sees = 2 * p.Tau
		}
		x.Segments = min(max(int(math.Ceil(float64(p.Period/max(sees, p.Period/mostSegments)))), 2), mostSegments)
		x.Shift = p.Period / measure.Seconds(x.Segments)
	}
	// A segment must hold some renewals that count behind its rise.
	rise := measure.Seconds(math.Ceil(float64(p.memory()/w.Kernel))) * w.Kernel
	least := max(leastTime/measure.Seconds(x.Segments), rise+5*p.Period)
	x.PerSegment = int(math.Ceil(float64(least / w.Kernel)))
	if n := leastRepetitions / x.Segments; x.PerSegment < n && w.Kernel*measure.Seconds(n) < leastTime {
		x.PerSegment = n
	}
	x.PerSegment = max(x.PerSegment, 1)
	x.MostDelay = p.Period
	x.count(p, w)
	return x, x.trials(w)
}

// count works out what follows from the numbers of segments and repetitions.
func (x *Plan) count(p *Profile, w Wanted) {
	x.Repetitions = x.Segments * x.PerSegment
	x.Discard = p.discard(w.Kernel, x.PerSegment)
	segment := w.Kernel * measure.Seconds(x.PerSegment)
	x.Trial = measure.Seconds(x.Segments)*(segment+x.Shift) + p.Period/2 + p.memory()
	x.Renewals = x.Segments * max(1, int(float64((segment-x.Discard)/p.Period)))
	x.OneTrial = x.trialError(p, w)
	x.Single = singleError(p, w)
}

// Recount works out what to expect after Segments, PerSegment or Trials were set by
// hand; Trials is at least 2.
func (x *Plan) Recount(p *Profile, w Wanted) {
	w = w.defaults()
	if x.Segments > 1 && x.Shift == 0 {
		x.Shift = p.Period / measure.Seconds(x.Segments)
	}
	x.count(p, w)
	x.expect()
}

// expect works out the error of the mean of all trials.
func (x *Plan) expect() {
	t := distuv.StudentsT{Mu: 0, Sigma: 1, Nu: float64(max(x.Trials-1, 1))}.Quantile(0.975)
	x.StandardError = x.OneTrial / math.Sqrt(float64(x.Trials))
	x.U = t * x.StandardError
	x.Total = x.Trial * measure.Seconds(x.Trials)
}

func (w Wanted) defaults() Wanted {
	if w.U == 0 {
		w.U = 0.02
	}
	if w.Swing == 0 {
		w.Swing = 1
	}
	if w.Mean == 0 {
		w.Mean = 300
	}
	return w
}

// trials finds how many are needed for the wanted uncertainty.
func (x *Plan) trials(w Wanted) error {
	for n := leastTrials; ; n++ {
		x.Trials = n
		x.expect()
		if x.U <= w.U {
			return nil
		}
		if n == mostTrials {
			return fmt.Errorf("sensor: %w: even %d trials (%v) come to ± %.2g %%, wanted were %.2g %%: accept that with --u %.2g, or use a meter", ErrPlan, n, x.Total, 100*x.U, 100*w.U, math.Ceil(1000*x.U)/1000)
		}
	}
}

// square is a repetition as it is thought to be, many times, of mean one.
func (w Wanted) square(times int) *Load {
	at, watts := []measure.Seconds{0}, []measure.Watt(nil)
	for i := range times {
		t := w.Kernel * measure.Seconds(i)
		at = append(at, t+w.Kernel/2, t+w.Kernel)
		watts = append(watts, measure.Watt(1+w.Swing/2), measure.Watt(1-w.Swing/2))
	}
	l, err := NewLoad(at, watts)
	if err != nil {
		panic(err) // both are made above
	}
	return l
}

// startPhases is at how many phases between work and sensor the expected error is worked
// out: evenly over a period.
const startPhases = 96

// trialError is the relative standard deviation of a trial's mean over the random
// phase between work and sensor, and of the noise of its values. It is worked out,
// not approximated: the sensor's model over the repetitions at every phase.
func (x *Plan) trialError(p *Profile, w Wanted) float64 {
	segment := w.Kernel * measure.Seconds(x.PerSegment)
	// The window over a repetition's course repeats with the kernel: values at the
	// phases of one repetition are worked out once.
	table := responseOver(p, w)
	var square float64
	for i := range startPhases {
		phase := p.Period * measure.Seconds(float64(i)+0.5) / startPhases
		var mean, n float64
		for s := range x.Segments {
			// When the first renewal comes that lies wholly within the segment.
			begin := measure.Seconds(s) * (segment + x.Shift)
			first := begin + x.Discard + max(p.Delay, 0)
			k := math.Ceil(float64((first - phase) / p.Period))
			for t := phase + measure.Seconds(k)*p.Period; t <= begin+segment+max(p.Delay, 0); t += p.Period {
				mean += table.at(float64((t - begin) / w.Kernel))
				n++
			}
		}
		mean /= max(n, 1)
		square += (mean - 1) * (mean - 1) // a mean that is off at every phase is an error too
	}
	v := square / startPhases
	noise := float64(p.Noise) / p.gain() / float64(w.Mean)
	return math.Sqrt(v + noise*noise/float64(x.Renewals))
}

func (p *Profile) gain() float64 { return math.Abs(p.Gain) }

// responseTable is what the sensor says at each phase of a repetition, once it has
// settled.
type responseTable []float64

func (t responseTable) at(repetitions float64) float64 {
	f := repetitions - math.Floor(repetitions)
	return t[min(int(f*float64(len(t))), len(t)-1)]
}

func responseOver(p *Profile, w Wanted) responseTable {
	const points = 400
	times := int(math.Ceil(float64(p.memory()/w.Kernel))) + 2
	if times > 20000 { // far shorter than the window: nothing of it is left
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

// singleError is that of one value read once, at any phase.
func singleError(p *Profile, w Wanted) float64 {
	t := responseOver(p, w)
	var sum, square float64
	for _, v := range t {
		sum, square = sum+v, square+v*v
	}
	n := float64(len(t))
	noise := float64(p.Noise) / p.gain() / float64(w.Mean)
	return math.Sqrt(max(square/n-sum*sum/n/n, 0) + noise*noise)
}

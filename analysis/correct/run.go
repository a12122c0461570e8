package correct

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"wattmark/measure"
)

// Options say how [Run] corrects a lag's readings.
type Options struct {
	Lag    Lag
	Period measure.Seconds // from one look of the sensor to the next; zero for the K20's 15 ms
	// Level of the active idle; zero to find it in the readings. Margin above it is
	// where work begins; zero to find it out too.
	Level, Margin measure.Watt
	// Kernel is the work, where it is known; its zero value has it found.
	Kernel Span
}

// Result is a lag's readings corrected by the paper's four steps.
type Result struct {
	Readings  []Reading // what is left of them after step 2
	Corrected []Reading // step 3
	Sigma     measure.Watt
	Level     *Level // nil where the readings do not tell, and none was given
	Work      []Piece
	Phases    []Phase
	Warnings  []string
}

// Piece is a stretch of work with its energy and what to heed.
type Piece struct {
	Energy
	Warnings []string
}

// Run takes readings as polled, in order of time, through the four steps: it checks
// the sampling, drops repeats, corrects, and integrates by the time stamps where the
// power exceeds the active idle, or over the kernel that is named.
func Run(polled []Reading, o Options) (*Result, error) {
	if o.Period == 0 {
		o.Period = K20Period
	}
	tidy := Tidy(polled)
	if err := Check(tidy); err != nil {
		return nil, err
	}
	r := &Result{Readings: Collapse(tidy, Near, o.Period)}
	if w := SlowSampling(tidy, o.Period); w != "" {
		r.Warnings = append(r.Warnings, w)
	}
	r.Corrected, r.Sigma = o.Lag.True(r.Readings), o.Lag.Sigma(r.Readings)
	if err := r.level(o); err != nil && o.Kernel == (Span{}) {
		return nil, err
	}
	spans := []Span{o.Kernel}
	energy := o.Lag.Energy
	if o.Kernel == (Span{}) {
		spans, energy = Work(r.Corrected, r.Level.Threshold, o.Lag.Slope), o.Lag.Piece
		if len(spans) == 0 {
			return nil, fmt.Errorf("correct: %w: the corrected power never stays above %v", ErrLevel, r.Level.Threshold)
		}
	}
	for i, s := range spans {
		e, err := energy(r.Readings, s)
		if err != nil {
			return nil, err
		}
		spans[i] = e.Span
		r.Work = append(r.Work, Piece{e, Warnings(r.Readings, e.Span, o.Period)})
	}
	if r.Level != nil {
		r.Phases = Phases(r.Readings, r.Corrected, spans, *r.Level, r.Sigma)
	}
	return r, nil
}

// level finds the active idle, or takes what is given.
func (r *Result) level(o Options) error {
	l, err := FindLevel(r.Corrected, r.Sigma)
	if o.Level == 0 {
		if err == nil {
			r.Level = &l
			if !l.Clear {
				r.Warnings = append(r.Warnings, l.Statement)
			}
		}
		return err
	}
	margin := o.Margin
	if margin == 0 {
		margin = max(5*r.Sigma, o.Level/20)
	}
	given := Level{Idle: o.Level, Active: o.Level, Threshold: o.Level + margin, Clear: true}
	if err == nil {
		given.Modes, given.Valley, given.Clear = l.Modes, l.Valley, l.Clear
		given.Idle = min(l.Idle, o.Level)
	}
	given.Statement = fmt.Sprintf("idle %.1f W, active idle %.1f W as given; work counts above %.1f W", float64(given.Idle), float64(o.Level), float64(given.Threshold))
	r.Level = &given
	return nil
}

// Total adds the pieces up. What they share, all but the readings' noise, adds up
// without a square.
func (r *Result) Total() (e, u measure.Joule) {
	shared, noise := map[string]float64{}, 0.0
	for _, p := range r.Work {
		e += p.Energy.Energy
		for _, c := range p.Budget {
			if c.Systematic {
				shared[c.Source] += float64(c.U)
			} else {
				noise += square(float64(c.U))
			}
		}
	}
	for _, source := range slices.Sorted(maps.Keys(shared)) {
		noise += square(shared[source])
	}
	return e, measure.Joule(2 * math.Sqrt(noise))
}

// Onset finds a kernel in raw readings for a fit: from the last reading before they
// leave their first level to the last one near their highest.
func Onset(rs []Reading) (Span, error) {
	if err := Check(rs); err != nil {
		return Span{}, err
	}
	head := powers(rs[:max(3, min(len(rs)/20, 50))])
	rest := median(head)
	top := rest
	for _, r := range rs {
		top = max(top, float64(r.Power))
	}
	if top-rest < 2 || top-rest < 20*float64(Noise(rs)) {
		return Span{}, fmt.Errorf("correct: %w: the power never rises from where it begins, %.1f W: name the kernel's begin and end", ErrFit, rest)
	}
	s, found := Span{}, false
	for i := 1; i < len(rs); i++ {
		if w := float64(rs[i].Power); !found && w > rest+0.05*(top-rest) {
			s.From, found = rs[i-1].At, true
		} else if found && w < top-0.1*(top-rest) && float64(rs[i-1].Power) >= top-0.1*(top-rest) {
			s.To = rs[i-1].At
			return s, nil
		}
	}
	s.To = rs[len(rs)-1].At
	return s, nil
}

// FitAnywhere fits the constant on readings of which nothing else is known: on the
// rise that [Onset] finds. Where an exponential says that the rise began earlier
// than the readings first showed, it began then.
func FitAnywhere(rs []Reading) (Fit, Span, error) {
	s, err := Onset(rs)
	if err != nil {
		return Fit{}, s, err
	}
	f, err := FitRise(rs, s)
	for range 3 {
		if err != nil || f.Delay >= 0 {
			break
		}
		s.From = max(s.From+f.Delay, rs[2].At)
		f, err = FitRise(rs, s)
	}
	return f, s, err
}

// Package correct recovers true power and energy from the readings of a GPU's
// built-in sensor, by undoing the sensor's dynamics. Its nouns:
//
//   - Lag: a sensor that follows the power slowly, as a capacitor is charged. It is
//     undone by the slope of its readings (Burtscher, Zecena and Zong, "Measuring GPU
//     Power with the K20 Built-in Sensor", section 5):
//
//     P_true(t_i) = P(t_i) + C · (P(t_i+1) − P(t_i−1)) / (t_i+1 − t_i−1)
//
//   - Smooth: a sensor that shows the mean of a window, undone by least squares with a
//     penalty on changes of the power.
//
//   - Levels: the same, with a power that is steady while a known kernel runs.
//
//   - Unseen: a bound of the energy where a window shorter than the period leaves time
//     unobserved; no estimate is given there.
//
//   - Level: the resting power and the threshold of work, from the readings themselves.
//
//   - Fit: a device's constant C, from the readings of a kernel.
//
//   - Model: a K20 with its sensor in software, for tests and demonstrations.
//
// All energies are linear in the readings, so noise, the constants' uncertainties and
// the static line (gain, offset) are carried through exactly. Times are seconds of any
// one clock. The package is pure; its functions are safe for concurrent use.
package correct

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/wattmark/wattmark/analysis/sensor"
	"github.com/wattmark/wattmark/analysis/stats"
	"github.com/wattmark/wattmark/analysis/validate"
	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
)

// Options of [Run].
type Options struct {
	Lag    Lag
	Period measure.Seconds // from one look of the sensor to the next; zero for the K20's 15 ms
	// Level of the active idle; zero to find it in the readings. Work begins Margin
	// above it; zero to find that too.
	Level, Margin measure.Watt
	// Kernel is the work, where it is known; zero to find it.
	Kernel Span
}

// Result is a lag's readings corrected by the paper's four steps.
type Result struct {
	Readings  []Reading    // without repeats: step 2
	Corrected []Reading    // step 3
	Sigma     measure.Watt // standard deviation of a corrected reading
	Level     *Level       // nil where it is neither given nor determined
	Work      []Piece
	Phases    []Phase
	Warnings  []string
}

// Piece is a stretch of work with its energy.
type Piece struct {
	Energy
	Warnings []string `json:"warnings,omitempty"`
}

// Run takes readings as polled, in order of time, through the paper's four steps: (1)
// check the sampling, (2) drop repeats, (3) correct, (4) integrate by the time stamps
// where the power exceeds the active idle, or over the given kernel. Errors wrap
// ErrReadings, ErrLevel or ErrSpan.
func Run(polled []Reading, o Options) (*Result, error) {
	o.Period = cmp.Or(o.Period, K20Period)
	tidy := Tidy(polled)
	if err := Check(tidy); err != nil {
		return nil, err
	}
	o.Lag = o.Lag.Aged(tidy, o.Period)
	r := &Result{Readings: Collapse(tidy, o.Period, o.Period)}
	if d := Spacing(tidy); d > 1.1*o.Period { // step 1
		r.Warnings = append(r.Warnings, fmt.Sprintf("sampled every %v (%.1f Hz): the sensor looks every %v, sample "+
			"at %.1f Hz or more", d, 1/float64(d), o.Period, 1/float64(o.Period)))
	}
	r.Corrected, r.Sigma = o.Lag.True(r.Readings), o.Lag.Sigma(r.Readings)
	if err := r.level(o); err != nil && o.Kernel == (Span{}) {
		return nil, err
	}
	spans := []Span{o.Kernel}
	if o.Kernel == (Span{}) {
		if spans = Work(r.Corrected, r.Level.Threshold, o.Lag.Slope); len(spans) == 0 {
			return nil, fmt.Errorf("correct: %w: the corrected power never stays above %v", ErrLevel, r.Level.Threshold)
		}
	}
	for i, s := range spans {
		e, err := o.Lag.Piece(r.Readings, s, o.Kernel)
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

// level sets the active idle: the given one, or that found in the readings.
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
	margin := cmp.Or(o.Margin, max(5*r.Sigma, o.Level/20))
	if err != nil {
		l = Level{Idle: o.Level, Clear: true}
	}
	l.Idle, l.Active, l.Threshold = min(l.Idle, o.Level), o.Level, o.Level+margin
	l.Statement = fmt.Sprintf("idle %.1f W, active idle %.1f W as given; work counts above %.1f W",
		float64(l.Idle), float64(o.Level), float64(l.Threshold))
	r.Level = &l
	return nil
}

// Total returns the energy of all pieces and its expanded uncertainty (k = 2).
// Systematic errors are common to the pieces and add linearly, the readings' noise adds
// in quadrature.
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

// onset finds a kernel in raw readings for a fit: from the last reading at the first
// level to the last one near the highest. Errors wrap ErrReadings or ErrFit.
func onset(rs []Reading) (Span, error) {
	if err := Check(rs); err != nil {
		return Span{}, err
	}
	all := powers(rs)
	rest, top := stats.Median(all[:max(3, min(len(rs)/20, 50))]), slices.Max(all)
	if top-rest < 2 || top-rest < 20*float64(Noise(rs)) {
		return Span{}, fmt.Errorf("correct: %w: the power never rises from where it begins, %.1f W: name the "+
			"kernel's begin and end", ErrFit, rest)
	}
	s, found := Span{To: rs[len(rs)-1].At}, false
	for i, w := range all[1:] {
		if !found && w > rest+0.05*(top-rest) {
			s.From, found = rs[i].At, true
		} else if found && w < top-0.1*(top-rest) && all[i] >= top-0.1*(top-rest) {
			s.To = rs[i].At
			break
		}
	}
	return s, nil
}

// FitAnywhere fits the constant to a rise that it finds in the readings. A negative
// delay means that the rise began earlier than the readings first showed: it fits again
// from there, up to three times.
func FitAnywhere(rs []Reading) (Fit, error) {
	s, err := onset(rs)
	if err != nil {
		return Fit{}, err
	}
	f, err := FitRise(rs, s)
	for range 3 {
		if err != nil || f.Delay >= 0 {
			break
		}
		s.From = max(s.From+f.Delay, rs[2].At)
		f, err = FitRise(rs, s)
	}
	return f, err
}

// The names of corrected methods, which follow the field's own.
const (
	MethodSlope   = "corrected"            // a lag, undone by its slope
	MethodSmooth  = "deconvolved"          // a window, undone with a smooth power
	MethodKernels = "corrected by kernels" // either, with the kernels' times known
)

// Methods corrects a sensor's readings by its profile and returns the results as software methods to compare with a
// meter: by the slope for a lag, by a smooth power for a window, and by the kernels where they are known. A method
// without an energy has NaN and its note gives the reason; so a window shorter than its period, which leaves the
// energy to a bound unless kernels are known. Readings come as polled, in order of time.
func Methods(rs []Reading, p *sensor.Profile, work Span, kernels []validate.Kernel) []validate.Method {
	rs = Tidy(rs)
	var out []validate.Method
	if p.Model == sensor.Boxcar {
		out = append(out, byWindow(rs, p, work))
	} else {
		l, moved := FromProfile(p).Aged(rs, p.Period), Collapse(rs, Near, p.Period)
		for i := range moved {
			moved[i].At -= p.Delay
		}
		e, err := l.Piece(moved, work, work)
		var course []Reading
		if err == nil {
			course = l.True(moved)
		}
		out = append(out, method(p, MethodSlope, course, e, fmt.Sprintf("C = %v", l.C), err))
	}
	if len(kernels) == 0 {
		return out
	}
	l, e, err := LevelsEnergy(Renewals(rs, p.Period), p, Activities(kernels), work)
	var course []Reading
	if l != nil {
		course = l.Course()
	}
	// The fit's ± holds only if every launch of a name draws one steady power, which
	// cannot be tested with a sensor that hides single launches. So it is no uncertainty
	// of the energy.
	note := fmt.Sprintf("a steady power for each name of kernel, which nothing confirms: its ± is not known (the "+
		"fit alone ± %v)", e.U)
	e.U = 0
	return append(out, method(p, MethodKernels, course, e, note, err))
}

// method packs a corrected energy, or the error, as a method named after the field.
func method(p *sensor.Profile, name string, course []Reading, e Energy, note string, err error) validate.Method {
	m := validate.Method{Name: p.Field + " " + name, Readings: course, Energy: e.Energy, U: e.U, Note: note}
	if p.Field == "" {
		m.Name = name
	}
	if e.U > 0 {
		m.Note = fmt.Sprintf("± %v (k = 2); %s", e.U, note)
	}
	if err != nil {
		m.Energy, m.U, m.Silent, m.Note = measure.Joule(math.NaN()), 0, true, err.Error()
	}
	return m
}

// byWindow undoes a window, or bounds the energy where it leaves time unseen.
func byWindow(rs []Reading, p *sensor.Profile, work Span) validate.Method {
	renewals := Renewals(rs, p.Period)
	if p.Window < p.Period {
		low, high := Extremes(rs)
		u, err := FindUnseen(renewals, p, work, low, high)
		if err == nil {
			err = fmt.Errorf("no number, a bound: %v", u)
		}
		return method(p, MethodSmooth, renewals, Energy{}, "", err)
	}
	s, e, err := SmoothEnergy(renewals, p, 0, work)
	var course []Reading
	if s != nil {
		course = s.Readings()
	}
	// The ± takes the power's steps as alike at all times, which work after rest is not: it is no
	// uncertainty of the energy.
	note := fmt.Sprintf("mean of %v every %v; its ± is not known (of a power that changes alike at all times ± %v)",
		p.Window, p.Period, e.U)
	e.U = 0
	return method(p, MethodSmooth, course, e, note, err)
}

// FromProfile returns the lag of a first-order profile, for readings whose time stamps were moved back by the
// profile's delay. Its constant is τ: the mean age of a value, which the profile's lag includes, cancels between
// the power before a kernel and that behind it ([Lag.Aged] has the rest). U is the larger of those of τ and lag.
func FromProfile(p *sensor.Profile) Lag {
	return Lag{C: p.Tau, U: max(p.UTau, p.ULag), Noise: p.Noise, Gain: p.Gain, UGain: p.UGain, Offset: p.Offset, UOffset: p.UOffset}
}

// Activities returns kernels as activities that do not overlap: one that begins while
// another runs starts at its end, since a sensor cannot separate them.
func Activities(kernels []validate.Kernel) []Activity {
	var out []Activity
	end := measure.Seconds(math.Inf(-1))
	for _, k := range kernels {
		k.From = max(k.From, end)
		if k.From >= k.To {
			continue
		}
		out, end = append(out, k), k.To
	}
	return out
}

// Extremes returns the least and the greatest power; infinities for no readings.
func Extremes(rs []Reading) (low, high measure.Watt) {
	low, high = measure.Watt(math.Inf(1)), measure.Watt(math.Inf(-1))
	for _, r := range rs {
		low, high = min(low, r.Power), max(high, r.Power)
	}
	return low, high
}

// Sigma returns the standard deviation of a corrected reading: the readings' noise,
// magnified by the slope: noise · √(1 + C²·Σw²), with the slope's weights w.
func (l Lag) Sigma(rs []Reading) measure.Watt {
	// On even spacing; the closed form of Σ w² for a parabola through 2n + 1 readings.
	dt := float64(Spacing(rs))
	n := float64(l.Slope.reach())
	gain := 1 / (2 * dt * dt) // Σ w² of the symmetric slope
	if l.Slope.half > 0 {
		gain = 3 / (n * (n + 1) * (2*n + 1) * dt * dt)
	}
	return l.noise(rs) * measure.Watt(math.Sqrt(1+float64(l.C*l.C)*gain)/l.gain())
}

// Work finds the spans in which corrected power exceeds a threshold (step 4). Crossings
// are interpolated between the two readings around them. A lone reading on the other
// side of the threshold is noise, and so is work no longer than the smear of one
// reading's jump by the slope.
func Work(corrected []Reading, threshold measure.Watt, slope Slope) []Span {
	above := lists.Map(corrected, func(r Reading) bool { return r.Power > threshold })
	// A lone reading takes the side of its neighbours.
	for i := 1; i+1 < len(above); i++ {
		if above[i] != above[i-1] && above[i] != above[i+1] {
			above[i] = above[i-1]
		}
	}
	cross := func(i int) measure.Seconds { // between readings i−1 and i
		a, b := corrected[i-1], corrected[i]
		if (a.Power > threshold) == (b.Power > threshold) {
			return b.At
		}
		return a.At + (b.At-a.At)*measure.Seconds((threshold-a.Power)/(b.Power-a.Power))
	}
	var out []Span
	for i := 0; i < len(above); i++ {
		if !above[i] {
			continue
		}
		s := Span{From: corrected[i].At, To: corrected[len(corrected)-1].At}
		if i > 0 {
			s.From = cross(i)
		}
		first := i
		for i < len(above) && above[i] {
			i++
		}
		if i < len(above) {
			s.To = cross(i)
		}
		if i-first > 2*slope.reach() {
			out = append(out, s)
		}
	}
	return out
}

// ShortReadings is the number of readings that a kernel needs for an energy within
// about 5 % (Burtscher et al., section 4.3): 150 ms on a K20.
const ShortReadings = 10

// Warnings returns the reasons to doubt the energy of a piece of work: too few readings
// in it, or a gap between them.
func Warnings(rs []Reading, s Span, period measure.Seconds) (out []string) {
	if n := float64(s.Length() / period); n < ShortReadings {
		out = append(out, fmt.Sprintf("%v of work is %.1f looks of the sensor; about 5 %% want %d, which is %v: "+
			"repeat the work", s.Length(), n, ShortReadings, ShortReadings*period))
	}
	longest := measure.Seconds(0)
	for i := 1; i < len(rs); i++ {
		if rs[i].At > s.From && rs[i-1].At < s.To {
			longest = max(longest, rs[i].At-rs[i-1].At)
		}
	}
	if longest > 4*period && longest > s.Length()/20 {
		out = append(out, fmt.Sprintf("no reading for %v within the work", longest))
	}
	return out
}

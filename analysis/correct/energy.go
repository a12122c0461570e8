package correct

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/wattmark/wattmark/measure"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/stat"
)

// Lag describes a sensor that follows the power as a capacitor does, and the static
// line between its readings and the truth. Every U is expanded, at 95 % (k = 2).
type Lag struct {
	C, U  measure.Seconds // the constant
	Slope Slope
	// Noise is a reading's standard deviation; zero to derive it from the readings.
	Noise measure.Watt
	// Hold is the period of a register that may hold values, and Age the standard uncertainty of the mean
	// age of two successive readings of it; zero for values without age.
	Hold, Age measure.Seconds
	oldest    measure.Seconds // the greatest age of a reading
	// Gain and Offset: reading = gain · truth + offset. A gain of zero means 1.
	Gain, UGain     float64
	Offset, UOffset measure.Watt
}

// gain returns the gain of the static line.
func (l Lag) gain() float64 { return cmp.Or(l.Gain, 1) }

// Energy is a corrected energy with its uncertainty budget.
type Energy struct {
	Span
	Energy measure.Joule `json:"energy_j"`
	U      measure.Joule `json:"energy_u_j"` // expanded, k = 2
	Mean   measure.Watt  `json:"mean_w"`     // Energy over the span's length
	// Raw is the same integral of the readings as they are, without the static line.
	Raw    measure.Joule          `json:"raw_energy_j"`
	Budget []measure.Contribution `json:"budget,omitempty"` // standard uncertainties, k = 1
}

// Sources of a budget.
const (
	readingsNoise = "readings' noise"
	readingsAge   = "readings' age"
	constantC     = "constant C"
)

// ErrSpan is wrapped where readings do not cover a span.
var ErrSpan = errors.New("the readings do not cover the span")

// Integrate integrates readings over a span by the trapezoid rule on their time
// stamps, with the ends interpolated. Readings must pass [Check]. Errors wrap ErrSpan.
func Integrate(rs []Reading, s Span) (measure.Joule, error) {
	raw, _, err := Lag{}.integral(rs, s)
	return measure.Joule(raw), err
}

// integral returns the integral of the readings over a span in joules, and by how much the corrected one grows with
// the constant C, in watts. Errors wrap ErrSpan.
func (l Lag) integral(rs []Reading, s Span) (raw, byC float64, err error) {
	u, first, err := trapezoid(rs, s)
	for j, weight := range u {
		raw += weight * float64(rs[first+j].Power)
		byC += weight * l.Slope.at(rs, first+j)
	}
	return raw, byC, err
}

// Energy corrects readings and integrates them over a span. Errors wrap ErrReadings or
// ErrSpan.
//
// Trapezoids over the corrected power telescope: but for the ends, the integral is
// that of the readings plus C times their rise. So noise within the span cancels, and
// the remainder comes from its two ends.
func (l Lag) Energy(rs []Reading, s Span) (Energy, error) {
	if err := Check(rs); err != nil {
		return Energy{}, err
	}
	raw, byC, err := l.integral(rs, s)
	if err != nil {
		return Energy{}, err
	}
	e := Energy{Span: s, Raw: measure.Joule(raw)}
	g, length := l.gain(), float64(s.Length())
	e.Energy = measure.Joule((raw + float64(l.C)*byC - float64(l.Offset)*length) / g)
	noise := l.noise(rs)
	_, v := l.linear(rs, s)
	squares := floats.Dot(v, v)
	steps := l.bend(rs, s.From) + l.bend(rs, s.To)
	e.budget([]measure.Contribution{
		{Source: readingsNoise, U: measure.Joule(float64(noise) * math.Sqrt(squares) / g)},
		{Source: constantC, U: measure.Joule(math.Abs(byC) * float64(l.U) / 2 / g), Systematic: true},
		{Source: "gain", U: measure.Joule(math.Abs(float64(e.Energy)) * l.UGain / 2 / g), Systematic: true},
		{Source: "offset", U: measure.Joule(length * float64(l.UOffset) / 2 / g), Systematic: true},
		{Source: "steps between readings", U: measure.Joule(steps / g), Systematic: true},
	})
	return e, nil
}

// noise returns the standard deviation of a reading, from the readings if not known.
func (l Lag) noise(rs []Reading) measure.Watt {
	if l.Noise != 0 {
		return l.Noise
	}
	return Noise(rs)
}

// linear returns the corrected integral over a span as weights of the readings from low on,
// in seconds, before the static line: most of the inner slopes cancel. The readings cover the span.
func (l Lag) linear(rs []Reading, s Span) (low int, v []float64) {
	u, first, _ := trapezoid(rs, s)
	low = max(first-l.Slope.reach(), 0)
	v = make([]float64, min(first+len(u)+l.Slope.reach(), len(rs))-low)
	for j, weight := range u {
		v[first+j-low] += weight
		lo, w := l.Slope.weights(nil, rs, first+j)
		for k, x := range w {
			v[lo+k-low] += float64(l.C) * weight * x
		}
	}
	return low, v
}

// budget keeps the contributions that are not zero, and sets U to twice their root sum
// of squares and Mean to the mean power.
func (e *Energy) budget(list []measure.Contribution) {
	e.Budget, e.Mean = nil, measure.Watt(float64(e.Energy)/float64(e.Length()))
	sum := 0.0
	for _, c := range list {
		if c.U > 0 {
			e.Budget = append(e.Budget, c)
			sum += float64(c.U) * float64(c.U)
		}
	}
	e.U = measure.Joule(2 * math.Sqrt(sum))
}

// bend returns the standard uncertainty, in joules, of an integral that ends between
// two readings, by a step of the power there: a share f into an interval Δt the line
// between the readings is off by ΔP·Δt·f·(1−f), at most a quarter; taken as rectangular
// (/√3).
func (l Lag) bend(rs []Reading, at measure.Seconds) float64 {
	i := sort.Search(len(rs), func(i int) bool { return rs[i].At > at })
	if i == 0 || i == len(rs) || rs[i-1].At == at {
		return 0
	}
	n := l.Slope.reach()
	step := l.at(rs, min(i+n, len(rs)-1)) - l.at(rs, max(i-1-n, 0))
	return math.Abs(step) * float64(rs[i].At-rs[i-1].At) / 4 / math.Sqrt(3)
}

// at returns the corrected power at one reading in watts, before the static line.
func (l Lag) at(rs []Reading, i int) float64 {
	return float64(rs[i].Power) + float64(l.C)*l.Slope.at(rs, i)
}

// True returns the corrected power at the readings' instants, with the static line
// undone. Readings must pass [Check].
func (l Lag) True(rs []Reading) []Reading {
	out := slices.Clone(rs)
	for i := range out {
		out[i].Power = measure.Watt((l.at(rs, i) - float64(l.Offset)) / l.gain())
	}
	return out
}

// trapezoid returns weights in seconds: the sum of weight times power over the readings
// from first on is the integral over a span, by the trapezoid rule with interpolated
// ends. Errors wrap ErrSpan.
func trapezoid(rs []Reading, s Span) (u []float64, first int, err error) {
	if len(rs) < 2 || !(s.From < s.To) || rs[0].At > s.From || rs[len(rs)-1].At < s.To {
		err = fmt.Errorf("correct: %w: %.6f s to %.6f s", ErrSpan, float64(s.From), float64(s.To))
		if len(rs) > 0 {
			err = fmt.Errorf("%w; they go from %.6f s to %.6f s", err, float64(rs[0].At), float64(rs[len(rs)-1].At))
		}
		return nil, 0, err
	}
	first = sort.Search(len(rs), func(i int) bool { return rs[i].At > s.From }) - 1
	end := sort.Search(len(rs), func(i int) bool { return rs[i].At >= s.To })
	u = make([]float64, end-first+1)
	for j := range end - first {
		a, b := rs[first+j].At, rs[first+j+1].At
		lo, hi := max(a, s.From), min(b, s.To)
		mid := float64((lo+hi)/2-a) / float64(b-a)
		u[j] += float64(hi-lo) * (1 - mid)
		u[j+1] = float64(hi-lo) * mid
	}
	return u, first, nil
}

// Piece returns the energy of a piece of work whose span was found by [Work] in these readings. The correction turns
// a step of the power into a ramp over some readings. The instant of the step is that which keeps the ramp's area,
// and the energy is the integral over both ramps less the energy before and after those instants. So an error of an
// instant costs the power beside the work, not the power of the work. The span of the result is between those
// instants. Work too short to have a middle is integrated as it stands.
//
// A kernel whose span is known is given too, zero for none: the energy beside it is at the power of the nearest
// readings outside of the ramps. It needs about five readings before the kernel and six behind it; with fewer it is
// [Lag.Energy], which loses half of each ramp.
func (l Lag) Piece(rs []Reading, work, given Span) (Energy, error) {
	if err := Check(rs); err != nil {
		return Energy{}, err
	}
	n := l.Slope.reach() + 1
	first := sort.Search(len(rs), func(i int) bool { return rs[i].At > work.From }) - 1
	last := sort.Search(len(rs), func(i int) bool { return rs[i].At >= work.To })
	if given != (Span{}) {
		last++ // a reading behind the end may be older
	}
	middle := given != (Span{}) || last-n-1 >= first+n+2 // its levels tell instants apart
	if first-n < 2 || last+n > len(rs)-3 || !middle {
		return l.Energy(rs, work)
	}
	rise, fall := l.steps(rs, first, last, given)
	whole := Span{From: rs[first-n].At, To: rs[last+n].At}
	e, err := l.Energy(rs, whole)
	if err != nil || !(rise.at < fall.at) {
		return e, err
	}
	out := outside(whole, rise, fall)
	e.Energy -= measure.Joule((out - float64(l.Offset)*float64(whole.Length()-(fall.at-rise.at))) / l.gain())
	e.Span = Span{From: rise.at, To: fall.at}
	e.Raw, err = Integrate(rs, e.Span)
	e.Budget = slices.DeleteFunc(e.Budget, func(c measure.Contribution) bool {
		return c.Source == readingsNoise || c.Source == constantC
	})
	e.budget(append(e.Budget, l.stepsU(rs, whole, first, last, given)...))
	return e, err
}

// stepDraws is the number of draws of the readings' noise: they determine its effect on
// the steps to 1/√(2·stepDraws), 5 %.
const stepDraws = 200

// stepsU returns the standard uncertainties of [Lag.Piece] by the readings' noise and age and by the constant:
// those of the integral over the whole span, of the levels beside the work and of the instants of the steps
// together, since they share them. Levels are medians, so errors are drawn for the readings near the steps
// (the same draws each time); those between count by their weights.
func (l Lag) stepsU(rs []Reading, whole Span, first, last int, given Span) []measure.Contribution {
	at, v := l.linear(rs, whole)
	_, perC, _ := l.integral(rs, whole)
	// A level looks at three readings beyond the ramp, and their slopes at reach more.
	n := 2 * (l.Slope.reach() + 1)
	low, high := max(first-n-1, 0), min(last+n+2, len(rs))
	near := func(i int) bool { return i < first+n+3 || i >= last-n-2 }
	r := rand.New(rand.NewPCG(1, 2))
	off, energies := make([]float64, high-low), make([]float64, stepDraws)
	scatter := func(draw func()) float64 {
		shaken := slices.Clone(rs[low:high])
		for k := range energies {
			draw()
			for i, d := range off {
				if near(low + i) {
					shaken[i].Power = rs[low+i].Power + measure.Watt(d)
				}
			}
			energies[k] = floats.Dot(v, off[at-low:][:len(v)])
			rise, fall := l.steps(shaken, first-low, last-low, given)
			energies[k] -= outside(whole, rise, fall)
		}
		return stat.StdDev(energies, nil)
	}
	noise := float64(l.noise(rs))
	list := []measure.Contribution{{Source: readingsNoise, U: measure.Joule(scatter(func() {
		for i := range off {
			off[i] = noise * r.NormFloat64()
		}
	}) / l.gain())}}
	inner := min(n/2, (last-first-1)/2)
	if age := l.age(rs, first+inner, last-inner); age > 0 {
		list = append(list, measure.Contribution{Source: readingsAge, U: measure.Joule(scatter(l.aging(rs, low, off, r)) *
			float64(age/l.Age) / l.gain())})
	}
	change := func(sign measure.Seconds) float64 {
		other := l
		other.C += sign * l.U / 2
		rise, fall := other.steps(rs, first, last, given)
		return perC*float64(other.C-l.C) - outside(whole, rise, fall)
	}
	constant := math.Abs(change(1)-change(-1)) / 2 / l.gain()
	return append(list, measure.Contribution{Source: constantC, U: measure.Joule(constant), Systematic: true})
}

// aging returns a function that draws a phase of the register and sets off to the errors in watts that the ages at that
// phase cause in the readings from low on.
func (l Lag) aging(rs []Reading, low int, off []float64, r *rand.Rand) func() {
	slopes := make([]float64, len(off))
	for i := range slopes {
		slopes[i] = l.Slope.at(rs, low+i)
	}
	return func() {
		phase := r.Float64()
		for i := range off {
			passed := float64((rs[low+i].At - rs[low].At) / l.Hold)
			if l.oldest < l.Hold/2 { // renewals passed, and polls since the last of them
				passed = math.Round(passed) * float64(l.Hold/l.oldest)
			}
			_, share := math.Modf(passed + phase)
			off[i] = -slopes[i] * share * float64(l.oldest)
		}
	}
}

// Aged returns the lag for polls of a register that may hold its value for a period h: a poll finds it 0 to
// h old, or as old as polls are apart where that is less (rectangular). From one reading to the next the age
// goes on by the part f of h that is left of the time between polls, which correlates the two by
// 1 − 6f + 6f².
func (l Lag) Aged(polled []Reading, h measure.Seconds) Lag {
	longest, sum := min(h, Spacing(polled)), 0.0
	for i := 1; i < len(polled); i++ {
		d := polled[i].At - polled[i-1].At
		_, f := math.Modf(float64(max(d, h) / min(d, h)))
		sum += 1 - 3*f + 3*f*f // (1 + correlation)/2
	}
	l.Hold, l.oldest, l.Age = h, longest, longest*measure.Seconds(math.Sqrt(sum/float64(len(polled)-1)/12))
	return l
}

// age returns the standard uncertainty of the age of the readings around a step. Whether a register holds
// values at all is judged where readings near the steady power after a step, at readings first and last:
// from one to the next either the time between them passed, or a multiple of Hold. The likelihoods of both,
// alike beforehand, weigh the variance of the age.
func (l Lag) age(rs []Reading, first, last int) measure.Seconds {
	if !(l.Age > 0) {
		return 0
	}
	evidence := 0.0
	for _, part := range [][]Reading{rs[first:last], rs[last+1:]} {
		if end := sort.Search(len(part), func(i int) bool { return part[i].At > part[0].At+4*l.C }); end > 2 {
			evidence += l.holds(part[:end])
		}
	}
	return l.Age / measure.Seconds(math.Sqrt(1+math.Exp(-evidence)))
}

// holds returns the logarithm of how much likelier readings that near a steady power are of a register
// that holds values than of one that is looked at when read.
func (l Lag) holds(rs []Reading) (evidence float64) {
	noise, a, b := max(float64(l.noise(rs)), 1e-9), rs[0], rs[len(rs)-1]
	e, _ := Integrate(rs, Span{From: a.At, To: b.At})
	power := (float64(e) + float64(l.C)*float64(b.Power-a.Power)) / float64(b.At-a.At)
	for i := 1; i < len(rs); i++ {
		last, rise := float64(rs[i-1].Power), float64(rs[i].Power-rs[i-1].Power)
		likely := func(passed measure.Seconds) float64 {
			off := rise + (power-last)*math.Expm1(-float64(passed/l.C))
			return math.Exp(-off*off/(4*noise*noise)) + 1e-6 // the load is as steady as that
		}
		n, part := math.Modf(float64((rs[i].At - rs[i-1].At) / l.Hold))
		held := measure.Seconds(n) * l.Hold
		evidence += math.Log((1-part)*likely(held)+part*likely(held+l.Hold)) - math.Log(likely(rs[i].At-rs[i-1].At))
	}
	return evidence
}

// steps places the beginning and the end of work between readings first and last, at those that are given.
func (l Lag) steps(rs []Reading, first, last int, given Span) (rise, fall step) {
	n := l.Slope.reach() + 1
	rise, fall = l.step(rs, first-n, first+1+n), l.step(rs, last-1-n, last+n)
	if given != (Span{}) {
		rise.at, fall.at = given.From, given.To
	}
	return rise, fall
}

// outside returns the energy in joules of a whole span before and after the work, before
// the static line.
func outside(whole Span, rise, fall step) float64 {
	return rise.before*float64(rise.at-whole.From) + fall.after*float64(whole.To-fall.at)
}

// step is a change of the corrected power, before the static line.
type step struct {
	at            measure.Seconds
	before, after float64 // W
}

// step places a step between readings a and b by the area under the corrected power;
// the levels are medians of three.
func (l Lag) step(rs []Reading, a, b int) step {
	three := func(i int) float64 {
		a, b, c := l.at(rs, max(i-1, 0)), l.at(rs, i), l.at(rs, min(i+1, len(rs)-1))
		return max(min(a, b), min(max(a, b), c))
	}
	s := step{before: three(a - 1), after: three(b + 1)}
	raw, byC, _ := l.integral(rs, Span{From: rs[a].At, To: rs[b].At})
	length := float64(rs[b].At - rs[a].At)
	late := (s.after*length - raw - float64(l.C)*byC) / (s.after - s.before)
	s.at = rs[a].At + measure.Seconds(max(0, min(late, length)))
	return s
}

// Slope is a way to take the slope of readings, which need not be evenly spaced.
// The zero value is the paper's: the difference of the two neighbours.
type Slope struct {
	half int // readings on either side that a parabola is laid through; 0 for the paper's
}

// Symmetric is the paper's formula: the neighbours' difference over their time.
var Symmetric = Slope{}

// Parabola takes the slope of the parabola that is fitted to a reading and n on either
// side by least squares. On even spacing that is Savitzky and Golay's filter (1964):
// noise falls as n^-1.5, and a step is smeared over 2n readings. n is at least 1.
func Parabola(n int) Slope { return Slope{max(n, 1)} }

// ParseSlope reads "symmetric", "five-point" or "savitzky-golay:N" with N readings in
// all, which is odd and from 3 to 101.
func ParseSlope(s string) (Slope, error) {
	switch s {
	case "", "symmetric":
		return Symmetric, nil
	case "five-point":
		return Parabola(2), nil
	}
	if rest, ok := strings.CutPrefix(s, "savitzky-golay:"); ok {
		if n, err := strconv.Atoi(rest); err == nil && n >= 3 && n <= 101 && n%2 == 1 {
			return Parabola(n / 2), nil
		}
	}
	return Slope{}, fmt.Errorf("slope %q: want symmetric, five-point, or savitzky-golay:N with an odd N from 3 to 101",
		s)
}

func (s Slope) String() string {
	switch s.half {
	case 0:
		return "symmetric"
	case 2:
		return "five-point"
	}
	return fmt.Sprintf("savitzky-golay:%d", 2*s.half+1)
}

// reach returns the number of readings on either side that a slope uses.
func (s Slope) reach() int { return max(s.half, 1) }

// at returns the slope in W/s at reading i.
func (s Slope) at(rs []Reading, i int) (slope float64) {
	lo, w := s.weights(make([]float64, 0, 8), rs, i)
	for k, x := range w {
		slope += x * float64(rs[lo+k].Power)
	}
	return slope
}

// weights returns the first reading and the weights in 1/s, appended to room: the sum of weight times
// power from there on is the slope at reading i. At the ends of the
// readings there are fewer weights.
func (s Slope) weights(room []float64, rs []Reading, i int) (lo int, w []float64) {
	lo, hi := max(i-s.reach(), 0), min(i+s.reach(), len(rs)-1)
	w = append(room, make([]float64, hi-lo+1)...)
	if s.half == 0 || hi-lo < 2 {
		d := 1 / float64(rs[hi].At-rs[lo].At)
		w[0], w[len(w)-1] = -d, d
		return lo, w
	}
	scale := float64(rs[hi].At - rs[lo].At)
	x := func(j int) float64 { return float64(rs[lo+j].At-rs[i].At) / scale }
	var m [5]float64 // Σ x^k
	for j := range w {
		p := 1.0
		for k := range m {
			m[k] += p
			p *= x(j)
		}
	}
	// The second row of the inverse of the normal equations for 1, x, x².
	c0 := m[2]*m[3] - m[1]*m[4]
	c1 := m[0]*m[4] - m[2]*m[2]
	c2 := m[1]*m[2] - m[0]*m[3]
	det := m[1]*c0 + m[2]*c1 + m[3]*c2
	for j := range w {
		w[j] = (c0 + c1*x(j) + c2*x(j)*x(j)) / det / scale
	}
	return lo, w
}

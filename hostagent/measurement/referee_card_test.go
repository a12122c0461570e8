package measurement

import (
	"math"
	"math/rand/v2"
	"slices"
)

// Edges draws how a card's power rises and falls.
type Edges func(rng *rand.Rand) (rise, fall Response)

func ramp(length float64) Response { return Response{Line: [][2]float64{{length, 1}}} }

// twoSteps does a part of the step at once, waits, and does the rest.
func twoSteps(rng *rand.Rand, length float64) Response {
	part := between(rng, 0.3, 0.7)
	return Response{Line: [][2]float64{
		{between(rng, 0.05, 0.2) * length, part}, {between(rng, 0.6, 0.85) * length, part + 0.05}, {length, 1},
	}}
}

// drawn is a response of any formula, of a length.
func drawn(length float64, pieces int, done func(t float64) float64) (r Response) {
	for i := 1; i <= pieces; i++ {
		t := float64(i) / float64(pieces) * length
		r.Line = append(r.Line, [2]float64{t, done(t) / done(length)})
	}
	return r
}

// curved is half a period of a cosine.
func curved(length float64) Response {
	return drawn(length, 24, func(t float64) float64 { return (1 - math.Cos(math.Pi*t/length)) / 2 })
}

// staggered does a part of the step at once and the rest later, as do phases of a regulator: each by an exponential.
func staggered(part, late, tau float64) Response {
	return drawn(late+8*tau, 200, func(t float64) float64 {
		return -part*math.Expm1(-t/tau) - (1-part)*math.Expm1(-max(t-late, 0)/tau)
	})
}

// poles is three equal lags in a row, as a regulator and an input filter are.
func poles(tau float64) Response {
	return drawn(14*tau, 120, func(t float64) float64 {
		x := t / tau
		return 1 - math.Exp(-x)*(1+x*(1+x/2))
	})
}

// Of3090 and OfA100 are the edges of two recorded cards, arXiv 2312.02741, within a tenth.
func Of3090(rng *rand.Rand) (rise, fall Response) {
	return ramp(0.25e-3 * between(rng, 0.9, 1.1)), ramp(0.9e-3 * between(rng, 0.9, 1.1))
}

func OfA100(rng *rand.Rand) (rise, fall Response) {
	return Response{Tau: 0.05e-3 * between(rng, 0.9, 1.1)}, ramp(0.32e-3 * between(rng, 0.9, 1.1))
}

// Exponentials, Ramps, TwoSteps and Curves are edges of one kind, of any length in the range of the recorded ones.
func Exponentials(rng *rand.Rand) (rise, fall Response) {
	return Response{Tau: between(rng, 0.03e-3, 0.15e-3)}, Response{Tau: between(rng, 0.1e-3, 0.4e-3)}
}

func Ramps(rng *rand.Rand) (rise, fall Response) {
	return ramp(between(rng, 0.1e-3, 0.4e-3)), ramp(between(rng, 0.3e-3, 1e-3))
}

func TwoSteps(rng *rand.Rand) (rise, fall Response) {
	return twoSteps(rng, between(rng, 0.2e-3, 0.5e-3)), twoSteps(rng, between(rng, 0.3e-3, 0.8e-3))
}

func Curves(rng *rand.Rand) (rise, fall Response) {
	return curved(between(rng, 0.1e-3, 0.4e-3)), curved(between(rng, 0.3e-3, 1e-3))
}

// Staggered and Poles are edges of a supply that rises as it falls.
func Staggered(rng *rand.Rand) (rise, fall Response) {
	r := staggered(between(rng, 0.2, 0.5), between(rng, 0.3e-3, 0.8e-3), between(rng, 0.02e-3, 0.1e-3))
	return r, r
}

func Poles(rng *rand.Rand) (rise, fall Response) {
	r := poles(between(rng, 0.05e-3, 0.15e-3))
	return r, r
}

// SlowFalls end with a ramp of about 2 ms.
func SlowFalls(rng *rand.Rand) (rise, fall Response) {
	rise, _ = AnyEdges(rng)
	return rise, ramp(between(rng, 1.8e-3, 2.2e-3))
}

// AnyEdges is a rise of one kind and a fall of another.
func AnyEdges(rng *rand.Rand) (rise, fall Response) {
	kinds := [...]Edges{Of3090, OfA100, Exponentials, Ramps, TwoSteps}
	rise, _ = kinds[rng.IntN(len(kinds))](rng)
	_, fall = kinds[rng.IntN(len(kinds))](rng)
	return rise, fall
}

// Task is the room for work: its time, powers, the scans a second of the meter, and the markers around it.
type Task struct {
	From, To, Power, Low, High, Rate float64
	Markers                          [2]Marker
}

// Done is work as it went: what the card wants until To, and the codes in it.
type Done struct {
	Levels []Level
	Marks  []Mark
	To     float64
}

// Workload makes a task's work.
type Workload func(rng *rand.Rand, t Task) Done

// Telegraph goes on and off at random, each for a mean time.
func Telegraph(mean float64) Workload {
	return func(rng *rand.Rand, t Task) Done {
		out, on := Done{To: t.To}, true
		for at := t.From; at < t.To; at += mean * rng.ExpFloat64() {
			w := t.Low
			if on {
				w = t.Power
			}
			out.Levels, on = append(out.Levels, Level{at, w}), !on
		}
		return out
	}
}

// Pulses goes on and off periodically, on for a tenth to nine tenths of it. The frequency lies between two bounds,
// in scans of the meter.
func Pulses(lo, hi float64) Workload {
	return func(rng *rand.Rand, t Task) Done {
		out, period, duty := Done{To: t.To}, 1/(t.Rate*between(rng, lo, hi)), between(rng, 0.1, 0.9)
		for at := t.From; at < t.To; at += period {
			out.Levels = append(out.Levels, Level{at, t.Power}, Level{at + duty*period, t.Low})
		}
		out.Levels = slices.DeleteFunc(out.Levels, func(l Level) bool { return l.At >= t.To })
		return out
	}
}

// Slopes climbs and sinks by stairs of 0.2 ms between random powers.
func Slopes(rng *rand.Rand, t Task) Done {
	out, from := Done{To: t.To}, t.Low
	for at := t.From; at < t.To; {
		to, n := between(rng, t.Low, t.Power), 10+rng.IntN(200)
		for i := 0; i < n && at < t.To; i++ {
			out.Levels = append(out.Levels, Level{at, from + (to-from)*float64(i)/float64(n)})
			at += 0.2e-3
		}
		from = to
	}
	return out
}

// Codes play a marker as work: the start code, or with inverse the stop code, of another tag and with chips longer
// by a factor. With the factor 1 it is a code that a detector must find.
func Codes(inverse bool, longer float64) Workload {
	return func(_ *rand.Rand, t Task) Done {
		m := t.Markers[0]
		if inverse {
			m = t.Markers[1]
		}
		m.Chips = slices.Clone(m.Chips)
		m.Chip *= longer
		for i := m.Tag; i < len(m.Chips)-m.Code; i++ { // as many low chips follow as precede
			m.Chips[i] = !m.Chips[i]
		}
		levels, end := m.levels(t.From, t.Low, t.Power)
		out := Done{Levels: levels, To: end}
		if longer == 1 {
			out.Marks = []Mark{{inverse, false, t.From + float64(m.Code)*m.Chip}}
		}
		return out
	}
}

// UpDown is a plain pattern: four pulses of the marker's chips.
func UpDown(_ *rand.Rand, t Task) Done {
	m := t.Markers[0]
	m.Chips = make([]bool, 2*m.Code+8)
	for i := range 4 {
		m.Chips[m.Code+2*i] = true
	}
	levels, end := m.levels(t.From, t.Low, t.Power)
	return Done{Levels: levels, To: end}
}

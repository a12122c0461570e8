// Package referee makes recordings of a bench with known energy, to test what wattmark states
// about its own uncertainty. It imports nothing of the module, so that no model is shared with
// what it judges:
//
//	Card (levels, responses) ──▶ true power ──▶ energy, in closed form
//	                                 │
//	Meter (noise, errors, range, clock, losses) ──▶ Recording: counts as a converter gives them
//	                                 │
//	Host (clock, jitter) ──▶ time stamps of marker chips and of the work
//
// Powers are in W, times in s, unless stated.
package referee

import (
	"math"
	"math/rand/v2"
	"slices"
)

// Response is how power follows a step: pairs of seconds behind it and the part of it that is
// done, straight lines between, 0 before and the last part behind.
type Response [][2]float64

// Ramp returns a straight response of a length.
func Ramp(length float64) Response { return Response{{length, 1}} }

// Exponential returns a first-order response, cut at a hundred-thousandth.
func Exponential(tau float64) (r Response) {
	for x := 0.01; x < 11.5; x *= 1.04 {
		r = append(r, [2]float64{x * tau, -math.Expm1(-x)})
	}
	return append(r, [2]float64{11.6 * tau, 1})
}

// At returns the part of the step that is done t after it.
func (r Response) At(t float64) float64 {
	var last [2]float64
	for _, p := range r {
		if t < p[0] {
			return last[1] + (p[1]-last[1])*max(t-last[0], 0)/(p[0]-last[0])
		}
		last = p
	}
	return last[1]
}

// area returns the integral of the response from 0 to t.
func (r Response) area(t float64) (a float64) {
	var last [2]float64
	for _, p := range r {
		end := min(t, p[0])
		if end <= last[0] {
			return a
		}
		a += (end - last[0]) * (last[1] + r.At(end)) / 2
		last = p
	}
	return a + max(t-last[0], 0)*last[1]
}

// Card is a GPU.
type Card struct {
	Rise, Fall             Response
	Idle, Low, High, Power float64 // without a kernel; marker chips; the work
	Work                   func(rng *rand.Rand, from, to, power, idle float64) []Level
}

// Level is a power that the card wants from an instant on.
type Level struct{ At, W float64 }

// Telegraph is work that goes on and off at random, each for a mean time.
func Telegraph(mean float64) func(*rand.Rand, float64, float64, float64, float64) []Level {
	return func(rng *rand.Rand, from, to, power, idle float64) (out []Level) {
		on := true
		for t := from; t < to; t += mean * rng.ExpFloat64() {
			w := idle
			if on {
				w = power
			}
			out, on = append(out, Level{t, w}), !on
		}
		return out
	}
}

// Pulses is work that goes on and off, half of each period.
func Pulses(period float64) func(*rand.Rand, float64, float64, float64, float64) []Level {
	return func(rng *rand.Rand, from, to, power, idle float64) (out []Level) {
		p := period * (1 + 1e-3*rng.NormFloat64())
		for t := from; t < to; t += p {
			out = append(out, Level{t, power}, Level{t + p/2, idle})
		}
		return out
	}
}

// Noise makes the errors of successive readings, of standard deviation 1 where there is one.
type Noise func(rng *rand.Rand, n int) []float64

// White is independent and normal.
func White(rng *rand.Rand, n int) []float64 {
	v := make([]float64, n)
	for i := range v {
		v[i] = rng.NormFloat64()
	}
	return v
}

// AR1 is a first-order Markov process.
func AR1(rho float64) Noise {
	return func(rng *rand.Rand, n int) []float64 {
		v := White(rng, n)
		for i := 1; i < n; i++ {
			v[i] = rho*v[i-1] + math.Sqrt(1-rho*rho)*v[i]
		}
		return v
	}
}

// Pink is 1/f noise over the whole recording: a sum of Markov processes an octave apart.
func Pink(rng *rand.Rand, n int) []float64 {
	v := make([]float64, n)
	octaves := math.Floor(math.Log2(float64(n)))
	for k := range int(octaves) {
		for i, x := range AR1(math.Exp(-math.Ldexp(1, -k)))(rng, n) {
			v[i] += x / math.Sqrt(octaves)
		}
	}
	return v
}

// Student is independent, of so many degrees of freedom; below three it has no variance and is not scaled.
func Student(dof int) Noise {
	return func(rng *rand.Rand, n int) []float64 {
		v := make([]float64, n)
		for i := range v {
			var q float64
			for range dof {
				x := rng.NormFloat64()
				q += x * x
			}
			v[i] = rng.NormFloat64() / math.Sqrt(q/float64(dof))
			if dof > 2 {
				v[i] *= math.Sqrt(float64(dof-2) / float64(dof))
			}
		}
		return v
	}
}

// Spiky is white, with one reading in 500 too high by up to 60 standard deviations.
func Spiky(rng *rand.Rand, n int) []float64 {
	v := White(rng, n)
	for i := range v {
		if rng.IntN(500) == 0 {
			v[i] += 60 * rng.Float64()
		}
	}
	return v
}

// Meter is an instrument of two rails, each a current and a voltage.
type Meter struct {
	Rate           float64 // scans a second
	Noise          Noise
	NoiseW         float64
	UGain, UOffset float64 // relative; in counts
	Drift          float64 // of the gains beyond their error, in UGain
	Clip           float64 // largest current of a rail in A; 0 for none
	Lost           float64 // share of scans lost, in runs of Burst scans
	Burst          int
	UTick          float64 // relative, stated
}

// Bench is what is recorded.
type Bench struct {
	Name   string
	Card   Card
	Meter  Meter
	Length float64 // of the work, s
	Jitter float64 // of the host's time stamps, s
	Delay  float64 // standard deviation, between recordings, of the delay of the work's power behind its stamps, s
}

// Marker is what the host plays: chips of equal length, of which Code begins the code.
type Marker struct {
	Chips []bool
	Chip  float64
	Code  int
}

// Edge is a chip's begin on the host's clock.
type Edge struct {
	Stop bool
	Chip int
	Host float64
}

// Channel is an input: value = Gain·(count) + Offset within its stated errors.
type Channel struct {
	Name                         string
	Current                      bool
	Gain, Offset, UGain, UOffset float64
	Min, Max                     int32
}

// Run is a stretch without a gap.
type Run struct {
	First  uint64 // number of its first scan
	Counts [][]int32
}

// Recording is what meter and host know, and the truth.
type Recording struct {
	Channels   []Channel // v, i of the first rail, then of the second
	Rate       float64   // nominal, of 1 MHz ticks
	Runs       []Run
	Edges      []Edge
	From, To   float64 // of the work, on the host's clock
	Energy     float64 // J within the work
	Clipped    int     // scans
	LostScans  int
	WorkScans  int
	TrueLevels []Level
}

const (
	volts  = 12.0
	share  = 0.85 // of the power, on the first rail
	ampere = 5e-3 // a count
	volt   = 1e-3
	origin = 1000.0 // host time of the recording's begin
)

// power returns the true power at ever later times.
func power(c Card, levels []Level) func(t float64) float64 {
	const settled = 20e-3
	base, first := levels[0].W, 1
	return func(t float64) float64 {
		for first < len(levels) && t-levels[first].At > settled {
			base, first = levels[first].W, first+1
		}
		p := base
		for k := first; k < len(levels) && levels[k].At < t; k++ {
			p += c.step(levels, k, t)
		}
		return p
	}
}

// step is the part of change k that is done at t.
func (c Card) step(levels []Level, k int, t float64) float64 {
	d := levels[k].W - levels[k-1].W
	if d < 0 {
		return d * c.Fall.At(t-levels[k].At)
	}
	return d * c.Rise.At(t-levels[k].At)
}

// energy integrates the true power in closed form.
func (c Card) energy(levels []Level, from, to float64) float64 {
	e := levels[0].W * (to - from)
	for k := 1; k < len(levels); k++ {
		d, r := levels[k].W-levels[k-1].W, c.Rise
		if d < 0 {
			r = c.Fall
		}
		e += d * (r.area(max(to-levels[k].At, 0)) - r.area(max(from-levels[k].At, 0)))
	}
	return e
}

// Record plays start marker, work and stop marker and records them. The same seed gives the same
// recording.
func (b Bench) Record(seed uint64, start, stop Marker) *Recording {
	rng := rand.New(rand.NewPCG(seed, 0x726566))
	c := b.Card
	hostRate, hostLate := 1+10e-6*rng.NormFloat64(), rng.Float64()
	host := func(t float64) float64 { return origin + hostLate + t*hostRate + b.Jitter*rng.NormFloat64() }
	out := &Recording{Rate: b.Meter.Rate}
	levels := []Level{{0, c.Idle}}
	play := func(m Marker, at float64, isStop bool) float64 {
		for i, high := range m.Chips {
			w := c.Low
			if high {
				w = c.High
			}
			levels = append(levels, Level{at + float64(i)*m.Chip, w})
			out.Edges = append(out.Edges, Edge{isStop, i - m.Code, host(at + float64(i)*m.Chip)})
		}
		end := at + float64(len(m.Chips))*m.Chip
		levels = append(levels, Level{end, c.Idle})
		return end
	}
	from := play(start, 0.15+0.01*rng.Float64(), false) + 5e-3 + 2e-3*rng.Float64()
	to := from + b.Length
	if c.Work == nil {
		levels = append(levels, Level{from, c.Power})
	} else {
		levels = append(levels, c.Work(rng, from, to, c.Power, c.Low)...)
	}
	levels = append(levels, Level{to, c.Idle})
	slices.SortStableFunc(levels, func(a, b Level) int {
		switch {
		case a.At < b.At:
			return -1
		case a.At > b.At:
			return 1
		}
		return 0
	})
	late := b.Delay * rng.NormFloat64()
	out.From, out.To = host(from)-late, host(to)-late
	end := play(stop, to+10e-3+2e-3*rng.Float64(), true) + 0.1
	out.Energy = c.energy(levels, from, to)
	out.TrueLevels = levels
	b.Meter.record(rng, power(c, levels), end, from, to, out)
	return out
}

// record converts the power to counts.
func (m Meter) record(rng *rand.Rand, p func(float64) float64, end, from, to float64, out *Recording) {
	clock := 1 + m.UTick*rng.NormFloat64() // the meter's scans come this much faster than stated
	n := int(end * m.Rate * clock)
	noise := m.Noise(rng, n)
	errorOf := func() float64 { return 1 + m.UGain*(rng.NormFloat64()+m.Drift) }
	var gain, zero [4]float64
	for k := range gain {
		gain[k], zero[k] = errorOf(), m.UOffset*rng.NormFloat64()
	}
	names := [4]string{"v1", "i1", "v2", "i2"}
	for k := range names {
		ch := Channel{Name: names[k], Current: k%2 == 1, Gain: volt, UGain: m.UGain, UOffset: m.UOffset * volt}
		if ch.Current {
			ch.Gain, ch.UOffset = ampere, m.UOffset*ampere
			if m.Clip > 0 {
				ch.Min, ch.Max = -1000, int32(m.Clip/ampere)
			}
		}
		out.Channels = append(out.Channels, ch)
	}
	counts := make([][]int32, 4)
	for k := range counts {
		counts[k] = make([]int32, n)
	}
	for i := range n {
		t := float64(i) / (m.Rate * clock)
		w := p(t)
		i1 := share*w/volts + m.NoiseW*noise[i]/volts
		values := [4]float64{volts / volt, i1 / ampere, volts / volt, (1 - share) * w / volts / ampere}
		for k, v := range values {
			x := int32(math.Round(v*gain[k] + zero[k] + 0.3*rng.NormFloat64()))
			if ch := out.Channels[k]; ch.Max > ch.Min && x >= ch.Max {
				x = ch.Max
				out.Clipped++
			}
			counts[k][i] = x
		}
		if t >= from && t < to {
			out.WorkScans++
		}
	}
	m.lose(rng, counts, out)
}

// lose cuts the scans into runs.
func (m Meter) lose(rng *rand.Rand, counts [][]int32, out *Recording) {
	n, begin := len(counts[0]), 0
	cut := func(end int) {
		if end > begin {
			r := Run{First: uint64(begin)}
			for _, c := range counts {
				r.Counts = append(r.Counts, c[begin:end])
			}
			out.Runs = append(out.Runs, r)
		}
	}
	if m.Lost > 0 {
		for i := 1; i < n-m.Burst; i++ {
			if rng.Float64() < m.Lost/float64(m.Burst) {
				cut(i)
				begin = i + m.Burst
				out.LostScans += m.Burst
				i = begin
			}
		}
	}
	cut(n)
}

// Channels returns a recording without samples, for its channels.
func (b Bench) Channels() *Recording {
	out := &Recording{}
	m := b.Meter
	m.UTick = 0
	if m.Noise == nil {
		m.Noise = White
	}
	m.record(rand.New(rand.NewPCG(1, 1)), func(float64) float64 { return 0 }, 0, 0, 0, out)
	return out
}

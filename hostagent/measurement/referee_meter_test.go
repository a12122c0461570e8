package measurement

import (
	"math"
	"math/rand/v2"
	"sort"
)

// Meter is an instrument of two rails, each a voltage and a current.
type Meter struct {
	Rate           float64    // scans a second
	Noise          Noise      // of a current; nil for white
	NoiseW, Steps  float64    // its standard deviation, in W, and in steps of the markers
	UGain, UOffset float64    // relative; in counts
	Drift          [2]float64 // of the gains beyond their error, in UGain: common to all, and by chance
	// Clip is the range of the largest current of the first rail, as a part of what the work takes;
	// ClipAll that of what markers and work take. Zeros for no end.
	Clip, ClipAll [2]float64
	// Backward is the part of the power that the second rail feeds back; a Unipolar converter has no negative counts.
	Backward float64
	Unipolar bool
	Lost     float64 // share of scans lost, in runs of Burst scans
	Burst    int
	UTick    float64    // relative, stated
	TickOff  float64    // relative, beyond it
	TickStep float64    // standard deviation of the rate beside it, new at times some 0.2 s apart
	Walk     float64    // by which the rate walks at random in a second, relative
	Warm     [2]float64 // by which it swings, as with the temperature, and the period in s
	Average  [2]float64 // range of the time that a reading averages over, up to its stamp; zeros for none
}

// meterClock is a meter's: instants at which its rate changes, and the device time there.
type meterClock struct{ at, device, rate []float64 }

func (m *Meter) clock(rng *rand.Rand, end float64) (c meterClock) {
	base := 1 + m.UTick*rng.NormFloat64() + m.TickOff
	t, d := 0.0, 0.0
	phase := 0.0
	if m.Warm[1] > 0 {
		phase = 2 * math.Pi * rng.Float64()
	}
	for {
		rate := base + m.TickStep*rng.NormFloat64()
		if m.Warm[1] > 0 {
			rate += m.Warm[0] * math.Sin(phase+2*math.Pi*t/m.Warm[1])
		}
		if m.Walk > 0 {
			base += m.Walk * math.Sqrt(0.2) * rng.NormFloat64()
		}
		c.at, c.device, c.rate = append(c.at, t), append(c.device, d), append(c.rate, rate)
		step := between(rng, 0.05, 0.35)
		if t, d = t+step, d+step*rate; t > end {
			return c
		}
	}
}

// to returns the device time of an instant, and from its inverse.
func (c *meterClock) to(t float64) float64 {
	k := piece(c.at, t)
	return c.device[k] + (t-c.at[k])*c.rate[k]
}

func (c *meterClock) from(d float64) float64 {
	k := piece(c.device, d)
	return c.at[k] + (d-c.device[k])/c.rate[k]
}

// piece is the last that begins at or before x, or the first.
func piece(begins []float64, x float64) int {
	return max(sort.Search(len(begins), func(i int) bool { return begins[i] > x })-1, 0)
}

// channelErrors are those of one channel, beside its statement.
type channelErrors struct{ gain, zero float64 }

// channels draws the inputs and their errors.
func (m *Meter) channels(rng *rand.Rand) (out []Channel, wrong [4]channelErrors) {
	ampere, volt := between(rng, 2e-3, 20e-3), between(rng, 0.5e-3, 4e-3) // a count
	for k, name := range []string{"v1", "i1", "v2", "i2"} {
		ch := Channel{Name: name, Current: k%2 == 1, Gain: volt, UGain: m.UGain}
		if ch.Current {
			ch.Gain = ampere
			if m.Unipolar {
				ch.Max = 1 << 20
			}
		}
		ch.UOffset = m.UOffset * ch.Gain
		out = append(out, ch)
		off := m.Drift[0] + m.Drift[1]*rng.NormFloat64()
		wrong[k] = channelErrors{1 + m.UGain*(rng.NormFloat64()+off), m.UOffset * rng.NormFloat64()}
	}
	return out, wrong
}

// record converts the power to counts.
func (m *Meter) record(rng *rand.Rand, c *drawnCard, levels []Level, end float64, out *Recording) {
	ticks := m.clock(rng, end)
	n := int(ticks.to(end) * m.Rate)
	var wrong [4]channelErrors
	out.Channels, wrong = m.channels(rng)
	volts := [2]float64{between(rng, 11.7, 12.3), between(rng, 11.7, 12.3)}
	share := between(rng, 0.55, 0.9)
	if m.Backward > 0 {
		share = 1 + m.Backward
	}
	m.clip(rng, c, share/volts[0], out)
	make1 := m.Noise
	if make1 == nil {
		make1 = White
	}
	sigma := m.NoiseW + m.Steps*(c.high-c.low)
	noise := [2][]float64{make1(rng, n), White(rng, n)}
	counts := make([][]int32, 4)
	for k := range counts {
		counts[k] = make([]int32, n)
	}
	power := m.seen(rng, c, levels)
	for i := range n {
		w := power(ticks.from(float64(i) / m.Rate))
		for rail, p := range [2]float64{share * w, (1 - share) * w} {
			current := p / volts[rail]
			if rail == 0 {
				current += sigma * noise[0][i] / volts[0]
			} else {
				current += 0.3 * noise[1][i] / volts[1]
			}
			for side, value := range [2]float64{volts[rail], current} {
				k := 2*rail + side
				ch := &out.Channels[k]
				x := math.Round(value/ch.Gain*wrong[k].gain + wrong[k].zero + 0.3*rng.NormFloat64())
				if ch.Max > ch.Min {
					x = min(max(x, float64(ch.Min)), float64(ch.Max))
				}
				counts[k][i] = int32(x)
			}
		}
	}
	for i := range out.Marks {
		out.Marks[i].At = ticks.to(out.Marks[i].At)
	}
	m.lose(rng, counts, out)
}

// clip sets the end of the first rail's range of currents.
func (m *Meter) clip(rng *rand.Rand, c *drawnCard, perWatt float64, out *Recording) {
	ends := func(r [2]float64, w float64) {
		if r[1] > 0 {
			i := &out.Channels[1]
			i.Min, i.Max = -1<<20, int32(between(rng, r[0], r[1])*w*perWatt/i.Gain)
		}
	}
	ends(m.Clip, c.power)
	ends(m.ClipAll, min(c.power, c.high))
}

// seen returns the power as the converter's input has it, at ever later times.
func (m *Meter) seen(rng *rand.Rand, c *drawnCard, levels []Level) func(t float64) float64 {
	power := c.powerAt(levels)
	window := between(rng, m.Average[0], m.Average[1])
	if window == 0 {
		return power
	}
	const parts = 64 // of the window
	var sum [parts]float64
	var total, at float64
	for i := range sum {
		sum[i] = levels[0].W
		total += sum[i]
	}
	next := 0
	return func(t float64) float64 {
		for ; at < t; at += window / parts {
			w := power(at)
			total += w - sum[next]
			sum[next], next = w, (next+1)%parts
		}
		return total / parts
	}
}

// lose cuts the scans into runs.
func (m *Meter) lose(rng *rand.Rand, counts [][]int32, out *Recording) {
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
				i = begin
			}
		}
	}
	cut(n)
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
	octaves := math.Floor(math.Log2(float64(max(n, 2))))
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

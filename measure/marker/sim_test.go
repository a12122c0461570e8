package marker

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/wattmark/wattmark/measure"
)

// level is a change of the power that the GPU wants to draw.
type level struct {
	at float64 // seconds
	w  float64 // watts, from here on
}

// sim is a GPU behind a riser card in virtual time: wanted power passes a
// first-order slew, a slow drift is added, one rail's current and drooping
// voltage are converted to counts with noise.
type sim struct {
	rate         float64
	tau, tauFall float64 // fall: 0 means the same
	noise        float64 // watts, a reading
	drift        float64 // watts a second
	ampere, volt float64 // a count; 0 means 10 mA, 5 mV
	droop        float64 // ohms
	stamped      float64 // rms of the stamps' jitter, seconds; 0 means uniform
	tickHz       float64 // 0 means 1e6
	offsetT      float64 // time of the first scan
	uClock       float64 // relative, of the tick rate: stated, see clocked
	response     measure.Response
	from, to     float64 // the watts that the current's converter reaches; 0, 0: any
	ramps        bool    // power slews at an even rate, over tau
}

func (s sim) withDefaults() sim {
	if s.ampere == 0 {
		s.ampere = 10e-3
	}
	if s.volt == 0 {
		s.volt = 5e-3
	}
	if s.tickHz == 0 {
		s.tickHz = 1e6
	}
	if s.tauFall == 0 {
		s.tauFall = s.tau
	}
	return s
}

func (s sim) setup() *measure.Setup {
	s = s.withDefaults()
	return &measure.Setup{
		Timebase: measure.Timebase{TickHz: measure.Hertz(s.tickHz), UTickHz: s.uClock, TicksPerScan: s.tickHz / s.rate, Stamped: s.stamped > 0},
		Channels: []measure.Channel{
			{Name: "v", Unit: measure.UnitVolt, Gain: s.volt},
			{Name: "spare", Unit: measure.UnitVolt, Gain: 1},
			{Name: "i", Unit: measure.UnitAmpere, Gain: s.ampere, Offset: -3, MinCount: s.end(s.from), MaxCount: s.end(s.to)},
		},
		Rails:    []measure.Rail{{Name: "pcie_12v", Role: measure.RolePCIe12V, Wiring: measure.WiringClamp, X: 2, Y: 0}},
		Response: s.response,
	}
}

// end is the count at an end of the converter's range.
func (s sim) end(watts float64) measure.Count {
	if s.from == s.to {
		return 0
	}
	return measure.Count(math.Round((watts/12.1 + 3) / s.ampere))
}

// board gives the slewed power at ever later times.
type board struct {
	levels    []level
	rise, fal float64
	now, v    float64
	target    float64
	ramps     bool
	begun     float64 // the level that a ramp began at
}

func (b *board) at(t float64) float64 {
	for len(b.levels) > 0 && b.levels[0].at <= t {
		b.step(b.levels[0].at)
		b.target, b.begun = b.levels[0].w, b.v
		b.levels = b.levels[1:]
	}
	b.step(t)
	return b.v
}

func (b *board) step(t float64) {
	tau := b.rise
	if b.target < b.v {
		tau = b.fal
	}
	if b.ramps && tau > 0 {
		gone := (t - b.now) / tau * (b.target - b.begun)
		if math.Abs(gone) >= math.Abs(b.target-b.v) {
			gone = b.target - b.v
		}
		b.v += gone
	} else if tau > 0 {
		b.v = b.target + (b.v-b.target)*math.Exp(-(t-b.now)/tau)
	} else {
		b.v = b.target
	}
	b.now = t
}

// run plays levels (the first one has settled) until the given time and
// returns the capture as one block.
func (s sim) run(levels []level, until float64, rng *rand.Rand) measure.Block {
	s = s.withDefaults()
	b := board{levels: levels, rise: s.tau, fal: s.tauFall, v: levels[0].w, target: levels[0].w, ramps: s.ramps}
	n := int((until - s.offsetT) * s.rate)
	out := measure.Block{Counts: make([][]measure.Count, 3)}
	for c := range out.Counts {
		out.Counts[c] = make([]measure.Count, n)
	}
	for i := range n {
		t := s.offsetT + float64(i)/s.rate
		if s.stamped > 0 {
			if i > 0 {
				t += rng.NormFloat64() * s.stamped
			}
			out.Ticks = append(out.Ticks, int64(math.Round((t-s.offsetT)*s.tickHz)))
		}
		p := b.at(t) + s.drift*t + s.noise*rng.NormFloat64()
		v := 12.1 - s.droop*p/12
		out.Counts[0][i] = measure.Count(math.Round(v / s.volt))
		out.Counts[1][i] = measure.Count(rng.IntN(5000))
		out.Counts[2][i] = measure.Count(math.Round((p/v + 3) / s.ampere))
		if s.from != s.to {
			out.Counts[2][i] = min(max(out.Counts[2][i], s.end(s.from)), s.end(s.to))
		}
	}
	return out
}

// play appends a marker to levels: its guard begins at the given time. It
// returns the time of the first chip of the code and the end.
func play(levels []level, spec Spec, kind Kind, begin, low, high float64) ([]level, float64, float64) {
	chip := float64(spec.Chip)
	for i, c := range spec.Chips(kind) {
		w := low
		if c {
			w = high
		}
		levels = append(levels, level{begin + float64(i)*chip, w})
	}
	return levels, begin + float64(spec.CodeStart())*chip, begin + float64(spec.Duration())
}

// clocked draws the meter's clock, and returns what the GPU does as a meter
// with that clock sees it.
func (s sim) clocked(levels []level, truth map[Kind]float64, rng *rand.Rand) []level {
	if s.uClock == 0 {
		return levels
	}
	fast := 1 + s.uClock*rng.NormFloat64()
	for i := range levels {
		levels[i].at *= fast
	}
	for k := range truth {
		truth[k] *= fast
	}
	return levels
}

// detect runs a detector over blocks and returns what it found.
func detect(spec Spec, setup *measure.Setup, blocks ...measure.Block) []Found {
	d, err := NewDetector(spec, setup)
	if err != nil {
		panic(err)
	}
	for i := range blocks {
		if err := d.Push(&blocks[i]); err != nil {
			panic(err)
		}
	}
	if err := d.Finish(); err != nil {
		panic(err)
	}
	return d.Found()
}

func newRand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 7)) }

// sortLevels puts changes of power into the order of their times.
func sortLevels(levels []level) {
	slices.SortStableFunc(levels, func(a, b level) int { return cmp.Compare(a.at, b.at) })
}

// sensorSim is a GPU's own power sensor, polled: every period it shows the mean
// of the window before, until the next one.
type sensorSim struct {
	window, period float64
	trueWindow     float64 // 0 means the same
	tau            float64
	noise          float64 // watts, a new value
	trueTau        float64 // a lag in place of the window
	jitter         float64 // rms of the instants of updates, seconds
	stalls         bool    // every twentieth poll takes 15 ms
	poll           float64 // mean distance of polls
	skips          bool    // one update in sixteen is left out
	lag, lagDrift  float64 // of a value behind its window's end, at 0 s and its growth
	wrap           float64 // the lag at which it falls back to 0
	rise, fall     float64 // of the GPU's power; they delay an average by as much
}

func (s sensorSim) setup() *measure.Setup {
	return &measure.Setup{
		Timebase: measure.Timebase{TickHz: 1e9, TicksPerScan: s.poll * 1e9, Stamped: true},
		Channels: []measure.Channel{{Name: "power", Unit: measure.UnitWatt, Gain: 1e-3}},
		Rails:    []measure.Rail{{Name: "gpu", Role: measure.RoleWholeGPU, Wiring: measure.WiringPower, X: 0, Y: -1}},
		Response: measure.Response{Window: measure.Seconds(s.window), Update: measure.Seconds(s.period), Tau: measure.Seconds(s.tau)},
	}
}

// mean is the average of levels over [from, to).
func mean(levels []level, from, to float64) float64 {
	var sum float64
	for i, l := range levels {
		end := math.Inf(1)
		if i+1 < len(levels) {
			end = levels[i+1].at
		}
		if a, b := max(from, l.at), min(to, end); b > a {
			sum += (b - a) * l.w
		}
	}
	return sum / (to - from)
}

// lagAt is the lag of a value that is shown at the given time.
func (s sensorSim) lagAt(t float64) float64 {
	lag := s.lag + s.lagDrift*t
	if s.wrap > 0 {
		lag = math.Mod(lag, s.wrap)
	}
	return lag
}

// slewed delays every change by its time constant: an average over a window far
// longer than that sees no more of a slew.
func (s sensorSim) slewed(levels []level) []level {
	out := slices.Clone(levels)
	for i := 1; i < len(out); i++ {
		if out[i].w > out[i-1].w {
			out[i].at += s.rise
		} else {
			out[i].at += s.fall
		}
	}
	return out
}

func (s sensorSim) run(levels []level, until float64, rng *rand.Rand) measure.Block {
	window := s.trueWindow
	if window == 0 {
		window = s.window
	}
	levels = s.slewed(levels)
	period := s.period * (1 + 1e-4*rng.NormFloat64())
	next := period * rng.Float64()
	lagged := levels[0].w
	last, wander := next-period, 0.0
	gpu := board{levels: levels, rise: s.trueTau, fal: s.trueTau, v: levels[0].w, target: levels[0].w}
	b := measure.Block{Counts: make([][]measure.Count, 1)}
	shown := measure.Count(levels[0].w * 1000)
	for t := 0.0; t < until; {
		for next+wander <= t {
			m, end := levels[0].w, next+wander-s.lagAt(next)
			if s.trueTau > 0 {
				m = gpu.at(end)
			} else if next > window {
				m = mean(levels, end-window, end)
			}
			if s.tau > 0 {
				lagged = m + (lagged-m)*math.Exp(-(next-last)/s.tau)
				m, last = lagged, next
			}
			if !s.skips || rng.IntN(16) > 0 {
				shown = measure.Count(math.Round(1000 * (m + s.noise*rng.NormFloat64())))
			}
			next += period
			wander = s.jitter * rng.NormFloat64()
		}
		b.Counts[0] = append(b.Counts[0], shown)
		b.Ticks = append(b.Ticks, int64(t*1e9))
		t += s.poll * (0.9 + 0.2*rng.Float64())
		if rng.IntN(200) == 0 {
			t += 3 * s.poll
		}
		if s.stalls && rng.IntN(20) == 0 {
			t += 15e-3
		}
	}
	return b
}

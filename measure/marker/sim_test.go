package marker

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"

	"wattmark/measure"
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

package marker

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/wattmark/wattmark/internal/coverage"
	"github.com/wattmark/wattmark/measure"
)

var (
	fastSim  = sim{rate: 4785, tau: 0.3e-3, noise: 2, droop: 0.01}
	fastSpec = FastProfile(4785, 0xa5)
)

// expect compares kinds and times with what was played.
func expect(t *testing.T, found []Found, kinds []Kind, times []float64) {
	t.Helper()
	if len(found) != len(kinds) {
		t.Fatalf("found %d markers, want %d: %+v", len(found), len(kinds), found)
	}
	for i, f := range found {
		if f.Kind != kinds[i] || math.Abs(float64(f.T)-times[i]) > 5*float64(f.U)+2e-6 {
			t.Errorf("marker %d: %v at %v ± %v, want %v at %v", i, f.Kind, f.T, f.U, kinds[i], times[i])
		}
	}
}

// mixed plays start and stop markers amid work at levels far from the marker's.
func mixed(spec Spec, kinds []Kind, low, high float64) (levels []level, times []float64, end float64) {
	rng := newRand(3)
	levels = []level{{0, 300}}
	end = 30 * float64(spec.Chip)
	for _, k := range kinds {
		var t0 float64
		levels, t0, end = play(levels, spec, k, end, low, high)
		times = append(times, t0)
		for range 20 {
			levels = append(levels, level{end, 40 + 400*rng.Float64()})
			end += float64(spec.Chip) * 4 * rng.Float64()
		}
	}
	levels = append(levels, level{end, 320})
	return levels, times, end + 30*float64(spec.Chip)
}

func TestMarkersAmidWork(t *testing.T) {
	kinds := []Kind{Start, Stop, Stop, Start, Start, Stop, Start, Stop}
	for name, code := range map[string]Code{"m31": M31, "m15": M15, "barker13": Barker13, "updown": UpDown} {
		t.Run(name, func(t *testing.T) {
			spec := fastSpec
			spec.Code = code
			levels, times, until := mixed(spec, kinds, 70, 170)
			found := detect(spec, fastSim.setup(), fastSim.run(levels, until, newRand(1)))
			expect(t, found, kinds, times)
			for i, f := range found {
				if !f.TagOK || f.Tag != 0xa5 || f.Fallback != (code == UpDown) {
					t.Errorf("marker %d: tag %x ok %v, fallback %v", i, f.Tag, f.TagOK, f.Fallback)
				}
				if math.Abs(float64(f.Step)-100) > 3 || math.Abs(float64(f.Tau)-0.3e-3) > 0.05e-3 {
					t.Errorf("marker %d: step %v, tau %v", i, f.Step, f.Tau)
				}
				begin := times[i] - float64(spec.Guard)*float64(spec.Chip)
				if math.Abs(float64(f.Begin)-begin) > 50e-6 || math.Abs(float64(f.End-f.Begin-spec.Duration())) > 1e-9 {
					t.Errorf("marker %d: from %v to %v, want from %v for %v", i, f.Begin, f.End, begin, spec.Duration())
				}
			}
		})
	}
}

// TestPlainUpDown is the papers' own pattern: no tag, start and stop in turns.
func TestPlainUpDown(t *testing.T) {
	kinds := []Kind{Start, Stop, Start, Stop}
	spec := Spec{Code: UpDown, Chip: fastSpec.Chip, Guard: 4}
	levels, times, until := mixed(spec, kinds, 70, 170)
	found := detect(spec, fastSim.setup(), fastSim.run(levels, until, newRand(1)))
	expect(t, found, kinds, times)
	for i, f := range found {
		begin := times[i] - 4*float64(spec.Chip)
		if !f.Fallback || !f.TagOK || math.Abs(float64(f.Begin)-begin) > 50e-6 || math.Abs(float64(f.End-f.Begin-spec.Duration())) > 1e-9 {
			t.Errorf("marker %d: %+v", i, f)
		}
		for _, e := range f.Edges {
			want := times[i] + float64(e.Chip)*float64(spec.Chip)
			if math.Abs(float64(e.T)-want) > 6*float64(e.U) {
				t.Errorf("marker %d, chip %d: edge at %v ± %v, want %v", i, e.Chip, e.T, e.U, want)
			}
		}
	}
}

// TestSkew moves the channel that carries the current behind its ticks.
func TestSkew(t *testing.T) {
	levels, times, until := mixed(fastSpec, []Kind{Start}, 70, 170)
	b := fastSim.run(levels, until, newRand(1))
	setup := fastSim.setup()
	plain := detect(fastSpec, setup, b)
	setup.Channels[2].Skew = 100e-6
	skewed := detect(fastSpec, setup, b)
	expect(t, plain, []Kind{Start}, times)
	if late := float64(skewed[0].T-plain[0].T) - 100e-6; math.Abs(late) > 1e-9 {
		t.Errorf("a skew of 100 µs moves the marker by %v more", measure.Seconds(late))
	}
}

func TestSensorMarkersAmidWork(t *testing.T) {
	kinds := []Kind{Start, Stop, Stop, Start}
	s := sensorSim{window: 25e-3, period: 0.1, noise: 1, poll: 4e-3}
	spec := ProfileFor(*s.setup(), 9)
	levels, times, until := mixed(spec, kinds, 136, 450)
	found := detect(spec, s.setup(), s.run(levels, until, newRand(1)))
	expect(t, found, kinds, times)
	for i, f := range found {
		if !f.TagOK || len(f.Edges) != 1 || f.Edges[0].T != f.T || f.Edges[0].U != f.U {
			t.Errorf("marker %d: %+v", i, f)
		}
	}
}

func TestWrongTagIsNoticed(t *testing.T) {
	for tag := range uint32(256) {
		if tag%17 != 3 {
			continue
		}
		played := fastSpec
		played.Tag = tag
		levels, times, until := mixed(played, []Kind{Start}, 70, 170)
		found := detect(fastSpec, fastSim.setup(), fastSim.run(levels, until, newRand(1)))
		expect(t, found, []Kind{Start}, times)
		if found[0].Tag != tag || found[0].TagOK {
			t.Errorf("tag %x read as %x, ok %v", tag, found[0].Tag, found[0].TagOK)
		}
	}
}

func TestNotAMarker(t *testing.T) {
	chip := float64(fastSpec.Chip)
	whole := func(spec Spec, kind Kind) []level {
		levels, _, end := play([]level{{0, 55}}, spec, kind, 0.3, 60, 160)
		return append(levels, level{end, 50})
	}
	cut := func(levels []level, chips float64, then float64) []level {
		at := 0.3 + chips*chip
		for i, l := range levels {
			if l.at > at {
				return append(levels[:i:i], level{at, then})
			}
		}
		return levels
	}
	slow, fast, other := fastSpec, fastSpec, fastSpec
	slow.Chip *= 1.15
	fast.Chip *= 0.87
	other.Code = Barker13
	train := []level{{0, 60}}
	for i := range 40 {
		train = append(train, level{0.3 + float64(i)*chip, 60 + 100*float64((i+1)%2)})
	}
	updown := fastSpec
	updown.Code, updown.TagBits, updown.Tag = UpDown, 0, 0
	for _, tc := range []struct {
		name   string
		spec   Spec
		levels []level
		until  float64
	}{
		{"cut within the code, idle after", fastSpec, cut(whole(fastSpec, Start), 24, 60), 1},
		{"cut within the code, work after", fastSpec, cut(whole(fastSpec, Start), 24, 300), 1},
		{"cut within the tag, work after", fastSpec, cut(whole(fastSpec, Stop), 4+31+6, 300), 1},
		{"capture ends within the code", fastSpec, whole(fastSpec, Start), 0.3 + 25*chip},
		{"capture ends within the tag", fastSpec, whole(fastSpec, Start), 0.3 + 42*chip},
		{"chips too long", fastSpec, whole(slow, Start), 1},
		{"chips too short", fastSpec, whole(fast, Stop), 1},
		{"another code", fastSpec, whole(other, Start), 1},
		{"no work at all", fastSpec, []level{{0, 60}}, 1},
		{"a square wave of the chip's length", fastSpec, train, 1},
		{"ten pulses are not the four of up-down", updown, train, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if found := detect(tc.spec, fastSim.setup(), fastSim.run(tc.levels, tc.until, newRand(1))); len(found) > 0 {
				t.Errorf("found %+v", found)
			}
		})
	}
}

// Of a marker that is cut off by the converter's range the time is as uncertain as it
// says, whatever share of its step is seen and however the card slews.
func TestAccuracyClipped(t *testing.T) {
	coverage.Long(t)
	for _, tc := range []struct {
		name string
		sim  sim
		from float64 // of the step, what is cut off below
		to   float64 // and above
	}{
		{"a fifth seen", sim{rate: 20e3, tau: 0.2e-3, noise: 2}, -9, 0.2},
		{"half seen", sim{rate: 20e3, tau: 0.2e-3, noise: 2}, -9, 0.5},
		{"four fifths seen", sim{rate: 20e3, tau: 0.2e-3, noise: 2}, -9, 0.8},
		{"half seen, slow falls", sim{rate: 20e3, tau: 0.12e-3, tauFall: 0.5e-3, noise: 2}, -9, 0.5},
		{"half seen at 4.8 kS/s", sim{rate: 4785, tau: 0.3e-3, noise: 2, droop: 0.01}, -9, 0.5},
		{"upper half seen", sim{rate: 20e3, tau: 0.2e-3, noise: 2}, 0.5, 9},
		{"the middle seen", sim{rate: 20e3, tau: 0.2e-3, noise: 2}, 0.3, 0.7},
		{"ramps, half seen", sim{rate: 20e3, tau: 0.3e-3, tauFall: 0.9e-3, noise: 2, ramps: true}, -9, 0.5},
		{"ramps, a fifth seen", sim{rate: 20e3, tau: 0.1e-3, tauFall: 0.32e-3, noise: 2, ramps: true}, -9, 0.2},
		{"noise clips, no more", sim{rate: 20e3, tau: 0.2e-3, noise: 2}, -9, 1.04},
	} {
		t.Run(tc.name, func(t *testing.T) {
			const low, step = 60, 100
			s := tc.sim.withDefaults()
			s.from, s.to = low+tc.from*step, low+tc.to*step
			var tr trial
			for seed := range trials(30) {
				rng := newRand(uint64(seed))
				spec := FastProfile(measure.Hertz(s.rate), rng.Uint32())
				truth := map[Kind]float64{}
				levels := []level{{0, 55}}
				var end float64
				levels, truth[Start], end = play(levels, spec, Start, 0.2+0.1*rng.Float64(), low, low+step)
				levels = append(levels, level{end, 300})
				levels, truth[Stop], end = play(levels, spec, Stop, end+0.15+0.1*rng.Float64(), low, low+step)
				b := s.run(append(levels, level{end, 40}), end+0.3, rng)
				tr.add(spec, detect(spec, s.setup(), b), truth)
			}
			within := 0.0
			for _, z := range tr.normal {
				if math.Abs(z) <= 2 {
					within++
				}
			}
			t.Log(&tr, fmt.Sprintf("within 2 u %.0f %%", 100*within/float64(len(tr.normal))))
			if tr.missed > 0 || tr.extra > 0 || within < 0.9*float64(len(tr.normal)) {
				t.Errorf("missed %d, extra %d, within 2 u %.0f of %d", tr.missed, tr.extra, within, len(tr.normal))
			}
		})
	}
}

// workload is what GPUs do all day, without markers: square waves and bursts of
// random period, duty and height, for the given number of seconds. Periods are
// spread, in logarithm, around the chip, where they are most alike to a marker.
func workload(rng *rand.Rand, chip, seconds float64) []level {
	idle := 30 + 30*rng.Float64()
	levels := []level{{0, idle}}
	for t := 0.2; t < seconds; {
		low, high := idle, idle+20+300*rng.Float64()
		if rng.IntN(3) == 0 {
			low += 100 * rng.Float64()
		}
		unit := chip
		if rng.IntN(3) > 0 {
			unit = chip * []float64{0.05, 0.3, 1, 2, 8, 40}[rng.IntN(6)] * (0.5 + rng.Float64())
		}
		switch pulses := 1 + rng.IntN(60); rng.IntN(3) {
		case 0: // a square wave
			duty := 0.1 + 0.8*rng.Float64()
			for range pulses {
				levels = append(levels, level{t, high}, level{t + 2*duty*unit, low})
				t += 2 * unit
			}
		case 1: // bursts of random length
			for range pulses {
				levels = append(levels, level{t, low + (high-low)*rng.Float64()})
				t += unit * (0.2 + 4*rng.Float64())
			}
		case 2: // on and off at random, in steps of the unit
			for range pulses {
				w := low
				if rng.IntN(2) == 0 {
					w = high
				}
				levels = append(levels, level{t, w})
				t += unit
			}
		}
		levels = append(levels, level{t, idle})
		t += chip * 10 * rng.Float64()
	}
	return levels
}

// stretches runs a detector over stretches of workload that add up to total
// seconds and reports every marker found. The tag is not looked at: a marker
// with the wrong tag is as false as one with the right one.
func stretches(t *testing.T, spec Spec, setup *measure.Setup, total, each float64, run func(levels []level, rng *rand.Rand) measure.Block) {
	t.Helper()
	if !coverage.Slow {
		total /= 12
	}
	matched := 0
	for seed := range int(total / each) {
		rng := newRand(uint64(seed) + 1000)
		b := run(workload(rng, float64(spec.Chip), each), rng)
		for _, f := range detect(spec, setup, b) {
			t.Errorf("stretch %d: false %v marker at %v, correlation %.3f, PSLR %.1f dB, step %v, tag ok %v", seed, f.Kind, f.T, f.Correlation, float64(f.PSLR), f.Step, f.TagOK)
			if f.TagOK {
				matched++
			}
		}
	}
	if matched > 0 {
		t.Errorf("%d false markers even have the right tag", matched)
	}
}

func TestNoFalseMarkerSampled(t *testing.T) {
	const each = 120.0
	for _, tc := range []struct {
		name  string
		sim   sim
		code  Code
		total float64
	}{
		{"1 kS/s", sim{rate: 1000, tau: 0.5e-3, noise: 2}, M31, 3600},
		{"4.8 kS/s", sim{rate: 4785, tau: 0.3e-3, noise: 2}, M31, 1200},
		{"noise", sim{rate: 1000, tau: 0.5e-3, noise: 60}, M31, 1800},
		{"barker", sim{rate: 1000, tau: 0.5e-3, noise: 2}, Barker13, 1200},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			spec := FastProfile(measure.Hertz(tc.sim.rate), 0x5a)
			spec.Code = tc.code
			stretches(t, spec, tc.sim.setup(), tc.total, each, func(levels []level, rng *rand.Rand) measure.Block {
				return tc.sim.run(levels, each, rng)
			})
		})
	}
}

func TestNoFalseMarkerSensor(t *testing.T) {
	const each = 300.0
	for _, tc := range []struct {
		name string
		sim  sensorSim
	}{
		{"100/25 ms", sensorSim{window: 25e-3, period: 0.1, noise: 1, poll: 8e-3}},
		{"1 s average", sensorSim{window: 1, period: 0.1, noise: 0.5, poll: 8e-3}},
		{"20/10 ms", sensorSim{window: 10e-3, period: 20e-3, noise: 1, poll: 4e-3}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			spec := ProfileFor(*tc.sim.setup(), 0x5)
			stretches(t, spec, tc.sim.setup(), 3600, each, func(levels []level, rng *rand.Rand) measure.Block {
				return tc.sim.run(levels, each, rng)
			})
		})
	}
}

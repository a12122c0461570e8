package marker

import (
	"math/rand/v2"
	"testing"

	"wattmark/measure"
)

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
	if testing.Short() {
		total /= 6
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

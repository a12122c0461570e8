package marker

import (
	"fmt"
	"math"
	"testing"

	"wattmark/measure"
)

// Of a marker that is cut off by the converter's range the time is as uncertain as it
// says, whatever share of its step is seen and however the card slews.
func TestAccuracyClipped(t *testing.T) {
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

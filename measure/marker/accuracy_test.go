package marker

import (
	"fmt"
	"math"
	"testing"

	"github.com/wattmark/wattmark/internal/coverage"
	"github.com/wattmark/wattmark/measure"
)

// trial plays one start and one stop marker around some work.
type trial struct {
	errors   []float64 // seconds
	normal   []float64 // errors in standard uncertainties
	edges    []float64 // errors of single edges in theirs
	missed   int
	wrongTag int
	extra    int
}

func (tr *trial) add(spec Spec, found []Found, truth map[Kind]float64) {
	tr.extra += max(0, len(found)-len(truth))
	for kind, t := range truth {
		hit := false
		for _, f := range found {
			if f.Kind != kind || math.Abs(float64(f.T)-t) > float64(spec.Chip) {
				continue
			}
			hit = true
			tr.errors = append(tr.errors, float64(f.T)-t)
			tr.normal = append(tr.normal, (float64(f.T)-t)/float64(f.U))
			if !f.TagOK {
				tr.wrongTag++
			}
			for _, e := range f.Edges {
				tr.edges = append(tr.edges, (float64(e.T)-t-float64(e.Chip)*float64(spec.Chip))/float64(e.U))
			}
		}
		if !hit {
			tr.missed++
		}
	}
}

// trials returns the number of trials: n of them in slow tests, a third otherwise.
func trials(n int) int {
	if !coverage.Slow {
		return (n + 2) / 3
	}
	return n
}

func rms(v []float64) float64 {
	var s float64
	for _, x := range v {
		s += x * x
	}
	return math.Sqrt(s / float64(len(v)))
}

func (tr *trial) String() string {
	return fmt.Sprintf("n %d missed %d wrong tag %d extra %d, rms %v, normalised rms %.2f, edges %.2f (%d)", len(tr.errors),
		tr.missed, tr.wrongTag, tr.extra, measure.Seconds(rms(tr.errors)), rms(tr.normal), rms(tr.edges), len(tr.edges))
}

// TestAccuracySampled plays exponential edges, of which the detector does not know that they are: where the
// trace leaves the shape open, the uncertainty is larger than these errors.
func TestAccuracySampled(t *testing.T) {
	coverage.Long(t)
	for _, tc := range []struct {
		name      string
		sim       sim
		code      Code
		high      float64
		trials    int
		rms       float64 // seconds, the limit
		low, top  float64 // of the normalised rms
		wrongTags int
	}{
		{"4.8 kS/s 2 W m31", sim{rate: 4785, tau: 0.3e-3, noise: 2, droop: 0.01}, M31, 100, 40, 10e-6, 0.4, 1.5, 0},
		{"4.8 kS/s 2 W barker", sim{rate: 4785, tau: 0.3e-3, noise: 2, droop: 0.01}, Barker13, 100, 30, 10e-6, 0.4, 1.5, 0},
		{"4.8 kS/s 2 W m15", sim{rate: 4785, tau: 0.3e-3, noise: 2, droop: 0.01}, M15, 100, 30, 10e-6, 0.4, 1.5, 0},
		{"4.8 kS/s 2 W up-down", sim{rate: 4785, tau: 0.3e-3, noise: 2, droop: 0.01}, UpDown, 100, 30, 10e-6, 0.4, 1.5, 0},
		{"4.8 kS/s 0 dB m31", sim{rate: 4785, tau: 0.3e-3, noise: 100}, M31, 100, 60, 200e-6, 0.5, 1.5, 1},
		{"1 kS/s 2 W m31", sim{rate: 1000, tau: 0.5e-3, noise: 2}, M31, 100, 30, 30e-6, 0.4, 1.5, 0},
		{"stamped 2 W", sim{rate: 4785, tau: 0.3e-3, noise: 2, stamped: 20e-6, tickHz: 2.9345e6}, M31, 100, 30, 10e-6, 0.4, 1.5, 0},
		{"20 kS/s 2 W", sim{rate: 20e3, tau: 0.2e-3, noise: 2}, M31, 100, 20, 4e-6, 0.4, 1.5, 0},
		{"100 kS/s 2 W", sim{rate: 100e3, tau: 0.2e-3, noise: 2}, M31, 100, 10, 2e-6, 0.25, 1.5, 0},
		{"slow falls and drift", sim{rate: 4785, tau: 0.3e-3, tauFall: 0.8e-3, noise: 2, drift: 30}, M31, 100, 30, 15e-6, 0.4, 1.5, 0},
		{"a clock 50 ppm off", sim{rate: 4785, tau: 0.3e-3, noise: 2, uClock: 50e-6}, M31, 100, 60, 6e-6, 0.4, 1.3, 0},
		{"all of a real board", sim{rate: 4800, tau: 0.12e-3, tauFall: 0.3e-3, noise: 2, drift: 20, droop: 0.01, uClock: 50e-6}, M31, 100, 60, 5e-6, 0.4, 1.3, 0},
		{"no slew at all", sim{rate: 4785, noise: 2}, M31, 100, 30, 20e-6, 0.3, 1.5, 0},
		{"coarse counts", sim{rate: 4785, tau: 0.3e-3, noise: 2, ampere: 0.25}, M31, 100, 30, 10e-6, 0.4, 1.5, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var tr trial
			for seed := range trials(tc.trials) {
				rng := newRand(uint64(seed))
				spec := FastProfile(measure.Hertz(tc.sim.rate), rng.Uint32())
				spec.Code = tc.code
				work := 250 + 100*rng.Float64()
				truth := map[Kind]float64{}
				levels := []level{{0, 55}}
				var end float64
				levels, truth[Start], end = play(levels, spec, Start, 0.2+0.1*rng.Float64(), 60, 60+tc.high)
				levels = append(levels, level{end, work})
				levels, truth[Stop], end = play(levels, spec, Stop, end+0.15+0.1*rng.Float64(), 60, 60+tc.high)
				levels = tc.sim.clocked(append(levels, level{end, 40}), truth, rng)
				b := tc.sim.run(levels, end+0.3, rng)
				tr.add(spec, detect(spec, tc.sim.setup(), b), truth)
			}
			tr.check(t, tc.rms, tc.low, tc.top, tc.wrongTags)
		})
	}
}

// check fails the test where the trial is worse than its limits.
func (tr *trial) check(t *testing.T, limit, low, top float64, wrongTags int) {
	t.Helper()
	t.Log(tr)
	for i, z := range tr.normal {
		if math.Abs(z) > 3.5 {
			t.Logf("outlier %d: %v, U %v", i, measure.Seconds(tr.errors[i]), measure.Seconds(tr.errors[i]/z))
		}
	}
	if tr.missed > 0 || tr.extra > 0 || tr.wrongTag > wrongTags {
		t.Errorf("missed %d, extra %d, wrong tags %d", tr.missed, tr.extra, tr.wrongTag)
	}
	if r := rms(tr.errors); !(r <= limit) {
		t.Errorf("rms error %v, limit %v", measure.Seconds(r), measure.Seconds(limit))
	}
	if r := rms(tr.normal); !(r >= low && r <= top) {
		t.Errorf("normalised rms %.2f, want %.2f to %.2f", r, low, top)
	}
}

func TestAccuracySensor(t *testing.T) {
	coverage.Long(t)
	for _, tc := range []struct {
		name      string
		sim       sensorSim
		trials    int
		rms       float64
		low, top  float64
		wrongTags int
	}{
		{"100/25 ms", sensorSim{window: 25e-3, period: 0.1, noise: 1, poll: 4e-3}, 30, 1e-3, 0.5, 1.5, 0},
		{"20/10 ms", sensorSim{window: 10e-3, period: 20e-3, noise: 1, poll: 2e-3}, 30, 0.5e-3, 0.5, 1.5, 0},
		{"1 s average", sensorSim{window: 1, period: 0.1, noise: 0.2, poll: 4e-3}, 20, 8e-3, 0.3, 1.6, 0},
		{"another window", sensorSim{window: 25e-3, period: 0.1, trueWindow: 35e-3, noise: 1, poll: 4e-3}, 30, 4e-3, 0.4, 1.6, 0},
		{"100/100 ms", sensorSim{window: 0.1, period: 0.1, noise: 1, poll: 4e-3}, 20, 1e-3, 0.5, 1.5, 0},
		{"a lag for a window", sensorSim{window: 25e-3, period: 0.1, trueTau: 15e-3, noise: 2, poll: 4e-3}, 30, 8e-3, 0.3, 3, 0},
		{"wandering clock", sensorSim{window: 25e-3, period: 0.1, noise: 2, jitter: 2e-3, poll: 4e-3}, 30, 1.5e-3, 0.5, 1.6, 0},
		{"stalling polls", sensorSim{window: 25e-3, period: 0.1, noise: 2, stalls: true, poll: 4e-3}, 30, 1.5e-3, 0.5, 1.6, 0},
		{"skipped updates", sensorSim{window: 25e-3, period: 0.1, noise: 2, skips: true, poll: 4e-3}, 30, 0.5e-3, 0.5, 1.6, 0},
		{"as found on an H200", sensorSim{window: 25e-3, period: 0.1, trueWindow: 32e-3, noise: 4, jitter: 1.5e-3, stalls: true, poll: 4e-3}, 30, 3e-3, 0.5, 1.6, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			var tr trial
			for seed := range trials(tc.trials) {
				rng := newRand(uint64(seed))
				tc.sim.rise, tc.sim.fall = 0.12e-3, 0.3e-3
				spec := ProfileFor(*tc.sim.setup(), rng.Uint32())
				truth := map[Kind]float64{}
				levels := []level{{0, 135}}
				var end float64
				levels, truth[Start], end = play(levels, spec, Start, 2+rng.Float64(), 136, 450)
				levels = append(levels, level{end, 350})
				levels, truth[Stop], end = play(levels, spec, Stop, end+1+rng.Float64(), 136, 450)
				levels = append(levels, level{end, 350})
				b := tc.sim.run(levels, end+1.5, rng)
				tr.add(spec, detect(spec, tc.sim.setup(), b), truth)
			}
			tr.check(t, tc.rms, tc.low, tc.top, tc.wrongTags)
		})
	}
}

// TestLagThatFallsBack is an H200's sensor: its lag grows by 0.2 ms a second, and
// falls from 20 ms back to none, here within the time of the two markers. Their
// times are those of their begin, lag included; a fall within their first edges
// cannot be told from a late begin, and is kept out.
func TestLagThatFallsBack(t *testing.T) {
	coverage.Long(t)
	for name, skips := range map[string]bool{"all updates": false, "updates left out": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var tr trial
			within := 0
			for seed := range trials(40) {
				rng := newRand(uint64(seed))
				s := sensorSim{
					window: 25e-3, period: 0.1, trueTau: 11.5e-3, noise: 4, poll: 3e-3, rise: 0.12e-3, fall: 0.3e-3,
					lag: 17e-3 + 3e-3*rng.Float64(), lagDrift: 0.2e-3, wrap: 20e-3, skips: skips,
				}
				setup := s.setup()
				setup.Channels[0].Skew = -10e-3
				spec := ProfileFor(*setup, rng.Uint32())
				truth := map[Kind]float64{}
				levels := []level{{0, 118}}
				var end float64
				levels, truth[Start], end = play(levels, spec, Start, 1+rng.Float64(), 118, 790)
				levels, truth[Stop], end = play(append(levels, level{end, 600}), spec, Stop, end+1+rng.Float64(), 118, 790)
				early := func(t float64) bool {
					fall := (s.wrap-s.lag)/s.lagDrift - t
					return fall > -0.2 && fall < 8*float64(spec.Chip)
				}
				if early(truth[Start]) || early(truth[Stop]) {
					s.lag -= 4e-3 // twenty seconds later
				}
				for k, t := range truth {
					truth[k] = t + s.lagAt(t) - 10e-3
				}
				found := detect(spec, setup, s.run(append(levels, level{end, 600}), end+1.5, rng))
				tr.add(spec, found, truth)
			}
			t.Log(&tr)
			for _, z := range tr.normal {
				if math.Abs(z) <= 2 {
					within++
				}
			}
			if n := len(tr.normal); tr.missed+tr.extra > 0 || tr.wrongTag > 1 || float64(within) < 0.9*float64(n) {
				t.Errorf("%v: %d of %d within 2 U", &tr, within, n)
			}
		})
	}
}

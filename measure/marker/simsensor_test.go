package marker

import (
	"math"
	"math/rand/v2"
	"slices"

	"wattmark/measure"
)

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

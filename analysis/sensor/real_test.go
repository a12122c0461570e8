package sensor

import (
	"flag"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/wattmark/wattmark/internal/coverage"
	"github.com/wattmark/wattmark/measure"
	"gonum.org/v1/gonum/stat"
)

// trials is the number of sensors of [TestCoverageOfRealSensors].
var trials = flag.Int("trials", map[bool]int{true: 20, false: 4}[coverage.Slow], "sensors a case")

// real is a card and its sensor as they are found, outside of the model that is fitted.
type real struct {
	window, tau   float64 // s; of a mean, or of a lag
	wander        float64 // of the delay, s a second, back to its least beyond 20 ms
	warm          float64 // by which a kernel's power rises with 0.2 s, relative
	rise, fall    float64 // straight edges, s
	least, jitter float64 // least delay, s; of renewals
	pieces        int
}

const gridStep = 1e-4

// power is the card's, from 0 on every 0.1 ms, and the kernels that it ran.
func (c real) power(rng *rand.Rand) (watts []float64, ph []Phase) {
	levels := [2]float64{150 + 300*rng.Float64(), 80 + 40*rng.Float64()}
	at, last := 1.0, 60.0
	hold := func(until float64, p func(since float64) float64) {
		first := float64(len(watts)) * gridStep
		from := last
		for len(watts) < int(until/gridStep) {
			t := float64(len(watts))*gridStep - first
			slew := c.rise
			if p(0) < from {
				slew = c.fall
			}
			last = p(t)
			if t < slew {
				last = from + (p(t)-from)*t/slew
			}
			watts = append(watts, last)
		}
	}
	rest := func(float64) float64 { return 60 }
	hold(at, rest)
	for i := range c.pieces {
		level, d := levels[i%2], 0.015+0.4*rng.Float64()
		ph = append(ph, Phase{[2]string{"a", "b"}[i%2], measure.Seconds(at), measure.Seconds(at + d)})
		at += d
		hold(at, func(t float64) float64 { return level * (1 + c.warm*(-math.Expm1(-t/0.2)-1)) })
	}
	hold(at+1.5, rest)
	return watts, ph
}

// read polls the sensor every 4 ms, and returns the delay of each of its values, too.
func (c real) read(rng *rand.Rand, watts []float64) (polls []Poll, delays []float64) {
	sum, slow := make([]float64, len(watts)+1), make([]float64, len(watts)+1)
	y := watts[0]
	for i, w := range watts {
		sum[i+1] = sum[i] + w*gridStep
		if c.tau > 0 {
			y += (w - y) * -math.Expm1(-gridStep/c.tau)
		}
		slow[i+1] = y
	}
	value := func(v []float64, t float64) float64 {
		x := max(t, 0) / gridStep
		i := min(int(x), len(v)-2)
		return v[i] + (v[i+1]-v[i])*min(x-float64(i), 1)
	}
	begin, start := 20e-3*rng.Float64(), rng.Float64()*0.1
	shown, next := 60.0, start
	for t := start; t < float64(len(watts))*gridStep; t += 0.004 * (0.7 + 0.6*rng.Float64()) {
		for ; next <= t; next += 0.1 {
			d := c.least
			if c.wander > 0 {
				d += math.Mod(begin+c.wander*next, 20e-3)
			}
			x := next + c.jitter*rng.NormFloat64() - d
			if c.tau > 0 {
				shown = value(slow, x)
			} else {
				shown = (value(sum, x) - value(sum, x-c.window)) / c.window
			}
			shown += 0.7 * rng.NormFloat64()
			delays = append(delays, d)
		}
		polls = append(polls, Poll{At: measure.Seconds(t), Power: measure.Watt(shown)})
	}
	return polls, delays
}

// TestCoverageOfRealSensors: cards and sensors that the fit's model does not contain, with kernels that warm
// up, edges that take time and delays that wander, lie within the stated intervals as often as these promise:
// constant, mean delay and mean lag of the run, and the delay at any one time. The fast test has the two
// hardest.
func TestCoverageOfRealSensors(t *testing.T) {
	coverage.Long(t)
	cases := []struct {
		name string
		real real
	}{
		{"warm, slews, lag", real{tau: 0.013, warm: 0.03, rise: 0.3e-3, fall: 0.8e-3, least: 0.01, pieces: 120}},
		{"all", real{window: 0.025, wander: 0.19e-3, warm: 0.03, rise: 0.3e-3, fall: 0.8e-3, pieces: 120}},
		{"as modelled", real{window: 0.025, least: 0.01, pieces: 120}},
		{"delay wanders", real{window: 0.025, wander: 0.19e-3, pieces: 120}},
		{"delay wanders, lag", real{tau: 0.013, wander: 0.19e-3, pieces: 120}},
		{"slews", real{window: 0.025, rise: 0.3e-3, fall: 0.8e-3, least: 0.01, pieces: 120}},
		{"warm", real{window: 0.025, warm: 0.03, least: 0.01, pieces: 120}},
		{"warm, slews", real{window: 0.025, warm: 0.03, rise: 0.3e-3, fall: 0.8e-3, least: 0.01, pieces: 120}},
		{"warm, slews, 1 s", real{window: 1, warm: 0.03, rise: 0.3e-3, fall: 0.8e-3, least: 0.01, pieces: 120}},
	}
	if !coverage.Slow {
		cases = cases[:2]
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.real.covered(t, *trials)
		})
	}
}

// covered identifies so many sensors, and judges the shares of what lies within its interval.
func (c real) covered(t *testing.T, trials int) {
	t.Helper()
	rng := rand.New(rand.NewPCG(11, 12))
	share := map[string]float64{}
	count := func(what string, part float64) { share[what] += part / float64(trials) }
	in := func(x, low, high measure.Seconds) float64 {
		if low <= x && x <= high {
			return 1
		}
		return 0
	}
	want, model, mean := measure.Seconds(c.window), Boxcar, measure.Seconds(c.window/2)
	if c.tau > 0 {
		want, model, mean = measure.Seconds(c.tau), FirstOrder, measure.Seconds(c.tau)
	}
	for range trials {
		power, ph := c.power(rng)
		polls, delays := c.read(rng, power)
		k, err := FromPhases(ph)
		if err != nil {
			t.Fatal(err)
		}
		x, err := Identify("x", polls, k, Options{})
		if err != nil {
			t.Fatal(err)
		}
		p := &x.Profile
		f := p.Evidence.Boxcar
		if model == FirstOrder {
			f = p.Evidence.FirstOrder
		}
		delay := measure.Seconds(stat.Mean(delays, nil))
		lag := delay + mean + 0.05
		count("constant", in(want, f.ConstantLow, f.ConstantHigh))
		count("delay", in(delay, f.DelayLow, f.DelayHigh))
		count("lag", in(lag, p.Lag-p.ULag, p.Lag+p.ULag))
		count("model", map[bool]float64{true: 1}[p.Model == model || p.Undecided])
		for _, d := range delays {
			count("any delay", in(measure.Seconds(d), p.Delay-p.UDelay, p.Delay+p.UDelay)/float64(len(delays)))
		}
	}
	t.Log(share)
	for what, s := range share {
		if least := 0.95 - 2*math.Sqrt(0.95*0.05/float64(trials)); s < least {
			t.Errorf("%s: %.1f %% of %d, want 95 %%", what, 100*s, trials)
		}
	}
}

package sensor

import (
	"flag"
	"math"
	"math/rand/v2"
	"testing"

	"wattmark/measure"
)

// rounds is how many sensors a property test tries; -rounds 1000 for a campaign.
var rounds = flag.Int("rounds", 80, "sensors that the property tests try")

// randomWork alternates two kinds of work for uneven times, a rest before and after.
func randomWork(rng *rand.Rand, period measure.Seconds, pieces int) ([]Phase, *Load) {
	levels := map[string]measure.Watt{"a": measure.Watt(150 + 300*rng.Float64()), "b": measure.Watt(80 + 40*rng.Float64())}
	const idle = 60.0
	t := measure.Seconds(1)
	at, watts := []measure.Seconds{0}, []measure.Watt{}
	var ph []Phase
	add := func(to measure.Seconds, w measure.Watt) {
		at, watts = append(at, to), append(watts, w)
	}
	add(t, idle)
	for i := range pieces {
		name := [2]string{"a", "b"}[i%2]
		d := period * measure.Seconds(0.3+3*rng.Float64())
		ph = append(ph, Phase{name, t, t + d})
		t += d
		add(t, levels[name])
	}
	add(t+1, idle)
	l, err := NewLoad(at, watts)
	if err != nil {
		panic(err)
	}
	return ph, l
}

func randomProfile(rng *rand.Rand, m Model) *Profile {
	p := &Profile{Model: m, Gain: 1, Period: measure.Seconds(0.02 + 0.1*rng.Float64())}
	p.Delay = p.Period * measure.Seconds(0.5*rng.Float64())
	p.Noise = measure.Watt(0.5 + 2*rng.Float64())
	c := p.Period * measure.Seconds(math.Exp(math.Log(0.25)+rng.Float64()*math.Log(16)))
	if m == Boxcar {
		p.Window = c
	} else {
		p.Tau = c / 2
	}
	return p
}

// Sensors of random period, window, delay and noise are recovered, within the stated
// intervals as often as these promise.
func TestCoverage(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	in, of := map[string]int{}, map[string]int{}
	for i := range *rounds {
		m := [2]Model{Boxcar, FirstOrder}[i%2]
		p := randomProfile(rng, m)
		ph, l := randomWork(rng, p.Period, 60)
		polls := Synthetic(p, l, p.Period*measure.Seconds(rng.Float64()), p.Period/20, rng)
		k, err := FromPhases(ph)
		if err != nil {
			t.Fatal(err)
		}
		x, err := Identify("x", polls, k, Options{})
		if err != nil {
			t.Errorf("%d %+v: %v", i, p, err)
			continue
		}
		f, want := x.Profile.Evidence.Boxcar, p.Window
		if m == FirstOrder {
			f, want = x.Profile.Evidence.FirstOrder, p.Tau
		}
		count := func(what string, ok bool) {
			if of[what]++; ok {
				in[what]++
			} else if testing.Verbose() {
				t.Logf("%d %s: %s: constant %v in %v..%v, delay %v in %v..%v, period %v %v±%v", i, m, what, want, f.ConstantLow, f.ConstantHigh, p.Delay, f.DelayLow, f.DelayHigh, p.Period, x.Profile.Period, x.Profile.UPeriod)
			}
		}
		count(string(m)+" constant", f.ConstantLow <= want && want <= f.ConstantHigh)
		count(string(m)+" delay", f.DelayLow <= p.Delay && p.Delay <= f.DelayHigh)
		count("period", math.Abs(float64(x.Profile.Period-p.Period)) <= float64(x.Profile.UPeriod))
		count("right or undecided", x.Profile.Model == m || x.Profile.Undecided)
		count("right", x.Profile.Model == m)
	}
	for k, v := range of {
		share := float64(in[k]) / float64(v)
		t.Logf("%s: %d of %d, %.1f %%", k, in[k], v, 100*share)
		// 95 % less three standard deviations of that many tries.
		if least := 0.95 - 3*math.Sqrt(0.95*0.05/float64(v)); share < least {
			t.Errorf("%s: %.1f %%, want 95 %%", k, 100*share)
		}
	}
}

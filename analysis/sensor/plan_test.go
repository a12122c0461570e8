package sensor

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"wattmark/measure"
)

func hopper() *Profile {
	return &Profile{Field: "instant", Model: Boxcar, Period: 0.1, Window: 0.025, Delay: 0.01, Gain: 1, Noise: 2, Seen: 0.25}
}

// trialOf carries one trial of a plan out on a synthetic sensor.
func trialOf(p *Profile, x *Plan, w Wanted, rng *rand.Rand) Trial {
	at, watts := []measure.Seconds{0}, []measure.Watt{}
	add := func(d measure.Seconds, power measure.Watt) {
		at, watts = append(at, at[len(at)-1]+d), append(watts, power)
	}
	add(p.memory()+measure.Seconds(rng.Float64())*x.MostDelay, 60)
	var t Trial
	for range x.Segments {
		from := at[len(at)-1]
		for range x.PerSegment {
			add(w.Kernel/2, w.Mean*measure.Watt(1+w.Swing/2))
			add(w.Kernel/2, w.Mean*measure.Watt(1-w.Swing/2))
		}
		t.Segments = append(t.Segments, Segment{from, at[len(at)-1], x.PerSegment})
		add(x.Shift+1e-6, 60)
	}
	add(3*p.Period, 60)
	l, err := NewLoad(at, watts)
	if err != nil {
		panic(err)
	}
	t.Polls = Synthetic(p, l, p.Period*measure.Seconds(rng.Float64()), p.Period/25, rng)
	return t
}

// What a plan expects of a trial is what trials then do.
func TestPlanExpectsWhatHappens(t *testing.T) {
	lag := &Profile{Model: FirstOrder, Period: 0.1, Tau: 0.012, Delay: 0.015, Gain: 1, Noise: 2, Seen: 0.24}
	slow := &Profile{Model: Boxcar, Period: 0.1, Window: 1, Gain: 1, Noise: 1, Seen: 1}
	for name, c := range map[string]struct {
		p *Profile
		w Wanted
	}{
		"in step with the sensor": {hopper(), Wanted{Kernel: 0.1}},
		"half a period":           {hopper(), Wanted{Kernel: 0.05}},
		"short":                   {hopper(), Wanted{Kernel: 0.007}},
		"out of step":             {hopper(), Wanted{Kernel: 0.137}},
		"a lag":                   {lag, Wanted{Kernel: 0.1}},
		"a long window":           {slow, Wanted{Kernel: 0.7, U: 0.1}},
	} {
		t.Run(name, func(t *testing.T) {
			w := c.w.defaults()
			x, err := NewPlan(c.p, w)
			if err != nil {
				t.Fatal(err)
			}
			if length := w.Kernel * measure.Seconds(x.Repetitions); x.Trials < 4 || length < 4.999 {
				t.Errorf("%d trials of %v", x.Trials, length)
			}
			rng := rand.New(rand.NewPCG(5, 6))
			var square float64
			const n = 120
			for range n {
				r, err := c.p.trial(ptr(trialOf(c.p, x, w, rng)))
				if err != nil {
					t.Fatal(err)
				}
				d := float64(r.Mean/w.Mean) - 1
				square += d * d
			}
			got := math.Sqrt(square / n)
			t.Logf("%d×%d of %v, %d trials: expected %.3g %%, scattered %.3g %%, single %.3g %%", x.Segments, x.PerSegment, w.Kernel, x.Trials, 100*x.OneTrial, 100*got, 100*x.Single)
			// 120 trials tell a standard deviation to 6.5 %; where it is tiny, that of the
			// beat's jitter and of a phase on a grid remain.
			if got > 1.35*x.OneTrial+5e-4 || got < x.OneTrial/1.35-5e-4 {
				t.Errorf("expected a standard error of %.4g %%, trials scattered by %.4g %%", 100*x.OneTrial, 100*got)
			}
		})
	}
}

func ptr[T any](v T) *T { return &v }

// The stated uncertainty of an estimate holds the truth as often as it promises.
func TestEstimateCoverage(t *testing.T) {
	p, w := hopper(), Wanted{Kernel: 0.1}.defaults()
	x := &Plan{Segments: 4, PerSegment: 6, Trials: 6, Shift: 0.025, MostDelay: 0.1}
	rng := rand.New(rand.NewPCG(7, 8))
	const n = 300
	in := 0
	for range n {
		var trials []Trial
		for range x.Trials {
			trials = append(trials, trialOf(p, x, w, rng))
		}
		e, err := p.Evaluate(trials)
		if err != nil {
			t.Fatal(err)
		}
		want := measure.Joule(float64(w.Mean) * float64(w.Kernel))
		if math.Abs(float64(e.Energy-want)) <= float64(e.UScatter) {
			in++
		}
		if e.UStatic <= 0 || e.U < e.UStatic || len(e.Notes) != 1 {
			t.Fatalf("%+v: want a static share and a note for a sensor that no meter calibrated", e)
		}
	}
	// 95 % of 300 is 285 ± 3.8.
	if in < 274 || in > 296 {
		t.Errorf("%d of %d within the scatter's uncertainty: want 95 %%", in, n)
	}
}

func TestPlanRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		p *Profile
		w Wanted
	}{
		"no period":       {&Profile{Model: Boxcar, Gain: 1}, Wanted{Kernel: 1}},
		"no model":        {&Profile{Period: 1, Gain: 1}, Wanted{Kernel: 1}},
		"no gain":         {&Profile{Model: Boxcar, Period: 1}, Wanted{Kernel: 1}},
		"no kernel":       {hopper(), Wanted{}},
		"kernel of a day": {hopper(), Wanted{Kernel: 86400}},
		"U of 200 %":      {hopper(), Wanted{Kernel: 1, U: 2}},
		"nothing reaches": {&Profile{Model: Boxcar, Period: 0.1, Window: 0.025, Gain: 1, Noise: 1e5}, Wanted{Kernel: 0.1, U: 1e-3}},
	} {
		if _, err := NewPlan(c.p, c.w); !errors.Is(err, ErrPlan) && !errors.Is(err, ErrProfile) {
			t.Errorf("%s: %v", name, err)
		}
	}
	p := hopper()
	if _, err := p.Evaluate([]Trial{{}, {}}); !errors.Is(err, ErrSeries) {
		t.Errorf("empty trials: %v", err)
	}
}

package sensor

import (
	"errors"
	"flag"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/wattmark/wattmark/internal/coverage"
	"github.com/wattmark/wattmark/measure"
)

func mustLoad(t *testing.T, at []measure.Seconds, w []measure.Watt) *Load {
	t.Helper()
	l, err := NewLoad(at, w)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func near1(t *testing.T, what string, got, want, within float64) {
	t.Helper()
	if !(math.Abs(got-want) <= within) {
		t.Errorf("%s: %g, want %g", what, got, want)
	}
}

func TestLoadAndModels(t *testing.T) {
	l := mustLoad(t, []measure.Seconds{0, 1, 2, 3}, []measure.Watt{100, 300, 100})
	near1(t, "energy", float64(l.Energy(0.5, 2.5)), 50+300+50, 1e-9)
	near1(t, "energy beyond the ends", float64(l.Energy(-1, 4)), 100+100+300+100+100, 1e-9)
	near1(t, "mean", float64(l.Mean(0.5, 1.5)), 200, 1e-9)
	near1(t, "an instant", float64(l.Mean(1.5, 1.5)), 300, 0)
	at := []measure.Seconds{0.5, 1.25, 1.5, 2.6}
	box := (&Profile{Model: Boxcar, Window: 0.5, Delay: 0.1, Gain: 2, Offset: 5}).PredictAt(l, at)
	// [0, .4] [.65, 1.15] [.9, 1.4] [2, 2.5]
	for i, want := range []float64{100, 100 + 200*0.15/0.5, 100 + 200*0.4/0.5, 100} {
		near1(t, "boxcar", float64(box[i]), 2*want+5, 1e-9)
	}
	lag := (&Profile{Model: FirstOrder, Tau: 0.2, Gain: 1}).PredictAt(l, at)
	up := func(s float64) float64 { return 300 - 200*math.Exp(-s/0.2) }
	down := 100 + (up(1)-100)*math.Exp(-0.6/0.2)
	for i, want := range []float64{100, up(0.25), up(0.5), down} {
		near1(t, "first order", float64(lag[i]), want, 1e-9)
	}
	p := &Profile{Model: Boxcar, Period: 0.5, Gain: 1, Quantum: 8}
	for _, w := range p.PredictAt(l, at) {
		near1(t, "quantum", math.Mod(float64(w), 8), 0, 0)
	}
	for _, c := range []struct {
		at []measure.Seconds
		w  []measure.Watt
	}{{nil, nil}, {[]measure.Seconds{0, 1}, nil}, {[]measure.Seconds{1, 0}, []measure.Watt{1}}, {[]measure.Seconds{0, 1}, []measure.Watt{measure.Watt(math.NaN())}}} {
		if _, err := NewLoad(c.at, c.w); !errors.Is(err, ErrLoad) {
			t.Errorf("%v %v: %v", c.at, c.w, err)
		}
	}
}

// The fit's own signals and Predict are the same sensor.
func TestKnownAgreesWithPredict(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	_, l := randomWork(rng, 0.1, 40)
	k := FromMeter(l)
	at := make([]float64, 200)
	ats := make([]measure.Seconds, len(at))
	for i := range at {
		at[i] = float64(i) * 0.07
		ats[i] = measure.Seconds(at[i])
	}
	for _, r := range []response{{Boxcar, 0.03, 0.01}, {Boxcar, 0, 0}, {Boxcar, 1, 0.2}, {FirstOrder, 0.05, 0.02}} {
		out := make([]float64, len(at)*k.k)
		k.columns(r, at, out)
		for i, w := range r.at(l, ats) {
			near1(t, string(r.model), out[i*k.k], float64(w), 1e-6)
			near1(t, "one", out[i*k.k+1], 1, 1e-9)
		}
	}
}

func TestTraceKeepsTheEnergy(t *testing.T) {
	var tr Trace
	var want float64
	last := 0.0
	for i := range 5001 {
		at, p := float64(i)*0.2e-3, 100+50*math.Sin(float64(i)/70)
		tr.Add(measure.Seconds(at), measure.Watt(p))
		if i > 0 {
			want += (p + last) / 2 * 0.2e-3
		}
		last = p
	}
	tr.Add(measure.Seconds(0.5), 1e9)                    // back in time
	tr.Add(measure.Seconds(2), measure.Watt(math.NaN())) // no number
	l, err := tr.Load()
	if err != nil {
		t.Fatal(err)
	}
	near1(t, "energy", float64(l.Energy(measure.Seconds(l.at[0]), l.End())), want, 1e-6)
	if len(l.value) < 900 || len(l.value) > 1001 {
		t.Errorf("%d pieces for a second", len(l.value))
	}
	if _, err := new(Trace).Load(); !errors.Is(err, ErrLoad) {
		t.Errorf("an empty trace: %v", err)
	}
}

func TestQuantum(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for _, q := range []float64{1, 0.25, 0.0957, 0.488} {
		var polls []Poll
		for range 400 {
			v := q * math.Round((60+300*rng.Float64())/q)
			polls = append(polls, Poll{Power: measure.Watt(math.Round(v*1e3) / 1e3)}) // as printed
		}
		near1(t, "quantum", float64(Quantum(polls)), q, 0.01*q)
	}
	if q := Quantum([]Poll{{Power: 1}, {Power: 2}}); q != 0 {
		t.Errorf("of two values: %v", q)
	}
}

// A beat that wanders, values that stay the same, uneven and slow polls.
func TestPeriodIsRobust(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 9))
	for name, c := range map[string]struct{ period, wander, poll, stay float64 }{
		"steady":       {0.1, 0, 0.004, 0},
		"wandering":    {0.1, 0.002, 0.004, 0},
		"values stay":  {0.1, 0, 0.004, 0.5},
		"polls slow":   {0.0154, 0, 0.009, 0.4},
		"second":       {1, 0.003, 0.05, 0},
		"polled badly": {0.02, 0.0002, 0.012, 0.1},
	} {
		var polls []Poll
		next, v := c.period, 100.0
		for t := 0.0; t < 250*c.period; t += c.poll * (0.8 + 0.4*rng.Float64()) {
			for ; next <= t; next += c.period + c.wander*rng.NormFloat64() {
				if rng.Float64() >= c.stay {
					v = 100 + math.Round(1000*rng.Float64())/10
				}
			}
			polls = append(polls, Poll{At: measure.Seconds(t), Power: measure.Watt(v)})
		}
		u, err := FindUpdates(polls)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if d := math.Abs(float64(u.Period) - c.period); d > 0.02*c.period || d > 1.5*float64(u.UPeriod)+1e-9 && c.wander == 0 {
			t.Errorf("%s: period %v ± %v, want %v", name, u.Period, u.UPeriod, c.period)
		}
		last, first := u.List[len(u.List)-1], u.List[0]
		if n := float64(last.At-first.At) / c.period; math.Abs(float64(last.N)-n) > 1+0.01*n {
			t.Errorf("%s: %d renewals in %v", name, last.N, last.At-first.At)
		}
	}
}

// Nobody looked: renewals within a hole are not made up, and those behind it are as read.
func TestHolesAreNotFilled(t *testing.T) {
	var polls []Poll
	value := func(at float64) measure.Watt { // stays for six renewals, then for one
		n := math.Floor(at / 0.1)
		return measure.Watt(100 + 50*math.Mod(math.Floor(n/6)+math.Mod(n, 2)*math.Mod(math.Floor(n/6), 2), 5))
	}
	for i := range 4000 {
		if at := float64(i)*0.005 + 0.002; at < 8 || at > 9.5 {
			polls = append(polls, Poll{At: measure.Seconds(at), Power: value(at)})
		}
	}
	u, err := FindUpdates(polls)
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range u.List {
		if x.At > 8.01 && x.At < 9.45 {
			t.Errorf("a renewal at %v, where nobody looked", x.At)
		}
		if want := value(float64(x.At) + 0.05); x.Power != want {
			t.Errorf("at %v: %v, the register said %v", x.At, x.Power, want)
		}
	}
}

// Where the register tells its own time, a renewal is seen that left the value.
func TestStampsTellRenewals(t *testing.T) {
	var polls []Poll
	for i := range 2000 {
		at := float64(i) * 0.005
		n := math.Floor(at / 0.1)
		polls = append(polls, Poll{At: measure.Seconds(at), Power: measure.Watt(100 + math.Floor(n/4)), Stamp: measure.Seconds(n * 0.1)})
	}
	u, err := FindUpdates(polls)
	if err != nil {
		t.Fatal(err)
	}
	near1(t, "period", float64(u.Period), 0.1, 1e-3)
	if len(u.Notes) > 0 {
		t.Errorf("%q", u.Notes)
	}
}

func TestSeriesThatTellNothing(t *testing.T) {
	flat := make([]Poll, 1000)
	for i := range flat {
		flat[i] = Poll{At: measure.Seconds(i) * 0.01, Power: 100}
	}
	back := []Poll{{At: 1}, {At: 0}}
	rng := rand.New(rand.NewPCG(2, 2))
	var fast []Poll // polled more slowly than it is renewed
	for i := range 1000 {
		fast = append(fast, Poll{At: measure.Seconds(i) * 0.01, Power: measure.Watt(rng.Float64())})
	}
	for name, polls := range map[string][]Poll{"none": nil, "flat": flat, "back in time": back, "too fast": fast} {
		if _, err := FindUpdates(polls); !errors.Is(err, ErrSeries) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// A load that never changes tells no window.
	if _, err := FromPhases(nil); !errors.Is(err, ErrLoad) {
		t.Errorf("no phases: %v", err)
	}
}

const h200Readings = "2581,132656,132535,132535,2648910,1795222143501749\n6173,132656,132535,132535,2648910,1795222143505393\n"

func TestParse(t *testing.T) {
	tab, err := ParseReadings(strings.NewReader(h200Readings), "")
	if err != nil {
		t.Fatal(err)
	}
	if p := tab.Polls["instant"]; len(p) != 2 || p[0].Power != 132.656 || p[1].At != 6173e-6 || p[0].Stamp == 0 || len(tab.Fields) != 3 {
		t.Errorf("%+v", tab)
	}
	for heading, want := range map[string]measure.Watt{"time_s,a_w": 5, "time [ms], a [mW]": 0.005, "timestamp (ns),a (kW)": 5000} {
		tab, err := ParseReadings(strings.NewReader(heading+"\n1,5\n2,\n3,N/A\n"), "")
		if err != nil || len(tab.Polls["a"]) != 1 || math.Abs(float64(tab.Polls["a"][0].Power/want)-1) > 1e-12 {
			t.Errorf("%q: %+v, %v", heading, tab, err)
		}
	}
	for _, text := range []string{"time_us,event\n1,a-begin\n2,a-end\n3,gap-begin\n4,gap-end\n", "begin_s,end_s,name\n1e-6,2e-6,a\n", "1,a-begin\n2,a-end\n"} {
		p, err := ParsePhases(strings.NewReader(text), "")
		if err != nil || len(p) != 1 || p[0].Name != "a" || math.Abs(float64(p[0].To)-2e-6) > 1e-12 {
			t.Errorf("%q: %+v, %v", text, p, err)
		}
	}
	for _, text := range []string{"", "time_us\n1\n", "x,y\n1,2\n", "time_us,a_w\n1\n", "time_us,a_w\n1,2,3\n", "time,a_w\n1,2\n", "1,2,3,4,5,6,7\n"} {
		if _, err := ParseReadings(strings.NewReader(text), ""); !errors.Is(err, ErrFile) {
			t.Errorf("%q: %v", text, err)
		}
	}
	for _, text := range []string{"", "1,a-begin\n", "1,a-end\n", "1,a-begin\n2,a-begin\n", "2,a-begin\n1,a-end\n", "begin_s,end_s,name\n2,1,a\n", "time_us\n1\n"} {
		if _, err := ParsePhases(strings.NewReader(text), ""); !errors.Is(err, ErrFile) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func FuzzParseReadings(f *testing.F) {
	f.Add(h200Readings)
	f.Add("time_s,a_w\n1,2\n")
	f.Add("time [ms], a [mW]\n1,\n")
	f.Fuzz(func(t *testing.T, text string) {
		tab, err := ParseReadings(strings.NewReader(text), "")
		if err != nil {
			if !errors.Is(err, ErrFile) {
				t.Errorf("%v", err)
			}
			return
		}
		for _, p := range tab.Polls {
			if _, err := FindUpdates(p); err != nil && !errors.Is(err, ErrSeries) {
				t.Errorf("%v", err)
			}
		}
	})
}

func FuzzParsePhases(f *testing.F) {
	f.Add("1,a-begin\n2,a-end\n")
	f.Add("begin_s,end_s,name\n1,2,a\n")
	f.Fuzz(func(t *testing.T, text string) {
		p, err := ParsePhases(strings.NewReader(text), "")
		if err != nil {
			if !errors.Is(err, ErrFile) {
				t.Errorf("%v", err)
			}
			return
		}
		if _, err := FromPhases(p); err != nil && !errors.Is(err, ErrLoad) {
			t.Errorf("%v", err)
		}
	})
}

func BenchmarkIdentify(b *testing.B) {
	rng := rand.New(rand.NewPCG(3, 4))
	p := hopper()
	ph, l := randomWork(rng, p.Period, 60)
	polls := Synthetic(p, l, 0.03, 0.004, rng)
	k, err := FromPhases(ph)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Identify("x", polls, k, Options{}); err != nil {
			b.Fatal(err)
		}
	}
}

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

// Trials scatter as their plan expects.
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

// rounds is how many sensors a property test tries; -rounds 1000 for a campaign.
var rounds = flag.Int("rounds", map[bool]int{true: 80, false: 20}[coverage.Slow], "sensors that the property tests try")

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
	coverage.Long(t)
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

// Synthetic reads a load as a sensor of a profile would, with its noise and jitter,
// polled every so often: a series whose answer is known. Polls lie up to a third of
// their distance from their place. The first renewal comes at phase.
func Synthetic(p *Profile, l *Load, phase, poll measure.Seconds, rng *rand.Rand) []Poll {
	var at []measure.Seconds
	for t := phase; t <= l.End()+p.Period; t += p.Period {
		at = append(at, max(t+measure.Seconds(rng.NormFloat64())*p.Jitter, phase))
	}
	for i := 1; i < len(at); i++ {
		at[i] = max(at[i], at[i-1])
	}
	exact := *p
	exact.Quantum = 0
	w := exact.PredictAt(l, at)
	for i := range w {
		w[i] += measure.Watt(rng.NormFloat64()) * p.Noise
		if p.Quantum > 0 {
			w[i] = p.Quantum * measure.Watt(math.Round(float64(w[i]/p.Quantum)))
		}
	}
	var out []Poll
	k := 0
	for t := phase; t <= l.End(); t += poll * measure.Seconds(2.0/3+rng.Float64()*2/3) {
		for k+1 < len(at) && at[k+1] <= t {
			k++
		}
		out = append(out, Poll{At: t, Power: w[k]})
	}
	return out
}

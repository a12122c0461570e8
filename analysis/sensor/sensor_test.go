package sensor

import (
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"wattmark/measure"
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
	for i, r := range p.Predict(l, 0.25) {
		near1(t, "instant", float64(r.At), 0.25+0.5*float64(i), 1e-12)
		near1(t, "quantum", math.Mod(float64(r.Power), 8), 0, 0)
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
	near1(t, "energy", float64(l.Energy(l.Begin(), l.End())), want, 1e-6)
	if len(l.watts) < 900 || len(l.watts) > 1001 {
		t.Errorf("%d pieces for a second", len(l.watts))
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

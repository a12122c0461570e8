package correct

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/wattmark/wattmark/analysis/sensor"
	"github.com/wattmark/wattmark/analysis/validate"
	"github.com/wattmark/wattmark/measure"
)

// pulses are kernels of 300 W that take turns with rests of 100 W, and how a sensor
// that is polled every 4 ms shows them.
func pulses(t *testing.T, p *sensor.Profile, on, off measure.Seconds) (rs []Reading, kernels []validate.Kernel, load *sensor.Load) {
	t.Helper()
	at, watts := []measure.Seconds{0, 4}, []measure.Watt{100}
	for at[len(at)-1] < 8 {
		a := at[len(at)-1]
		at, watts = append(at, a+on, a+on+off), append(watts, 300, 100)
		kernels = append(kernels, validate.Kernel{Name: "k", Span: Span{From: a, To: a + on}})
	}
	at, watts = append(at, at[len(at)-1]+4), append(watts, 100)
	load, err := sensor.NewLoad(at, watts)
	if err != nil {
		t.Fatal(err)
	}
	renewed := predict(p, load, p.Window)
	k := 0
	for when := p.Window; when < load.End(); when += 0.004 {
		for k+1 < len(renewed) && renewed[k+1].At <= when {
			k++
		}
		rs = append(rs, Reading{At: when, Power: renewed[k].Power})
	}
	return rs, kernels, load
}

// predict returns the register's values over the load, renewed at first and every period
// after it, to the load's end.
func predict(p *sensor.Profile, l *sensor.Load, first measure.Seconds) []Reading {
	var at []measure.Seconds
	for k := 0; ; k++ {
		t := first + measure.Seconds(k)*p.Period
		if t > l.End() {
			break
		}
		at = append(at, t)
	}
	out := make([]Reading, len(at))
	for i, w := range p.PredictAt(l, at) {
		out[i] = Reading{At: at[i], Power: w}
	}
	return out
}

func TestMethods(t *testing.T) {
	work := Span{From: 4, To: 8}
	for _, c := range []struct {
		name    string
		p       sensor.Profile
		on, off measure.Seconds
		methods []string
		within  []float64 // of the truth; NaN where no number is wanted
	}{
		{"lag", sensor.Profile{Field: "usage", Model: sensor.FirstOrder, Period: 0.015, Tau: 0.3, UTau: 0.01, Gain: 1}, 0.5, 0.5, []string{"usage corrected", "usage corrected by kernels"}, []float64{0.01, 0.02}},
		{"wide window", sensor.Profile{Field: "average", Model: sensor.Boxcar, Period: 0.1, Window: 1, Gain: 1}, 0.03, 0.07, []string{"average deconvolved", "average corrected by kernels"}, []float64{0.02, 0.03}},
		{"narrow window", sensor.Profile{Field: "instant", Model: sensor.Boxcar, Period: 0.1, Window: 0.025, Gain: 1}, 0.031, 0.083, []string{"instant deconvolved", "instant corrected by kernels"}, []float64{math.NaN(), 0.05}},
	} {
		t.Run(c.name, func(t *testing.T) {
			rs, kernels, load := pulses(t, &c.p, c.on, c.off)
			truth := float64(load.Energy(work.From, work.To))
			list := Methods(rs, &c.p, work, kernels)
			if len(list) != len(c.methods) {
				t.Fatalf("%d methods", len(list))
			}
			for i, m := range list {
				t.Logf("%s: %v of %.1f J (%s)", m.Name, m.Energy, truth, m.Note)
				if m.Name != c.methods[i] || len(m.Readings) == 0 {
					t.Errorf("method %d is %q with %d readings", i, m.Name, len(m.Readings))
				}
				if math.IsNaN(c.within[i]) {
					if !math.IsNaN(float64(m.Energy)) || !strings.Contains(m.Note, "bound") {
						t.Errorf("%s: %v (%s): want a bound", m.Name, m.Energy, m.Note)
					}
					continue
				}
				near(t, m.Name, float64(m.Energy), truth, c.within[i])
			}
			if n := len(Methods(rs, &c.p, work, nil)); n != 1 {
				t.Errorf("%d methods without kernels", n)
			}
			bad := Methods(rs[:2], &c.p, work, kernels)
			for _, m := range bad {
				if !math.IsNaN(float64(m.Energy)) || m.Note == "" {
					t.Errorf("of two readings: %+v", m)
				}
			}
		})
	}
}

// Pulses in step with a sensor that looks at their rests alone: what ran unseen has no
// power, and the bound holds the truth.
func TestWhatIsNotSeenIsNoNumber(t *testing.T) {
	p := &sensor.Profile{Model: sensor.Boxcar, Period: 0.1, Window: 0.025, Delay: 0.05, Gain: 1}
	rs, kernels, load := pulses(t, p, 0.05, 0.05)
	for _, r := range rs {
		if math.Abs(float64(r.Power)-100) > 1e-9 {
			t.Fatalf("it saw %v at %v: this test wants a sensor that saw no kernel", r.Power, r.At)
		}
	}
	_, err := FindLevels(Renewals(rs, p.Period), p, Activities(kernels))
	if !errors.Is(err, ErrReadings) {
		t.Errorf("a kernel that was not seen has a power: %v", err)
	}
	work := Span{From: 4, To: 8}
	u, err := FindUnseen(Renewals(rs, p.Period), p, work, 90, 320)
	if err != nil {
		t.Fatal(err)
	}
	truth := load.Energy(work.From, work.To)
	if math.Abs(u.Share-0.25) > 0.01 || truth < u.Low || truth > u.High {
		t.Errorf("%v; truth %v", u, truth)
	}
	if _, err := FindUnseen(rs, p, work, 320, 90); err == nil {
		t.Error("a floor above the cap was taken")
	}
	lag := &sensor.Profile{Model: sensor.FirstOrder, Period: 0.1, Tau: 0.1, Gain: 1}
	if _, err := FindUnseen(rs, lag, work, 90, 320); !errors.Is(err, ErrWindow) {
		t.Errorf("a lag looks all the time: %v", err)
	}
	if _, err := Deconvolve(rs, lag, 0, 0); !errors.Is(err, ErrWindow) {
		t.Errorf("a lag has no window: %v", err)
	}
}

// Nothing falls below the floor, and energy stays.
func TestTheFloorHolds(t *testing.T) {
	p := &sensor.Profile{Model: sensor.Boxcar, Period: 0.1, Window: 1, Gain: 1}
	rs, _, load := pulses(t, p, 0.5, 0.5)
	s, err := Deconvolve(Renewals(rs, p.Period), p, 0, 95)
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range s.Power {
		if w < 95-1e-6 {
			t.Fatalf("a piece of %v", w)
		}
	}
	span := Span{From: 4, To: 8}
	e := must(s.Energy(span))(t)
	t.Logf("%v ± %v of %v", e.Energy, e.U, load.Energy(span.From, span.To))
	near(t, "energy", float64(e.Energy), float64(load.Energy(span.From, span.To)), 0.02)
}

// A window that is known badly makes the energy near a step uncertain.
func TestTheWindowsUncertaintyIsCarried(t *testing.T) {
	p := &sensor.Profile{Model: sensor.Boxcar, Period: 0.1, Window: 1, Gain: 1}
	rs, kernels, _ := pulses(t, p, 0.5, 0.5)
	span := Span{From: 4, To: 4.5}
	_, sure, err := SmoothEnergy(Renewals(rs, p.Period), p, 0, span)
	if err != nil {
		t.Fatal(err)
	}
	p.UWindow, p.UDelay = 0.1, 0.1
	_, unsure, err := SmoothEnergy(Renewals(rs, p.Period), p, 0, span)
	if err != nil {
		t.Fatal(err)
	}
	if unsure.Energy != sure.Energy || unsure.U < 2*sure.U || len(unsure.Budget) < len(sure.Budget)+2 {
		t.Errorf("%v ± %v, with an unsure window %v ± %v (%v)", sure.Energy, sure.U, unsure.Energy, unsure.U, unsure.Budget)
	}
	l, e, err := LevelsEnergy(Renewals(rs, p.Period), p, Activities(kernels), span)
	if err != nil {
		t.Fatal(err)
	}
	plain := must(l.Energy(span))(t)
	if e.U <= plain.U {
		t.Errorf("by kernels ± %v, without the profile's uncertainties ± %v", e.U, plain.U)
	}
}

func BenchmarkLag(b *testing.B) {
	rs := Collapse(K20().Readings(), Near, K20Period)
	l := Lag{C: 0.8333, U: 0.01}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := l.Energy(rs, Span{From: 2, To: 7.346}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCollapse(b *testing.B) {
	rs := K20().Readings()
	b.SetBytes(int64(16 * len(rs)))
	b.ReportAllocs()
	for b.Loop() {
		Collapse(rs, Near, K20Period)
	}
}

// A K20 waits at 52.5 W; the level, the work and the phases come from the readings.
func TestLevelAndPhasesOfAK20(t *testing.T) {
	for _, noise := range []measure.Watt{0, 0.02, 0.1} {
		m := closeRuns()
		m.Noise, m.Seed = noise, 3
		rs := Collapse(m.Readings(), Near, K20Period)
		lag := Lag{C: m.Tau}
		if noise == 0.1 {
			lag.Slope = Parabola(3) // or the noise of the slope is 4 W
		}
		sigma := lag.Sigma(rs)
		l, err := FindLevel(lag.True(rs), sigma)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("noise %v, corrected %v: %s", noise, sigma, l.Statement)
		if math.Abs(float64(l.Active)-52.5) > 0.5 || math.Abs(float64(l.Idle)-20.02) > 0.5 || !l.Clear {
			t.Errorf("noise %v: active idle %v, idle %v, clear %v", noise, l.Active, l.Idle, l.Clear)
		}
		work := Work(lag.True(rs), l.Threshold, lag.Slope)
		if len(work) != 2 {
			t.Fatalf("noise %v: %d pieces of work, want two: %v", noise, len(work), work)
		}
		for i, w := range work {
			e := must(lag.Piece(rs, w, Span{}))(t)
			near(t, "energy", float64(e.Energy), float64(m.Kernels[i].Power)*float64(m.Kernels[i].Length()), 0.01)
		}
		phases := Phases(rs, lag.True(rs), work, l, sigma)
		var kinds []string
		for _, p := range phases {
			kinds = append(kinds, string(p.Kind))
			if p.Kind == Steps && (math.Abs(float64(p.From-m.T3())) > 0.05 || math.Abs(float64(p.To-m.T4())) > 0.3) {
				t.Errorf("noise %v: t3 %v, t4 %v; want %v, %v", noise, p.From, p.To, m.T3(), m.T4())
			}
		}
		if got := strings.Join(kinds, ", "); got != "idle, kernel, decay, kernel, decay, active idle, steps, idle" {
			t.Errorf("noise %v: phases %s", noise, got)
		}
	}
}

// A K40m falls to its idle power at once.
func TestLevelOfAK40m(t *testing.T) {
	sensor, _, kernel := k40m(t)
	lag := Lag{C: 0.058}
	l, err := FindLevel(lag.True(sensor), lag.Sigma(sensor))
	if err != nil {
		t.Fatal(err)
	}
	t.Log(l.Statement)
	if math.Abs(float64(l.Idle)-60.2) > 0.5 || l.Active != l.Idle || !l.Clear {
		t.Errorf("%+v", l)
	}
	work := Work(lag.True(sensor), l.Threshold, lag.Slope)
	if len(work) != 1 || math.Abs(float64(work[0].From-kernel.From)) > 0.02 || math.Abs(float64(work[0].To-kernel.To)) > 0.05 {
		t.Errorf("work %v, kernel %v", work, kernel)
	}
}

func TestNoLevelWithoutWork(t *testing.T) {
	var rs []Reading
	for i := range 100 {
		rs = append(rs, Reading{At: measure.Seconds(i) * 0.015, Power: measure.Watt(60 + i%3)})
	}
	if _, err := FindLevel(rs, 1); !errors.Is(err, ErrLevel) {
		t.Errorf("got %v", err)
	}
	if _, err := FindLevel(rs[:2], 1); !errors.Is(err, ErrReadings) {
		t.Errorf("got %v", err)
	}
}

func TestCollapseLeavesNoHole(t *testing.T) {
	var rs []Reading
	for i := range 2000 { // polled every 0.5 ms; the power steps after 0.7 s of the same value
		p := measure.Watt(60)
		if i >= 1400 {
			p = 100
		}
		rs = append(rs, Reading{At: measure.Seconds(i) * 0.0005, Power: p})
	}
	kept := Collapse(rs, Near, K20Period)
	for i := 1; i < len(kept); i++ {
		if d := kept[i].At - kept[i-1].At; d > 0.0160 {
			t.Errorf("a hole of %v", d)
		}
	}
	s := Span{From: 0.001, To: 0.99}
	near(t, "energy", float64(must(Integrate(kept, s))(t)), float64(must(Integrate(rs, s))(t)), 0.004)
	if len(kept) > 80 {
		t.Errorf("%d of %d readings kept", len(kept), len(rs))
	}
	if e := must(Integrate(Changes(rs), s))(t); e < 70 { // what the hole would do
		t.Errorf("changes alone integrate to %v", e)
	}
}

func TestSlopes(t *testing.T) {
	var rs []Reading // a parabola on uneven times: exact but for the paper's slope
	at := measure.Seconds(0)
	for i := range 40 {
		at += measure.Seconds(0.01 + 0.005*math.Sin(float64(i)))
		rs = append(rs, Reading{At: at, Power: measure.Watt(3 + 5*at - 40*at*at)})
	}
	for _, name := range []string{"five-point", "savitzky-golay:3", "savitzky-golay:9"} {
		s, err := ParseSlope(name)
		if err != nil {
			t.Fatal(err)
		}
		for i, r := range (Lag{C: 2, Slope: s}).True(rs)[5:35] {
			at := rs[i+5].At
			if want := float64(3 + 5*at - 40*at*at + 2*(5-80*at)); math.Abs(float64(r.Power)-want) > 1e-9 {
				t.Errorf("%s at %d: %v, want %v", name, i, r.Power, want)
			}
		}
	}
	p := Lag{C: 2}.True(rs)
	if want := rs[7].Power + 2*(rs[8].Power-rs[6].Power)/measure.Watt(rs[8].At-rs[6].At); math.Abs(float64(p[7].Power-want)) > 1e-9 {
		t.Errorf("symmetric: %v, want %v", p[7].Power, want)
	}
	for _, bad := range []string{"seven", "savitzky-golay:4", "savitzky-golay:", "savitzky-golay:1000"} {
		if _, err := ParseSlope(bad); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}

// More neighbours shrink the wobble as Sigma says.
func TestHigherOrderSlopesSmooth(t *testing.T) {
	m := K20()
	m.Noise, m.Seed = 0.1, 9
	rs := Collapse(m.Readings(), Near, K20Period)
	last := math.Inf(1)
	for _, s := range []Slope{Symmetric, Parabola(2), Parabola(4), Parabola(8)} {
		l := Lag{C: m.Tau, Slope: s, Noise: m.Noise}
		flat := within(l.True(rs), Span{From: 4, To: 7})
		sum := 0.0
		for _, r := range flat {
			sum += square(float64(r.Power) - 158.47)
		}
		sd := math.Sqrt(sum / float64(len(flat)))
		t.Logf("%v: %.2f W, said %v", s, sd, l.Sigma(rs))
		near(t, s.String(), sd, float64(l.Sigma(rs)), 0.25)
		if sd > 0.75*last {
			t.Errorf("%v: %.2f W, with fewer neighbours %.2f W", s, sd, last)
		}
		last = sd
	}
}

func TestRefusals(t *testing.T) {
	ok := []Reading{{At: 0, Power: 10}, {At: 1, Power: 20}, {At: 2, Power: 20}, {At: 3, Power: 10}}
	for name, rs := range map[string][]Reading{
		"few": ok[:2], "back": {{At: 0, Power: 1}, {At: 2, Power: 1}, {At: 1, Power: 1}}, "twice": {{At: 0, Power: 1}, {At: 0, Power: 2}, {At: 1, Power: 1}}, "nan": {{At: 0, Power: 1}, {At: 1, Power: measure.Watt(math.NaN())}, {At: 2, Power: 1}},
	} {
		if err := Check(rs); !errors.Is(err, ErrReadings) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, s := range []Span{{From: -1, To: 1}, {From: 1, To: 4}, {From: 2, To: 2}, {From: 2, To: 1}} {
		if _, err := (Lag{C: 1}).Energy(ok, s); !errors.Is(err, ErrSpan) {
			t.Errorf("%v: %v", s, err)
		}
	}
	if _, err := FitRise(ok, Span{From: 1, To: 2}); !errors.Is(err, ErrFit) {
		t.Errorf("fit: %v", err)
	}
	if _, err := FitDuration(ok, []Span{{From: 0, To: 1}}); !errors.Is(err, ErrFit) {
		t.Errorf("fit by duration: %v", err)
	}
}

func FuzzParseCSV(f *testing.F) {
	f.Add("time_s,power_w\n0,1\n1,2\n")
	f.Add("time_us, x, power_mw\n0,a,1\n5,\"b\",2e3\n")
	f.Fuzz(func(t *testing.T, in string) {
		rs, err := ParseCSV(strings.NewReader(in))
		if err == nil && len(rs) >= 3 {
			if err := Check(rs); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func TestParseCSVRefuses(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"", "it is empty"},
		{"a,b\n", "want a column time_ms"},
		{"time_s,b\n", "want a column power_mw"},
		{"time_s,power_w\n0,1\n1,x\n", "line 3"},
		{"time_s,power_w\n0,1\n1\n", "line 3"},
		{"time_s,power_w\n1,1\n0,1\n", "line 3"},
	} {
		if _, err := ParseCSV(strings.NewReader(c.in)); !errors.Is(err, ErrCSV) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, want %q", c.in, err, c.want)
		}
	}
	for _, day := range []string{"timestamp,power_w\n1733935203.149,1\n1733935204.149000001,2\n", "timestamp,power_w\n2026-01-31T12:00:00Z,1\n2026-01-31 14:00:01.000000001+0200,2\n"} {
		rs, err := ParseCSV(strings.NewReader(day))
		if err != nil || len(rs) != 2 || rs[0].At != 0 || rs[1].At != 1.000000001 {
			t.Errorf("%q: %v, %v", day, rs, err)
		}
	}
	rs, err := ParseCSV(strings.NewReader("time_us,other,power_mw\n1000000,a,2500\n2000000,b,1500\n"))
	if err != nil || len(rs) != 2 || rs[1] != (Reading{At: 2, Power: 1.5}) {
		t.Errorf("%v, %v", rs, err)
	}
}

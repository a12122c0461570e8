package correct

import (
	"errors"
	"math"
	"strings"
	"testing"

	"wattmark/analysis/sensor"
	"wattmark/analysis/validate"
	"wattmark/measure"
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
	renewed := p.Predict(load, p.Window)
	k := 0
	for when := p.Window; when < load.End(); when += 0.004 {
		for k+1 < len(renewed) && renewed[k+1].At <= when {
			k++
		}
		rs = append(rs, Reading{At: when, Power: renewed[k].Power})
	}
	return rs, kernels, load
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
	if math.Abs(u.Share()-0.25) > 0.01 || truth < u.Low || truth > u.High {
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
	t.Logf("%v ± %v of %v, %d held", e.Energy, e.U, load.Energy(span.From, span.To), s.Held)
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

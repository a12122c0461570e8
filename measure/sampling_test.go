package measure

import (
	"math"
	"math/rand/v2"
	"testing"
)

// A quiet meter at 4.8 kS/s sees a kernel as steps between two readings. What
// the straight lines between them lose at the window's ends must lie within U,
// and U must not be many times too large.
func TestQuietMeterAtTheWindowsEnds(t *testing.T) {
	const rate, idle, load, length = 4800.0, 60.0, 300.0, 0.02
	for name, c := range map[string]struct {
		late float64 // the power follows the window's ends by up to so many seconds
	}{
		"steps at the ends":     {0},
		"steps behind the ends": {0.3 / rate},
	} {
		t.Run(name, func(t *testing.T) {
			const seeds = 500
			inside, squares := 0, 0.0
			for seed := range uint64(seeds) {
				rng := rand.New(rand.NewPCG(seed, 5))
				from := 0.01 + rng.Float64()/rate
				to := from + length + rng.Float64()/rate
				on, off := from+c.late*rng.Float64(), to+c.late*rng.Float64()
				s := &Setup{
					Timebase: Timebase{TickHz: 48e6, TicksPerScan: 10_000},
					Channels: []Channel{{Name: "p", Unit: UnitWatt, Gain: 1e-6}},
					Rails:    []Rail{{Name: "gpu", Role: RoleWholeGPU, Wiring: WiringPower, Y: -1}},
				}
				b := Block{Counts: make([][]Count, 1)}
				for i := range int(0.05 * rate) {
					p, at := idle, float64(i)/rate
					if at >= on && at < off {
						p = load
					}
					b.Counts[0] = append(b.Counts[0], Count(math.Round(p/1e-6)))
				}
				// Up to the window's end: before the power came and while it lasts.
				truth := idle*(on-from) + load*(min(off, to)-on)
				r := integrate(t, s, Seconds(from), Seconds(to), Edges{}, b)
				z := 2 * (float64(r.Total.Energy) - truth) / float64(r.Total.U)
				squares += z * z
				if math.Abs(z) <= 2 {
					inside++
				}
			}
			share, rms := float64(inside)/seeds, math.Sqrt(squares/seeds)
			t.Logf("%.1f %% within U, errors %.2f standard uncertainties rms", 100*share, rms)
			if share < 0.93 || rms < 0.5 || rms > 1.1 {
				t.Errorf("%.1f %% within U, errors %.2f standard uncertainties rms", 100*share, rms)
			}
		})
	}
}

// Only a step between two readings hides energy: a ramp over several does not,
// and a step far from the ends is not the ends'.
func TestStepAtAnEnd(t *testing.T) {
	for name, c := range map[string]struct {
		watts []float64 // one every tick, the end at tick 5.5
		want  float64
	}{
		"a step across the end": {[]float64{1, 1, 1, 1, 1, 1, 9, 9, 9, 9, 9, 9}, 8},
		"a step down behind it": {[]float64{9, 9, 9, 9, 9, 9, 9, 1, 1, 1, 1, 1}, 8},
		"a ramp":                {[]float64{1, 1, 1, 1, 3, 5, 7, 9, 9, 9, 9, 9}, 0},
		"a slow rise":           {[]float64{1, 1, 1, 1, 1, 5, 7, 8, 8.5, 8.75, 9, 9}, 2},
		"a step elsewhere":      {[]float64{1, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9}, 0},
		"rest":                  {[]float64{5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := Setup{
				Channels: []Channel{{Name: "p", Unit: UnitWatt, Gain: 0.25}},
				Rails:    []Rail{{Name: "gpu", Role: RoleWholeGPU, Wiring: WiringPower, Y: -1}},
				Timebase: Timebase{TickHz: 1, TicksPerScan: 1},
			}
			m, err := NewPowerMeter(&s)
			if err != nil {
				t.Fatal(err)
			}
			col := make([]Count, len(c.watts))
			for i, w := range c.watts {
				col[i] = Count(w / 0.25)
			}
			e := newEdge(5.5, m.rails, []float64{0}, edgeScans)
			observe(&e, &stretch[Count]{cols: [][]Count{col}, step: 1, n: len(col)})
			for _, r := range []int{0, -1} {
				if got := e.jump(r, 1); got != c.want {
					t.Errorf("rail %d: a step of %v W, want %v", r, got, c.want)
				}
			}
		})
	}
}

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

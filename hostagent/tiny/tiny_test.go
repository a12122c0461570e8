package tiny_test

import (
	"math"
	"testing"
	"time"

	"wattmark/hostagent/sim"
	"wattmark/hostagent/tiny"
	"wattmark/measure"
	"wattmark/monitor/emulator/meter"
)

// good is a bench meter of 20 kS/s with its errors drawn.
var good = meter.Config{Draw: true, Spread: meter.Spread{
	UGainI: 3e-3, UGainV: 1e-3, UOffsetI: 0.01, UOffsetV: 0.002, UClock: 2e-5, NoiseI: 0.05, NoiseV: 0.002,
}}

// perfect has noise alone.
var perfect = meter.Config{Spread: meter.Spread{
	UGainI: 1e-4, UGainV: 1e-4, UOffsetI: 1e-3, UOffsetV: 1e-4, UClock: 1e-6, NoiseI: 0.05, NoiseV: 0.002,
}}

func contrastPlan(t testing.TB, length time.Duration, power measure.Watt, cfg meter.Config, want float64) tiny.Plan {
	t.Helper()
	b := newBench(t, 1, nil, cfg)
	s := b.meter.Setup()
	l := measure.SecondsOf(length)
	p, err := tiny.PlanContrast(tiny.Expect{Length: l, Energy: measure.Joule(float64(power) * float64(l)), Carrier: 190}, tiny.MeterOf(&s, 190), want)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// The energy of a kernel is found, a thousand times shorter than what a meter of
// 20 kS/s could bracket.
func TestContrastFindsTheEnergy(t *testing.T) {
	for name, c := range map[string]struct {
		length time.Duration
		power  measure.Watt
		want   float64
		within float64
	}{
		"10 µs":         {10 * time.Microsecond, 280, 0.02, 0.02},
		"1 ms":          {time.Millisecond, 280, 0.003, 0.003},
		"below carrier": {10 * time.Microsecond, 120, 0.04, 0.04},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := contrastPlan(t, c.length, c.power, perfect, c.want)
			k := []sim.Step{{Level: c.power, For: c.length}}
			b := newBench(t, 7, &sim.Kernel{Cold: k}, perfect)
			out, _ := b.measure(t, p, 7)
			truth := b.truth(out, k)
			off := float64(out.Energy.Energy)/truth - 1
			t.Logf("plan: slices of %v + %v, %d a phase, %d blocks, %v in all, U %.2g: %v ± %v, truth %.4g J, off by %.3f %%; length %v, carrier %v, %d launches, dof %d",
				p.Slice, p.Dither, p.Slices, p.Blocks, p.Takes(measure.SecondsOf(c.length)), p.U, out.Energy.Energy, out.Energy.U, truth, 100*off, out.Length, out.Carrier, out.Launches, out.DOF)
			if math.Abs(off) > c.within || math.Abs(off)*truth > float64(out.Energy.U) {
				t.Errorf("%v ± %v, truth %v J", out.Energy.Energy, out.Energy.U, truth)
			}
			if rel := float64(out.Energy.U) / truth; rel > 1.5*c.want {
				t.Errorf("U is %.2g of the energy, %.2g was planned", rel, c.want)
			}
			if math.Abs(float64(out.Length)-c.length.Seconds()) > 1e-9 {
				t.Errorf("a launch of %v", out.Length)
			}
		})
	}
}

// Over many benches with errors drawn from what they state, the truth lies
// within E ± U as often as k = 2 promises.
func TestContrastCoverage(t *testing.T) {
	for name, c := range map[string]struct {
		length time.Duration
		cfg    meter.Config
	}{
		"10 µs, calibration": {10 * time.Microsecond, good},
		"10 µs, noise":       {10 * time.Microsecond, perfect},
		"1 ms, calibration":  {time.Millisecond, good},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			seeds := uint64(400)
			if testing.Short() {
				seeds = 60
			}
			k := []sim.Step{{Level: 280, For: c.length}}
			p := contrastPlan(t, c.length, 280, c.cfg, 0.03)
			p.Lead = 300 * time.Millisecond
			inside, squares, worst := 0, 0.0, 0.0
			for seed := range seeds {
				b := newBench(t, seed, &sim.Kernel{Cold: k}, c.cfg)
				out, _ := b.measure(t, p, seed)
				truth := b.truth(out, k)
				z := 2 * (float64(out.Energy.Energy) - truth) / float64(out.Energy.U)
				squares += z * z
				worst = max(worst, math.Abs(float64(out.Energy.Energy)/truth-1))
				if math.Abs(z) <= 2 {
					inside++
				}
			}
			share := float64(inside) / float64(seeds)
			t.Logf("%.1f %% within U over %d seeds, errors %.2f standard uncertainties rms, worst %.2f %%; %d blocks of %d slices, planned U %.2g",
				100*share, seeds, math.Sqrt(squares/float64(seeds)), 100*worst, p.Blocks, p.Slices, p.U)
			if testing.Short() {
				return
			}
			if share < 0.93 || share > 0.97 {
				t.Errorf("the truth lies within U in %.1f %% of %d cases, want 93 to 97 %%", 100*share, seeds)
			}
		})
	}
}

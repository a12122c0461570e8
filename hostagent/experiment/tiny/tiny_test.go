package tiny_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/wattmark/wattmark/hostagent/experiment/tiny"
	"github.com/wattmark/wattmark/hostagent/gpu/sim"
	"github.com/wattmark/wattmark/internal/coverage"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/load"
	"github.com/wattmark/wattmark/monitor/emulator/board"
	"github.com/wattmark/wattmark/monitor/emulator/meter"
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
	p, err := tiny.PlanContrast(tiny.Expect{
		Length: l, Energy: measure.Joule(float64(power) * float64(l)),
		Carrier: 190,
	}, tiny.MeterOf(&s, 190), want)
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
			k := []load.Step{{Level: c.power, For: c.length}}
			b := newBench(t, 7, &sim.Kernel{Cold: k}, perfect)
			out, ran := b.measure(t, p, 7)
			truth := b.truth(t, ran, k)
			off := float64(out.Energy.Energy)/truth - 1
			t.Logf("plan: slices of %v + %v, %d a phase, %d blocks, %v in all, U %.2g: %v ± %v, truth %.4g J, off by "+
				"%.3f %%; length %v, carrier %v, %d launches, dof %d",
				p.Slice, p.Dither, p.Slices, p.Blocks, p.Takes(measure.SecondsOf(c.length)), p.U, out.Energy.Energy,
				out.Energy.U, truth, 100*off, out.Length, out.Carrier, out.Launches, out.DOF)
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
	coverage.Long(t)
	for name, c := range map[string]struct {
		length time.Duration
		cfg    meter.Config
		drift  float64 // of the card, by its temperature; −1 for none
		most   float64
	}{
		"10 µs, calibration": {10 * time.Microsecond, good, 0, 0.97},
		"1 ms, calibration":  {time.Millisecond, good, 0, 0.97},
		"10 µs, noise":       {10 * time.Microsecond, perfect, -1, 0.97},
		// What the polynomial leaves of a card that is warming up is in the residuals,
		// though most of it cancels between the phases: U is a fifth too large.
		"10 µs, drift": {10 * time.Microsecond, perfect, 0, 0.99},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			seeds := coverage.Trials(200)
			k := []load.Step{{Level: 280, For: c.length}}
			p := contrastPlan(t, c.length, 280, c.cfg, 0.03)
			p.Lead = 100 * time.Millisecond
			inside, squares, worst := 0, 0.0, 0.0
			for seed := range uint64(seeds) {
				b := newBenchOf(t, board.Config{Drift: c.drift}, seed, &sim.Kernel{Cold: k}, c.cfg)
				out, ran := b.measure(t, p, seed)
				truth := b.truth(t, ran, k)
				z := 2 * (float64(out.Energy.Energy) - truth) / float64(out.Energy.U)
				squares += z * z
				worst = max(worst, math.Abs(float64(out.Energy.Energy)/truth-1))
				if math.Abs(z) <= 2 {
					inside++
				}
			}
			share := float64(inside) / float64(seeds)
			t.Logf("%.1f %% within U over %d seeds, errors %.2f standard uncertainties rms, worst %.2f %%; %d blocks "+
				"of %d slices, planned U %.2g",
				100*share, seeds, math.Sqrt(squares/float64(seeds)), 100*worst, p.Blocks, p.Slices, p.U)
			if !coverage.Within(share, 0.93, c.most, seeds) {
				t.Errorf("the truth lies within U in %.1f %% of %d cases, want 93 to %.0f %%", 100*share, seeds,
					100*c.most)
			}
		})
	}
}

// A kernel of two levels is seen on a meter that takes four readings of it.
func TestFoldShowsTwoLevels(t *testing.T) {
	k := []load.Step{{Level: 280, For: 120 * time.Microsecond}, {Level: 120, For: 80 * time.Microsecond}}
	b := newBench(t, 3, &sim.Kernel{Cold: k}, perfect)
	setup := b.meter.Setup()
	p, err := tiny.PlanFold(tiny.Expect{Length: 200e-6, Energy: 0.043, Carrier: 190}, tiny.MeterOf(&setup, 190), 0.02,
		500e-6, 140)
	if err != nil {
		t.Fatal(err)
	}
	p.Launches = max(p.Launches, 4000)
	out, ran := b.measure(t, p, 3)
	truth := b.truth(t, ran, k)
	off := float64(out.Energy.Energy)/truth - 1
	t.Logf("%d launches, %v in all: %v ± %v, truth %.4g J, off by %.3f %%; above the carrier %v ± %v",
		out.Launches, p.Takes(200e-6), out.Energy.Energy, out.Energy.U, truth, 100*off, out.Profile.Above.Energy,
		out.Profile.Above.U)
	if math.Abs(off) > 0.01 || math.Abs(off)*truth > float64(out.Energy.U) {
		t.Errorf("%v ± %v, truth %v J", out.Energy.Energy, out.Energy.U, truth)
	}
	// The card itself follows with its slew of 50 µs: that is what there is to see.
	// The leakage of the warm card is on all of it alike.
	leak := float64(out.Profile.Level) - 190
	worst, beyond := 0.0, 0
	for _, bin := range out.Profile.Bins {
		want := slewed(float64(bin.At)) + leak
		d := math.Abs(float64(bin.Power) - want)
		worst = max(worst, d)
		if d > 2*float64(bin.U)+0.3 {
			beyond++
		}
	}
	t.Logf("profile: worst bin off by %.2f W, %d of %d beyond 2 u", worst, beyond, len(out.Profile.Bins))
	if worst > 6 || beyond > len(out.Profile.Bins)/10 {
		t.Errorf("the profile is off by up to %.2f W, %d of %d bins beyond 2 u", worst, beyond, len(out.Profile.Bins))
	}
	if top := slewed(120e-6); top < 268 {
		t.Fatalf("the model's top is %v W", top)
	}
}

// slewed is the power of a kernel of 280 W for 120 µs and 120 W for 80 µs in a
// carrier of 190 W, on a card whose power follows with 50 µs.
func slewed(t float64) float64 {
	const tau = 50e-6
	p, at := 190.0, 0.0
	for _, s := range []struct{ level, until float64 }{{280, 120e-6}, {120, 200e-6}, {190, math.Inf(1)}} {
		if t <= at {
			return p
		}
		end := min(t, s.until)
		p = s.level + (p-s.level)*math.Exp(-(end-at)/tau)
		at = end
	}
	return p
}

// The truth lies within fold's E ± U as often as k = 2 promises.
func TestFoldCoverage(t *testing.T) {
	k := []load.Step{{Level: 280, For: 120 * time.Microsecond}, {Level: 120, For: 80 * time.Microsecond}}
	seeds := coverage.Trials(200)
	b := newBench(t, 0, nil, good)
	setup := b.meter.Setup()
	p, err := tiny.PlanFold(tiny.Expect{Length: 200e-6, Energy: 0.043, Carrier: 190}, tiny.MeterOf(&setup, 190), 0.05,
		500e-6, 50)
	if err != nil {
		t.Fatal(err)
	}
	p.Launches, p.Lead = 400, 100*time.Millisecond
	inside, squares := 0, 0.0
	for seed := range uint64(seeds) {
		b := newBench(t, seed, &sim.Kernel{Cold: k}, good)
		out, ran := b.measure(t, p, seed)
		z := 2 * (float64(out.Energy.Energy) - b.truth(t, ran, k)) / float64(out.Energy.U)
		squares += z * z
		if math.Abs(z) <= 2 {
			inside++
		}
	}
	share := float64(inside) / float64(seeds)
	t.Logf("%.1f %% within U over %d seeds, errors %.2f standard uncertainties rms", 100*share, seeds,
		math.Sqrt(squares/float64(seeds)))
	if !coverage.Within(share, 0.93, 0.99, seeds) {
		t.Errorf("the truth lies within U in %.1f %% of %d cases", 100*share, seeds)
	}
}

// Launches back to back are warm and overlap: repeat finds another energy than
// that of a single cold launch, and says that it might; contrast finds that one.
func TestRepeatIsBiased(t *testing.T) {
	cold := []load.Step{{Level: 250, For: 100 * time.Microsecond}}
	kernel := &sim.Kernel{
		Cold: cold, Warm: []load.Step{{Level: 230, For: 60 * time.Microsecond}},
		Overlap: 10 * time.Microsecond,
	}
	e := tiny.Expect{Length: 100e-6, Energy: 0.025, Carrier: 190}
	b := newBench(t, 5, kernel, perfect)
	setup := b.meter.Setup()
	m := tiny.MeterOf(&setup, 190)
	p, err := tiny.PlanRepeat(e, m)
	if err != nil {
		t.Fatal(err)
	}
	rep, _ := b.measure(t, p, 5)
	warm := 230 * 50e-6
	if d := float64(rep.Energy.Energy)/warm - 1; math.Abs(d) > 0.03 {
		t.Errorf("repeat: %v, launches of %v that overlap draw %.4g J", rep.Energy.Energy, rep.Length, warm)
	}
	if len(rep.Warnings) == 0 || !strings.Contains(rep.Warnings[0], "not the energy of a single cold kernel") {
		t.Errorf("repeat does not warn: %q", rep.Warnings)
	}
	if p, err = tiny.PlanContrast(e, m, 0.01); err != nil {
		t.Fatal(err)
	}
	b = newBench(t, 6, kernel, perfect)
	con, ran := b.measure(t, p, 6)
	truth := b.truth(t, ran, cold)
	if off := math.Abs(float64(con.Energy.Energy) - truth); off > 0.01*truth || off > float64(con.Energy.U) {
		t.Errorf("contrast: %v ± %v, truth %.4g J", con.Energy.Energy, con.Energy.U, truth)
	}
	if bias := float64(rep.Energy.Energy)/truth - 1; bias > -0.4 || math.Abs(bias)*truth < float64(rep.Energy.U) {
		t.Errorf("repeat is off by %.1f %%, ± %v: this kernel was made to mislead it", 100*bias, rep.Energy.U)
	}
	t.Logf("repeat %v ± %v over %v each; contrast %v ± %v; a cold launch draws %.4g J",
		rep.Energy.Energy, rep.Energy.U, rep.Length, con.Energy.Energy, con.Energy.U, truth)
}

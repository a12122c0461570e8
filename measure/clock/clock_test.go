package clock

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/wattmark/wattmark/measure"
)

// truth is the clocks' relation in a simulation.
type truth struct{ offset, rate float64 }

func (tr truth) meter(host float64) float64 { return tr.offset + (1+tr.rate)*host }

// marker returns the edges of a marker of 31 chips of 4 ms, seen with errors of
// standard deviation sigma and stated to have u.
func (tr truth) marker(rng *rand.Rand, begin, sigma, u float64) []Obs {
	var out []Obs
	for i := range 32 {
		h := begin + 0.004*float64(i)
		m := tr.meter(h) + sigma*rng.NormFloat64()
		out = append(out, Obs{Host: measure.Seconds(h), Meter: measure.Seconds(m), U: measure.Seconds(u)})
	}
	return out
}

func fit(t *testing.T, obs []Obs, p Prior) Fit {
	t.Helper()
	f, err := FitClock(obs, p)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestFitClockRecoversOffsetAndDrift(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for _, tr := range []truth{{0, 0}, {12.5, -84e-6}, {-3600, 150e-6}} {
		obs := append(tr.marker(rng, 1, 10e-6, 10e-6), tr.marker(rng, 61, 10e-6, 10e-6)...)
		f := fit(t, obs, Prior{Origin: 7})
		if d := math.Abs(f.B - 1 - tr.rate); d > 1e-6 {
			t.Errorf("%+v: rate off by %g", tr, d)
		}
		for _, h := range []measure.Seconds{1, 30, 61} {
			at, u := f.Meter(h)
			if d := math.Abs(float64(at) - tr.meter(float64(h))); d > 8e-6 || u > 4e-6 {
				t.Errorf("%+v: host %v is off by %g s, u %g s", tr, h, d, float64(u))
			}
		}
		if f.Used != 64 || f.Rejected != 0 || f.Origin != 7 || f.RMS > 15e-6 {
			t.Errorf("%+v: used %d, rejected %d, origin %v, rms %v", tr, f.Used, f.Rejected, f.Origin, f.RMS)
		}
	}
}

// A marker of one edge, as slow meters see it, keeps the line of another one an hour away.
func TestFitClockKeepsALoneEdge(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 2))
	for _, tr := range []truth{{0, 0}, {12.5, -84e-6}, {-3600, 150e-6}} {
		for _, at := range [][2]float64{{1, 3601}, {3601, 1}} {
			lone := tr.marker(rng, at[0], 10e-6, 10e-6)[:1]
			f := fit(t, append(lone, tr.marker(rng, at[1], 10e-6, 10e-6)...), Prior{Origin: 7})
			if d := math.Abs(f.B - 1 - tr.rate); d > 20e-9 || f.Rejected != 0 || f.VarB > 1e-16 {
				t.Errorf("%+v, alone at %v: rate off by %g, u %g; %d rejected", tr, at[0], d, math.Sqrt(f.VarB), f.Rejected)
			}
		}
	}
}

// So does one whose edge is surer than those of the other.
func TestFitClockKeepsASureEdge(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 4))
	tr := truth{12.5, -84e-6}
	for range 200 {
		obs := tr.marker(rng, 3601, 40e-6, 40e-6)
		for i := range obs {
			obs[i].Group = 1
		}
		f := fit(t, append(obs, tr.marker(rng, 1, 5e-6, 5e-6)[0]), Prior{Origin: 7})
		if d := math.Abs(f.B - 1 - tr.rate); d > 20e-9 || f.Rejected > 1 || f.VarB > 1e-16 {
			t.Fatalf("rate off by %g, u %g; %d rejected", d, math.Sqrt(f.VarB), f.Rejected)
		}
	}
}

// Of three markers the one in the middle that is off is left out.
func TestFitClockLeavesOutAMarker(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 5))
	tr := truth{12.5, -84e-6}
	var obs []Obs
	for g := range 3 {
		for _, o := range tr.marker(rng, 1+50*float64(g), 10e-6, 10e-6) {
			if o.Group = g; g == 1 {
				o.Meter += 1e-3
			}
			obs = append(obs, o)
		}
	}
	f := fit(t, obs, Prior{Origin: 7})
	if d := math.Abs(f.B - 1 - tr.rate); d > 1e-6 || f.Rejected != 32 {
		t.Errorf("rate off by %g, %d rejected", d, f.Rejected)
	}
}

func TestFitClockNeedsOneMarkerOnly(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 1))
	tr := truth{4, 100e-6}
	f := fit(t, tr.marker(rng, 0, 10e-6, 10e-6), Prior{})
	if at, u := f.Meter(0.06); math.Abs(float64(at)-tr.meter(0.06)) > 8e-6 || u > 4e-6 {
		t.Errorf("within the marker: off by %g s, u %v", float64(at)-tr.meter(0.06), u)
	}
	// Poorly seen edges say nothing of the rate: a minute later the prior's
	// 200 ppm are left, 12 ms.
	f = fit(t, tr.marker(rng, 0, 300e-6, 300e-6), Prior{})
	if _, u := f.Meter(60); u > 12.1e-3 || u < 11e-3 {
		t.Errorf("a minute after the only marker u is %v, want about 12 ms", u)
	}
	one := fit(t, []Obs{{Host: 1, Meter: 3, U: 1e-3}}, Prior{URate: 50e-6})
	if at, u := one.Meter(1); math.Abs(float64(at-3)) > 1e-12 || math.Abs(float64(u)-1e-3) > 1e-9 {
		t.Errorf("one observation: %v ± %v, want 3 s ± 1 ms", at, u)
	}
	if math.Abs(one.B-1) > 1e-12 || math.Abs(math.Sqrt(one.VarB)-50e-6) > 1e-9 {
		t.Errorf("one observation: rate %v ± %v, want the prior's", one.B, math.Sqrt(one.VarB))
	}
}

func TestFitClockRejectsOutliers(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 1))
	tr := truth{2, -50e-6}
	var obs []Obs
	for i := range 10 {
		obs = append(obs, tr.marker(rng, float64(i), 10e-6, 10e-6)...)
	}
	for i := 5; i < len(obs); i += 10 { // a tenth of the edges, misplaced by up to two chips
		obs[i].Meter += measure.Seconds(0.001 + 0.008*rng.Float64())
	}
	f := fit(t, obs, Prior{})
	if f.Rejected != 32 {
		t.Errorf("rejected %d, want the 32 misplaced", f.Rejected)
	}
	if at, _ := f.Meter(5); math.Abs(float64(at)-tr.meter(5)) > 4e-6 {
		t.Errorf("off by %g s", float64(at)-tr.meter(5))
	}
}

func TestFitClockSurvivesADiscontinuity(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 1))
	tr := truth{0.5, 30e-6}
	var obs []Obs
	for i := range 10 {
		jump := measure.Seconds(0)
		if i >= 7 { // from here on the meter's stamps are 30 ms late
			jump = 0.030
		}
		for _, o := range tr.marker(rng, float64(i), 20e-6, 20e-6) {
			o.Meter += jump
			obs = append(obs, o)
		}
	}
	f := fit(t, obs, Prior{})
	if f.Rejected != 3*32 {
		t.Errorf("rejected %d, want the 96 after the jump", f.Rejected)
	}
	if at, u := f.Meter(3); math.Abs(float64(at)-tr.meter(3)) > 10e-6 || u > 1e-5 {
		t.Errorf("before the jump: off by %g s, u %v", float64(at)-tr.meter(3), u)
	}
}

// The share of cases within two standard uncertainties, at the window's ends and for its length. Where
// edges scatter more than they are uncertain the host's stamps jitter, those of the work too.
func TestFitClockCoverage(t *testing.T) {
	for _, c := range []struct {
		name         string
		sigma, u     float64
		prior        Prior
		two          bool
		lowest, most float64
	}{
		{"two markers", 20e-6, 20e-6, Prior{}, true, 0.93, 0.98},
		{"one marker", 20e-6, 20e-6, Prior{}, false, 0.93, 0.98},
		{"stamps jitter, 57 µs", 60e-6, 20e-6, Prior{}, true, 0.93, 0.98},
		{"stamps jitter, 5 µs", 6e-6, 3e-6, Prior{}, true, 0.93, 0.98},
		{"stamps jitter, 0.5 ms", 0.5e-3, 3e-6, Prior{}, true, 0.93, 0.98},
		{"common delay", 20e-6, 20e-6, Prior{UOffset: 1e-4}, true, 0.93, 0.98},
	} {
		t.Run(c.name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(5, 1))
			const cases = 1500
			var ends, lengths int
			for range cases {
				tr := truth{rng.NormFloat64(), DefaultURate * rng.NormFloat64()}
				late := float64(c.prior.UOffset) * rng.NormFloat64()
				seen := truth{tr.offset + late, tr.rate}
				obs := seen.marker(rng, 0, c.sigma, c.u)
				if c.two {
					obs = append(obs, seen.marker(rng, 3, c.sigma, c.u)...)
				}
				f := fit(t, obs, c.prior)
				jitter := math.Sqrt(c.sigma*c.sigma - c.u*c.u)
				from, to := measure.Seconds(0.2+jitter*rng.NormFloat64()), measure.Seconds(2.9+jitter*rng.NormFloat64())
				a, _ := f.Meter(from)
				b, _ := f.Meter(to)
				e := f.Edges(from, to)
				if math.Abs(float64(a)-tr.meter(0.2)) <= 2*float64(e.UFrom) {
					ends++
				}
				ul := math.Sqrt(float64(e.UFrom*e.UFrom+e.UTo*e.UTo) - 2*e.Correlation*float64(e.UFrom*e.UTo))
				if math.Abs(float64(b-a)-(tr.meter(2.9)-tr.meter(0.2))) <= 2*ul {
					lengths++
				}
			}
			for name, n := range map[string]int{"ends": ends, "lengths": lengths} {
				if share := float64(n) / cases; share < c.lowest || share > c.most {
					t.Errorf("%s: %.1f %% within 2 u, want %.1f to %.1f %%", name, 100*share, 100*c.lowest, 100*c.most)
				}
			}
		})
	}
}

func TestFitClockIsIndifferentToTheOrigin(t *testing.T) {
	rng := rand.New(rand.NewPCG(6, 1))
	tr := truth{1, 20e-6}
	obs := append(tr.marker(rng, 1, 10e-6, 10e-6), tr.marker(rng, 11, 10e-6, 10e-6)...)
	near := fit(t, obs, Prior{})
	moved := make([]Obs, len(obs))
	for i, o := range obs {
		moved[i] = Obs{Host: o.Host + 5000, Meter: o.Meter, U: o.U}
	}
	far := fit(t, moved, Prior{Origin: -5000})
	for _, h := range []measure.Seconds{0, 6, 12} {
		t0, u0 := near.Meter(h)
		t1, u1 := far.Meter(h + 5000)
		if math.Abs(float64(t0-t1)) > 1e-9 || math.Abs(float64(u0-u1)) > 1e-9 {
			t.Errorf("host %v: %v ± %v and %v ± %v", h, t0, u0, t1, u1)
		}
	}
	e0, e1 := near.Edges(1, 11), far.Edges(5001, 5011)
	if math.Abs(e0.Correlation-e1.Correlation) > 1e-3 {
		t.Errorf("correlations %v and %v", e0.Correlation, e1.Correlation)
	}
}

func TestHostIsTheInverseOfMeter(t *testing.T) {
	f := Fit{A: 3, B: 1.0002, VarA: 1e-10, VarB: 1e-12, CovAB: 1e-12}
	for _, h := range []measure.Seconds{-5, 0, 100} {
		m, um := f.Meter(h)
		back, ub := f.Host(m)
		if math.Abs(float64(back-h)) > 1e-12 || math.Abs(float64(ub)*f.B-float64(um)) > 1e-12 {
			t.Errorf("host %v came back as %v, u %v and %v", h, back, um, ub)
		}
	}
}

func TestFitClockRefuses(t *testing.T) {
	good := Obs{Host: 1, Meter: 1, U: 1e-6}
	for name, c := range map[string]struct {
		obs   []Obs
		prior Prior
	}{
		"nothing":         {},
		"no uncertainty":  {obs: []Obs{{Host: 1, Meter: 1}}},
		"NaN":             {obs: []Obs{good, {Host: measure.Seconds(math.NaN()), U: 1}}},
		"infinite":        {obs: []Obs{{Host: 1, Meter: measure.Seconds(math.Inf(1)), U: 1}}},
		"negative rate":   {obs: []Obs{good}, prior: Prior{URate: -1}},
		"negative offset": {obs: []Obs{good}, prior: Prior{UOffset: -1}},
		"far origin":      {obs: []Obs{{Host: 1.7e9, Meter: 1, U: 1e-6}}},
	} {
		if _, err := FitClock(c.obs, c.prior); !errors.Is(err, ErrObservations) {
			t.Errorf("%s: error %v, want ErrObservations", name, err)
		}
	}
}

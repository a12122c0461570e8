package measure

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"
)

// The derivatives in the budget against differences of energies.
func TestSensitivitiesAreDerivatives(t *testing.T) {
	tb := timebases["uniform"]
	b := mixedBlock(tb, 2000, 1)
	energies := func(s *Setup) (out [5]float64) {
		r := integrate(t, s, 0.01, 0.09, Edges{}, b)
		for i := range r.Rails {
			out[i] = float64(r.Rails[i].Energy.Energy)
		}
		out[4] = float64(r.Total.Energy)
		return out
	}
	s := mixedSetup(tb)
	base := integrate(t, s, 0.01, 0.09, Edges{}, b)
	before := energies(s)
	line := func(budget []Contribution, source string) float64 {
		for _, c := range budget {
			if c.Source == source {
				if !c.Systematic {
					t.Errorf("%s does not average out but says so", source)
				}
				return float64(c.U)
			}
		}
		return 0
	}
	check := func(rail int, source string, u float64, change func(s *Setup, by float64)) {
		t.Helper()
		const by = 1e-6
		m := mixedSetup(tb)
		change(m, by)
		want := math.Abs(energies(m)[rail]-before[rail]) / by * u
		closeTo(t, source, line(base.Rails[rail].Budget, source), want, 1e-4)
		closeTo(t, source+" in the total", line(base.Budget, source), want, 1e-4)
	}
	for rail, r := range s.Rails {
		for _, c := range []int{r.X, r.Y} {
			if c < 0 {
				continue
			}
			ch := s.Channels[c]
			check(rail, "gain "+ch.Name, ch.UGain, func(s *Setup, by float64) { s.Channels[c].Gain *= 1 + by })
			if ch.UOffset > 0 {
				check(rail, "offset "+ch.Name, ch.UOffset, func(s *Setup, by float64) { s.Channels[c].Offset += by })
			}
		}
	}
	check(0, "shunt a", 5e-3, func(s *Setup, by float64) { s.Rails[0].Shunt *= Ohm(1 + by) })
	check(2, "assumed voltage c", 0.1, func(s *Setup, by float64) { s.Rails[2].Assumed += Volt(by) })
	closeTo(t, "tick rate", line(base.Budget, "tick rate"), 1e-4*before[4], 1e-12)
}

// What a longer window does to a contribution tells whether it averages out.
func TestSystematicGrowsNoiseAverages(t *testing.T) {
	tb := timebases["uniform"]
	s, b := mixedSetup(tb), mixedBlock(tb, 20000, 2)
	share := func(r Result, source string) float64 {
		for _, c := range r.Budget {
			if c.Source == source {
				return float64(c.U) / float64(r.Total.Energy)
			}
		}
		t.Fatalf("no line %q in %v", source, r.Budget)
		return 0
	}
	short, long := integrate(t, s, 0.1, 0.15, Edges{}, b), integrate(t, s, 0.1, 0.9, Edges{}, b)
	for source, want := range map[string]float64{
		"gain b.i": 1, "offset a.g": 1, "shunt a": 1, "assumed voltage c": 1, "tick rate": 1,
		"noise a.s": 4, "noise c.i": 4, "quantisation a.s": 4,
	} {
		closeTo(t, source, share(short, source)/share(long, source), want, 0.1)
	}
}

// The split of the rounding error against roundings of a resting signal.
func TestQuantisation(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for _, sigma := range []float64{0, 0.05, 0.1, 0.2, 0.3, 0.5, 1} {
		var squares float64
		const phases, readings = 400, 2000
		for p := range phases {
			level, mean := (float64(p)+0.5)/phases, 0.0
			for range readings {
				mean += math.Round(level+sigma*rng.NormFloat64()) / readings
			}
			squares += (mean - level) * (mean - level) / phases
		}
		fixed, dithered := quantisation(sigma)
		// The mean of that many readings still scatters by what averages out.
		want := fixed*fixed + (dithered*dithered+sigma*sigma)/readings
		if math.Abs(math.Sqrt(squares)-math.Sqrt(want)) > 0.1*math.Sqrt(want)+1e-4 {
			t.Errorf("σ = %g: mean error %.5f count rms, want %.5f", sigma, math.Sqrt(squares), math.Sqrt(want))
		}
		closeTo(t, "both parts", fixed*fixed+dithered*dithered, 1.0/12, 1e-9)
	}
}

func TestNoiseIsSeen(t *testing.T) {
	for _, sigma := range []float64{0.5, 1, 4, 50, 700, 1e6} {
		rng := rand.New(rand.NewPCG(2, 1))
		var m noiseMeter
		x := make([]Count, groupScans)
		for g := range 100 {
			for i := range x {
				x[i] = Count(math.Round(sigma*rng.NormFloat64())) + Count(g*int(sigma)*3) // drifts
			}
			if g%5 == 0 {
				x[10] += Count(1000 * sigma) // and jumps
			}
			m.observe(x, 1)
		}
		closeTo(t, "σ", m.sigma(), sigma, 0.07)
	}
	var quiet, none noiseMeter
	quiet.observe(make([]Count, groupScans), 1)
	if quiet.sigma() != 0 || none.sigma() != 0 {
		t.Errorf("σ of a resting signal %v, of no signal %v, want 0", quiet.sigma(), none.sigma())
	}
}

// A sensor that shows each value 25 times has 25 times fewer readings.
func TestHeldValuesAreNotIndependent(t *testing.T) {
	s := &Setup{
		Timebase: Timebase{TickHz: 1e9, TicksPerScan: 4e6}, Channels: []Channel{{Name: "p", Unit: UnitWatt, Gain: 0.001}},
		Rails:    []Rail{{Name: "gpu", Role: RoleWholeGPU, Wiring: WiringPower, X: 0, Y: -1}},
		Response: Response{Update: 0.1},
	}
	rng := rand.New(rand.NewPCG(3, 1))
	b := Block{Counts: make([][]Count, 1)}
	var shown Count
	for i := range 20000 {
		if i%25 == 0 {
			shown = Count(300000 + 2000*rng.NormFloat64())
		}
		b.Counts[0] = append(b.Counts[0], shown)
	}
	r := integrate(t, s, 1, 79, Edges{}, b)
	for _, c := range r.Budget {
		if strings.HasPrefix(c.Source, "noise") {
			closeTo(t, c.Source, float64(c.U), 2*math.Sqrt(0.1*78), 0.2)
		}
	}
}

// The ends' contribution against drawn shifts, on slopes and across steps.
func TestEdgeVariance(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 1))
	shift := func(l levels, d float64) float64 {
		if d < 0 {
			return l.before * d
		}
		return l.after * d
	}
	for _, c := range []struct {
		from, to levels
		e        Edges
	}{
		{levels{60, 60}, levels{60, 60}, Edges{1e-3, 1e-3, 0}},
		{levels{60, 60}, levels{60, 60}, Edges{1e-3, 1e-3, 0.9}},
		{levels{60, 300}, levels{300, 60}, Edges{1e-3, 2e-3, 0.4}},
		{levels{60, 300}, levels{60, 300}, Edges{1e-3, 1e-3, 0.95}},
		{levels{60, 300}, levels{300, 60}, Edges{1e-3, 1e-3, -0.7}},
	} {
		var squares float64
		const draws = 200000
		for range draws {
			z1, z2 := rng.NormFloat64(), rng.NormFloat64()
			rho := c.e.Correlation
			d := shift(c.to, float64(c.e.UTo)*(rho*z1+math.Sqrt(1-rho*rho)*z2)) - shift(c.from, float64(c.e.UFrom)*z1)
			squares += d * d / draws
		}
		closeTo(t, "variance", edgeVariance(c.from, c.to, c.e), squares, 0.02)
	}
	// A clock that is merely late moves both ends alike and loses nothing.
	if v := edgeVariance(levels{60, 60}, levels{60, 60}, Edges{1, 1, 1}); v != 0 {
		t.Errorf("a common shift between equal levels counts for %v J²", v)
	}
}

// Levels come from the scans around an end, however the blocks are cut.
func TestEdgeLevels(t *testing.T) {
	tb := Timebase{TickHz: 1e6, TicksPerScan: 1000}
	s := &Setup{
		Timebase: tb, Channels: []Channel{{Name: "p", Unit: UnitWatt, Gain: 1, Skew: 1e-4}},
		Rails: []Rail{{Name: "gpu", Role: RoleWholeGPU, Wiring: WiringPower, X: 0, Y: -1}},
	}
	b := Block{Counts: [][]Count{make([]Count, 1000)}}
	for i := range b.Counts[0] {
		b.Counts[0][i] = 60
		if i >= 400 {
			b.Counts[0][i] = 300
		}
	}
	line := func(r Result, source string) float64 {
		for _, c := range r.Budget {
			if c.Source == source {
				return float64(c.U)
			}
		}
		return 0
	}
	for _, lengths := range [][]int{{1000}, {1}, {3, 70}, {399, 2}} {
		r := integrate(t, s, 0.3995, 0.8, Edges{UFrom: 5e-3, UTo: 1e-3}, split(tb, b, lengths...)...)
		want := math.Hypot(5e-3*math.Hypot(180, 120), 1e-3*300)
		closeTo(t, "window edges", line(r, "window edges"), want, 1e-9)
		closeTo(t, "skew", line(r, "skew gpu"), 1e-4*(300-180)/math.Sqrt(3), 1e-9)
	}
}

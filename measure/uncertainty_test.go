package measure

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/wattmark/wattmark/internal/coverage"
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
			check(rail, "gain "+ch.Name, ch.UGain, func(s *Setup, by float64) {
				s.Channels[c].Gain *= 1 + by
				s.Channels[c].Offset *= 1 + by
			})
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
		fixed, dithered := Quantisation(sigma)
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
		closeTo(t, "σ", m.scatter().sigma, sigma, 0.07)
		for form := range forms {
			closeTo(t, "σ of a form", m.sigma(form), sigma, 0.1)
		}
	}
	var quiet, none noiseMeter
	quiet.observe(make([]Count, groupScans), 1)
	if quiet.scatter().sigma != 0 || none.scatter().sigma != 0 {
		t.Errorf("σ of a resting signal %v, of no signal %v, want 0", quiet.scatter(), none.scatter())
	}
}

// The noise of white readings is known to its degrees of freedom, and that of a load that ripples is not taken for more
// than half of the ripple where the load keeps below a fifth of the scan rate or near half of it.
func TestRippleIsNoNoise(t *testing.T) {
	const n, sigma, swing = 400, 20.0, 400.0
	rng := rand.New(rand.NewPCG(2, 2))
	readings := func(f float64) (m noiseMeter) {
		x, at := make([]Count, n), rng.Float64()
		for i := range x {
			x[i] = Count(math.Round(sigma*rng.NormFloat64() + swing*math.Sin(2*math.Pi*(at+f*float64(i)))))
		}
		m.observe(x, 1)
		return m
	}
	for form := range forms {
		var squares float64
		const runs = 400
		for range runs {
			m := readings(0)
			d := m.sigma(form)/sigma - 1
			squares += d * d / runs
		}
		m := readings(0)
		if dof := 1 / (2 * squares); math.Abs(m.dof(form)/dof-1) > 0.25 {
			t.Errorf("form %d: %.0f degrees of freedom, stated %.0f", form, dof, m.dof(form))
		}
	}
	for _, f := range []float64{0.02, 0.05, 0.1, 0.15, 0.48, 0.495} {
		m := readings(f)
		if s := m.scatter().sigma; s < 0.8*sigma || s > 0.5*swing/math.Sqrt2 {
			t.Errorf("a ripple of %g of the scan rate: noise of %.0f, its own is %g, the ripple's %.0f", f, s, sigma, swing/math.Sqrt2)
		}
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

// endAt is an end with power levels on either side.
func endAt(before, after float64) *edge {
	m := []railMeter{{y: -1, lin: Linear{IX: 1, V0: 1}}}
	e := edge{rails: m, shift: []float64{0}, scans: edgeScans}
	var col []Count
	for i := range 2 * edgeScans {
		p := before
		if i >= edgeScans {
			p = after
		}
		col = append(col, Count(p))
	}
	observe(&e, &stretch[Count]{cols: [][]Count{col}, start: -0.5 - edgeScans + 1, step: 1, n: len(col)})
	return &e
}

// The ends' contribution against drawn shifts, on levels and across steps.
func TestEdgeVariance(t *testing.T) {
	type levels struct{ before, after float64 }
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
		{levels{60, 60}, levels{60, 60}, Edges{UFrom: 1, UTo: 1, Correlation: 0}},
		{levels{60, 60}, levels{60, 60}, Edges{UFrom: 1, UTo: 1, Correlation: 0.9}},
		{levels{60, 300}, levels{300, 60}, Edges{UFrom: 1, UTo: 2, Correlation: 0.4}},
		{levels{60, 300}, levels{60, 300}, Edges{UFrom: 1, UTo: 1, Correlation: 0.95}},
		{levels{60, 300}, levels{300, 60}, Edges{UFrom: 0.1, UTo: 0.1, Correlation: 0.95}},
		{levels{60, 300}, levels{300, 60}, Edges{UFrom: 1, UTo: 1, Correlation: -0.7}},
		{levels{60, 300}, levels{300, 60}, Edges{UFrom: 0, UTo: 3, Correlation: 0}},
	} {
		var squares float64
		const draws = 200000
		for range draws {
			z1, z2 := rng.NormFloat64(), rng.NormFloat64()
			rho := c.e.Correlation
			d := shift(c.to, float64(c.e.UTo)*(rho*z1+math.Sqrt(1-rho*rho)*z2)) - shift(c.from, float64(c.e.UFrom)*z1)
			squares += d * d / draws
		}
		got := edgeVariance(endAt(c.from.before, c.from.after), endAt(c.to.before, c.to.after), 0, float64(c.e.UFrom), float64(c.e.UTo), c.e.Correlation)
		closeTo(t, "variance", got, squares, 0.03)
	}
	// A clock that is merely late moves both ends alike and loses nothing.
	if v := edgeVariance(endAt(60, 60), endAt(60, 60), 0, 1, 1, 1); v > 1e-9 {
		t.Errorf("a common shift between equal levels counts for %v J²", v)
	}
}

// What a shift of the ends does is what the integrator finds for ends so
// shifted, whatever the trace.
func TestEdgeVarianceIsThatOfShiftedWindows(t *testing.T) {
	coverage.Long(t)
	tb := timebases["uniform"]
	rng := rand.New(rand.NewPCG(9, 1))
	s := &Setup{
		Timebase: tb, Channels: []Channel{{Name: "p", Unit: UnitWatt, Gain: 1}},
		Rails: []Rail{{Name: "gpu", Role: RoleWholeGPU, Wiring: WiringPower, X: 0, Y: -1}},
	}
	b := Block{Counts: make([][]Count, 1)}
	level := 100.0
	for i := range 4000 {
		if i%7 == 0 {
			level = 50 + 400*rng.Float64()
		}
		b.Counts[0] = append(b.Counts[0], Count(level))
	}
	step := float64(tb.Seconds(tb.TicksPerScan))
	for _, e := range []Edges{{UFrom: Seconds(12 * step), UTo: Seconds(8 * step), Correlation: 0.3}, {UFrom: Seconds(10 * step), UTo: Seconds(10 * step), Correlation: 0.97}} {
		from, to := Seconds(1000.4*step), Seconds(3000.7*step)
		r := integrate(t, s, from, to, e, b)
		var squares float64
		const draws = 3000
		for range draws {
			z1, z2 := rng.NormFloat64(), rng.NormFloat64()
			df, dt := Seconds(z1)*e.UFrom, Seconds(e.Correlation*z1+math.Sqrt(1-e.Correlation*e.Correlation)*z2)*e.UTo
			d := float64(integrate(t, s, from+df, to+dt, Edges{}, b).Total.Energy - r.Total.Energy)
			squares += d * d / draws
		}
		i := slices.IndexFunc(r.Budget, func(c Contribution) bool { return c.Source == "window edges" })
		closeTo(t, "window edges", float64(r.Budget[i].U), math.Sqrt(squares), 0.06)
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
		closeTo(t, "window edges", line(r, "window edges"), want, 0.01)
		// Both ends move alike: 60 or 300 W at the first, 300 W at the last.
		closeTo(t, "skew", line(r, "skew gpu"), uSkew*1e-4*math.Hypot(180-300, 120), 0.01)
	}
}

// One trace, told in blocks, with stamps or without, has one budget.
func TestBudgetDoesNotDependOnTheTelling(t *testing.T) {
	uniform := timebases["uniform"]
	stamped := uniform
	stamped.Stamped = true
	b := mixedBlock(uniform, 3000, 6)
	tell := func(tb Timebase, lengths ...int) Result {
		b := b
		b.Ticks = nil
		if tb.Stamped {
			for i := range b.Scans() {
				b.Ticks = append(b.Ticks, int64(i)*50)
			}
		}
		s := mixedSetup(tb)
		for c := range s.Channels { // what blocks show of the noise does depend on them
			s.Channels[c].Noise = 2 * s.Channels[c].Gain
		}
		early, late := b.Slice(tb, 0, 1000), b.Slice(tb, 1300, 3000) // 300 scans are lost
		return integrate(t, s, 0.0201, 0.1207, Edges{UFrom: 1e-3, UTo: 1e-3}, append(split(tb, early, lengths...), split(tb, late, lengths...)...)...)
	}
	want := tell(uniform, 3000)
	for name, got := range map[string]Result{
		"uniform, single scans": tell(uniform, 1), "stamped": tell(stamped, 3000), "stamped, in parts": tell(stamped, 1, 300, 7),
	} {
		if len(got.Budget) != len(want.Budget) || got.Gaps != 1 || got.Lost != want.Lost {
			t.Fatalf("%s: %d lines, %d gaps, %d lost; want %d, 1, %d", name, len(got.Budget), got.Gaps, got.Lost, len(want.Budget), want.Lost)
		}
		for i, c := range want.Budget {
			if got.Budget[i].Source != c.Source {
				t.Errorf("%s: line %d is %s, want %s", name, i, got.Budget[i].Source, c.Source)
			}
			closeTo(t, name+": "+c.Source, float64(got.Budget[i].U), float64(c.U), 1e-9)
		}
		for r := range want.Rails {
			closeTo(t, name+": "+want.Rails[r].Name, float64(got.Rails[r].Energy.U), float64(want.Rails[r].Energy.U), 1e-9)
		}
	}
}

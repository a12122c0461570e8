package measure

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"
)

// integrate runs blocks through an integrator and fails the test on any error.
func integrate(t testing.TB, s *Setup, from, to Seconds, e Edges, blocks ...Block) Result {
	t.Helper()
	g, err := NewIntegrator(s, from, to)
	if err != nil {
		t.Fatal(err)
	}
	for i := range blocks {
		if err := g.Add(&blocks[i]); err != nil {
			t.Fatal(err)
		}
	}
	r, err := g.Result(e)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// split cuts a block into blocks of the given lengths, in turn.
func split(tb Timebase, b Block, lengths ...int) []Block {
	var out []Block
	for at, i := 0, 0; at < b.Scans(); i++ {
		end := min(at+lengths[i%len(lengths)], b.Scans())
		out = append(out, b.Slice(tb, at, end))
		at = end
	}
	return out
}

// timebases: whole ticks, a step that is no whole number of ticks, and stamps
// that jitter.
var timebases = map[string]Timebase{
	"uniform":    {TickHz: 1e6, UTickHz: 1e-4, TicksPerScan: 50},
	"fractional": {TickHz: 1e9, UTickHz: 1e-4, TicksPerScan: 1e9 / 4793.2},
	"stamped":    {TickHz: 2.9345e6, UTickHz: 1e-4, TicksPerScan: 613, Stamped: true},
}

// mixedSetup is a bench with a rail of every wiring.
func mixedSetup(tb Timebase) *Setup {
	return &Setup{
		Timebase: tb,
		Channels: []Channel{
			{Name: "a.s", Unit: UnitVolt, Gain: 3e-4, Offset: 0.01, UGain: 2e-5, UOffset: 1e-4, Noise: 3e-4},
			{Name: "a.g", Unit: UnitVolt, Gain: 3e-4, Offset: -0.02, UGain: 2e-5, UOffset: 1e-4},
			{Name: "b.v", Unit: UnitVolt, Gain: 7.568e-3, UGain: 5e-3, UOffset: 7e-3},
			{Name: "b.i", Unit: UnitAmpere, Gain: 0.0488, Offset: 0.1, UGain: 1e-2, UOffset: 0.05},
			{Name: "c.i", Unit: UnitAmpere, Gain: 0.01, Offset: -0.2, UGain: 8e-3},
			{Name: "d.p", Unit: UnitWatt, Gain: 0.001, UGain: 2e-2},
		},
		Rails: []Rail{
			{Name: "a", Role: RolePCIe3V3, Wiring: WiringShunt, X: 0, Y: 1, Shunt: 0.005, UShunt: 5e-3},
			{Name: "b", Role: RolePCIe12V, Wiring: WiringClamp, X: 3, Y: 2},
			{Name: "c", Role: RolePSU, Wiring: WiringAssumed, X: 4, Y: -1, Assumed: 12, UAssumed: 0.1},
			{Name: "d", Role: RoleWholeGPU, Wiring: WiringPower, X: 5, Y: -1},
		},
	}
}

// mixedBlock is n scans of random, positive powers on the mixed bench.
func mixedBlock(tb Timebase, n int, seed uint64) Block {
	rng := rand.New(rand.NewPCG(seed, 7))
	b := Block{Counts: make([][]Count, 6)}
	centres, widths := []int{40200, 40000, 1590, 120, 700, 60000}, []int{80, 20, 4, 90, 400, 30000}
	for c := range b.Counts {
		for range n {
			b.Counts[c] = append(b.Counts[c], Count(centres[c]+rng.IntN(2*widths[c])-widths[c]))
		}
	}
	if tb.Stamped {
		at := int64(0)
		for range n {
			b.Ticks = append(b.Ticks, at)
			at += 600 + rng.Int64N(27)
		}
	}
	return b
}

// brute is the definition: the integral of the polygon through the scans.
func brute(s *Setup, b *Block, rail int, from, to float64) (energy float64) {
	l := s.Rails[rail].Linear(s.Channels)
	power := func(i int) float64 {
		x, y := float64(b.Counts[s.Rails[rail].X][i]), 0.0
		if s.Rails[rail].Y >= 0 {
			y = float64(b.Counts[s.Rails[rail].Y][i])
		}
		return (l.I0 + l.IX*x + l.IY*y) * (l.V0 + l.VY*y)
	}
	for i := range b.Scans() - 1 {
		t0, t1 := float64(s.Timebase.Seconds(b.TickAt(s.Timebase, i))), float64(s.Timebase.Seconds(b.TickAt(s.Timebase, i+1)))
		a, z := max(t0, from), min(t1, to)
		if a >= z {
			continue
		}
		at := func(t float64) float64 { return power(i) + (power(i+1)-power(i))*(t-t0)/(t1-t0) }
		energy += (at(a) + at(z)) / 2 * (z - a)
	}
	return energy
}

func closeTo(t *testing.T, what string, got, want, relative float64) {
	t.Helper()
	if d := math.Abs(got - want); !(d <= relative*math.Abs(want)) {
		t.Errorf("%s: %.15g, want %.15g (off by %.2g of it)", what, got, want, d/math.Abs(want))
	}
}

func TestEnergyIsTheTrapezoidOfTheScans(t *testing.T) {
	for name, tb := range timebases {
		t.Run(name, func(t *testing.T) {
			s, b := mixedSetup(tb), mixedBlock(tb, 3000, 1)
			step := float64(tb.Seconds(tb.TicksPerScan))
			for _, w := range [][2]float64{
				{0, 2500 * step},              // from the very first scan
				{100.3 * step, 2000.9 * step}, // ends between scans
				{100.3 * step, 100.7 * step},  // within one interval
				{99.9 * step, 101.2 * step},   // across few
			} {
				r := integrate(t, s, Seconds(w[0]), Seconds(w[1]), Edges{}, b)
				if !(r.Peak >= r.Mean) || math.IsInf(float64(r.Peak), 0) {
					t.Errorf("peak %v, mean %v, %d samples", r.Peak, r.Mean, r.Samples)
				}
				for i := range s.Rails {
					closeTo(t, s.Rails[i].Name, float64(r.Rails[i].Energy.Energy), brute(s, &b, i, w[0], w[1]), 1e-11)
					closeTo(t, "mean", float64(r.Rails[i].Mean)*(w[1]-w[0]), float64(r.Rails[i].Energy.Energy), 1e-12)
				}
			}
		})
	}
}

func TestRailsAddUpToTheTotal(t *testing.T) {
	tb := timebases["uniform"]
	r := integrate(t, mixedSetup(tb), 0.01, 0.1, Edges{UFrom: 1e-4, UTo: 1e-4}, mixedBlock(tb, 3000, 2))
	var e, squares float64
	for _, rail := range r.Rails {
		e += float64(rail.Energy.Energy)
	}
	closeTo(t, "sum of rails", e, float64(r.Total.Energy), 1e-14)
	closeTo(t, "mean", float64(r.Mean), e/0.09, 1e-12)
	for i, c := range r.Budget {
		squares += float64(c.U * c.U)
		if i > 0 && c.U > r.Budget[i-1].U {
			t.Errorf("budget is not sorted: %v after %v", c, r.Budget[i-1])
		}
	}
	k := FactorOf(r.Total, r.Budget)
	closeTo(t, "U", float64(r.Total.U), k*math.Sqrt(squares), 1e-12)
	closeTo(t, "k", k, 2, 1e-3) // the noise is seen in a thousand readings
}

func TestWindowsAddUp(t *testing.T) {
	for name, tb := range timebases {
		t.Run(name, func(t *testing.T) {
			s, b := mixedSetup(tb), mixedBlock(tb, 3000, 3)
			rng := rand.New(rand.NewPCG(3, 3))
			end := float64(tb.Seconds(b.TickAt(tb, 2999)))
			for range 30 {
				a, m, z := rng.Float64()*end, rng.Float64()*end, rng.Float64()*end
				a, m, z = min(a, m, z), max(min(a, m), min(max(a, m), z)), max(a, m, z)
				ab := integrate(t, s, Seconds(a), Seconds(m), Edges{}, b)
				bc := integrate(t, s, Seconds(m), Seconds(z), Edges{}, b)
				ac := integrate(t, s, Seconds(a), Seconds(z), Edges{}, b)
				closeTo(t, "energy", float64(ab.Total.Energy+bc.Total.Energy), float64(ac.Total.Energy), 1e-12)
				if ab.Samples+bc.Samples != ac.Samples {
					t.Errorf("samples %d + %d, want %d", ab.Samples, bc.Samples, ac.Samples)
				}
				if max(ab.Peak, bc.Peak) != ac.Peak && ab.Samples > 0 && bc.Samples > 0 {
					t.Errorf("peaks %v and %v, want %v", ab.Peak, bc.Peak, ac.Peak)
				}
				// More window, more energy, while power is positive.
				if ab.Total.Energy >= ac.Total.Energy || bc.Total.Energy >= ac.Total.Energy {
					t.Errorf("a part has no less than the whole: %v, %v, %v", ab.Total.Energy, bc.Total.Energy, ac.Total.Energy)
				}
			}
		})
	}
}

func TestSplittingChangesNothing(t *testing.T) {
	for name, tb := range timebases {
		t.Run(name, func(t *testing.T) {
			s, b := mixedSetup(tb), mixedBlock(tb, 3000, 4)
			from, to := tb.Seconds(333.3*tb.TicksPerScan), tb.Seconds(2666.6*tb.TicksPerScan)
			whole := integrate(t, s, from, to, Edges{}, b)
			for _, lengths := range [][]int{{1}, {2, 1}, {255}, {256}, {1000}, {7, 501, 1, 64}} {
				parts := integrate(t, s, from, to, Edges{}, split(tb, b, lengths...)...)
				for i := range whole.Rails {
					closeTo(t, whole.Rails[i].Name, float64(parts.Rails[i].Energy.Energy), float64(whole.Rails[i].Energy.Energy), 1e-12)
				}
				if parts.Samples != whole.Samples || parts.FirstScan != whole.FirstScan || parts.Peak != whole.Peak || parts.Gaps != 0 {
					t.Errorf("in parts of %v: %d samples from %d, peak %v, %d gaps; whole: %d from %d, %v", lengths,
						parts.Samples, parts.FirstScan, parts.Peak, parts.Gaps, whole.Samples, whole.FirstScan, whole.Peak)
				}
			}
		})
	}
}

func TestGainScalesEnergy(t *testing.T) {
	tb := timebases["stamped"]
	s, b := mixedSetup(tb), mixedBlock(tb, 2000, 5)
	base := integrate(t, s, 0.1, 0.3, Edges{}, b)
	for c := range s.Channels {
		s.Channels[c].Gain *= 1.5
		s.Channels[c].Offset *= 1.5
	}
	scaled := integrate(t, s, 0.1, 0.3, Edges{}, b)
	for i, k := range []float64{2.25, 2.25, 1.5, 1.5} { // volts and amperes scale both
		closeTo(t, base.Rails[i].Name, float64(scaled.Rails[i].Energy.Energy), k*float64(base.Rails[i].Energy.Energy), 1e-11)
	}
}

// Moments of one calibration give the energy under another.
func TestMomentsRecalibrate(t *testing.T) {
	tb := timebases["fractional"]
	s, b := mixedSetup(tb), mixedBlock(tb, 2000, 6)
	g, err := NewIntegrator(s, 0.05, 0.3)
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Add(&b); err != nil {
		t.Fatal(err)
	}
	for c := range s.Channels {
		s.Channels[c].Gain *= 1 + 0.01*float64(c)
		s.Channels[c].Offset += 0.003
	}
	s.Rails[0].Shunt, s.Rails[2].Assumed = 0.0051, 11.9
	again := integrate(t, s, 0.05, 0.3, Edges{}, b)
	for i, rail := range s.Rails {
		closeTo(t, rail.Name, float64(g.Moments(i).Energy(rail.Linear(s.Channels))), float64(again.Rails[i].Energy.Energy), 1e-10)
	}
}

func TestGapsAreBridgedCountedAndDoubted(t *testing.T) {
	tb := Timebase{TickHz: 1e6, TicksPerScan: 1000}
	s := &Setup{
		Timebase: tb, Channels: []Channel{{Name: "p", Unit: UnitWatt, Gain: 1}},
		Rails: []Rail{{Name: "gpu", Role: RoleWholeGPU, Wiring: WiringPower, X: 0, Y: -1}},
	}
	flat := func(scan uint64, n int, p Count) Block {
		b := Block{FirstScan: scan, FirstTick: int64(scan) * 1000, Counts: [][]Count{make([]Count, n)}}
		for i := range b.Counts[0] {
			b.Counts[0][i] = p
		}
		return b
	}
	gapLine := func(r Result) float64 {
		for _, c := range r.Budget {
			if c.Source == "gaps" {
				return float64(c.U)
			}
		}
		return 0
	}
	// 100 W for 0.1 s, 0.05 s lost, 300 W for 0.1 s.
	r := integrate(t, s, 0.01, 0.24, Edges{}, flat(0, 101, 100), flat(150, 101, 300))
	closeTo(t, "energy", float64(r.Total.Energy), 100*0.09+200*0.05+300*0.09, 1e-12)
	if r.Gaps != 1 || r.Lost != 49 || r.Samples != 91+91 {
		t.Errorf("%d gaps, %d lost, %d samples, want 1, 49, 182", r.Gaps, r.Lost, r.Samples)
	}
	// A step of 200 W somewhere in 50 ms, and a spread of about 94 W over it.
	if u := gapLine(r); u < 0.05*200/math.Sqrt(12) || u > 0.05*math.Hypot(200/math.Sqrt(12), 100) {
		t.Errorf("the gap counts for %v J", u)
	}
	// A gap outside of the window is of no concern.
	r = integrate(t, s, 0.16, 0.24, Edges{}, flat(0, 101, 100), flat(150, 101, 300))
	if r.Gaps != 0 || r.Lost != 0 || gapLine(r) != 0 {
		t.Errorf("a gap before the window: %d gaps, %d lost, %v J", r.Gaps, r.Lost, gapLine(r))
	}
	// A flat trace is none the worse for a gap.
	r = integrate(t, s, 0.01, 0.24, Edges{}, flat(0, 101, 100), flat(150, 101, 100))
	closeTo(t, "energy", float64(r.Total.Energy), 23, 1e-12)
	if r.Gaps != 1 || gapLine(r) > 1e-9 {
		t.Errorf("a gap in a flat trace: %d gaps, %v J", r.Gaps, gapLine(r))
	}
	// Unless nobody knows how long it was.
	r = integrate(t, s, 0.01, 0.24, Edges{Gaps: 2e-3}, flat(0, 101, 100), flat(150, 101, 100))
	closeTo(t, "a gap of a guessed length", gapLine(r), 2e-3*100, 1e-9)
	r = integrate(t, s, 0.16, 0.24, Edges{Gaps: 2e-3}, flat(0, 101, 100), flat(150, 101, 100))
	closeTo(t, "no gap at all", gapLine(r), 0, 1e-12)
}

func TestIntegratorRefuses(t *testing.T) {
	tb := timebases["uniform"]
	s, b := mixedSetup(tb), mixedBlock(tb, 1000, 8) // 50 ms
	nan := Seconds(math.NaN())
	for name, w := range map[string][2]Seconds{
		"empty": {1, 1}, "reversed": {2, 1}, "NaN start": {nan, 1}, "NaN end": {0, nan},
		"infinite": {0, Seconds(math.Inf(1))}, "infinite start": {Seconds(math.Inf(-1)), 1},
	} {
		if _, err := NewIntegrator(s, w[0], w[1]); !errors.Is(err, ErrWindow) {
			t.Errorf("%s: %v, want ErrWindow", name, err)
		}
	}
	for name, w := range map[string][2]Seconds{"late end": {0.01, 0.06}, "early start": {-0.01, 0.02}, "beyond": {1, 2}} {
		g, err := NewIntegrator(s, w[0], w[1])
		if err != nil {
			t.Fatal(err)
		}
		if _, err := g.Result(Edges{}); !errors.Is(err, ErrNoData) {
			t.Errorf("%s, before any block: %v, want ErrNoData", name, err)
		}
		if err := g.Add(&b); err != nil {
			t.Fatal(err)
		}
		if _, err := g.Result(Edges{}); !errors.Is(err, ErrNoData) {
			t.Errorf("%s: %v, want ErrNoData", name, err)
		}
	}
	for name, e := range map[string]Edges{"NaN": {UFrom: nan}, "negative": {UTo: -1}, "correlation": {Correlation: 1.1}, "NaN correlation": {Correlation: float64(nan)}} {
		g, _ := NewIntegrator(s, 0.01, 0.02)
		if err := g.Add(&b); err != nil {
			t.Fatal(err)
		}
		if _, err := g.Result(e); !errors.Is(err, ErrWindow) {
			t.Errorf("edges %s: %v, want ErrWindow", name, err)
		}
	}
	broken := mixedSetup(tb)
	broken.Rails[0].Shunt = 0
	if _, err := NewIntegrator(broken, 0, 1); err == nil {
		t.Error("a shunt of 0 Ω was taken")
	}
	if _, err := NewPowerMeter(broken); err == nil {
		t.Error("a shunt of 0 Ω was taken by the power meter")
	}
}

func TestIntegratorRefusesBlocks(t *testing.T) {
	tb := timebases["stamped"]
	s, b := mixedSetup(tb), mixedBlock(tb, 100, 9)
	fresh := func() *Integrator {
		g, err := NewIntegrator(s, 0.001, 0.02)
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	g := fresh()
	if err := g.Add(&b); err != nil {
		t.Fatal(err)
	}
	if err := g.Add(&b); !errors.Is(err, ErrOrder) {
		t.Errorf("the same block twice: %v, want ErrOrder", err)
	}
	back := b.Slice(tb, 0, 100)
	back.FirstScan = 100
	if err := g.Add(&back); !errors.Is(err, ErrOrder) {
		t.Errorf("time going back: %v, want ErrOrder", err)
	}
	mixed := mixedBlock(tb, 100, 9)
	mixed.Ticks[50] = mixed.Ticks[40]
	if err := fresh().Add(&mixed); !errors.Is(err, ErrOrder) {
		t.Errorf("stamps out of order: %v, want ErrOrder", err)
	}
	narrow := b
	narrow.Counts = b.Counts[:5]
	if err := fresh().Add(&narrow); !errors.Is(err, ErrShape) {
		t.Errorf("five channels of six: %v, want ErrShape", err)
	}
	if err := fresh().Add(&Block{Counts: make([][]Count, 6), Ticks: []int64{}}); err != nil {
		t.Errorf("an empty block: %v", err)
	}
}

// Within is within both uncertainties, whatever the meter may have missed; outside is
// outside of them whatever it has; anything else is undecided.
func TestAgainst(t *testing.T) {
	nan := Joule(math.NaN())
	for _, c := range []struct {
		name     string
		e, meter Estimate
		unseen   Joule
		want     Agreement
		word     string
	}{
		{"within the meter's", Estimate{98, 0}, Estimate{100, 2}, 0, Agrees, "within"},
		{"outside of the meter's", Estimate{97.9, 0}, Estimate{100, 2}, 0, Differs, "outside"},
		{"within both", Estimate{97.5, 1.5}, Estimate{100, 2}, 0, Agrees, "within"},
		{"outside of both", Estimate{97.49, 1.5}, Estimate{100, 2}, 0, Differs, "outside"},
		{"none of its own", Estimate{98, nan}, Estimate{100, 2}, 0, Agrees, "within"},
		{"no energy", Estimate{nan, 0}, Estimate{100, 2}, 0, Unknown, ""},
		{"a meter that cannot judge", Estimate{50, 0}, Estimate{100, nan}, 0, Unknown, ""},
		{"low, and the meter misses a rail", Estimate{90, 0}, Estimate{100, 2}, nan, Differs, "outside"},
		{"high, which the rail may be", Estimate{110, 0}, Estimate{100, 2}, nan, Unknown, ""},
		{"high, and more than the rail may be", Estimate{110, 0}, Estimate{100, 2}, 5, Differs, "outside"},
		{"near, with a rail of which nothing is known", Estimate{100, 0}, Estimate{100, 2}, nan, Unknown, ""},
		{"near, with a small rail", Estimate{100, 0}, Estimate{100, 2}, 1, Agrees, "within"},
	} {
		if got := c.e.Against(c.meter, c.unseen); got != c.want || got.Word() != c.word {
			t.Errorf("%s: %s, %q", c.name, got, got.Word())
		}
	}
}

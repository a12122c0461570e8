package measure

import (
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
)

// twoLevels is one clamp rail whose current is low before the middle and high
// behind it, with noise, drawn offsets and a drawn gain.
func twoLevels(rng *rand.Rand, low, high, gain, offset float64) (*Setup, Block) {
	s := &Setup{
		Timebase: Timebase{TickHz: 1e6, TicksPerScan: 100},
		Channels: []Channel{
			{Name: "i", Unit: UnitAmpere, Gain: 1e-3, UGain: 0.01, UOffset: 0.1, Noise: 0.02},
			{Name: "v", Unit: UnitVolt, Gain: 1e-3, UGain: 1e-3, UOffset: 1e-3, Noise: 1e-3},
		},
		Rails: []Rail{{Name: "r", Role: RolePSU, Wiring: WiringClamp, X: 0, Y: 1}},
	}
	b := Block{Counts: make([][]Count, 2)}
	for i := range 20001 {
		a := low
		if i >= 10000 {
			a = high
		}
		b.Counts[0] = append(b.Counts[0], Count(math.Round((a*(1+gain)+offset+0.02*rng.NormFloat64())*1e3)))
		b.Counts[1] = append(b.Counts[1], Count(math.Round((12+1e-3*rng.NormFloat64())*1e3)))
	}
	return s, b
}

// difference is the energy of the second window less that of the first.
func difference(t *testing.T, s *Setup, b Block, first, second Window) Combined {
	t.Helper()
	w, err := NewWindows(s, []Window{first, second})
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range split(s.Timebase, b, 700, 1, 4096) {
		if err := w.Add(&x); err != nil {
			t.Fatal(err)
		}
	}
	g := w.Integrators()
	c, err := Combine([]Part{{Window: g[0], Weight: -1}, {Window: g[1], Weight: 1}})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func lineOf(c Combined, source string) (u float64) {
	for _, l := range c.Budget {
		if l.Source == source {
			u += float64(l.U)
		}
	}
	return u
}

// What two windows share is subtracted before it is squared.
func TestDifferenceKeepsWhatIsNotShared(t *testing.T) {
	s, b := twoLevels(rand.New(rand.NewPCG(1, 2)), 10, 11, 0, 0)
	c := difference(t, s, b, Window{0.1, 0.9}, Window{1.1, 1.9})
	if e := float64(c.Energy.Energy); math.Abs(e-12*0.8) > 0.02 {
		t.Errorf("12 W for 0.8 s more: got %v", c.Energy.Energy)
	}
	// The offset of the current stands for the same time in both and cancels; the
	// gain is left with the difference's energy, the voltage's offset with its charge.
	if u := lineOf(c, "offset i"); u > 1e-4 {
		t.Errorf("the current's offset leaves %v J", u)
	}
	if u := lineOf(c, "gain i"); math.Abs(u/(0.01*9.6)-1) > 0.01 {
		t.Errorf("the current's gain makes %v J of 9.6 J, want 1 %%", u)
	}
	if u := lineOf(c, "offset v"); math.Abs(u/(1e-3*0.8)-1) > 0.01 {
		t.Errorf("the voltage's offset makes %v J, want 1 mV times 0.8 C", u)
	}
	// Noise of two windows adds by squares.
	if u, want := lineOf(c, "noise i"), 0.02*12*math.Sqrt(2*1e-4*0.8); math.Abs(u/want-1) > 0.02 {
		t.Errorf("noise %v J, want %v J", u, want)
	}
	// With unequal times the offset counts for the time between.
	c = difference(t, s, b, Window{0.1, 0.5}, Window{1.1, 1.9})
	if u, want := lineOf(c, "offset i"), 0.1*12*0.4; math.Abs(u/want-1) > 0.01 {
		t.Errorf("the offset makes %v J over 0.4 s more, want %v J", u, want)
	}
}

// One window with weight one is its result.
func TestOneWindowIsItself(t *testing.T) {
	s, b := twoLevels(rand.New(rand.NewPCG(3, 2)), 10, 11, 0, 0)
	e := Edges{UFrom: 1e-4, UTo: 2e-4, Correlation: 0.5}
	w, err := NewWindows(s, []Window{{0.2, 1.7}})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Add(&b); err != nil {
		t.Fatal(err)
	}
	c, err := Combine([]Part{{w.Integrators()[0], e, 1}})
	if err != nil {
		t.Fatal(err)
	}
	r := integrate(t, s, 0.2, 1.7, e, b)
	if math.Abs(float64(c.Energy.Energy-r.Total.Energy)) > 1e-9 || math.Abs(float64(c.Energy.U/r.Total.U-1)) > 1e-9 || len(c.Budget) != len(r.Budget) {
		t.Errorf("got %+v, want %+v", c.Energy, r.Total)
	}
}

// The true difference lies within U as often as k = 2 promises, though the gain
// alone would put either energy further off than the whole difference.
func TestTrueDifferenceLiesWithinU(t *testing.T) {
	const seeds = 300
	inside, squares := 0, 0.0
	for seed := range uint64(seeds) {
		rng := rand.New(rand.NewPCG(seed, 5))
		s, b := twoLevels(rng, 10, 10.2, 0.01*rng.NormFloat64(), 0.1*rng.NormFloat64())
		c := difference(t, s, b, Window{0.1, 0.9}, Window{1.1, 1.95})
		truth := 12 * (10.2*0.85 - 10*0.8)
		z := 2 * (float64(c.Energy.Energy) - truth) / float64(c.Energy.U)
		squares += z * z
		if math.Abs(z) <= 2 {
			inside++
		}
	}
	share := float64(inside) / seeds
	t.Logf("%.1f %%, errors %.2f standard uncertainties rms", 100*share, math.Sqrt(squares/seeds))
	if share < 0.92 || share > 0.98 {
		t.Errorf("the truth lies within U in %.1f %% of %d cases", 100*share, seeds)
	}
}

func TestScatterTakesThePlaceOfNoise(t *testing.T) {
	s, b := twoLevels(rand.New(rand.NewPCG(1, 2)), 10, 11, 0, 0)
	c := difference(t, s, b, Window{0.1, 0.9}, Window{1.1, 1.9}).WithScatter("scatter", 1, 4)
	if lineOf(c, "noise i") != 0 || lineOf(c, "scatter") != 1 || lineOf(c, "gain i") == 0 {
		t.Errorf("got %+v", c.Budget)
	}
	// Nearly all of it has four degrees of freedom.
	if k := FactorOf(c.Energy, c.Budget); k < 2.7 {
		t.Errorf("k = %v", k)
	}
}

func TestCombineRefuses(t *testing.T) {
	s, b := twoLevels(rand.New(rand.NewPCG(1, 2)), 10, 11, 0, 0)
	if _, err := Combine(nil); !errors.Is(err, ErrCombine) {
		t.Errorf("nothing: %v", err)
	}
	a, err := NewIntegrator(s, 0.1, 0.2)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Combine([]Part{{Window: a, Weight: 1}}); !errors.Is(err, ErrNoData) || !strings.Contains(err.Error(), "window 1") {
		t.Errorf("no data: %v", err)
	}
	other := *s
	other.Channels = append([]Channel(nil), s.Channels...)
	other.Channels[0].Gain *= 2
	z, err := NewIntegrator(&other, 0.1, 0.2)
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range []*Integrator{a, z} {
		if err := g.Add(&b); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Combine([]Part{{Window: a, Weight: 1}, {Window: z, Weight: 1}}); !errors.Is(err, ErrCombine) {
		t.Errorf("two setups: %v", err)
	}
	if _, err := NewWindows(s, []Window{{1, 2}, {0, 1}}); !errors.Is(err, ErrOrder) {
		t.Errorf("windows out of order: %v", err)
	}
	w, err := NewWindows(s, []Window{{0.1, 0.2}, {0.3, 0.4}})
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range split(s.Timebase, b, 512) {
		if err := w.Add(&x); err != nil {
			t.Fatal(err)
		}
	}
	if !w.Done() {
		t.Error("the windows are not done behind all data")
	}
}

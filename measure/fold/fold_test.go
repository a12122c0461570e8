package fold

import (
	"errors"
	"iter"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/wattmark/wattmark/measure"
)

// clamp is a bench of one clamp rail at 20 kS/s.
func clamp() *measure.Setup {
	return &measure.Setup{
		Timebase: measure.Timebase{TickHz: 1e6, TicksPerScan: 50},
		Channels: []measure.Channel{
			{Name: "i", Unit: measure.UnitAmpere, Gain: 1e-3, UGain: 0.01, UOffset: 0.1},
			{Name: "v", Unit: measure.UnitVolt, Gain: 1e-3, UGain: 1e-3, UOffset: 1e-3},
		},
		Rails: []measure.Rail{{Name: "r", Role: measure.RolePSU, Wiring: measure.WiringClamp, X: 0, Y: 1}},
	}
}

// trace samples a power on the bench, in blocks.
func trace(seconds float64, power func(t float64) float64) iter.Seq2[*measure.Block, error] {
	return func(yield func(*measure.Block, error) bool) {
		rng := rand.New(rand.NewPCG(9, 9))
		b := measure.Block{Counts: make([][]measure.Count, 2)}
		n := int(seconds * 20e3)
		for i := 0; i < n; i += 1000 {
			b.FirstScan, b.FirstTick = uint64(i), int64(i)*50
			b.Counts[0], b.Counts[1] = b.Counts[0][:0], b.Counts[1][:0]
			for k := range 1000 {
				a := power(float64(i+k)*50e-6)/12 + 0.02*rng.NormFloat64()
				b.Counts[0] = append(b.Counts[0], measure.Count(math.Round(a*1e3)))
				b.Counts[1] = append(b.Counts[1], 12000)
			}
			if !yield(&b, nil) {
				return
			}
		}
	}
}

// launches are n, 1 to 1.1 ms apart.
func launches(n int) (out []measure.Seconds) {
	rng := rand.New(rand.NewPCG(4, 4))
	t := 0.002
	for range n {
		out = append(out, measure.Seconds(t))
		t += 1e-3 + 1e-4*rng.Float64()
	}
	return out
}

// A kernel of 100 W more for 30 µs, less than a scan.
func TestFoldFindsAPulseBetweenTwoScans(t *testing.T) {
	const pulse = 30e-6
	starts := launches(3000)
	at := 0
	f, err := New(clamp(), Config{Starts: starts, Length: pulse, Before: 200e-6, After: 300e-6, Settle: 20e-6, Bins: 106, UClock: 1e-6})
	if err != nil {
		t.Fatal(err)
	}
	for b := range trace(3.3, func(t float64) float64 {
		for at+1 < len(starts) && t >= float64(starts[at+1]) {
			at++
		}
		if d := t - float64(starts[at]); d >= 0 && d < pulse {
			return 300
		}
		return 200
	}) {
		if err := f.Add(b); err != nil {
			t.Fatal(err)
		}
	}
	p, err := f.Profile()
	if err != nil {
		t.Fatal(err)
	}
	if d := math.Abs(float64(p.Above.Energy) - 100*pulse); d > float64(p.Above.U) || d > 0.03*100*pulse {
		t.Errorf("above: %v ± %v, want 3 mJ", p.Above.Energy, p.Above.U)
	}
	if d := math.Abs(float64(p.Whole.Energy) - 300*pulse); d > float64(p.Whole.U) {
		t.Errorf("whole: %v ± %v, want 9 mJ", p.Whole.Energy, p.Whole.U)
	}
	if math.Abs(float64(p.Level)-200) > 0.1 || p.Launches < 1000 {
		t.Errorf("level %v, %d launches", p.Level, p.Launches)
	}
	for _, b := range p.Bins {
		want := 200.0
		if b.At > 0 && b.At < pulse {
			want = 300
		}
		if d := math.Abs(float64(b.Power) - want); d > 4*float64(b.U)+0.5 {
			t.Errorf("at %v: %v ± %v, want %v W", b.At, b.Power, b.U, want)
		}
	}
	// A current's offset stands before the launch too: above the level it is gone.
	for _, c := range p.AboveBudget {
		if c.Source == "offset i" && c.U > 1e-7 {
			t.Errorf("above: the offset leaves %v", c.U)
		}
		if want := 0.01 * float64(p.Above.Energy); c.Source == "gain i" && math.Abs(float64(c.U)/want-1) > 0.01 {
			t.Errorf("above: the gain makes %v, want %v", c.U, want)
		}
	}
	for _, c := range p.WholeBudget {
		if want := 0.1 * 12 * pulse; c.Source == "offset i" && math.Abs(float64(c.U)/want-1) > 0.01 {
			t.Errorf("whole: the offset makes %v, want %v", c.U, want)
		}
	}
}

func TestFoldRefuses(t *testing.T) {
	good := Config{Starts: launches(10), Length: 1e-4, Before: 1e-4, After: 3e-4, Settle: 1e-4}
	for name, change := range map[string]func(*Config){
		"one launch":   func(c *Config) { c.Starts = c.Starts[:1] },
		"out of order": func(c *Config) { c.Starts = []measure.Seconds{2, 1} },
		"no length":    func(c *Config) { c.Length = 0 },
		"no level":     func(c *Config) { c.Settle = c.After },
		"NaN":          func(c *Config) { c.Before = measure.Seconds(math.NaN()) },
		"many bins":    func(c *Config) { c.Bins = 1 << 20 },
		"negative u":   func(c *Config) { c.UClock = -1 },
	} {
		c := good
		change(&c)
		if _, err := New(clamp(), c); !errors.Is(err, ErrFold) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// Launches that keep step with the scans leave bins empty, and it says so.
	var step []measure.Seconds
	for i := range 500 {
		step = append(step, measure.Seconds(i+1)*1e-3)
	}
	good.Starts = step
	f, err := New(clamp(), good)
	if err != nil {
		t.Fatal(err)
	}
	for b := range trace(0.6, func(float64) float64 { return 200 }) {
		if err := f.Add(b); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := f.Profile(); !errors.Is(err, ErrFold) {
		t.Errorf("launches in step with the scans: %v", err)
	}
}

func BenchmarkFold(b *testing.B) {
	f, err := New(clamp(), Config{Starts: launches(3000), Length: 30e-6, Before: 200e-6, After: 300e-6, Settle: 20e-6})
	if err != nil {
		b.Fatal(err)
	}
	var blocks []measure.Block
	for x := range trace(1, func(float64) float64 { return 200 }) {
		c := x.Slice(clamp().Timebase, 0, x.Scans())
		c.Counts = [][]measure.Count{append([]measure.Count(nil), x.Counts[0]...), append([]measure.Count(nil), x.Counts[1]...)}
		blocks = append(blocks, c)
	}
	scans := 0
	b.ReportAllocs()
	for b.Loop() {
		f.at = 0
		for i := range blocks {
			if err := f.Add(&blocks[i]); err != nil {
				b.Fatal(err)
			}
			scans += blocks[i].Scans()
		}
	}
	b.ReportMetric(float64(scans)/b.Elapsed().Seconds(), "scans/s")
}

// phases alternate; a drift that no straight line follows is taken out.
func TestContrastTakesDriftOut(t *testing.T) {
	var phases []Phase
	const length, per, e = 0.1, 100, 0.004
	for i := range 16 {
		p := Phase{Window: measure.Window{From: measure.Seconds(0.05 + length*float64(i)), To: measure.Seconds(0.05 + length*float64(i+1))}, Carrier: length}
		if k := i % 4; k == 1 || k == 2 {
			p.Inserted = per
		}
		phases = append(phases, p)
	}
	d, err := Contrast(clamp(), phases, trace(2, func(t float64) float64 {
		w := 200 + 8*(t-0.8) + 3*t*t
		if i := int((t - 0.05) / length); t > 0.05 && i < 16 && phases[i].Inserted > 0 {
			w += per * e / length
		}
		return w
	}))
	if err != nil {
		t.Fatal(err)
	}
	if off := math.Abs(float64(d.Energy.Energy) - e); off > float64(d.Energy.U) || off > 0.01*e {
		t.Errorf("%v ± %v, want 4 mJ", d.Energy.Energy, d.Energy.U)
	}
	if d.DOF != 11 || d.Inserted != 8*per || math.Abs(float64(d.Carrier)-202.9) > 3 {
		t.Errorf("got %+v", d)
	}
	for name, bad := range map[string][]Phase{
		"none": nil, "plain alone": make([]Phase, 8), "few": phases[:4],
	} {
		if _, err := Contrast(clamp(), bad, trace(2, func(float64) float64 { return 1 })); !errors.Is(err, ErrPhases) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Contrast(clamp(), phases, trace(1, func(float64) float64 { return 1 })); !errors.Is(err, measure.ErrNoData) {
		t.Errorf("data that ends early: %v", err)
	}
}

package checkup

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/chunk"
)

// bench is a slot with both supplies, by clamps, and a shunt for the plug.
func bench() measure.Setup {
	volt := func(name string) measure.Channel {
		return measure.Channel{Name: name, Unit: measure.UnitVolt, Gain: 0.001, UGain: 1e-3, UOffset: 2e-3, Noise: 2e-3, MinCount: -32768, MaxCount: 32767}
	}
	ampere := func(name string) measure.Channel {
		return measure.Channel{Name: name, Unit: measure.UnitAmpere, Gain: 0.01, UGain: 1e-2, UOffset: 0.02, Noise: 0.02, MinCount: -2048, MaxCount: 2047}
	}
	sense := func(name string) measure.Channel {
		c := volt(name)
		c.UGain, c.UOffset, c.Noise = 1e-5, 1e-4, 0
		return c
	}
	return measure.Setup{
		Timebase: measure.Timebase{TickHz: 1e6, UTickHz: 1e-5, TicksPerScan: 100},
		Channels: []measure.Channel{ampere("i3"), volt("v3"), ampere("i12"), volt("v12"), sense("s"), sense("g")},
		Rails: []measure.Rail{
			{Name: "pcie_3v3", Role: measure.RolePCIe3V3, Wiring: measure.WiringClamp, X: 0, Y: 1},
			{Name: "pcie_12v", Role: measure.RolePCIe12V, Wiring: measure.WiringClamp, X: 2, Y: 3},
			{Name: "aux_12v_1", Role: measure.RolePSU, Wiring: measure.WiringShunt, X: 4, Y: 5, Shunt: 0.005, UShunt: 1e-3},
		},
	}
}

// readings are the true values of the bench's channels, noise apart.
func readings() []float64 { return []float64{1, 3.31, 4, 12.1, 12.05, 12.0} }

// look surveys n scans of values in blocks of 100, 10 ms apart by the host.
func look(t *testing.T, s measure.Setup, values []float64, n int, between func(*Survey, int)) *Result {
	t.Helper()
	v, err := New(&s)
	if err != nil {
		t.Fatal(err)
	}
	at := time.Unix(0, 0)
	v.now = func() time.Time { return at }
	rng := rand.New(rand.NewPCG(1, 2))
	scan := uint64(0)
	for done := 0; done < n; done += 100 {
		if between != nil {
			between(v, done)
		}
		b := measure.Block{FirstScan: scan, FirstTick: int64(scan) * 100, Counts: make([][]measure.Count, len(values))}
		for range 100 {
			for c, value := range values {
				ch := s.Channels[c]
				count := math.Round((value-ch.Offset)/ch.Gain + rng.NormFloat64())
				b.Counts[c] = append(b.Counts[c], measure.Count(max(float64(ch.MinCount), min(float64(ch.MaxCount), count))))
			}
		}
		if err := v.Block(&b); err != nil {
			t.Fatal(err)
		}
		scan += 100
		at = at.Add(10*time.Millisecond + time.Duration(rng.IntN(1000))*time.Nanosecond)
	}
	return v.Result()
}

// faults are the findings of a level and above, as text.
func faults(r *Result, l Level) string {
	var b strings.Builder
	for _, f := range Findings(r) {
		if f.Level >= l {
			b.WriteString(f.Subject + ": " + f.Text + " → " + f.Remedy + "\n")
		}
	}
	return b.String()
}

func TestSoundBenchIsFine(t *testing.T) {
	r := look(t, bench(), readings(), 20000, nil)
	if f := faults(r, Warning); f != "" {
		t.Error(f)
	}
	if got := r.Rails[2].Power.Mean; math.Abs(got-120) > 0.1 {
		t.Errorf("12 V at 10 A are %v W", got)
	}
	if r.Scans != 20000 || math.Abs(float64(r.Duration)-1.9999) > 1e-6 {
		t.Errorf("%d scans in %v", r.Scans, r.Duration)
	}
	if off := float64(r.Rate)/10000 - 1; math.Abs(off) > 6e-5 {
		t.Errorf("a rate of %v, %.0f ppm off", r.Rate, 1e6*off)
	}
	floor, ok := r.Channels[0].Floor()
	if scan := r.Channels[0].Noise[0].Dev; math.Abs(scan/0.0104-1) > 0.05 || !ok || floor.Best.Dev > scan/10 {
		t.Errorf("noise of %v a scan, floor %+v", scan, floor)
	}
}

func TestWiringFaultsAreNamed(t *testing.T) {
	for name, c := range map[string]struct {
		change func(v []float64)
		want   []string
	}{
		"clamp reversed":   {func(v []float64) { v[0] = -1 }, []string{"pcie_3v3: -", "wrong polarity: turn the clamp round"}},
		"shunt reversed":   {func(v []float64) { v[4], v[5] = v[5], v[4] }, []string{"aux_12v_1: -", "source and ground side of the shunt"}},
		"probe reversed":   {func(v []float64) { v[3] = -v[3] }, []string{"pcie_12v: reads -12.1 V", "swap the two leads"}},
		"rails swapped":    {func(v []float64) { v[1], v[3] = v[3], v[1] }, []string{"swapped with pcie_12v, which reads 3.31 V", "swapped with pcie_3v3"}},
		"another's probe":  {func(v []float64) { v[1] = 12.1 }, []string{"pcie_3v3: reads 12.1 V", "a supply of 12 V"}},
		"no supply":        {func(v []float64) { v[3] = 0.01 }, []string{"no voltage: is the machine on"}},
		"wrong divider":    {func(v []float64) { v[3] = 6 }, []string{"pcie_12v: reads 6 V", "check divider"}},
		"clamp over range": {func(v []float64) { v[2] = 30 }, []string{"i12: clipped", "times at +20.47 A", "choose a larger range"}},
	} {
		t.Run(name, func(t *testing.T) {
			v := readings()
			c.change(v)
			f := faults(look(t, bench(), v, 5000, nil), Fault)
			for _, want := range c.want {
				if !strings.Contains(f, want) {
					t.Errorf("no %q among\n%s", want, f)
				}
			}
		})
	}
}

func TestNoiseAboveWhatIsStated(t *testing.T) {
	s := bench()
	s.Channels[1].Noise = 1e-4
	if f := faults(look(t, s, readings(), 5000, nil), Warning); !strings.Contains(f, "v3: scatters by 0.00104 V") {
		t.Errorf("%q: want v3's noise", f)
	}
}

func TestLossesAreCounted(t *testing.T) {
	r := look(t, bench(), readings(), 5000, func(v *Survey, done int) {
		if done == 2000 || done == 3000 {
			_ = v.Event(measure.Event{Kind: measure.EventGap, FirstScan: 7, Scans: 40, Exact: done == 2000, Detail: "buffer overwritten"})
			_ = v.Event(measure.Event{Kind: measure.EventResync, Detail: "3 bytes skipped"})
		}
	})
	f := faults(r, Warning)
	if !strings.Contains(f, "2 gaps, about 80 scans lost of 5080: buffer overwritten") || !strings.Contains(f, "2 × resync") {
		t.Error(f)
	}
}

func TestRateThatIsNotReached(t *testing.T) {
	s := bench()
	s.Timebase.TicksPerScan = 90
	if f := faults(look(t, s, readings(), 20000, nil), Fault); !strings.Contains(f, "at another rate") {
		t.Errorf("%q: want the rate", f)
	}
	s.Timebase.TicksPerScan = 100.05 // 500 ppm
	if f := faults(look(t, s, readings(), 20000, nil), Warning); !strings.Contains(f, "+500") && !strings.Contains(f, "+4") {
		t.Errorf("%q: want some 450 ppm", f)
	}
}

// unevenly surveys n blocks of 100 scans, 10 ms each, that arrive late milliseconds apart, again and again.
func unevenly(t *testing.T, n int, late ...time.Duration) *Result {
	t.Helper()
	s := bench()
	v, err := New(&s)
	if err != nil {
		t.Fatal(err)
	}
	at := time.Unix(0, 0)
	v.now = func() time.Time { return at }
	block := measure.Block{Counts: make([][]measure.Count, len(s.Channels))}
	for c := range block.Counts {
		block.Counts[c] = make([]measure.Count, 100)
	}
	for i := range n {
		at = at.Add(late[i%len(late)] * time.Millisecond)
		block.FirstScan, block.FirstTick = uint64(i)*100, int64(i)*10000
		if err := v.Block(&block); err != nil {
			t.Fatal(err)
		}
	}
	return v.Result()
}

// Blocks that a busy machine reads late say nothing about the instrument's rate. A rate that is
// evidently another one is a fault all the same.
func TestUnevenArrivalIsNoFaultOfTheInstrument(t *testing.T) {
	r := unevenly(t, 16, 10, 10, 10, 10, 10, 10, 10, 10, 300, 5, 2, 2, 2, 2, 2, 2) // a machine that stood still, and caught up
	if f := faults(r, Warning); strings.Contains(f, "at another rate") || !strings.Contains(f, "unevenly") {
		t.Errorf("%v ± %v: %s", r.Rate, r.URate, f)
	}
	r = unevenly(t, 40, 5, 5, 70, 10, 10) // half of the rate, in bursts
	if f := faults(r, Fault); 2*r.URate < 100 || !strings.Contains(f, "at another rate") {
		t.Errorf("%v ± %v: %s", r.Rate, r.URate, f)
	}
}

func TestWorkIsNoNoise(t *testing.T) {
	v := readings()
	r := look(t, bench(), v, 5000, func(_ *Survey, done int) { v[2] = 4 + float64(done/1000) })
	if f := faults(r, Note); !strings.Contains(f, "i12: was not at rest: it moved between 3.9") || strings.Contains(f, "i3: was not") {
		t.Error(f)
	}
}

func TestNothingDelivered(t *testing.T) {
	s := bench()
	v, err := New(&s)
	if err != nil {
		t.Fatal(err)
	}
	if f := Findings(v.Result()); len(f) != 1 || f[0].Level != Fault {
		t.Errorf("%+v", f)
	}
}

func TestDeadChannelAndMissingRailsAreNoted(t *testing.T) {
	s := bench()
	s.Missing = []string{"aux_12v_2"}
	r := look(t, s, readings(), 2000, nil)
	r.Channels[0].Least = r.Channels[0].Most
	f := faults(r, Note)
	for _, want := range []string{"i3: reads 1 A all the time", "not measured: aux_12v_2"} {
		if !strings.Contains(f, want) {
			t.Errorf("no %q among\n%s", want, f)
		}
	}
}

func TestRecentBeginsAnew(t *testing.T) {
	s := bench()
	v, err := New(&s)
	if err != nil {
		t.Fatal(err)
	}
	b := measure.Block{Counts: [][]measure.Count{{100}, {3300}, {400}, {12000}, {12050}, {12000}}}
	if err := v.Block(&b); err != nil {
		t.Fatal(err)
	}
	first, second := v.Recent(), v.Recent()
	if first[0].Power.N != 1 || math.Abs(first[0].Power.Mean-3.3) > 1e-9 || second[0].Power.N != 0 {
		t.Errorf("%+v, then %+v", first[0].Power, second[0].Power)
	}
}

// A survey allocates nothing a scan, and its memory is flat.
func TestSurveyDoesNotAllocate(t *testing.T) {
	s := bench()
	v, err := New(&s)
	if err != nil {
		t.Fatal(err)
	}
	b := measure.Block{Counts: make([][]measure.Count, len(s.Channels))}
	for c := range b.Counts {
		b.Counts[c] = slices.Repeat([]measure.Count{1}, 1000)
	}
	if n := testing.AllocsPerRun(20, func() {
		if err := v.Block(&b); err != nil {
			t.Fatal(err)
		}
	}); n > 0 {
		t.Errorf("%v allocations a block", n)
	}
}

func BenchmarkSurvey(b *testing.B) {
	s := bench()
	v, err := New(&s)
	if err != nil {
		b.Fatal(err)
	}
	block := measure.Block{Counts: make([][]measure.Count, len(s.Channels))}
	for c := range block.Counts {
		block.Counts[c] = slices.Repeat([]measure.Count{1}, 1000)
	}
	b.ReportAllocs()
	for b.Loop() {
		if err := v.Block(&block); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(1000*float64(b.N)/b.Elapsed().Seconds(), "scans/s")
}

// Blocks that were held back and come at once do not look like a fast instrument.
func TestHeldBackBlocks(t *testing.T) {
	s := bench()
	v, err := New(&s)
	if err != nil {
		t.Fatal(err)
	}
	const n, held = 200, 100 // blocks
	counts := make([][]measure.Count, len(s.Channels))
	for c := range counts {
		counts[c] = make([]measure.Count, 100)
	}
	for i := range n {
		b := measure.Block{FirstScan: uint64(i) * 100, FirstTick: int64(i) * 10_000, Counts: counts}
		at := time.Unix(0, 0).Add(time.Duration(i) * 10 * time.Millisecond)
		v.now = func() time.Time { return time.Unix(0, 0).Add(time.Duration(max(i, held)) * 10 * time.Millisecond) }
		if err := v.BlockAt(&b, at); err != nil {
			t.Fatal(err)
		}
	}
	if r := v.Result(); math.Abs(float64(r.Rate)-10e3) > 1 {
		t.Errorf("%v, want 10 kS/s", r.Rate)
	}
}

// What a rail's voltage shows of the wiring is an event of a recording, but for rails to which nothing is connected.
func TestSupplyEvents(t *testing.T) {
	for name, c := range map[string]struct {
		change func(v []float64)
		want   []string
	}{
		"sound":            {func([]float64) {}, nil},
		"nothing there":    {func(v []float64) { v[2], v[3] = 0.02, 0.01 }, nil},
		"probe fell off":   {func(v []float64) { v[3] = 0.01 }, []string{"pcie_12v reads 10 mV, a supply of 12 V; no voltage"}},
		"rails swapped":    {func(v []float64) { v[1], v[3] = v[3], v[1] }, []string{"pcie_3v3 reads", "pcie_12v reads 3.31 V, a supply of 12 V; swapped with pcie_3v3"}},
		"another's cable":  {func(v []float64) { v[4], v[5] = 54.05, 54 }, []string{"aux_12v_1 reads 54 V, a supply of 12 V"}},
		"half the voltage": {func(v []float64) { v[1] = 1.655 }, []string{"pcie_3v3 reads 1.655 V, a supply of 3.3 V; outside of ± 9 %"}},
	} {
		t.Run(name, func(t *testing.T) {
			s, v := bench(), readings()
			c.change(v)
			enc, err := chunk.NewEncoder(s.Timebase, len(v), 10)
			if err != nil {
				t.Fatal(err)
			}
			b := measure.Block{FirstScan: 7, FirstTick: 700}
			for i, ch := range s.Channels {
				count := measure.Count(math.Round((v[i] - ch.Offset) / ch.Gain))
				b.Counts = append(b.Counts, slices.Repeat([]measure.Count{count}, 10))
			}
			if _, err := enc.Append(&b); err != nil {
				t.Fatal(err)
			}
			got, err := SupplyEvents(&s, enc.Flush(0))
			if err != nil || len(got) != len(c.want) {
				t.Fatalf("%+v, %v; want %q", got, err, c.want)
			}
			for i, e := range got {
				if e.Kind != measure.EventSupply || e.FirstScan != 0 || !strings.Contains(e.Detail, c.want[i]) {
					t.Errorf("%+v; want %q", e, c.want[i])
				}
			}
		})
	}
}

// A cable whose name claims no voltage may have more than 12 V.
func TestSupplyOfABoard(t *testing.T) {
	s := bench()
	s.Rails[2].Name = "board"
	for v, want := range map[measure.Volt]Level{54: Fine, 12.1: Fine, 3.31: Fault, -12: Fault, 0: Fault} {
		if f := Supplies(&s, []measure.Volt{3.3, 12, v}); f[2].Level != want {
			t.Errorf("%v: %+v, want %v", v, f[2], want)
		}
	}
}

package measure

import (
	"math"
	"strings"
	"testing"
)

func TestPowerMeter(t *testing.T) {
	tb := timebases["uniform"]
	s, b := mixedSetup(tb), mixedBlock(tb, 1000, 1)
	m, err := NewPowerMeter(s)
	if err != nil {
		t.Fatal(err)
	}
	value := func(channel, i int) float64 { return s.Channels[channel].Value(b.Counts[channel][i]) }
	total := m.Total(&b, nil)
	var cols [4]Columns
	for r := range cols {
		m.Rail(r, &b, &cols[r])
	}
	if len(cols[3].I) != 0 || len(cols[3].V) != 0 {
		t.Error("a rail that reads watts has a current or a voltage")
	}
	for i := range total {
		amp := []float64{(value(0, i) - value(1, i)) / 0.005, value(3, i), value(4, i)}
		volt := []float64{value(1, i), value(2, i), 12}
		sum := value(5, i)
		closeTo(t, "watts", float64(cols[3].P[i]), sum, 1e-12)
		for r := range amp {
			closeTo(t, s.Rails[r].Name+" A", float64(cols[r].I[i]), amp[r], 1e-10)
			closeTo(t, s.Rails[r].Name+" V", float64(cols[r].V[i]), volt[r], 1e-12)
			closeTo(t, s.Rails[r].Name+" W", float64(cols[r].P[i]), amp[r]*volt[r], 1e-10)
			sum += amp[r] * volt[r]
		}
		closeTo(t, "total", float64(total[i]), sum, 1e-10)
	}
}

func TestHotPathsDoNotAllocate(t *testing.T) {
	for name, skew := range map[string]Seconds{"uniform": 0, "stamped": 0, "multiplexed": 3e-6, "multiplexed, stamped": 3e-6} {
		tb := timebases["uniform"]
		if strings.HasSuffix(name, "stamped") {
			tb = timebases["stamped"]
		}
		s, b := mixedSetup(tb), mixedBlock(tb, 4096, 1)
		for i := range s.Channels {
			s.Channels[i].Skew = Seconds(i) * skew
		}
		m, err := NewPowerMeter(s)
		if err != nil {
			t.Fatal(err)
		}
		total, cols := m.Total(&b, nil), Columns{}
		m.Rail(0, &b, &cols)
		if n := testing.AllocsPerRun(10, func() { total = m.Total(&b, total); m.Rail(0, &b, &cols); m.Rail(3, &b, &cols); m.Rail(0, &b, &cols) }); n != 0 {
			t.Errorf("%s: the power meter allocates %v times a block", name, n)
		}
		g, err := NewIntegrator(s, 0, 1e6)
		if err != nil {
			t.Fatal(err)
		}
		if n := testing.AllocsPerRun(50, func() {
			if err := g.Add(&b); err != nil {
				t.Fatal(err)
			}
			advance(tb, &b)
		}); n != 0 {
			t.Errorf("%s: the integrator allocates %v times a block", name, n)
		}
		p, err := NewPowerStream(s, func(*Powers) error { return nil })
		if err != nil {
			t.Fatal(err)
		}
		if n := testing.AllocsPerRun(50, func() {
			if err := p.Add(&b); err != nil {
				t.Fatal(err)
			}
			advance(tb, &b)
		}); n > 4 { // a few a block, none a scan
			t.Errorf("%s: the power stream allocates %v times a block", name, n)
		}
	}
}

// advance moves a block behind itself, to be added again.
func advance(tb Timebase, b *Block) {
	n := b.Scans()
	b.FirstScan += uint64(n)
	if !tb.Stamped {
		b.FirstTick = int64(math.Floor(float64(b.FirstScan) * tb.TicksPerScan))
		return
	}
	step := b.Ticks[n-1] - b.Ticks[0] + int64(tb.TicksPerScan)
	for i := range b.Ticks {
		b.Ticks[i] += step
	}
	b.FirstTick = b.Ticks[0]
}

// benchBench is three clamp rails on six channels, the bench of the published
// figures for storage and streaming.
func benchBench(tb Timebase) (*Setup, Block) {
	s, b := &Setup{Timebase: tb}, mixedBlock(tb, 16384, 1)
	for r, name := range []string{"a", "b", "c"} {
		s.Channels = append(s.Channels, Channel{Name: name + ".i", Unit: UnitAmpere, Gain: 1e-3}, Channel{Name: name + ".v", Unit: UnitVolt, Gain: 3e-4})
		s.Rails = append(s.Rails, Rail{Name: name, Role: RolePSU, Wiring: WiringClamp, X: 2 * r, Y: 2*r + 1})
	}
	return s, b
}

func BenchmarkPowerTotal(b *testing.B) {
	s, block := benchBench(timebases["uniform"])
	m, err := NewPowerMeter(s)
	if err != nil {
		b.Fatal(err)
	}
	var total []Watt
	b.ReportAllocs()
	for b.Loop() {
		total = m.Total(&block, total)
	}
	b.ReportMetric(float64(b.N)*float64(block.Scans())/b.Elapsed().Seconds()/1e6, "MS/s")
}

func BenchmarkIntegrate(b *testing.B) {
	for _, c := range []struct {
		name, timebase string
		skew           Seconds // from one channel to the next
		common         Seconds
	}{{"uniform", "uniform", 0, 0}, {"equal skews", "uniform", 0, 1e-6}, {"multiplexed", "uniform", 1e-6, 0}, {"stamped", "stamped", 0, 0}} {
		b.Run(c.name, func(b *testing.B) {
			tb := timebases[c.timebase]
			s, block := benchBench(tb)
			for i := range s.Channels {
				s.Channels[i].Skew = c.common + Seconds(i)*c.skew
			}
			g, err := NewIntegrator(s, 0, 1e9)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				if err := g.Add(&block); err != nil {
					b.Fatal(err)
				}
				advance(tb, &block)
			}
			b.ReportMetric(float64(b.N)*float64(block.Scans())/b.Elapsed().Seconds()/1e6, "MS/s")
		})
	}
}

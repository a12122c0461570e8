package marker

import (
	"math/rand/v2"
	"testing"

	"github.com/wattmark/wattmark/measure"
)

// benchSetup is three clamp rails on six channels.
func benchSetup(rate float64) *measure.Setup {
	s := &measure.Setup{Timebase: measure.Timebase{TickHz: measure.Hertz(rate), TicksPerScan: 1}}
	for i, name := range []string{"a", "b", "c"} {
		s.Channels = append(s.Channels,
			measure.Channel{Name: name + ".i", Unit: measure.UnitAmpere, Gain: 1e-3},
			measure.Channel{Name: name + ".v", Unit: measure.UnitVolt, Gain: 1e-3})
		s.Rails = append(s.Rails, measure.Rail{Name: name, Role: measure.RolePSU, Wiring: measure.WiringClamp, X: 2 * i, Y: 2*i + 1})
	}
	return s
}

func benchmarkPush(b *testing.B, rate float64) {
	setup := benchSetup(rate)
	d, err := NewDetector(ProfileFor(*setup, 1), setup)
	if err != nil {
		b.Fatal(err)
	}
	const n = 1 << 16
	rng := rand.New(rand.NewPCG(1, 2))
	blk := measure.Block{Counts: make([][]measure.Count, 6)}
	for c := range blk.Counts {
		blk.Counts[c] = make([]measure.Count, n)
		for i := range n {
			blk.Counts[c][i] = 5000 + measure.Count(rng.IntN(9))
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		if err := d.Push(&blk); err != nil {
			b.Fatal(err)
		}
		blk.FirstScan += n
		blk.FirstTick += n
	}
	b.ReportMetric(float64(b.N)*n/b.Elapsed().Seconds()/1e6, "Mscans/s")
}

func BenchmarkPush20kHz(b *testing.B) { benchmarkPush(b, 20e3) }
func BenchmarkPush1MHz(b *testing.B)  { benchmarkPush(b, 1e6) }
func BenchmarkPush30MHz(b *testing.B) { benchmarkPush(b, 30e6) }

// BenchmarkFinish is the time from the last sample to the marker: its search,
// fit and report, with the capture cut right behind the marker.
func BenchmarkFinish(b *testing.B) {
	for _, tc := range []struct {
		name string
		sim  sim
	}{
		{"4.8kHz", sim{rate: 4785, tau: 0.3e-3, noise: 2}},
		{"4.8kHz 0 dB", sim{rate: 4785, tau: 0.3e-3, noise: 100}},
		{"100kHz", sim{rate: 100e3, tau: 0.3e-3, noise: 2}},
	} {
		b.Run(tc.name, func(b *testing.B) {
			setup := tc.sim.setup()
			spec := ProfileFor(*setup, 3)
			levels, _, end := play([]level{{0, 50}}, spec, Stop, 0.3, 60, 160)
			blk := tc.sim.run(levels, end, newRand(1))
			for b.Loop() {
				b.StopTimer()
				d, err := NewDetector(spec, setup)
				if err != nil {
					b.Fatal(err)
				}
				if err := d.Push(&blk); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
				if err := d.Finish(); err != nil || len(d.Found()) != 1 {
					b.Fatal(err, d.Found())
				}
			}
		})
	}
}

func BenchmarkFinishSensor(b *testing.B) {
	s := sensorSim{window: 25e-3, period: 0.1, noise: 1, poll: 4e-3}
	setup := s.setup()
	spec := ProfileFor(*setup, 3)
	levels, _, end := play([]level{{0, 136}}, spec, Stop, 1, 136, 450)
	blk := s.run(levels, end+0.3, newRand(1))
	for b.Loop() {
		b.StopTimer()
		d, err := NewDetector(spec, setup)
		if err != nil {
			b.Fatal(err)
		}
		if err := d.Push(&blk); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
		if err := d.Finish(); err != nil || len(d.Found()) != 1 {
			b.Fatal(err, d.Found())
		}
	}
}

package measure_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/wattmark/wattmark/measure"
)

// The extremes of a run are those of its scans' powers.
func TestExtremesAreThePowers(t *testing.T) {
	channels := []measure.Channel{
		{Name: "a", Unit: measure.UnitAmpere, Gain: 0.002, Offset: -3, MinCount: 0, MaxCount: 65535},
		{Name: "b", Unit: measure.UnitVolt, Gain: 0.0005, Offset: 0.1, MinCount: 0, MaxCount: 65535},
		{Name: "c", Unit: measure.UnitWatt, Gain: 0.01, MinCount: 0, MaxCount: 65535},
	}
	s := measure.Setup{
		Timebase: measure.Timebase{TickHz: 1e6, TicksPerScan: 10}, Channels: channels,
		Rails: []measure.Rail{{Name: "clamp", Role: measure.RolePSU, Wiring: measure.WiringClamp, X: 0, Y: 1}, {Name: "watts", Role: measure.RolePSU, Wiring: measure.WiringPower, X: 2, Y: -1}},
	}
	m, err := measure.NewPowerMeter(&s)
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 7))
	b := measure.Block{Counts: make([][]measure.Count, 3)}
	for range 500 {
		for c := range b.Counts {
			b.Counts[c] = append(b.Counts[c], measure.Count(rng.IntN(65536)))
		}
	}
	var rails [2]measure.Columns
	for r := range rails {
		m.Rail(r, &b, &rails[r])
	}
	all := [][]measure.Watt{rails[0].P, rails[1].P, m.Total(&b, nil)}
	for range 200 {
		from := rng.IntN(499)
		to := min(500, from+1+rng.IntN(measure.RunScans))
		got := make([]measure.Extreme, 2+rng.IntN(2))
		m.Extremes(b.Counts, from, to, got)
		for r, e := range got {
			lo, hi, sum := measure.Watt(math.Inf(1)), measure.Watt(math.Inf(-1)), 0.0
			for _, w := range all[r][from:to] {
				lo, hi, sum = min(lo, w), max(hi, w), sum+float64(w)
			}
			const tiny = 1e-9
			if math.Abs(float64(e.Min-lo)) > tiny || math.Abs(float64(e.Max-hi)) > tiny || math.Abs(e.Sum-sum) > tiny {
				t.Fatalf("rail %d over %d to %d: %+v, want %v to %v, sum %v", r, from, to, e, lo, hi, sum)
			}
		}
	}
}

package measure

import (
	"math"
	"math/rand/v2"
	"testing"
)

// packBits packs counts by a width, as package chunk does: least significant bit first.
func packBits(raw []uint64, width uint) []byte {
	out := make([]byte, PackedScans/8*width+8)
	for i, v := range raw {
		for j := range width {
			bit := uint(i)*width + j
			out[bit>>3] |= byte(v>>j&1) << (bit & 7)
		}
	}
	return out
}

// Counts that are not unpacked tell what they tell unpacked.
func TestPackedExtremes(t *testing.T) {
	if !vector {
		t.Skip("this processor has no AVX2 and FMA: counts are always unpacked")
	}
	rng := rand.New(rand.NewPCG(5, 21))
	m := &PowerMeter{rails: make([]railMeter, 3)}
	for round := range 300 {
		cols, packed := make([][]Count, 5), make([]Packed, 5)
		for c := range cols {
			width := uint(rng.IntN(9))
			p := Packed{Width: width, Base: Count(rng.Int32N(1<<24) - 1<<23)}
			raw := make([]uint64, PackedScans)
			for i := range raw {
				raw[i] = rng.Uint64() & (1<<width - 1)
				cols[c] = append(cols[c], p.Base+Count(raw[i]))
			}
			p.Bits = packBits(raw, width)
			packed[c] = p
		}
		for r := range m.rails {
			m.rails[r].x, m.rails[r].y = 2*r, 2*r+1
			m.rails[r].lin = Linear{I0: rng.NormFloat64(), IX: rng.NormFloat64(), IY: rng.NormFloat64(), V0: 12, VY: rng.NormFloat64()}
		}
		m.rails[2].y = -1
		series := 3 + round%2
		want, got := make([]Extreme, MaxRuns*series), make([]Extreme, MaxRuns*series)
		m.Extremes(cols, 0, PackedScans, series, want)
		if !m.PackedExtremes(packed, series, got) {
			t.Fatal("eight bits and less were not taken")
		}
		for k, w := range want {
			g, size := got[k], 1e-6*max(math.Abs(float64(w.Min)), math.Abs(float64(w.Max)))
			if math.Abs(float64(g.Min-w.Min)) > size || math.Abs(float64(g.Max-w.Max)) > size || math.Abs(g.Sum-w.Sum) > RunScans*size {
				t.Fatalf("round %d, run %d: %+v, unpacked %+v", round, k, g, w)
			}
		}
	}
}

// What cannot be taken packed is refused, and nothing is told of it.
func TestPackedExtremesRefuse(t *testing.T) {
	good := Packed{Bits: make([]byte, PackedScans), Width: 8}
	for name, c := range map[string]struct {
		p   Packed
		far bool
	}{
		"nine bits":    {Packed{Bits: make([]byte, 1000), Width: 9}, false},
		"cut short":    {Packed{Bits: make([]byte, 255), Width: 8}, false},
		"nothing":      {Packed{}, false},
		"counts apart": {good, true},
	} {
		m := &PowerMeter{rails: []railMeter{{x: 0, y: -1, far: c.far}}}
		dst := make([]Extreme, MaxRuns)
		if m.PackedExtremes([]Packed{c.p}, 1, dst) || dst[0] != (Extreme{}) {
			t.Errorf("%s: %+v", name, dst[0])
		}
	}
	m := &PowerMeter{rails: []railMeter{{x: 0, y: -1}}}
	if got := m.PackedExtremes([]Packed{good}, 1, make([]Extreme, MaxRuns)); got != vector {
		t.Errorf("eight bits: %v", got)
	}
}

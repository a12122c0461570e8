package chunk

import (
	"math"
	"math/rand/v2"
	"testing"
)

// naivePack is the definition of the coding, one bit at a time.
func naivePack(s *[BlockScans]int32, base int32, width uint) []byte {
	out := make([]byte, 32*width)
	for i, v := range s {
		d := uint32(v) - uint32(base)
		for b := range width {
			if d>>b&1 == 1 {
				bit := uint(i)*width + b
				out[bit/8] |= 1 << (bit % 8)
			}
		}
	}
	return out
}

func TestPackEveryWidth(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for width := uint(0); width <= MaxWidth; width++ {
		for _, base := range []int32{0, -1, 17, math.MinInt32, math.MaxInt32} {
			var s, back [BlockScans]int32
			for i := range s {
				s[i] = int32(uint32(base) + uint32(rng.Uint64()&(1<<width-1)))
			}
			buf := make([]byte, 32*width+Pad)
			pack(buf, &s, base, width)
			want := naivePack(&s, base, width)
			if string(buf[:32*width]) != string(want) {
				t.Fatalf("width %d base %d: packed bytes differ from the definition", width, base)
			}
			for i := range buf[32*width:] {
				buf[32*int(width)+i] = 0xff // a neighbour's bytes must not matter
			}
			unpack(&back, buf, base, width)
			if back != s {
				t.Fatalf("width %d base %d: counts differ after a round trip", width, base)
			}
		}
	}
}

func TestSpread(t *testing.T) {
	fill := func(v ...int32) *[BlockScans]int32 {
		var s [BlockScans]int32
		for i := range s {
			s[i] = v[i%len(v)]
		}
		return &s
	}
	for name, c := range map[string]struct {
		s     *[BlockScans]int32
		base  int32
		width uint
	}{
		"constant":     {fill(-7), -7, 0},
		"two levels":   {fill(3, 4), 3, 1},
		"int16 ends":   {fill(math.MinInt16, math.MaxInt16), math.MinInt16, 16},
		"int32 ends":   {fill(math.MinInt32, math.MaxInt32), math.MinInt32, 32},
		"odd position": {fill(0, 0, 0, -9), -9, 4},
	} {
		if base, width := spread(c.s); base != c.base || width != c.width {
			t.Errorf("%s: base %d width %d, want %d and %d", name, base, width, c.base, c.width)
		}
	}
	// Wherever the extremes stand, they are seen.
	for i := range BlockScans {
		s := fill(5)
		s[i] = -1000
		s[(i+1)%BlockScans] = 1000
		if base, width := spread(s); base != -1000 || width != 11 {
			t.Fatalf("extremes at %d: base %d width %d", i, base, width)
		}
	}
}

package chunk

import (
	"math"
	"math/rand/v2"
	"testing"
)

// A processor that unpacks eight values at a time unpacks what one does that takes one.
func TestVectorUnpack(t *testing.T) {
	if !vector {
		t.Skip("this processor has no AVX2")
	}
	rng := rand.New(rand.NewPCG(3, 9))
	for width := uint(1); width <= 8; width++ {
		src := make([]byte, 32*width+Pad)
		for i := range src {
			src[i] = byte(rng.Uint32())
		}
		for _, base := range []int32{0, -5, math.MaxInt32, math.MinInt32} {
			var plain, vectored [BlockScans]int32
			unpack8(&plain, src, uint32(base), width)
			unpackAVX2(&vectored, &src[0], base, width)
			if plain != vectored {
				t.Fatalf("width %d, base %d: %v, one at a time %v", width, base, vectored, plain)
			}
		}
	}
}

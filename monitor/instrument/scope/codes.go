package scope

import (
	"encoding/binary"
	"math"

	"wattmark/measure"
)

func abs(v float64) float64 { return math.Abs(v) }

// Codes says how a converter's codes stand in a block.
type Codes struct {
	Bytes     int // a code: 1 or 2
	Signed    bool
	BigEndian bool
}

// Decode writes as many codes as dst has room for, or raw holds, and returns
// their number. A trailing half of a code is none.
func (c Codes) Decode(dst []measure.Count, raw []byte) int {
	n := min(len(dst), len(raw)/max(1, c.Bytes))
	dst = dst[:n]
	switch {
	case c.Bytes != 2 && c.Signed:
		for i := range dst {
			dst[i] = measure.Count(int8(raw[i]))
		}
	case c.Bytes != 2:
		for i := range dst {
			dst[i] = measure.Count(raw[i])
		}
	case c.BigEndian:
		for i := range dst {
			dst[i] = c.word(binary.BigEndian.Uint16(raw[2*i:]))
		}
	default:
		for i := range dst {
			dst[i] = c.word(binary.LittleEndian.Uint16(raw[2*i:]))
		}
	}
	return n
}

func (c Codes) word(v uint16) measure.Count {
	if c.Signed {
		return measure.Count(int16(v))
	}
	return measure.Count(v)
}

package analog

import (
	"encoding/binary"

	"wattmark/measure"
)

// BytesCode is the size of a 16-bit code.
const BytesCode = 2

// Scans calls take for every whole scan of b: signed little-endian codes of 16
// bits, one input's after the other's, as many as counts has room for. counts is
// used for each scan anew. What is behind the last whole scan is left alone. The
// error is take's, which ends it.
func Scans(b []byte, counts []measure.Count, take func([]measure.Count) error) error {
	size := BytesCode * len(counts)
	if size == 0 {
		return nil
	}
	for ; len(b) >= size; b = b[size:] {
		for c := range counts {
			counts[c] = measure.Count(int16(binary.LittleEndian.Uint16(b[BytesCode*c:])))
		}
		if err := take(counts); err != nil {
			return err
		}
	}
	return nil
}

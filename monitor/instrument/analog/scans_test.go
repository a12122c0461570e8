package analog

import (
	"errors"
	"slices"
	"testing"

	"wattmark/measure"
)

func TestScansKeepTheirSign(t *testing.T) {
	var got []measure.Count
	b := []byte{0, 0x80, 0xff, 0x7f, 0xff, 0xff, 1, 0, 9}
	take := func(c []measure.Count) error { got = append(got, c...); return nil }
	if err := Scans(b, make([]measure.Count, 2), take); err != nil || !slices.Equal(got, []measure.Count{-32768, 32767, -1, 1}) {
		t.Errorf("%v, %v", got, err)
	}
	if err := Scans(b, nil, take); err != nil || len(got) != 4 {
		t.Errorf("scans of no input: %v, %v", got, err)
	}
	enough, n := errors.New("enough"), 0
	if err := Scans(b, make([]measure.Count, 1), func([]measure.Count) error { n++; return enough }); !errors.Is(err, enough) || n != 1 {
		t.Errorf("%v after %d scans: take's error ends it", err, n)
	}
}

// BenchmarkDecodeScans is the way of raw counts that the drivers of data
// acquisition boxes share, with six inputs.
func BenchmarkDecodeScans(b *testing.B) {
	const n, inputs = 10_000, 6
	data, counts := make([]byte, BytesCode*n*inputs), make([]measure.Count, inputs)
	for i := range data {
		data[i] = byte(i * 37)
	}
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		if err := Scans(data, counts, func([]measure.Count) error { return nil }); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)*n*inputs/b.Elapsed().Seconds(), "samples/s")
}

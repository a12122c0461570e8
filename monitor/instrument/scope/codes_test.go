package scope

import (
	"slices"
	"testing"

	"github.com/wattmark/wattmark/measure"
)

func TestCodes(t *testing.T) {
	raw := []byte{0x00, 0x7f, 0x80, 0xff, 0x01}
	for _, c := range []struct {
		codes Codes
		want  []measure.Count
	}{
		{Codes{Bytes: 1}, []measure.Count{0, 127, 128, 255, 1}},
		{Codes{Bytes: 1, Signed: true}, []measure.Count{0, 127, -128, -1, 1}},
		{Codes{Bytes: 2}, []measure.Count{0x7f00, 0xff80}},
		{Codes{Bytes: 2, Signed: true}, []measure.Count{0x7f00, -128}},
		{Codes{Bytes: 2, BigEndian: true}, []measure.Count{0x007f, 0x80ff}},
		{Codes{Bytes: 2, BigEndian: true, Signed: true}, []measure.Count{0x007f, -0x7f01}},
	} {
		dst := make([]measure.Count, 8)
		if n := c.codes.Decode(dst, raw); !slices.Equal(dst[:n], c.want) {
			t.Errorf("%+v: %v, want %v", c.codes, dst[:n], c.want)
		}
		if n := c.codes.Decode(dst[:1], raw); n != 1 || dst[0] != c.want[0] {
			t.Errorf("%+v: %d codes in the room of one", c.codes, n)
		}
	}
}

// No bytes make a decoder write more than there is, or is room for.
func FuzzCodes(f *testing.F) {
	f.Add([]byte{1, 2, 3}, uint8(4), uint8(2), true, false)
	f.Fuzz(func(t *testing.T, raw []byte, room, bytes uint8, signed, big bool) {
		c := Codes{Bytes: 1 + int(bytes%2), Signed: signed, BigEndian: big}
		dst := make([]measure.Count, room)
		n := c.Decode(dst, raw)
		if n != min(int(room), len(raw)/c.Bytes) {
			t.Fatalf("%d codes of %d bytes in a room of %d", n, len(raw), room)
		}
		for _, v := range dst[n:] {
			if v != 0 {
				t.Fatal("a code behind the last")
			}
		}
	})
}

func BenchmarkCodes(b *testing.B) {
	for name, c := range map[string]Codes{
		"u8": {Bytes: 1}, "i8": {Bytes: 1, Signed: true}, "u16le": {Bytes: 2},
		"i16be": {Bytes: 2, Signed: true, BigEndian: true},
	} {
		b.Run(name, func(b *testing.B) {
			raw, dst := make([]byte, blockScans*c.Bytes), make([]measure.Count, blockScans)
			for i := range raw {
				raw[i] = byte(i * 7)
			}
			b.ReportAllocs()
			b.SetBytes(int64(len(raw)))
			for b.Loop() {
				c.Decode(dst, raw)
			}
			b.ReportMetric(float64(blockScans)*float64(b.N)/b.Elapsed().Seconds(), "samples/s")
		})
	}
}

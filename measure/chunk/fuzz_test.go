package chunk

import (
	"encoding/binary"
	"errors"
	"slices"
	"testing"

	"github.com/wattmark/wattmark/measure"
)

// FuzzParsePayload feeds any bytes: they are refused with ErrCorrupt, or they
// decode, and code again to the same bytes.
func FuzzParsePayload(f *testing.F) {
	for _, scans := range []int{1, 255, 256, 700} {
		e, _ := NewEncoder(stamped, 2, 1000)
		b := measure.Block{Ticks: make([]int64, scans), Counts: [][]measure.Count{make([]measure.Count, scans), make([]measure.Count, scans)}}
		for i := range scans {
			b.Ticks[i] = int64(i*50 + i%3)
			b.Counts[0][i], b.Counts[1][i] = int32(i%37), int32(i*i)
		}
		if _, err := e.Append(&b); err != nil {
			f.Fatal(err)
		}
		f.Add(AppendPayload(nil, e.Flush(0)), scans)
	}
	f.Add([]byte{1, 0, 0xff, 0xff}, 1)
	f.Add([]byte{1, 0, 0, 0}, 1<<62)
	f.Fuzz(func(t *testing.T, payload []byte, scans int) {
		c := Chunk{Scans: scans}
		if err := ParsePayload(&c, payload); err != nil {
			if !errors.Is(err, ErrCorrupt) {
				t.Fatalf("error without a sentinel: %v", err)
			}
			return
		}
		if got := AppendPayload(nil, &c); !slices.Equal(got, payload) {
			t.Fatal("the parsed payload does not give its bytes back")
		}
		var b measure.Block
		if err := Decode(&c, even, len(c.Columns), &b); err != nil {
			t.Fatal(err)
		}
		var one [BlockScans]measure.Count
		for col := range c.Columns {
			n, err := c.Block(col, c.Blocks()-1, &one)
			if err != nil || !slices.Equal(one[:n], b.Counts[col][scans-n:]) {
				t.Fatalf("column %d: the last block alone differs: %v", col, err)
			}
		}
	})
}

// FuzzRoundTrip codes any counts and stamps.
func FuzzRoundTrip(f *testing.F) {
	f.Add([]byte("some bytes that become counts and stamps, twelve a scan"), uint16(3))
	f.Add(make([]byte, 12*600), uint16(512))
	f.Fuzz(func(t *testing.T, raw []byte, size uint16) {
		n := len(raw) / 12
		b := measure.Block{Ticks: make([]int64, n), Counts: [][]measure.Count{make([]measure.Count, n)}}
		for i := range n {
			b.Ticks[i] = int64(binary.LittleEndian.Uint64(raw[12*i:]))
			b.Counts[0][i] = int32(binary.LittleEndian.Uint32(raw[12*i+8:]))
		}
		e, err := NewEncoder(stamped, 1, int(size)+1)
		if err != nil {
			t.Fatal(err)
		}
		var no uint64
		var got []record
		encodeAll(t, e, stamped, 1, b, &no, &got)
		if e.Scans() > 0 {
			drain(t, e, stamped, 1, &no, &got)
		}
		if len(got) != n {
			t.Fatalf("%d scans came back of %d", len(got), n)
		}
		for i, r := range got {
			if r.scan != uint64(i) || r.tick != float64(b.Ticks[i]) || r.counts[0] != b.Counts[0][i] {
				t.Fatalf("scan %d: %+v", i, r)
			}
		}
	})
}

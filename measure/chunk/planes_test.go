package chunk

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
)

// wide makes a chunk of counts of all widths.
func wide(t testing.TB, seed uint64, channels, scans int) *Chunk {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 8))
	b := randomBlock(rng, even, 0, 0, channels, scans)
	e, err := NewEncoder(even, channels, scans)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.Append(&b); err != nil {
		t.Fatal(err)
	}
	return e.Flush(7)
}

func TestPlanesGiveTheSameBytes(t *testing.T) {
	for seed := range uint64(40) {
		rng := rand.New(rand.NewPCG(seed, 9))
		c := wide(t, seed, 1+rng.IntN(4), 1+rng.IntN(3000))
		back := Chunk{No: c.No, FirstScan: c.FirstScan, FirstTick: c.FirstTick, Scans: c.Scans, CRC: c.CRC}
		if err := ParsePlanes(&back, len(c.Columns), AppendPlanes(nil, c)); err != nil {
			t.Fatal(err)
		}
		for i := range c.Columns {
			if !slices.Equal(c.Columns[i].Dir, back.Columns[i].Dir) || !slices.Equal(c.Columns[i].Data, back.Columns[i].Data) {
				t.Fatalf("seed %d, column %d differs", seed, i)
			}
		}
		if err := back.Validate(even, len(c.Columns)); err != nil {
			t.Fatal(err)
		}
	}
}

func TestFoldIsUndone(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	for width := uint(1); width <= 32; width++ {
		var v [BlockScans]int32
		for i := range v {
			v[i] = int32(rng.Uint32() & mask(width))
		}
		w := v
		fold(&w, width)
		for _, x := range w {
			if uint32(x)&^mask(width) != 0 {
				t.Fatalf("width %d: %x does not fit", width, x)
			}
		}
		unfold(&w, width)
		if v != w {
			t.Fatalf("width %d: not the same", width)
		}
		m := middle(&w)
		center(&w, m, width)
		uncenter(&w, m, width)
		if v != w {
			t.Fatalf("width %d, about its middle: not the same", width)
		}
	}
}

func TestPlanesRefused(t *testing.T) {
	c := wide(t, 1, 2, 600)
	b := AppendPlanes(nil, c)
	for _, bad := range [][]byte{nil, {9}, b[:len(b)-1], append(slices.Clone(b), 0), b[:40]} {
		x := Chunk{Scans: c.Scans}
		if err := ParsePlanes(&x, 2, bad); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%d bytes: %v", len(bad), err)
		}
	}
}

func FuzzParsePlanes(f *testing.F) {
	c := wide(f, 2, 2, 300)
	f.Add(uint16(300), AppendPlanes(nil, c))
	f.Add(uint16(1), []byte{1, 0, 0, 0, 0, 0, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, scans uint16, b []byte) {
		x := Chunk{Scans: int(scans)}
		if ParsePlanes(&x, 2, b) == nil {
			for i := range x.Columns {
				if err := x.Columns[i].check(x.Scans); err != nil {
					t.Fatalf("what was parsed is not a column: %v", err)
				}
			}
		}
	})
}

func BenchmarkPlanes(b *testing.B) {
	blk := benchBlock(6, 65536, 4)
	e, _ := NewEncoder(even, 6, 65536)
	if _, err := e.Append(&blk); err != nil {
		b.Fatal(err)
	}
	c := e.Flush(0)
	planes := AppendPlanes(nil, c)
	b.Run("append", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			planes = AppendPlanes(planes[:0], c)
		}
		report(b, 65536, 6, b.Elapsed())
	})
	b.Run("parse", func(b *testing.B) {
		b.ReportAllocs()
		x := Chunk{Scans: c.Scans}
		for b.Loop() {
			if err := ParsePlanes(&x, 6, planes); err != nil {
				b.Fatal(err)
			}
		}
		report(b, 65536, 6, b.Elapsed())
	})
}

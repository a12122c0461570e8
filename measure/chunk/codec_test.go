package chunk

import (
	"encoding/hex"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/wattmark/wattmark/measure"
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
		fold(&w, 0, true, width)
		for _, x := range w {
			if uint32(x)&^mask(width) != 0 {
				t.Fatalf("width %d: %x does not fit", width, x)
			}
		}
		unfold(&w, 0, true, width)
		if v != w {
			t.Fatalf("width %d: not the same", width)
		}
		m := middle(&w)
		fold(&w, m, false, width)
		unfold(&w, m, false, width)
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

// TestGoldenBytes pins the format down: files written today must be read for ever.
func TestGoldenBytes(t *testing.T) {
	e, _ := NewEncoder(measure.Timebase{TickHz: 1000, TicksPerScan: 1, Stamped: true}, 2, 300)
	b := measure.Block{FirstScan: 5, FirstTick: 9, Ticks: []int64{9, 10, 12}, Counts: [][]measure.Count{{-3, -3, -3}, {100, 70000, 101}}}
	if _, err := e.Append(&b); err != nil {
		t.Fatal(err)
	}
	c := e.Flush(7)
	payload := AppendPayload(nil, c)
	trimmed := slices.Clone(payload[:4+12+8+8+8+12])
	const want = "0100" + "0300" + "08000000" + "28020000" + "28000000" +
		"fdffffff00000000" + "0000000000000000" + // channel 0: base −3, width 0
		"6400000011000000" + "0000182206000000" + "00000000"
	if got := hex.EncodeToString(trimmed); got != want {
		t.Errorf("payload begins\n%s, want\n%s", got, want)
	}
	// Computed bit by bit by another program from the text of docs/format.md.
	if crc := uint32(0x25b801b1); c.CRC != crc {
		t.Errorf("CRC %08x, want %08x", c.CRC, crc)
	}
}

func TestEveryFlippedBitIsSeen(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	e, _ := NewEncoder(stamped, 2, 600)
	b := randomBlock(rng, stamped, 40, 2000, 2, 600)
	if _, err := e.Append(&b); err != nil {
		t.Fatal(err)
	}
	c := e.Flush(3)
	payload := AppendPayload(nil, c)
	parse := func(c Chunk, p []byte) error {
		c.Columns = nil
		if err := ParsePayload(&c, p); err != nil {
			return err
		}
		return c.Validate(stamped, 2)
	}
	if err := parse(*c, payload); err != nil {
		t.Fatal(err)
	}
	for i := range payload {
		p := slices.Clone(payload)
		p[i] ^= 1 << rng.IntN(8)
		if err := parse(*c, p); !errors.Is(err, ErrCorrupt) {
			t.Fatalf("byte %d flipped: %v", i, err)
		}
		if err := parse(*c, payload[:i]); !errors.Is(err, ErrCorrupt) {
			t.Fatalf("cut to %d bytes: %v", i, err)
		}
	}
	for name, change := range map[string]func(*Chunk){
		"number": func(c *Chunk) { c.No++ }, "first scan": func(c *Chunk) { c.FirstScan++ },
		"first tick": func(c *Chunk) { c.FirstTick-- }, "scans": func(c *Chunk) { c.Scans-- },
		"checksum": func(c *Chunk) { c.CRC ^= 1 },
	} {
		d := *c
		change(&d)
		if err := parse(d, payload); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s changed: %v", name, err)
		}
	}
}

func TestBlockAlone(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 4))
	e, _ := NewEncoder(even, 3, 1000)
	b := randomBlock(rng, even, 0, 0, 3, 1000)
	if _, err := e.Append(&b); err != nil {
		t.Fatal(err)
	}
	c := e.Flush(0).Clone()
	var got [BlockScans]measure.Count
	for col := range 3 {
		for k := range c.Blocks() {
			n, err := c.Block(col, k, &got)
			want := b.Counts[col][256*k : min(256*k+256, 1000)]
			if err != nil || !slices.Equal(got[:n], want) {
				t.Fatalf("column %d block %d: %v", col, k, err)
			}
		}
	}
	for _, bad := range [][2]int{{-1, 0}, {3, 0}, {0, -1}, {0, 4}} {
		if _, err := c.Block(bad[0], bad[1], &got); !errors.Is(err, ErrCorrupt) {
			t.Errorf("block %v: %v", bad, err)
		}
	}
}

func TestSteadyEncoderDoesNotAllocate(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 5))
	e, _ := NewEncoder(even, 6, 4096)
	b := randomBlock(rng, even, 0, 0, 6, 4096)
	var dst measure.Block
	run := func() {
		if n, err := e.Append(&b); n != 4096 || err != nil {
			t.Fatal(n, err)
		}
		if err := Decode(e.Flush(0), even, 6, &dst); err != nil {
			t.Fatal(err)
		}
	}
	run()
	// One small buffer for the checksum's header.
	if n := testing.AllocsPerRun(20, run); n > 1 {
		t.Errorf("%v allocations a chunk", n)
	}
}

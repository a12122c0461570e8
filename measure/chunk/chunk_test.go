package chunk

import (
	"encoding/hex"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"wattmark/measure"
)

var (
	even    = measure.Timebase{TickHz: 1e6, TicksPerScan: 50}
	uneven  = measure.Timebase{TickHz: 1e6, TicksPerScan: 208.3333}
	stamped = measure.Timebase{TickHz: 1e6, TicksPerScan: 50.25, Stamped: true}
)

// record is everything an encoder was given, by scan.
type record struct {
	scan   uint64
	tick   float64
	counts []measure.Count
}

func records(tb measure.Timebase, b *measure.Block) []record {
	out := make([]record, b.Scans())
	for i := range out {
		out[i] = record{scan: b.FirstScan + uint64(i), tick: b.TickAt(tb, i), counts: make([]measure.Count, len(b.Counts))}
		for c := range b.Counts {
			out[i].counts[c] = b.Counts[c][i]
		}
	}
	return out
}

// randomBlock makes n scans whose counts have anything from 0 to 32 bits.
func randomBlock(rng *rand.Rand, tb measure.Timebase, first uint64, tick int64, channels, n int) measure.Block {
	b := measure.Block{FirstScan: first, FirstTick: tick, Counts: make([][]measure.Count, channels)}
	for c := range b.Counts {
		b.Counts[c] = make([]measure.Count, n)
		width, base := rng.IntN(33), int32(rng.Uint32())
		for i := range b.Counts[c] {
			b.Counts[c][i] = base + int32(rng.Uint64()&(1<<width-1))
		}
	}
	if tb.Stamped {
		b.Ticks = make([]int64, n)
		for i := range b.Ticks {
			b.Ticks[i] = tick + int64(float64(i)*tb.TicksPerScan) + int64(rng.IntN(7)) - 3
		}
	}
	return b
}

// encodeAll pushes a block through the encoder and decodes every chunk.
func encodeAll(t *testing.T, e *Encoder, tb measure.Timebase, channels int, b measure.Block, no *uint64, out *[]record) {
	t.Helper()
	for done, rest := 0, b; done < b.Scans(); {
		n, err := e.Append(&rest)
		if err != nil {
			t.Fatal(err)
		}
		if done += n; done < b.Scans() {
			drain(t, e, tb, channels, no, out)
			// Always cut from the whole block, so that rounded ticks do not add up.
			rest = b.Slice(tb, done, b.Scans())
		}
	}
}

// drain flushes the encoder and sends the chunk through its payload.
func drain(t *testing.T, e *Encoder, tb measure.Timebase, channels int, no *uint64, out *[]record) {
	t.Helper()
	c := e.Flush(*no)
	if c == nil {
		t.Fatal("the encoder took nothing and has nothing")
	}
	*no++
	payload := AppendPayload(nil, c)
	if len(payload) != PayloadSize(c) {
		t.Fatalf("payload of %d bytes, PayloadSize says %d", len(payload), PayloadSize(c))
	}
	got := Chunk{No: c.No, FirstScan: c.FirstScan, FirstTick: c.FirstTick, Scans: c.Scans, CRC: c.CRC}
	if err := ParsePayload(&got, payload); err != nil {
		t.Fatal(err)
	}
	if err := got.Validate(tb, channels); err != nil {
		t.Fatal(err)
	}
	var b measure.Block
	if err := Decode(&got, tb, channels, &b); err != nil {
		t.Fatal(err)
	}
	*out = append(*out, records(tb, &b)...)
}

func TestRoundTripWithGapsAndAnySplit(t *testing.T) {
	for name, tb := range map[string]measure.Timebase{"even": even, "uneven": uneven, "stamped": stamped} {
		for seed := range uint64(12) {
			rng := rand.New(rand.NewPCG(seed, 7))
			channels, size := 1+rng.IntN(4), []int{1, 100, 256, 257, 1024, 5000}[rng.IntN(6)]
			e, err := NewEncoder(tb, channels, size)
			if err != nil {
				t.Fatal(err)
			}
			var want, got []record
			var no, scan uint64
			for range 12 {
				n := rng.IntN(900)
				if rng.IntN(4) == 0 {
					scan += uint64(rng.IntN(5)) // a gap, at times of no length
				}
				b := randomBlock(rng, tb, scan, int64(float64(scan)*tb.TicksPerScan), channels, n)
				want = append(want, records(tb, &b)...)
				encodeAll(t, e, tb, channels, b, &no, &got)
				scan += uint64(n)
			}
			if e.Scans() > 0 {
				drain(t, e, tb, channels, &no, &got)
			}
			if e.Scans() != 0 || e.Full() || e.Flush(0) != nil {
				t.Fatalf("%s %d: the encoder is not empty after Flush", name, seed)
			}
			// A chunk keeps the first tick as a whole number: what it says of an
			// uneven timebase may be off by less than a tick.
			close := cmp.Comparer(func(a, b float64) bool {
				return math.Abs(a-b) <= map[bool]float64{true: 0, false: 1}[tb.Stamped]
			})
			if d := cmp.Diff(want, got, cmp.AllowUnexported(record{}), close); d != "" {
				t.Fatalf("%s %d: (-given +decoded)\n%s", name, seed, d)
			}
		}
	}
}

func TestChunkEndsWhereTimeJumps(t *testing.T) {
	one := func(first uint64, tick int64, n int) *measure.Block {
		return &measure.Block{FirstScan: first, FirstTick: tick, Counts: [][]measure.Count{make([]measure.Count, n)}}
	}
	for name, c := range map[string]struct {
		second *measure.Block
		taken  int
	}{
		"follows":           {one(10, 500, 5), 5},
		"a tick late":       {one(10, 501, 5), 5},
		"two ticks late":    {one(10, 502, 5), 0},
		"scans lost":        {one(11, 550, 5), 0},
		"scans seen before": {one(9, 450, 5), 0},
	} {
		e, _ := NewEncoder(even, 1, MaxScans)
		if n, err := e.Append(one(0, 0, 10)); n != 10 || err != nil {
			t.Fatal(n, err)
		}
		n, err := e.Append(c.second)
		if n != c.taken || err != nil || e.Full() != (c.taken == 0) {
			t.Errorf("%s: took %d (%v), full %v; want %d", name, n, err, e.Full(), c.taken)
		}
	}
}

func TestStampTooFarEndsChunk(t *testing.T) {
	e, _ := NewEncoder(stamped, 1, MaxScans)
	b := measure.Block{Ticks: []int64{0, 50, 100, 1 << 40, 1<<40 + 50}, Counts: [][]measure.Count{{1, 2, 3, 4, 5}}}
	var no uint64
	var got []record
	encodeAll(t, e, stamped, 1, b, &no, &got)
	drain(t, e, stamped, 1, &no, &got)
	if no != 2 {
		t.Errorf("%d chunks, want 2", no)
	}
	if d := cmp.Diff(records(stamped, &b), got, cmp.AllowUnexported(record{})); d != "" {
		t.Error(d)
	}
}

func TestEncoderRefuses(t *testing.T) {
	for name, f := range map[string]func() error{
		"no channels":   func() error { _, err := NewEncoder(even, 0, 1); return err },
		"too many":      func() error { _, err := NewEncoder(stamped, MaxColumns, 1); return err },
		"no scans":      func() error { _, err := NewEncoder(even, 1, 0); return err },
		"long chunk":    func() error { _, err := NewEncoder(even, 1, MaxScans+1); return err },
		"no tick rate":  func() error { _, err := NewEncoder(measure.Timebase{TicksPerScan: 1}, 1, 1); return err },
		"huge distance": func() error { _, err := NewEncoder(measure.Timebase{TickHz: 1, TicksPerScan: 1e15}, 1, 1); return err },
	} {
		if f() == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	e, _ := NewEncoder(even, 2, 10)
	if _, err := e.Append(&measure.Block{Counts: [][]measure.Count{{1}, {1, 2}}}); !errors.Is(err, measure.ErrShape) {
		t.Errorf("ragged block: %v", err)
	}
	if e.Scans() != 0 {
		t.Error("a refused block was taken")
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

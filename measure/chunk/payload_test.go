package chunk

import (
	"encoding/hex"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"wattmark/measure"
)

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

package chunk

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/wattmark/wattmark/measure"
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
			tolerance := 1.0
			if tb.Stamped {
				tolerance = 0
			}
			if i := firstDifference(want, got, tolerance); i >= 0 {
				t.Fatalf("%s %d: record %d of %d differs: %+v", name, seed, i, len(want), want[i])
			}
		}
	}
}

// firstDifference returns the first record that differs, −1 for none.
func firstDifference(want, got []record, tolerance float64) int {
	for i, w := range want {
		if i >= len(got) || w.scan != got[i].scan || math.Abs(w.tick-got[i].tick) > tolerance || !slices.Equal(w.counts, got[i].counts) {
			return i
		}
	}
	if len(got) > len(want) {
		return len(want) - 1
	}
	return -1
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

func TestDecodeAll(t *testing.T) {
	setup := &measure.Setup{Timebase: stamped, Channels: make([]measure.Channel, 3)}
	b := randomBlock(rand.New(rand.NewPCG(4, 4)), stamped, 11, 1000, 3, 1200)
	bad := errors.New("disk")
	chunks := func(last error) func(func(*Chunk, error) bool) {
		return func(yield func(*Chunk, error) bool) {
			e, err := NewEncoder(stamped, 3, 500)
			if err != nil {
				t.Fatal(err)
			}
			for at := 0; at < b.Scans(); {
				rest := b.Slice(stamped, at, b.Scans())
				n, err := e.Append(&rest)
				if err != nil {
					t.Fatal(err)
				}
				at += n
				if !yield(e.Flush(0), nil) {
					return
				}
			}
			if last != nil {
				yield(nil, last)
			}
		}
	}
	var got []record
	for part, err := range DecodeAll(chunks(nil), setup) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, records(stamped, part)...)
	}
	if d := cmp.Diff(records(stamped, &b), got, cmp.AllowUnexported(record{})); d != "" {
		t.Error(d)
	}

	seen, failed := 0, error(nil)
	for part, err := range DecodeAll(chunks(bad), setup) {
		if failed = err; err == nil {
			seen += part.Scans()
		}
	}
	if seen != 1200 || !errors.Is(failed, bad) {
		t.Errorf("%d scans, then %v", seen, failed)
	}

	// Chunks of another setup are refused, once; a reader may leave early.
	other := &measure.Setup{Timebase: stamped, Channels: make([]measure.Channel, 2)}
	errs := 0
	for _, err := range DecodeAll(chunks(nil), other) {
		if !errors.Is(err, ErrCorrupt) {
			t.Errorf("a chunk of another setup: %v", err)
		}
		errs++
	}
	for range DecodeAll(chunks(nil), setup) {
		break
	}
	if errs != 1 {
		t.Errorf("%d errors, want one", errs)
	}
}

// Package made makes tasks of known counts for tests, of any length in the memory
// of one chunk.
package made

import (
	"context"
	"iter"
	"math"
	"math/rand/v2"
	"time"

	"wattmark/measure"
	"wattmark/measure/chunk"
	"wattmark/measure/clock"
	"wattmark/store"
)

// ChunkScans is the number of scans of a chunk; one that is repeated is longer, for
// compressors to notice it less.
const (
	ChunkScans = 1 << 15
	repeated   = 1 << 17
)

// Source makes chunks of a setup: noise of some counts around levels that step.
type Source struct {
	Setup measure.Setup
	Scans int
	// Gap leaves out as many scans behind the first chunk.
	Gap uint64
	// Repeat codes one chunk and hands it out again and again: as fast as reading, but
	// a compressor may notice.
	Repeat bool
	kept   []*chunk.Chunk
}

// Keep makes all chunks now, so that a benchmark does not time their making.
func (s *Source) Keep(ctx context.Context) error {
	s.kept = nil
	var kept []*chunk.Chunk
	for c, err := range s.Chunks(ctx, 0, 0) {
		if err != nil {
			return err
		}
		kept = append(kept, c.Clone())
	}
	s.kept = kept
	return nil
}

// Setup is six channels at 100 kS/s: a clamp at the PSU cable and two shunts in
// the slot.
func Setup(stamped bool) measure.Setup {
	v := func(name string, gain, offset float64) measure.Channel {
		return measure.Channel{Name: name, Unit: measure.UnitVolt, Gain: gain, Offset: offset, UGain: 1e-3}
	}
	return measure.Setup{
		Timebase: measure.Timebase{TickHz: 1e7, UTickHz: 1e-5, TicksPerScan: 100, Stamped: stamped},
		Channels: []measure.Channel{
			{Name: "aux.current", Unit: measure.UnitAmpere, Gain: 1e-3, Offset: -0.02, UGain: 2e-3},
			v("aux.voltage", 5e-4, 0.01), v("3v3.source", 1.1e-4, 0), v("3v3.load", 1.1e-4, 0.002), v("12v.source", 5e-4, 0), v("12v.load", 5e-4, 0),
		},
		Rails: []measure.Rail{
			{Name: "aux_12v", Role: measure.RolePSU, Wiring: measure.WiringClamp, X: 0, Y: 1},
			{Name: "pcie_3v3", Role: measure.RolePCIe3V3, Wiring: measure.WiringShunt, X: 2, Y: 3, Shunt: 0.005},
			{Name: "pcie_12v", Role: measure.RolePCIe12V, Wiring: measure.WiringShunt, X: 4, Y: 5, Shunt: 0.005},
		},
		Missing: []string{"eps"},
	}
}

// Started is device time zero of the tasks.
var Started = time.Date(2026, 3, 4, 5, 6, 7, 123456789, time.UTC)

// Task is a task of the source's setup whose clock runs 20 ppm fast.
func (s *Source) Task() *store.Task {
	t := &store.Task{ID: 7, State: store.Complete, Scans: uint64(s.Scans)}
	t.Name, t.User, t.Launched, t.GPU = "gemm", "lab", Started.Add(-time.Second), "H200"
	t.Setup, t.CalibrationID, t.Started = s.Setup, s.Setup.CalibrationID(), Started
	t.Instrument = measure.Identity{Kind: "made", Serial: "1"}
	t.Clock = &clock.Fit{Origin: measure.Seconds(Started.Unix()), A: -0.123456789, B: 1 + 20e-6, Used: 9}
	t.Events = []measure.Event{{Kind: measure.EventNote, Detail: "a note"}}
	return t
}

// Counts fills a block with the counts from a scan on.
func (s *Source) counts(b *measure.Block, rng *rand.Rand) {
	levels := []int32{20000, 24000, 30050, 30000, 24100, 24000}
	for c := range b.Counts {
		level := levels[c%len(levels)]
		for i := range b.Counts[c] {
			scan := b.FirstScan + uint64(i)
			v := level + int32(scan/5000%3)*int32(40*(1-c%2)) + int32(20*math.Sin(float64(scan)/700))
			b.Counts[c][i] = v + int32(rng.Uint32()&15)
		}
	}
	for i := range b.Ticks {
		b.Ticks[i] = int64(float64(b.FirstScan+uint64(i))*s.Setup.Timebase.TicksPerScan) + int64(rng.Uint32()&3)
	}
}

// Chunks yields the chunks of any task.
func (s *Source) Chunks(ctx context.Context, _ store.TaskID, from uint64) iter.Seq2[*chunk.Chunk, error] {
	if s.kept != nil {
		return func(yield func(*chunk.Chunk, error) bool) {
			for _, c := range s.kept {
				if c.No >= from && !yield(c, nil) {
					return
				}
			}
		}
	}
	return func(yield func(*chunk.Chunk, error) bool) {
		size := ChunkScans
		if s.Repeat {
			size = repeated
		}
		tb, rng := s.Setup.Timebase, rand.New(rand.NewPCG(1, 2))
		e, err := chunk.NewEncoder(tb, len(s.Setup.Channels), size)
		if err != nil {
			yield(nil, err)
			return
		}
		b := measure.Block{Counts: make([][]measure.Count, len(s.Setup.Channels))}
		for c := range b.Counts {
			b.Counts[c] = make([]measure.Count, size)
		}
		if tb.Stamped {
			b.Ticks = make([]int64, size)
		}
		var c *chunk.Chunk
		scan := uint64(0)
		for no, left := uint64(0), s.Scans; left > 0; no++ {
			if err := ctx.Err(); err != nil {
				yield(nil, err)
				return
			}
			n := min(left, size)
			if c == nil || !s.Repeat || n < size {
				part := measure.Block{FirstScan: scan, FirstTick: int64(float64(scan) * tb.TicksPerScan)}
				for k := range b.Counts {
					part.Counts = append(part.Counts, b.Counts[k][:n])
				}
				if tb.Stamped {
					part.Ticks = b.Ticks[:n]
				}
				s.counts(&part, rng)
				if _, err := e.Append(&part); err != nil {
					yield(nil, err)
					return
				}
				c = e.Flush(no)
			} else {
				c.No, c.FirstScan, c.FirstTick = no, scan, int64(float64(scan)*tb.TicksPerScan)
			}
			if no >= from && !yield(c, nil) {
				return
			}
			left -= n
			if scan += uint64(n); no == 0 {
				scan += s.Gap
			}
		}
	}
}

// Blocks are all blocks, for a reckoning by hand.
func (s *Source) Blocks(ctx context.Context) iter.Seq2[*measure.Block, error] {
	return chunk.DecodeAll(s.Chunks(ctx, 7, 0), &s.Setup)
}

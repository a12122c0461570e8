package exchange_test

import (
	"context"
	"errors"
	"iter"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/chunk"
	"github.com/wattmark/wattmark/measure/clock"
	"github.com/wattmark/wattmark/measure/marker"
	"github.com/wattmark/wattmark/store"
)

// madeScans is the number of scans of a chunk; one that is repeated is longer, for
// compressors to notice it less.
const (
	madeScans = 1 << 15
	repeated  = 1 << 17
)

// madeSource makes chunks of a setup: noise of some counts around levels that step.
// The counts follow from the scan number and a fixed seed: two passes yield the same, and a test can
// compute the sums by hand.
type madeSource struct {
	Setup measure.Setup
	Scans int
	// Gap leaves out as many scans behind the first chunk.
	Gap uint64
	// Repeat codes one chunk and hands it out again and again: as fast as reading, but
	// a compressor may notice.
	Repeat bool
	kept   []*chunk.Chunk
}

// Keep makes all chunks now, in memory, so that a benchmark does not time their making.
func (s *madeSource) Keep(ctx context.Context) error {
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

// madeSetup is six channels at 100 kS/s: a clamp at the PSU cable and two shunts in
// the slot.
func madeSetup(stamped bool) measure.Setup {
	v := func(name string, gain, offset float64) measure.Channel {
		return measure.Channel{Name: name, Unit: measure.UnitVolt, Gain: gain, Offset: offset, UGain: 1e-3}
	}
	return measure.Setup{
		Timebase: measure.Timebase{TickHz: 1e7, UTickHz: 1e-5, TicksPerScan: 100, Stamped: stamped},
		Channels: []measure.Channel{
			{Name: "aux.current", Unit: measure.UnitAmpere, Gain: 1e-3, Offset: -0.02, UGain: 2e-3},
			v("aux.voltage", 5e-4, 0.01), v("3v3.source", 1.1e-4, 0), v("3v3.load", 1.1e-4, 0.002),
			v("12v.source", 5e-4, 0), v("12v.load", 5e-4, 0),
		},
		Rails: []measure.Rail{
			{Name: "aux_12v", Role: measure.RolePSU, Wiring: measure.WiringClamp, X: 0, Y: 1},
			{Name: "pcie_3v3", Role: measure.RolePCIe3V3, Wiring: measure.WiringShunt, X: 2, Y: 3, Shunt: 0.005},
			{Name: "pcie_12v", Role: measure.RolePCIe12V, Wiring: measure.WiringShunt, X: 4, Y: 5, Shunt: 0.005},
		},
		Missing: []string{"eps"},
	}
}

// madeStart is device time zero of the tasks.
// The odd nanoseconds show where a conversion rounds.
var madeStart = time.Date(2026, 3, 4, 5, 6, 7, 123456789, time.UTC)

// Task is a task of the source's setup whose clock runs 20 ppm fast.
func (s *madeSource) Task() *store.Task {
	t := &store.Task{ID: 7, State: store.Complete, Scans: uint64(s.Scans)}
	t.Name, t.User, t.Launched, t.GPU = "gemm", "lab", madeStart.Add(-time.Second), "H200"
	t.Setup, t.CalibrationID, t.Started = s.Setup, s.Setup.CalibrationID(), madeStart
	t.Instrument = measure.Identity{Kind: "made", Serial: "1"}
	// Host time = origin + (device time − A)/B, with B 20 ppm above 1.
	t.Clock = &clock.Fit{Origin: measure.Seconds(madeStart.Unix()), A: -0.123456789, B: 1 + 20e-6, Used: 9}
	t.Events = []measure.Event{{Kind: measure.EventNote, Detail: "a note"}}
	return t
}

// Counts fills a block with the counts from a scan on.
// Channels with an even number step every 5000 scans; all have a slow sine and 4 bits of noise.
func (s *madeSource) counts(b *measure.Block, rng *rand.Rand) {
	levels := []int32{20000, 24000, 30050, 30000, 24100, 24000}
	for c := range b.Counts {
		level := levels[c%len(levels)]
		for i := range b.Counts[c] {
			scan := b.FirstScan + uint64(i)
			v := level + int32(scan/5000%3)*int32(40*(1-c%2)) + int32(20*math.Sin(float64(scan)/700))
			b.Counts[c][i] = v + int32(rng.Uint32()&15)
		}
	}
	// Stamps jitter by up to 3 ticks, and still rise.
	for i := range b.Ticks {
		b.Ticks[i] = int64(float64(b.FirstScan+uint64(i))*s.Setup.Timebase.TicksPerScan) + int64(rng.Uint32()&3)
	}
}

// Chunks yields the chunks of any task.
// A chunk is valid until the next; with from > 0 the earlier ones are made and left out, as the noise
// is one sequence.
func (s *madeSource) Chunks(ctx context.Context, _ store.TaskID, from uint64) iter.Seq2[*chunk.Chunk, error] {
	return func(yield func(*chunk.Chunk, error) bool) {
		take := func(c *chunk.Chunk) bool { return c.No < from || yield(c, nil) }
		if s.kept != nil {
			for _, c := range s.kept {
				if !take(c) {
					return
				}
			}
		} else if err := s.make(ctx, take); err != nil {
			yield(nil, err)
		}
	}
}

// make makes the chunks until take returns false.
func (s *madeSource) make(ctx context.Context, take func(*chunk.Chunk) bool) error {
	size := madeScans
	if s.Repeat {
		size = repeated
	}
	tb, rng := s.Setup.Timebase, rand.New(rand.NewPCG(1, 2))
	e, err := chunk.NewEncoder(tb, len(s.Setup.Channels), size)
	// One block is filled again for each chunk.
	b := measure.Block{Counts: make([][]measure.Count, len(s.Setup.Channels)), Ticks: make([]int64, size)}
	for c := range b.Counts {
		b.Counts[c] = make([]measure.Count, size)
	}
	var c *chunk.Chunk
	scan, left := uint64(0), s.Scans
	for no := uint64(0); left > 0 && err == nil; no++ {
		n := min(left, size)
		first := int64(float64(scan) * tb.TicksPerScan)
		if c != nil && s.Repeat && n == size {
			c.No, c.FirstScan, c.FirstTick = no, scan, first // another number and place
		} else {
			part := measure.Block{FirstScan: scan, FirstTick: first}
			for _, counts := range b.Counts {
				part.Counts = append(part.Counts, counts[:n])
			}
			if tb.Stamped {
				part.Ticks = b.Ticks[:n]
			}
			s.counts(&part, rng)
			_, err = e.Append(&part)
			c = e.Flush(no)
		}
		if err = errors.Join(err, ctx.Err()); err == nil && !take(c) {
			return nil
		}
		left -= n
		// The gap lies behind the first chunk: later scans are counted on by as many.
		if scan += uint64(n); no == 0 {
			scan += s.Gap
		}
	}
	return err
}

// Blocks are all blocks, for a reckoning by hand.
func (s *madeSource) Blocks(ctx context.Context) iter.Seq2[*measure.Block, error] {
	return chunk.DecodeAll(s.Chunks(ctx, 7, 0), &s.Setup)
}

// madeFull is a source with all that a timeline shows.
type madeFull struct {
	madeSource
	// Launched are kernels of two streams, of which some overlap.
	Launched []store.Launch
}

// newMadeFull makes a recorded task of some scans, its window and two markers.
func newMadeFull(scans int) (*madeFull, *store.Task) {
	f := &madeFull{madeSource: madeSource{Setup: madeSetup(false), Scans: scans}}
	t := f.Task()
	t.Markers = []marker.Found{{Kind: marker.Start, T: 0.01, U: 1e-6}, {Kind: marker.Stop, T: 0.09, U: 1e-6}}
	t.Result = &measure.Result{From: 0.02, To: 0.08, Total: measure.Estimate{Energy: 12, U: 0.1}}
	base := madeStart.Add(30 * time.Millisecond).UnixNano()
	for i := range 10 {
		at := base + int64(i)*1000
		f.Launched = append(f.Launched, store.Launch{
			Start: at, End: at + 900, Name: i % 2, Stream: 7, Grid: [3]uint32{4, 1, 1}, Block: [3]uint32{32, 1, 1},
		})
	}
	// The last overlaps several on its stream, for which a viewer needs a second lane.
	f.Launched = append(f.Launched, store.Launch{Start: base + 500, End: base + 5000, Name: 1, Stream: 7})
	slices.SortFunc(f.Launched, func(a, b store.Launch) int { return int(a.Start - b.Start) })
	return f, t
}

// Kernels are one.
func (f *madeFull) Kernels(context.Context, store.TaskID) ([]store.Kernel, error) {
	at := madeStart.Add(20 * time.Millisecond)
	return []store.Kernel{{Name: "gemm", Start: at, End: at.Add(60 * time.Millisecond)}}, nil
}

// Readings are three by the GPU's own sensor.
func (f *madeFull) Readings(context.Context, store.TaskID) (out []store.Reading, err error) {
	for i := range 3 {
		at := madeStart.Add(time.Duration(i) * 20 * time.Millisecond)
		out = append(out, store.Reading{Method: "nvml.instant", At: at, Value: 100 + float64(i)})
	}
	return out, nil
}

// LaunchTables name two kernels of a process on a GPU.
func (f *madeFull) LaunchTables(context.Context, store.TaskID) (store.LaunchTables, error) {
	return store.LaunchTables{
		Processes: []store.LaunchProcess{{PID: 99}}, Names: []string{"first", "second"},
		Devices: []store.LaunchDevice{{Measured: true}},
	}, nil
}

// Ranges are two of a thread, one within the other.
func (f *madeFull) Ranges(context.Context, *store.Task) (*store.Ranges, error) {
	return &store.Ranges{
		Ranges: []store.RangeEnergy{{Path: "step"}, {Path: "step/forward"}},
		Spans: []store.RangeSpan{
			{Thread: 99, From: 0.02, To: 0.06, Launches: 5, Estimate: measure.Estimate{Energy: 3, U: 0.25}}, {Range: 1, Thread: 99, From: 0.02, To: 0.04, Launches: 3, Estimate: measure.Estimate{Energy: 2, U: 0.125}},
		},
	}, nil
}

// Launches are those of Launched.
func (f *madeFull) Launches(context.Context, store.TaskID) iter.Seq2[store.Launch, error] {
	return func(yield func(store.Launch, error) bool) {
		for _, l := range f.Launched {
			if !yield(l, nil) {
				return
			}
		}
	}
}

// failing is a destination that takes nothing.
type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }

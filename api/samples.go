package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sort"

	pb "github.com/wattmark/wattmark/api/wattmarkv1"
	"github.com/wattmark/wattmark/api/wire"
	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/chunk"
	"github.com/wattmark/wattmark/store"
)

// ReadSamples streams a task's samples, calibrated or as raw chunks, with the
// events between them. gRPC's flow control holds it back when the reader is slow.
func (s *Service) ReadSamples(req *pb.ReadSamplesRequest, stream pb.TaskService_ReadSamplesServer) error {
	id, err := validID(req.GetTaskId())
	if err != nil {
		return err
	}
	operation := fmt.Sprintf("read samples of task %d", id)
	ctx := stream.Context()
	t, err := s.taskResult(ctx, id, req.GetResult())
	if err != nil {
		return toStatus(operation, err)
	}
	if !hasHeader(&t) {
		return toStatus(operation, store.ErrNoHeader)
	}
	r, err := newReading(&t, stream)
	if err != nil {
		return toStatus(operation, err)
	}
	if t.Result == nil {
		if r.base, err = s.firstStored(ctx, id); err != nil {
			return toStatus(operation, err)
		}
	}
	r.from, r.end = saturated(r.base, req.GetFromSeq()), math.MaxUint64
	if limit := req.GetLimit(); limit > 0 {
		r.end = saturated(r.from, limit)
	}
	r.events = slices.DeleteFunc(r.events, func(e measure.Event) bool { // that do not touch the range
		return r.over(e) && e.Kind != measure.EventOverRange || e.FirstScan >= r.end
	})
	from, err := s.seek(ctx, id, t.Chunks, r.from)
	if err != nil {
		return toStatus(operation, err)
	}
	return toStatus(operation, s.read(ctx, id, from, r, req.GetRaw()))
}

// read sends the chunks from number from on, calibrated or raw, until the range or the
// window ends, and the events up to there.
func (s *Service) read(ctx context.Context, id store.TaskID, from uint64, r *reading, raw bool) error {
	send := r.batches
	if raw {
		send = r.raw
	}
	begun := false
	for c, err := range s.db.Chunks(ctx, id, from) {
		if err != nil {
			return err
		}
		if c.FirstScan+uint64(c.Scans) <= r.from {
			continue
		}
		if c.FirstScan >= r.end {
			break
		}
		if !begun {
			if err := r.clipped(c); err != nil {
				return err
			}
			begun = true
		}
		if more, err := send(c); err != nil || !more {
			return err
		}
	}
	if !begun {
		if err := r.clipped(nil); err != nil {
			return err
		}
	}
	return r.eventsBefore(r.end)
}

// seek returns the number of the chunk that holds a scan, or of one before it.
// Chunk numbers have no holes and scans grow with them, so it bisects: a dozen
// reads instead of the whole way.
func (s *Service) seek(ctx context.Context, id store.TaskID, chunks, scan uint64) (uint64, error) {
	const few = 4
	// A chunk is borrowed while its iteration lasts: take the numbers only.
	probe := func(no uint64) (number, firstScan uint64, found bool, err error) {
		for c, err := range s.db.Chunks(ctx, id, no) {
			if err != nil {
				return 0, 0, false, err
			}
			return c.No, c.FirstScan, true, nil
		}
		return 0, 0, false, nil
	}
	first, _, found, err := probe(0)
	if err != nil || !found || chunks <= few {
		return 0, err
	}
	i := sort.Search(int(min(chunks, math.MaxInt32)), func(i int) bool {
		_, firstScan, found, e := probe(first + uint64(i))
		if e != nil {
			err = e
		}
		return !found || firstScan > scan
	})
	return first + uint64(max(0, i-1)), err
}

// Bounds on a batch: a reader with gRPC's default limit of 4 MiB must get it.
const (
	maxBatch      = 4096
	maxBatchBytes = 1 << 20
)

// reading is one call's way through a task. It belongs to one goroutine.
type reading struct {
	stream pb.TaskService_ReadSamplesServer
	setup  *measure.Setup
	meter  *measure.PowerMeter
	events []measure.Event // those still to come, by first scan

	base      uint64  // scan of sequence number 0
	from, end uint64  // scans wanted, end excluded
	zero      float64 // tick of the window's begin
	last      float64 // tick of the window's end, +Inf without one

	batch int // samples a message
	block measure.Block
	total []measure.Watt
	cols  measure.Columns
}

// newReading prepares a call's way through a task: sequence numbers and times begin with
// the window, where there is one. A setup that cannot be is store.ErrCorrupt.
func newReading(t *store.Task, stream pb.TaskService_ReadSamplesServer) (*reading, error) {
	meter, err := measure.NewPowerMeter(&t.Setup)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", store.ErrCorrupt, err)
	}
	r := &reading{
		stream: stream, setup: &t.Setup, meter: meter, events: slices.Clone(t.Events), last: math.Inf(1),
		batch: max(1, min(maxBatch, maxBatchBytes/(8*(2+3*len(t.Setup.Rails))))),
	}
	slices.SortStableFunc(r.events, func(a, b measure.Event) int { return cmp.Compare(a.FirstScan, b.FirstScan) })
	if w := t.Result; w != nil {
		tb := t.Setup.Timebase
		r.base, r.zero, r.last = w.FirstScan, tb.Ticks(w.From), tb.Ticks(w.To)
	}
	return r, nil
}

// over reports whether an event is over before the range begins, if its scans lie side
// by side.
func (r *reading) over(e measure.Event) bool {
	return e.FirstScan < r.from && saturated(e.FirstScan, e.Scans) <= r.from
}

// clipped drops over-range events that do not touch the range, given the first chunk of
// it, nil for none: such an event's scans may lie anywhere in its chunk.
func (r *reading) clipped(c *chunk.Chunk) (err error) {
	r.events = slices.DeleteFunc(r.events, func(e measure.Event) bool {
		switch {
		case e.Kind != measure.EventOverRange || e.FirstScan >= r.from:
			return false
		case e.Channel < 0 || e.Channel >= len(r.setup.Channels) ||
			r.setup.Channels[e.Channel].MinCount == r.setup.Channels[e.Channel].MaxCount:
			return r.over(e) // nothing in the counts shows it
		case c == nil || e.FirstScan < c.FirstScan:
			return true
		}
		touches := false
		cerr := c.OverRange(r.setup.Channels[e.Channel], e.Channel, func(scan uint64) {
			touches = touches || scan >= r.from && scan < r.end
		})
		err = errors.Join(err, cerr)
		return !touches
	})
	return err
}

// saturated returns a + b, or the largest number where that wraps.
func saturated(a, b uint64) uint64 {
	if a+b < a {
		return math.MaxUint64
	}
	return a + b
}

// eventsBefore sends the events whose first scan lies before scan.
func (r *reading) eventsBefore(scan uint64) error {
	for len(r.events) > 0 && r.events[0].FirstScan < scan {
		err := r.stream.Send(&pb.ReadSamplesResponse{
			Item: &pb.ReadSamplesResponse_Event{Event: wire.Event(r.events[0])},
		})
		if err != nil {
			return err
		}
		r.events = r.events[1:]
	}
	return nil
}

// raw sends a chunk as it is stored. more is false past the window's end.
func (r *reading) raw(c *chunk.Chunk) (more bool, err error) {
	if float64(c.FirstTick) > r.last {
		return false, r.eventsBefore(c.FirstScan)
	}
	if err := r.eventsBefore(c.FirstScan + uint64(c.Scans)); err != nil {
		return false, err
	}
	return true, wire.SendChunk(r.stream, c)
}

// batches sends the samples of a chunk, cut where an event begins. more is
// false past the window's end.
func (r *reading) batches(c *chunk.Chunk) (more bool, err error) {
	tb := r.setup.Timebase
	if err := chunk.Decode(c, tb, len(r.setup.Channels), &r.block); err != nil {
		return false, err
	}
	first := r.block.FirstScan
	lo := int(max(r.from, first) - first)
	hi := int(min(uint64(r.block.Scans()), r.end-first))
	// The window may end within the chunk: ticks grow, so its last scan is found by bisection.
	inside := sort.Search(r.block.Scans(), func(i int) bool { return r.block.TickAt(tb, i) > r.last })
	more, hi = inside == r.block.Scans(), min(hi, inside)
	for lo < hi {
		if err := r.eventsBefore(first + uint64(lo) + 1); err != nil {
			return false, err
		}
		n := min(hi-lo, r.batch)
		if len(r.events) > 0 {
			n = int(min(uint64(n), r.events[0].FirstScan-first-uint64(lo)))
		}
		if err := r.send(lo, lo+n); err != nil {
			return false, err
		}
		lo += n
	}
	if !more {
		return false, r.eventsBefore(first + uint64(inside))
	}
	return true, nil
}

// send sends scans [lo, hi) of the block. Every message has its own arrays:
// gRPC does not let a message be changed after it was sent.
func (r *reading) send(lo, hi int) error {
	tb := r.setup.Timebase
	part := r.block.Slice(tb, lo, hi)
	n := hi - lo
	b := &pb.SampleBatch{FirstSeq: part.FirstScan - r.base, TS: make([]float64, n)}
	for i := range b.TS {
		b.TS[i] = (r.block.TickAt(tb, lo+i) - r.zero) / float64(tb.TickHz)
	}
	// total and cols are reused; floats copies them for the message.
	r.total = r.meter.Total(&part, r.total)
	b.PowerW = floats(r.total)
	for i, rail := range r.setup.Rails {
		r.meter.Rail(i, &part, &r.cols)
		b.Rails = append(b.Rails, &pb.RailSamples{
			Rail: wire.Text(rail.Name), CurrentA: floats(r.cols.I), VoltageV: floats(r.cols.V),
			PowerW: floats(r.cols.P),
		})
	}
	return r.stream.Send(&pb.ReadSamplesResponse{Item: &pb.ReadSamplesResponse_Samples{Samples: b}})
}

// floats copies a column for a message.
func floats[T ~float64](column []T) []float64 {
	return lists.Map(column, func(v T) float64 { return float64(v) })
}

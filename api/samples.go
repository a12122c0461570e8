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
	"github.com/wattmark/wattmark/measure/wall"
	"github.com/wattmark/wattmark/store"
)

// ReadSamples streams a task's samples, calibrated or as raw chunks, with the
// events between them. gRPC's flow control holds it back when the reader is slow.
func (s *Service) ReadSamples(req *pb.ReadSamplesRequest, stream pb.TaskService_ReadSamplesServer) (err error) {
	defer func() { err = toStatus(fmt.Sprintf("read samples of task %d", req.GetTaskId()), err) }()
	ctx := stream.Context()
	t, err := s.taskResult(ctx, req.GetTaskId(), req.GetResult())
	if err != nil {
		return err
	}
	if !hasHeader(&t) {
		return store.ErrNoHeader
	}
	r, err := newReading(&t, stream)
	if err == nil && t.Result == nil {
		_, r.base, err = s.db.ChunkAt(ctx, t.ID, 0)
	}
	if err != nil {
		return err
	}
	r.from, r.end = saturated(r.base, req.GetFromSeq()), math.MaxUint64
	if limit := req.GetLimit(); limit > 0 {
		r.end = saturated(r.from, limit)
	}
	r.events = slices.DeleteFunc(r.events, func(e measure.Event) bool { // that do not touch the range
		return r.over(e) && e.Kind != measure.EventOverRange || e.FirstScan >= r.end
	})
	from, _, err := s.db.ChunkAt(ctx, t.ID, r.from)
	if err != nil {
		return err
	}
	return s.read(ctx, t.ID, from, r, req.GetRaw())
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
		if c.Sums != nil && float64(c.FirstTick) <= r.last { // an event stands for the deleted samples
			if err := r.eventsBefore(min(c.FirstScan+uint64(c.Scans), r.end)); err != nil {
				return err
			}
			continue
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
	return true, r.stream.Send(&pb.ReadSamplesResponse{
		Item: &pb.ReadSamplesResponse_Chunk{Chunk: wire.Chunk(c)},
	})
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

// Columns of ReadEnvelope and slices of ReadTimeline.
const (
	defaultColumns = 1000
	maxColumns     = 8192
	defaultSlices  = 2000
	maxSlices      = 20000
)

// spanning is a request about a span of a task's device time.
type spanning interface {
	GetTaskId() int64
	GetFromS() float64
	GetToS() float64
}

// extent is the span of a task that a request is about, and how many of something are wanted of it.
type extent struct {
	id       store.TaskID
	from, to measure.Seconds
	n        int
}

// amount is how many of something a request asks for, 0 for the usual number.
type amount struct {
	field       string
	asked       int32
	usual, most int
}

// span returns the task and the span that a request is about: with no bounds the
// window, and without a window all that is stored.
func (s *Service) span(ctx context.Context, req spanning, wanted amount) (x extent, err error) {
	if x.n, err = wanted.bounded(); err != nil {
		return x, err
	}
	if x.id, err = validID(req.GetTaskId()); err != nil {
		return x, err
	}
	x.from, x.to = measure.Seconds(req.GetFromS()), measure.Seconds(req.GetToS())
	for i, v := range []float64{req.GetFromS(), req.GetToS()} {
		// Device time counts from the capture's first sample; 30 years are enough.
		if math.IsNaN(v) || math.Abs(v) > 1e9 {
			return x, invalid([]string{"from_s", "to_s"}[i], "%v: want seconds of device time", v)
		}
	}
	if x.from != 0 || x.to != 0 {
		if !(x.from < x.to) {
			return x, invalid("to_s", "%v s is not after from_s, %v s", float64(x.to), float64(x.from))
		}
		return x, nil
	}
	var windowed bool
	if x.from, x.to, windowed, err = s.db.Window(ctx, x.id); err == nil && !windowed {
		x.from, x.to, err = s.db.Extent(ctx, x.id)
		if err == nil && !(x.from < x.to) {
			err = store.ErrNoHeader
		}
	}
	return x, toStatus(fmt.Sprintf("read task %d", x.id), err)
}

// bounded returns the number that is wanted.
func (a amount) bounded() (int, error) {
	n := int(a.asked)
	if n < 0 || n > a.most {
		return 0, invalid(a.field, "%d: want 1 to %d, or 0 for %d", n, a.most, a.usual)
	}
	return cmp.Or(n, a.usual), nil
}

// ReadEnvelope returns a task's power between two device times, as
// columns to draw.
func (s *Service) ReadEnvelope(ctx context.Context, req *pb.ReadEnvelopeRequest) (*pb.ReadEnvelopeResponse, error) {
	x, err := s.span(ctx, req, amount{"columns", req.GetColumns(), defaultColumns, maxColumns})
	if err != nil {
		return nil, err
	}
	e, err := s.db.Envelope(ctx, x.id, x.from, x.to, x.n)
	if err != nil {
		return nil, toStatus(fmt.Sprintf("read the envelope of task %d", x.id), err)
	}
	for i, name := range req.GetRails() {
		if !slices.Contains(e.Series, name) {
			return nil, invalid(fmt.Sprintf("rails[%d]", i), "%q is not a rail of task %d: it has %q", name, x.id,
				e.Series)
		}
	}
	res := &pb.ReadEnvelopeResponse{
		FromS: float64(e.From), ToS: float64(e.To), Columns: int32(x.n), BinSamples: e.BinScans,
	}
	for i, name := range e.Series {
		if len(req.GetRails()) > 0 && !slices.Contains(req.GetRails(), name) {
			continue
		}
		series := &pb.EnvelopeSeries{Rail: wire.Text(name)}
		for c, b := range e.Columns[i] {
			if b.N == 0 {
				continue
			}
			series.Column = append(series.Column, uint32(c))
			if req.GetFloats() {
				series.Values = append(series.Values, float32(b.Min), float32(b.Max), float32(b.Mean()))
				continue
			}
			series.MinW = append(series.MinW, float64(b.Min))
			series.MaxW = append(series.MaxW, float64(b.Max))
			series.MeanW = append(series.MeanW, float64(b.Mean()))
			series.Samples = append(series.Samples, uint64(b.N))
		}
		res.Series = append(res.Series, series)
	}
	return res, nil
}

// ReadEnergy returns the energy between two device times, from the samples.
func (s *Service) ReadEnergy(ctx context.Context, req *pb.ReadEnergyRequest) (*pb.ReadEnergyResponse, error) {
	x, err := s.span(ctx, req, amount{})
	if err != nil {
		return nil, err
	}
	r, err := s.db.SpanEnergy(ctx, x.id, x.from, x.to)
	switch {
	case errors.Is(err, measure.ErrWindow), errors.Is(err, measure.ErrNoData), errors.Is(err, store.ErrSpan):
		return nil, invalid("from_s", "%v", err)
	case err != nil:
		return nil, toStatus(fmt.Sprintf("read the energy of task %d", x.id), err)
	}
	res := energyMessage(r)
	switch whole, err := s.db.AtWall(ctx, x.id, &r, measure.Edges{}); {
	case err == nil:
		res.Wall, res.Rest = wire.Energy(whole.Wall), wire.Energy(whole.Rest)
	case !errors.Is(err, wall.ErrNone):
		res.WallTrouble = err.Error()
	}
	if s.works.Sensed == nil {
		return res, nil
	}
	// The GPU's own sensor, where it was read.
	t, err := s.taskResult(ctx, int64(x.id), 0)
	if err == nil {
		var e *measure.Joule
		if e, res.NvmlMethod, err = s.works.Sensed(ctx, &t, measure.Window{From: x.from, To: x.to}); e != nil {
			res.Nvml = &pb.ReadEnergyResponse_NvmlJ{NvmlJ: float64(*e)}
		}
	}
	return res, toStatus(fmt.Sprintf("read the sensor's energy of task %d", x.id), err)
}

// ReadTimeline returns the kernels that ran between two device times.
func (s *Service) ReadTimeline(ctx context.Context, req *pb.ReadTimelineRequest) (*pb.ReadTimelineResponse, error) {
	x, err := s.span(ctx, req, amount{"max_slices", req.GetMaxSlices(), defaultSlices, maxSlices})
	if err != nil {
		return nil, err
	}
	t, err := s.db.Timeline(ctx, x.id, x.from, x.to, x.n)
	if err != nil {
		return nil, toStatus(fmt.Sprintf("read the timeline of task %d", x.id), err)
	}
	res := timelineMessage(t)
	res.FromS, res.ToS = float64(x.from), float64(x.to)
	for _, m := range res.Slices {
		m.Name = Readable(m.Name)
	}
	return res, nil
}

// Readings a method of ReadReadings.
const (
	defaultReadings = 2000
	maxReadings     = 20000
)

// ReadReadings returns the readings by software of the GPU's own sensors between two
// device times.
func (s *Service) ReadReadings(ctx context.Context, req *pb.ReadReadingsRequest) (*pb.ReadReadingsResponse, error) {
	x, err := s.span(ctx, req, amount{"max_readings", req.GetMaxReadings(), defaultReadings, maxReadings})
	if err != nil {
		return nil, err
	}
	// The least and the greatest are two.
	t, err := s.db.Traces(ctx, x.id, req.GetMethods(), x.from, x.to, max(2, x.n))
	if err != nil {
		return nil, toStatus(fmt.Sprintf("read the readings of task %d", x.id), err)
	}
	res := readingsMessage(t)
	res.FromS, res.ToS = float64(x.from), float64(x.to)
	return res, nil
}

package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	pb "github.com/wattmark/wattmark/api/wattmarkv1"
	"github.com/wattmark/wattmark/api/wire"
	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/store"
)

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
	res := &pb.ReadEnergyResponse{
		FromS: float64(r.From), ToS: float64(r.To), Energy: wire.Energy(r.Total), MeanW: float64(r.Mean),
		PeakW: float64(r.Peak), Samples: r.Samples, Gaps: r.Gaps, Lost: r.Lost, Budget: wire.Budget(r.Budget),
	}
	res.Rails = lists.Map(r.Rails, wire.RailResult)
	return res, s.addSensed(ctx, x, res)
}

// addSensed adds the energy by the GPU's own sensor, where it was read.
func (s *Service) addSensed(ctx context.Context, x extent, res *pb.ReadEnergyResponse) error {
	if s.works.Sensed == nil {
		return nil
	}
	t, err := s.taskResult(ctx, x.id, 0)
	if err == nil {
		var e *measure.Joule
		if e, res.NvmlMethod, err = s.works.Sensed(ctx, &t, measure.Window{From: x.from, To: x.to}); e != nil {
			res.Nvml = &pb.ReadEnergyResponse_NvmlJ{NvmlJ: float64(*e)}
		}
	}
	return toStatus(fmt.Sprintf("read the sensor's energy of task %d", x.id), err)
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
	return &pb.ReadTimelineResponse{
		FromS: float64(x.from), ToS: float64(x.to), Kernels: t.Kernels, Merged: t.Merged, Recorded: t.Recorded,
		Unfitted: t.Unfitted,
		Slices: lists.Map(t.Slices, func(x store.Slice) *pb.TimelineSlice {
			return &pb.TimelineSlice{
				FromS: float64(x.From), ToS: float64(x.To), Name: Readable(x.Name), Kernels: x.Kernels,
				BusyS: float64(x.Busy), Device: x.Device, Stream: x.Stream,
			}
		}),
	}, nil
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
	return &pb.ReadReadingsResponse{
		FromS: float64(x.from), ToS: float64(x.to), Unfitted: t.Unfitted, Methods: lists.Map(t.Methods, wire.Text),
		Traces: lists.Map(t.Traces, func(r store.Trace) *pb.ReadingTrace {
			return &pb.ReadingTrace{
				Method: wire.Text(r.Method), TS: floats(r.At), Value: r.Value, Thinned: r.Thinned,
				UntilS: float64(r.Until),
			}
		}),
	}, nil
}

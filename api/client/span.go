package client

import (
	"context"
	"fmt"
	"slices"

	"wattmark/api/wattmarkv1"
	"wattmark/api/wire"
	"wattmark/measure"
)

// Span is a stretch of device time; the zero Span is the window, or all that is
// stored where there is none.
type Span struct{ From, To measure.Seconds }

// Column is what a rail's power did within a column of an envelope.
type Column struct {
	Number         int // from 0; those without samples are left out
	Min, Max, Mean measure.Watt
	Samples        uint64
}

// Envelope is a stretch of a task as columns to draw.
type Envelope struct {
	Span
	Columns int // of which each is To−From over Columns long
	// BinSamples is how many samples a bin of the finest that was looked at has; 1 for
	// single ones.
	BinSamples uint64
	Series     []Series
}

// Series is one rail, or "total".
type Series struct {
	Rail    string
	Columns []Column
}

// Envelope reads what a task's power did, in so many columns; 0 leaves their number
// to the server. rails are those wanted, none for all.
func (c *Client) Envelope(ctx context.Context, id int64, s Span, columns int, rails ...string) (Envelope, error) {
	res, err := c.stub.ReadEnvelope(ctx, &wattmarkv1.ReadEnvelopeRequest{
		TaskId: id, FromS: float64(s.From), ToS: float64(s.To), Columns: int32(min(max(columns, -1), 1<<20)), Rails: rails,
	})
	if err != nil {
		return Envelope{}, err
	}
	e := Envelope{
		Span: Span{measure.Seconds(res.FromS), measure.Seconds(res.ToS)}, Columns: int(res.Columns), BinSamples: res.BinSamples,
	}
	for _, p := range res.Series {
		n := len(p.GetColumn())
		if slices.ContainsFunc([]int{len(p.GetMinW()), len(p.GetMaxW()), len(p.GetMeanW()), len(p.GetSamples())}, func(l int) bool { return l != n }) {
			return Envelope{}, fmt.Errorf("%w: arrays of different lengths for rail %q", wire.ErrMessage, p.GetRail())
		}
		series := Series{Rail: p.GetRail(), Columns: make([]Column, n)}
		for i := range series.Columns {
			series.Columns[i] = Column{
				Number: int(p.Column[i]), Min: measure.Watt(p.MinW[i]), Max: measure.Watt(p.MaxW[i]), Mean: measure.Watt(p.MeanW[i]), Samples: p.Samples[i],
			}
		}
		e.Series = append(e.Series, series)
	}
	return e, nil
}

// Energy integrates a task's power over a span. The uncertainty takes the span's
// ends as exact. Spans of more than some ten million samples are refused: part
// them, the parts add up.
func (c *Client) Energy(ctx context.Context, id int64, s Span) (measure.Result, error) {
	res, err := c.stub.ReadEnergy(ctx, &wattmarkv1.ReadEnergyRequest{TaskId: id, FromS: float64(s.From), ToS: float64(s.To)})
	if err != nil {
		return measure.Result{}, err
	}
	r := measure.Result{
		From: measure.Seconds(res.FromS), To: measure.Seconds(res.ToS), Samples: res.Samples, Gaps: res.Gaps, Lost: res.Lost,
		Mean: measure.Watt(res.MeanW), Peak: measure.Watt(res.PeakW),
	}
	if r.Total, err = wire.ParseEnergy(res.Energy); err != nil {
		return measure.Result{}, err
	}
	for _, p := range res.Rails {
		rail, err := wire.ParseRailResult(p)
		if err != nil {
			return measure.Result{}, err
		}
		r.Rails = append(r.Rails, rail)
	}
	r.Budget, err = wire.ParseBudget(res.Budget)
	return r, err
}

// Slice is one kernel on the timeline, or several that follow each other.
type Slice struct {
	Span
	Name           string // of several, of the one that was busy the longest
	Kernels        uint64
	Busy           measure.Seconds
	Device, Stream uint32 // of one recorded kernel
}

// Timeline is what ran in a span.
type Timeline struct {
	Span
	Slices   []Slice
	Kernels  uint64 // that begin in it
	Merged   bool   // slices hold several kernels
	Recorded bool   // CUPTI's record; otherwise what the host noted of the work
	Unfitted bool   // without a clock fit: times are off by as much as the clocks differ
}

// Timeline reads what ran in a span, in at most so many slices; 0 leaves their
// number to the server.
func (c *Client) Timeline(ctx context.Context, id int64, s Span, slices int) (Timeline, error) {
	res, err := c.stub.ReadTimeline(ctx, &wattmarkv1.ReadTimelineRequest{
		TaskId: id, FromS: float64(s.From), ToS: float64(s.To), MaxSlices: int32(min(max(slices, -1), 1<<20)),
	})
	if err != nil {
		return Timeline{}, err
	}
	t := Timeline{
		Span:    Span{measure.Seconds(res.FromS), measure.Seconds(res.ToS)},
		Kernels: res.Kernels, Merged: res.Merged, Recorded: res.Recorded, Unfitted: res.Unfitted,
	}
	for _, p := range res.Slices {
		t.Slices = append(t.Slices, Slice{
			Span: Span{measure.Seconds(p.GetFromS()), measure.Seconds(p.GetToS())}, Name: p.GetName(), Kernels: p.GetKernels(),
			Busy: measure.Seconds(p.GetBusyS()), Device: p.GetDevice(), Stream: p.GetStream(),
		})
	}
	return t, nil
}

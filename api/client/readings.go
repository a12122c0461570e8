package client

import (
	"context"
	"fmt"

	"wattmark/api/wattmarkv1"
	"wattmark/api/wire"
	"wattmark/measure"
)

// Reading is one value that software read, and when in device time. It holds until
// the next one.
type Reading struct {
	At measure.Seconds
	// Value is in the method's own unit: watts of power fields, joules of energy
	// counters, °C, MHz. NaN is a reading that failed.
	Value float64
}

// Trace is what one method read, by time.
type Trace struct {
	Method   string // "nvml.instant", "nvml.average", "nvml.temperature", …
	Readings []Reading
	Thinned  bool // of each stretch of time only the least and the greatest are left
	// Until is when the first reading behind the span was taken, until which the last one
	// here holds; the time of the last one where none was.
	Until measure.Seconds
}

// Readings is what software read of a GPU's own sensors in a span.
type Readings struct {
	Span
	Methods  []string // all that were read of the task, also those not asked for
	Traces   []Trace  // one each of those asked for that read anything
	Unfitted bool     // without a clock fit: times are off by as much as the clocks differ
}

// Readings reads what software said of a task over a span, beside the meter. most is how many readings a
// method may have, 0 for what the server thinks fit; methods are those wanted, none
// for all. A reading holds until the next one, so the last one before the span comes first.
func (c *Client) Readings(ctx context.Context, id int64, s Span, most int, methods ...string) (Readings, error) {
	res, err := c.stub.ReadReadings(ctx, &wattmarkv1.ReadReadingsRequest{
		TaskId: id, FromS: float64(s.From), ToS: float64(s.To), Methods: methods, MaxReadings: int32(min(max(most, -1), 1<<20)),
	})
	if err != nil {
		return Readings{}, err
	}
	out := Readings{
		Span:    Span{measure.Seconds(res.FromS), measure.Seconds(res.ToS)},
		Methods: res.Methods, Unfitted: res.Unfitted,
	}
	for _, p := range res.Traces {
		if len(p.GetTS()) != len(p.GetValue()) {
			return Readings{}, fmt.Errorf("%w: %d times for %d readings of %q", wire.ErrMessage, len(p.GetTS()), len(p.GetValue()), p.GetMethod())
		}
		t := Trace{Method: p.GetMethod(), Thinned: p.GetThinned(), Until: measure.Seconds(p.GetUntilS()), Readings: make([]Reading, len(p.GetTS()))}
		for i := range t.Readings {
			t.Readings[i] = Reading{measure.Seconds(p.TS[i]), p.Value[i]}
		}
		out.Traces = append(out.Traces, t)
	}
	return out, nil
}

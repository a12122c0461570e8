package monitorclient

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"wattmark/api/wattmarkv1"
	"wattmark/measure"
)

// RailValue is one rail, averaged over a moment.
type RailValue struct {
	Rail    string
	Power   measure.Watt
	Voltage measure.Volt   // 0 where it is not measured
	Current measure.Ampere // 0 where it is not measured
}

// Moment is what a monitor shows live: averages since the moment before.
type Moment struct {
	CaptureID string          // empty for a free bench
	T         measure.Seconds // device time at the end of the average
	Rails     []RailValue
	Total     measure.Watt
	Dropped   uint64 // moments that this viewer was too slow for
	// Rate, Scans and Lost are zero where the monitor speaks 1.0.
	Rate        measure.Hertz
	Scans, Lost uint64
	// Gaps are stretches of lost scans, OverRange readings at the end of a converter's range.
	Gaps, OverRange uint64
	// Trouble says why a free bench cannot be sampled now; there are no rails then.
	Trouble string
}

// WatchOptions say what is to be seen.
type WatchOptions struct {
	Every time.Duration // distance of the moments in device time; 100 ms when zero
	Idle  bool          // sample a bench that nobody holds, too
}

// Watch hands live moments to see until ctx ends (nil), see fails, or the line
// breaks. It is not repeated: who looks on decides what to do.
func (c *Client) Watch(ctx context.Context, o WatchOptions, see func(Moment) error) error {
	q := &wattmarkv1.WatchRailsRequest{Idle: o.Idle}
	if o.Every > 0 {
		q.Every = durationpb.New(o.Every)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s, err := c.rpc.WatchRails(ctx, q)
	for err == nil {
		var a *wattmarkv1.WatchRailsResponse
		if a, err = s.Recv(); err == nil {
			m, merr := moment(a)
			if merr != nil {
				return fmt.Errorf("watch rails: monitor %s: %w", c.address, merr)
			}
			if serr := see(m); serr != nil {
				return serr
			}
		}
	}
	if ctx.Err() != nil || errors.Is(err, io.EOF) {
		return nil
	}
	return c.fail("watch rails", err)
}

// mostRails bounds what a monitor can make a viewer keep.
const mostRails = 1024

func moment(a *wattmarkv1.WatchRailsResponse) (Moment, error) {
	m := Moment{
		CaptureID: a.CaptureId, T: seconds(a.TS), Total: measure.Watt(a.TotalW), Dropped: a.Dropped,
		Rate: hertz(a.SampleRateHz), Scans: a.Scans, Lost: a.Lost, Gaps: a.Gaps, OverRange: a.OverRange, Trouble: measure.Printable(a.Trouble),
	}
	if len(a.Rails) > mostRails {
		return m, fmt.Errorf("%d rails: at most %d are shown", len(a.Rails), mostRails)
	}
	for _, r := range a.Rails {
		for _, v := range []float64{r.PowerW, r.VoltageV, r.CurrentA} {
			if math.IsNaN(v) || math.IsInf(v, 0) {
				return m, fmt.Errorf("rail %s: %v is no reading", measure.Printable(r.Rail), v)
			}
		}
		m.Rails = append(m.Rails, RailValue{
			Rail: measure.Printable(r.Rail), Power: measure.Watt(r.PowerW), Voltage: measure.Volt(r.VoltageV), Current: measure.Ampere(r.CurrentA),
		})
	}
	return m, nil
}

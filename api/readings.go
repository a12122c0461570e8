package api

import (
	"context"
	"fmt"

	"wattmark/api/wattmarkv1"
	"wattmark/api/wire"
)

// Readings a method of ReadReadings.
const (
	defaultReadings = 2000
	maxReadings     = 20000
)

// ReadReadings returns what software read of the GPU's own sensors between two
// device times.
func (s *Service) ReadReadings(ctx context.Context, req *wattmarkv1.ReadReadingsRequest) (*wattmarkv1.ReadReadingsResponse, error) {
	n, err := bounded("max_readings", req.GetMaxReadings(), defaultReadings, maxReadings)
	if err != nil {
		return nil, err
	}
	id, from, to, err := s.span(ctx, req)
	if err != nil {
		return nil, err
	}
	// The least and the greatest are two.
	t, err := s.db.Traces(ctx, id, req.GetMethods(), from, to, max(2, n))
	if err != nil {
		return nil, toStatus(fmt.Sprintf("read the readings of task %d", id), err)
	}
	res := &wattmarkv1.ReadReadingsResponse{FromS: float64(from), ToS: float64(to), Unfitted: t.Unfitted}
	for _, m := range t.Methods {
		res.Methods = append(res.Methods, wire.Text(m))
	}
	for _, r := range t.Traces {
		res.Traces = append(res.Traces, &wattmarkv1.ReadingTrace{
			Method: wire.Text(r.Method), TS: floats(r.At), Value: r.Value, Thinned: r.Thinned, UntilS: float64(r.Until),
		})
	}
	return res, nil
}

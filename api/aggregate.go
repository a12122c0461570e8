package api

import (
	"context"

	"wattmark/api/wattmarkv1"
	"wattmark/api/wire"
	"wattmark/measure"
	"wattmark/store"
)

// Rows of Aggregate.
const (
	defaultRows = 100
	maxRows     = 10000
)

// maxOffsetMin is a day and a bit: no clock on land is further from Greenwich.
const maxOffsetMin = 26 * 60

// Aggregate adds tasks up: by user, day, GPU, kernel, job or a tag.
func (s *Service) Aggregate(ctx context.Context, req *wattmarkv1.AggregateRequest) (*wattmarkv1.AggregateResponse, error) {
	f, err := filter(req)
	if err != nil {
		return nil, err
	}
	limit, err := bounded("limit", req.GetLimit(), defaultRows, maxRows)
	if err != nil {
		return nil, err
	}
	if by := req.GetBy(); by < wattmarkv1.AggregateBy_AGGREGATE_BY_USER || by > wattmarkv1.AggregateBy_AGGREGATE_BY_TAG {
		return nil, invalid("by", "%v: want user, day, GPU, kernel, job or tag", by)
	}
	if err := tagKey(req); err != nil {
		return nil, err
	}
	offset := req.GetUtcOffsetMin()
	if offset < -maxOffsetMin || offset > maxOffsetMin {
		return nil, invalid("utc_offset_min", "%d: want minutes east of Greenwich, at most %d either way", offset, maxOffsetMin)
	}
	// The groupings' numbers are the store's.
	rows, err := s.db.Aggregate(ctx, store.AggregateQuery{
		Filter: f, By: store.Grouping(req.GetBy()), Offset: measure.Seconds(60 * float64(offset)), Tag: req.GetTagKey(),
	})
	if err != nil {
		return nil, toStatus("add tasks up", err)
	}
	sum, err := s.db.Totals(ctx, f)
	if err != nil {
		return nil, toStatus("add tasks up", err)
	}
	res := &wattmarkv1.AggregateResponse{RowCount: uint64(len(rows)), Totals: totals(sum)}
	for _, r := range rows[:min(limit, len(rows))] {
		res.Rows = append(res.Rows, &wattmarkv1.AggregateRow{
			Key: wire.Text(r.Key), Label: wire.Text(r.Label), Totals: totals(r.Totals), Launches: r.Launches,
		})
	}
	return res, nil
}

// tagKey checks the key of a grouping by tag, which no other has.
func tagKey(req *wattmarkv1.AggregateRequest) error {
	key, byTag := req.GetTagKey(), req.GetBy() == wattmarkv1.AggregateBy_AGGREGATE_BY_TAG
	switch {
	case byTag:
		if err := store.CheckTags(map[string]string{key: ""}); err != nil {
			return invalid("tag_key", "%v", err)
		}
	case key != "":
		return invalid("tag_key", "%q goes with AGGREGATE_BY_TAG alone", key)
	}
	return nil
}

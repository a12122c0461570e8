package api

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"wattmark/api/wattmarkv1"
	"wattmark/api/wire"
	"wattmark/store"
)

// listing is a request for a page, checked.
type listing struct {
	store.ListQuery
	verdicts []wattmarkv1.Verdict
	judge    bool // verdicts are wanted
	mask     mask
}

// ListTasks finds tasks, in an order and in pages.
func (s *Service) ListTasks(ctx context.Context, req *wattmarkv1.ListTasksRequest) (*wattmarkv1.ListTasksResponse, error) {
	q, err := question(req)
	if err != nil {
		return nil, err
	}
	page, err := s.db.List(ctx, q.ListQuery)
	if err != nil {
		return nil, toStatus("list tasks", err)
	}
	res := &wattmarkv1.ListTasksResponse{Tasks: make([]*wattmarkv1.Task, 0, len(page.Tasks))}
	if page.Next != nil {
		res.NextPageToken = pageToken(page.Next, &q.ListQuery)
	}
	for i := range page.Tasks {
		m := taskMessage(&page.Tasks[i])
		if q.judge {
			if m.Verdict, err = s.verdict(ctx, &page.Tasks[i]); err != nil {
				return nil, toStatus("list tasks", err)
			}
		}
		if len(q.verdicts) > 0 && !slices.Contains(q.verdicts, m.Verdict) {
			continue
		}
		q.mask.apply(m)
		res.Tasks = append(res.Tasks, m)
	}
	if req.GetWithTotals() {
		t, err := s.db.Totals(ctx, q.Filter)
		if err != nil {
			return nil, toStatus("add tasks up", err)
		}
		res.Totals = totals(t)
	}
	return res, nil
}

// verdict judges a task of a list, of which the list does not tell enough.
func (s *Service) verdict(ctx context.Context, t *store.Brief) (wattmarkv1.Verdict, error) {
	if t.State == store.Running {
		return wattmarkv1.Verdict_VERDICT_UNSPECIFIED, nil
	}
	whole, err := s.db.TaskResult(ctx, t.ID, 0)
	if errors.Is(err, store.ErrNotFound) { // it went away meanwhile
		return wattmarkv1.Verdict_VERDICT_UNSPECIFIED, nil
	}
	if err != nil {
		return 0, err
	}
	v, _ := judge(&whole)
	return v, nil
}

// question validates a request for a page.
func question(req *wattmarkv1.ListTasksRequest) (q listing, err error) {
	if q.Filter, err = filter(req); err != nil {
		return q, err
	}
	switch q.Limit = int(req.GetPageSize()); {
	case q.Limit < 0:
		return q, invalid("page_size", "%d: must not be negative", q.Limit)
	case q.Limit == 0:
		q.Limit = defaultPage
	case q.Limit > maxPage:
		q.Limit = maxPage
	}
	for i, v := range req.GetVerdicts() {
		if v < wattmarkv1.Verdict_VERDICT_GOOD || v > wattmarkv1.Verdict_VERDICT_VOID {
			return q, invalid(fmt.Sprintf("verdicts[%d]", i), "%v: not a verdict", v)
		}
	}
	if req.GetOrder() < 0 || req.GetOrder() > wattmarkv1.TaskOrder_TASK_ORDER_NAME {
		return q, invalid("order", "%v: not an order", req.GetOrder())
	}
	if q.mask, err = parseMask(req.GetReadMask()); err != nil {
		return q, err
	}
	q.verdicts, q.judge = req.GetVerdicts(), len(req.GetVerdicts()) > 0 || q.mask.names("verdict")
	// The orders' numbers are the store's.
	q.Order, q.Ascending = max(store.ByID, store.Order(req.GetOrder())), req.GetAscending()
	q.After, err = parsePageToken(req.GetPageToken(), &q.ListQuery)
	return q, err
}

func totals(t store.Totals) *wattmarkv1.Totals {
	return &wattmarkv1.Totals{
		Tasks: t.Tasks, Measured: t.Measured, Energy: wire.Energy(t.Energy), DurationS: float64(t.Duration), Samples: t.Samples,
	}
}

// taskMessage converts what both a list and a single task show.
func taskMessage(t *store.Brief) *wattmarkv1.Task {
	m := &wattmarkv1.Task{
		TaskId: int64(t.ID), Name: wire.Text(t.Name), User: wire.Text(t.User), State: wattmarkv1.TaskState(t.State),
		Reason: wire.Text(t.Reason), Launched: wire.Time(t.Launched), Gpu: wire.Text(t.GPU), Stored: t.Scans,
		GroupId: int64(t.Group), Job: wire.Text(t.Job), GpuUuid: wire.Text(t.GPUUUID),
		Tags: tagMessages(t.Tags), Pinned: t.Pinned,
	}
	if t.NVML != nil && !math.IsNaN(float64(*t.NVML)) {
		m.Nvml = &wattmarkv1.Task_NvmlJ{NvmlJ: float64(*t.NVML)}
	}
	if r := t.Result; r != nil {
		m.Samples, m.Gaps, m.Lost = r.Samples, r.Gaps, r.Lost
		m.DurationS = float64(r.To - r.From)
		m.Energy, m.MeanW, m.PeakW = wire.Energy(r.Total), float64(r.Mean), float64(r.Peak)
	}
	return m
}

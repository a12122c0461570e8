package monitor

import (
	"context"

	"wattmark/api/auth"
	"wattmark/api/wattmarkv1"
)

func (s *service) EndCapture(ctx context.Context, q *wattmarkv1.EndCaptureRequest) (*wattmarkv1.EndCaptureResponse, error) {
	by := q.By
	if who, known := auth.From(ctx); known { // and an operator: auth.Rows
		by = who.Name
	}
	c, err := s.owner.End(ctx, q.CaptureId, by, q.Reason)
	if err != nil {
		return nil, toStatus(err)
	}
	sum := c.Summary()
	return &wattmarkv1.EndCaptureResponse{
		CaptureId: c.ID(), Holder: c.Holder(), State: wattmarkv1.CaptureState(sum.State), Reason: sum.Reason,
	}, nil
}

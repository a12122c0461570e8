package monitor

import (
	"context"
	"strings"

	"wattmark/api/auth"
	"wattmark/monitor/capture"
)

// own returns a capture that the caller may end: their own one, or with the role of
// operator anybody's.
func (s *service) own(ctx context.Context, id string) (*capture.Capture, error) {
	c, err := s.owner.Get(id)
	if err != nil {
		return nil, err
	}
	return c, auth.Own(ctx, "capture "+c.ID(), c.Owner(), auth.Operator)
}

// signed puts the caller's name on a request, where callers are asked who they are: what
// they say of themselves is kept only as far as it agrees.
func signed(ctx context.Context, req capture.Request) capture.Request {
	who, known := auth.From(ctx)
	if !known {
		return req
	}
	req.Owner = who.Name
	switch user, _, _ := strings.Cut(req.Holder, "@"); {
	case user == who.Name:
	case who.Role >= auth.Operator && req.Holder != "": // a host measures for its users
		req.Holder += " by " + who.Name
	default:
		req.Holder = who.Name
	}
	return req
}

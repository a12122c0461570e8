package capture

import (
	"context"
	"fmt"

	"wattmark/measure"
)

// End takes the bench from its holder: the capture, or the one that has the bench
// where none is named, ends INCOMPLETE with who did it and why. What has ended stays
// as it is. It returns when the end is durable. Errors wrap ErrRequest or ErrUnknown.
func (o *Owner) End(ctx context.Context, id, by, why string) (*Capture, error) {
	for what, text := range map[string]string{"who": by, "why": why} {
		if text == "" {
			return nil, fmt.Errorf("%w: say who ends another's capture, and why: no %s", ErrRequest, what)
		}
		if err := measure.CheckText(what, text); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrRequest, err)
		}
	}
	if id == "" {
		if id = o.line.held().captureID; id == "" {
			return nil, fmt.Errorf("%w: nobody has the bench", ErrUnknown)
		}
	}
	c, err := o.Get(id)
	if err != nil {
		return nil, err
	}
	if !c.Summary().State.Ended() {
		o.cfg.Log.Warn("the bench is taken from its holder", "capture", id, "holder", c.req.Holder, "by", by, "reason", why)
	}
	c.end(Failed, fmt.Sprintf("taken over by %s: %s", by, why))
	select {
	case <-c.ended:
		return c, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("end capture %s: %w", id, ctx.Err())
	}
}

// Holder is who asked for the capture.
func (c *Capture) Holder() string { return c.req.Holder }

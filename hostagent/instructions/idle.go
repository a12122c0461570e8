package instructions

import (
	"context"
	"errors"
	"time"

	"wattmark/hostagent"
	"wattmark/measure"
)

// Idle is the name under which the power of a GPU with a context and without a
// kernel is recorded.
const Idle = "idle"

// idle measures the GPU at rest.
func (p *Plan) idle(ctx context.Context, sensor Sensor, s Setting) (Run, error) {
	r := Run{Instruction: Idle, Setting: s}
	if err := pause(ctx, p.Settle[WholeGPU]); err != nil {
		return r, err
	}
	w := watch(ctx, sensor)
	at := hostagent.Span{Start: time.Now()}
	err := pause(ctx, p.Length[s.Layout])
	at.End = time.Now()
	c := sensor.Condition()
	if err := errors.Join(err, w.end()); err != nil {
		return r, err
	}
	if ctx.Err() != nil {
		return r, context.Cause(ctx)
	}
	r.span = at
	r.Time = measure.SecondsOf(at.End.Sub(at.Start))
	r.Power, r.Reads = w.means(at), w.rate()
	r.at(c)
	return r, nil
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}

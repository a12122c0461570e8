package rigol

import (
	"context"
	"time"

	"wattmark/monitor/instrument/scope"
	"wattmark/monitor/scpi"
)

// MSO5000 is the MSO5074 and its sisters: two or four channels of 8 bits on a
// memory of 100 million points (an option doubles it). Sources: its programming
// manual; the limits are from memory of its data sheet.
var MSO5000 = &scope.Family{
	Kind: "rigol-mso5000", Name: "Rigol MSO5000 (MSO5072, MSO5074, MSO5104, …)", Port: 5555,
	Channels: 4, Usual: 4, Memory: 100_000_000, MaxWindow: 10 * 50 * time.Second,
	MinScale: 5e-4, MaxScale: 10, MaxOffset: 100,
	Depths: inSteps(1000, 10_000, 100_000, 1_000_000, 10_000_000, 25_000_000, 50_000_000, 100_000_000),
	Spec:   scope.Spec{Gain: 0.02, ZeroDiv: 0.1, ZeroVolt: 2e-3, OffsetPart: 0.015, Clock: 10e-6, NoiseCodes: 0.7},
	Dialect: func() scope.Dialect {
		return &mso5000{ds1000z: ds1000z{common{divisions: 10, above: 4.9, wide: true, depth: suffixed, setup: []string{":TRIG:SWE AUTO"}}}}
	},
}

// inSteps are those of some depths that fit a channel's share of memory.
func inSteps(all ...int) func(m scope.Model, used int) []int {
	return func(m scope.Model, used int) (out []int) {
		for _, d := range all {
			if d*share(used) <= m.Memory {
				out = append(out, d)
			}
		}
		return out
	}
}

// mso5000 is a DS1000Z that wants to be waited for: read too soon after a
// trigger it sends a block's header and then nothing, until mode and format were
// set once more.
type mso5000 struct {
	ds1000z
	fresh bool // triggered since somebody last waited
}

// settle is how long it gets behind a stop.
const settle = 100 * time.Millisecond

// Force triggers.
func (d *mso5000) Force(ctx context.Context, c *scpi.Client) error {
	d.fresh = true
	return d.ds1000z.Force(ctx, c)
}

// Read waits until the scope has done what it was told, and then sets everything
// anew. The Device asks again where the scope was not ready yet.
func (d *mso5000) Read(ctx context.Context, c *scpi.Client, channel, first, n int, dst []byte) ([]byte, error) {
	if err := c.Command(ctx, "*WAI"); err != nil {
		return dst, err
	}
	return d.ds1000z.Read(ctx, c, channel, first, n, dst)
}

// Held waits as well: it is the first to look at what was just recorded.
func (d *mso5000) Held(ctx context.Context, c *scpi.Client, channel int) (points int, told bool, err error) {
	if d.fresh {
		if err := scope.Pause(ctx, settle); err != nil {
			return 0, false, err
		}
		d.fresh = false
	}
	return d.ds1000z.Held(ctx, c, channel)
}

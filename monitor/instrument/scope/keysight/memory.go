package keysight

import (
	"context"
	"fmt"
	"strings"
	"time"

	"wattmark/monitor/instrument/scope"
	"wattmark/monitor/scpi"
)

// Scale is what the preamble says of a channel: V = (code − reference)·increment
// + origin, with the origin in volts.
func (d *infiniivision) Scale(ctx context.Context, c *scpi.Client, channel int) (scope.Scale, error) {
	p, err := preamble(ctx, c, channel)
	if err != nil {
		return scope.Scale{}, err
	}
	division, err := c.QueryNumber(ctx, fmt.Sprintf(":CHAN%d:SCAL?", channel))
	return scope.Scale{
		Gain: p.YIncrement, Zero: p.YOrigin - p.YReference*p.YIncrement, Division: division,
		Step: p.XIncrement, Begin: p.XOrigin - p.XReference*p.XIncrement,
		Least: 1, Most: 255, // 0 is a hole: a point that was not taken
	}, err
}

// Held is what the preamble says. After a stop in the middle it is not told how
// much of that was taken.
func (d *infiniivision) Held(ctx context.Context, c *scpi.Client, channel int) (points int, told bool, err error) {
	p, err := preamble(ctx, c, channel)
	return p.Points, false, err
}

// Read reads all of a channel, as the scope knows no pieces, and takes out what
// is wanted.
func (d *infiniivision) Read(ctx context.Context, c *scpi.Client, channel, first, n int, dst []byte) ([]byte, error) {
	if err := selectMemory(ctx, c, channel); err != nil {
		return dst, err
	}
	begin := len(dst)
	most := d.points + d.points/8 + 1024
	out, err := c.QueryBlock(ctx, ":WAV:DATA?", most, dst)
	if err != nil {
		return dst, err
	}
	got := out[begin:]
	if len(got) < first+n {
		return dst, fmt.Errorf("%w: %d of %d", scope.ErrFewer, len(got), first+n)
	}
	copy(got, got[first:first+n])
	return out[:begin+n], nil
}

// selectMemory selects a channel's deep memory. MAX also sets the mode, so that
// RAW comes behind it.
func selectMemory(ctx context.Context, c *scpi.Client, channel int) error {
	return scope.Send(ctx, c, fmt.Sprintf(":WAV:SOUR CHAN%d", channel), ":WAV:POIN MAX", ":WAV:POIN:MODE RAW", ":WAV:FORM BYTE", ":WAV:UNS 1")
}

// preamble asks how a channel's codes are scaled. A plain +0, which some models
// give now and then, is no answer.
func preamble(ctx context.Context, c *scpi.Client, channel int) (scpi.Preamble, error) {
	if err := selectMemory(ctx, c, channel); err != nil {
		return scpi.Preamble{}, err
	}
	const tries, moment = 4, 20 * time.Millisecond
	for n := 0; ; n++ {
		p, err := scpi.Ask(ctx, c, ":WAV:PRE?", parsePreamble)
		switch {
		case err != nil:
			return p, err
		case p.XIncrement > 0 && p.Format != 0:
			return p, fmt.Errorf("%w: format %d of the points after BYTE was set", scpi.ErrInstrument, p.Format)
		case p.XIncrement > 0:
			return p, nil
		case n == tries:
			return p, fmt.Errorf("%w: :WAV:PRE? gives +0 again and again", scpi.ErrReply)
		}
		if err := scope.Pause(ctx, moment); err != nil {
			return p, err
		}
	}
}

// parsePreamble reads a preamble; one without an increment stands for +0.
func parsePreamble(s string) (scpi.Preamble, error) {
	if t := strings.TrimSpace(s); t == "+0" || t == "0" {
		return scpi.Preamble{}, nil
	}
	return scpi.ParsePreamble(s)
}

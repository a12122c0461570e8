package tektronix

import (
	"context"
	"fmt"
	"math"

	"wattmark/measure"
	"wattmark/monitor/instrument/scope"
	"wattmark/monitor/scpi"
)

// from selects a channel and points first to first+n−1, counted from 0.
func (d *dialect) from(ctx context.Context, c *scpi.Client, channel, first, n int) error {
	return scope.Send(ctx, c, "HEAD OFF", fmt.Sprintf("DAT:SOU CH%d", channel), "DAT:ENC SRI", fmt.Sprintf("DAT:WID %d", d.width),
		fmt.Sprintf("DAT:STAR %d", first+1), fmt.Sprintf("DAT:STOP %d", first+n))
}

// describe asks for the preamble of the whole record, which must have been
// finished since Arm. One that was stopped in its middle leaves the record before it.
func (d *dialect) describe(ctx context.Context, c *scpi.Client, channel int) (preamble, error) {
	if err := d.from(ctx, c, channel, 0, d.depth); err != nil {
		return preamble{}, err
	}
	n, err := c.QueryNumber(ctx, "ACQ:NUMAC?")
	if err == nil && n < 1 {
		err = fmt.Errorf("%w: it took no record: was it stopped at its front panel?", scpi.ErrInstrument)
	}
	if err != nil {
		return preamble{}, err
	}
	p, err := scpi.Ask(ctx, c, "WFMO?", parsePreamble)
	if err == nil && (!p.binary || !p.signed || p.bigEnd || !p.samples || p.bytes != d.width) {
		err = fmt.Errorf("%w: points of %d bytes in another format than was set", scpi.ErrReply, p.bytes)
	}
	if err == nil && p.unit != "V" {
		err = fmt.Errorf("%w: channel %d is in %s: set its probe to volts; ampere_per_volt makes it a current", scpi.ErrInstrument, channel, shown(p.unit))
	}
	return p, err
}

// Scale follows from the settings: a preamble is of the record that is there, and
// before the first there is none of ours. Behind a recording the two must agree.
func (d *dialect) Scale(ctx context.Context, c *scpi.Client, channel int) (s scope.Scale, err error) {
	if err := c.Command(ctx, "HEAD OFF"); err != nil { // others may have put them on
		return s, err
	}
	ask := func(what string) (v float64) {
		if err == nil {
			v, err = c.QueryNumber(ctx, fmt.Sprintf("CH%d:%s?", channel, what))
		}
		return v
	}
	division, position, offset := ask("SCA"), ask("POS"), ask("OFFS")
	if err != nil {
		return s, err
	}
	codes := math.Ldexp(perDiv, 8*(d.width-1))
	top := math.Ldexp(1, 8*d.width-1)
	s = scope.Scale{
		Gain: division / codes, Zero: offset - position*division, Division: division, Step: d.step,
		Least: measure.Count(-top), Most: measure.Count(top - d.quantum), Quantum: d.quantum,
	}
	if !d.taken {
		return s, nil
	}
	p, err := d.describe(ctx, c, channel)
	if err == nil {
		err = agree(s, p)
	}
	s.Begin = p.xZero - p.xOffset*p.xIncrement
	return s, err
}

// agree compares a record's preamble with the settings.
func agree(s scope.Scale, p preamble) error {
	zero := p.yZero - p.yOffset*p.yIncrement
	switch {
	case math.Abs(p.yIncrement/s.Gain-1) > 1e-3:
		return fmt.Errorf("%w: the record has %v V a code, its settings %v", scpi.ErrInstrument, p.yIncrement, s.Gain)
	case math.Abs(zero-s.Zero) > 0.01*s.Division:
		return fmt.Errorf("%w: the record's zero lies at %v V, by its settings at %v V", scpi.ErrInstrument, zero, s.Zero)
	case math.Abs(p.xIncrement/s.Step-1) > 1e-3:
		return fmt.Errorf("%w: the record has %v s a point, its settings %v", scpi.ErrInstrument, p.xIncrement, s.Step)
	}
	return nil
}

// Held is what the preamble says.
func (d *dialect) Held(ctx context.Context, c *scpi.Client, channel int) (points int, told bool, err error) {
	p, err := d.describe(ctx, c, channel)
	return p.points, true, err
}

// Read reads a piece.
func (d *dialect) Read(ctx context.Context, c *scpi.Client, channel, first, n int, dst []byte) ([]byte, error) {
	if err := d.from(ctx, c, channel, first, n); err != nil {
		return dst, err
	}
	return c.QueryBlock(ctx, "CURV?", n*d.width, dst)
}

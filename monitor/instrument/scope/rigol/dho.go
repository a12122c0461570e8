package rigol

import (
	"context"
	"time"

	"wattmark/monitor/instrument/scope"
	"wattmark/monitor/scpi"
)

// DHO is the DHO800 and DHO900: two or four channels of 12 bits on a memory of
// 50 million points in all (25 before firmware 00.01.03 of the DHO800: the depth
// is read back). Sources: programming guide of April 2025 and data sheet.
var DHO = &scope.Family{
	Kind: "rigol-dho", Name: "Rigol DHO800 or DHO900 (DHO802, DHO804, DHO814, DHO924, …)", Port: 5555,
	Channels: 4, Usual: 4, Memory: 50_000_000, MaxWindow: 10 * 500 * time.Second,
	MinScale: 5e-4, MaxScale: 10, MaxOffset: 100,
	Depths: inSteps(1000, 10_000, 100_000, 1_000_000, 5_000_000, 10_000_000, 25_000_000, 50_000_000),
	Spec:   scope.Spec{Gain: 0.02, ZeroDiv: 0.1, ZeroVolt: 2e-3, OffsetPart: 0.015, Clock: 30e-6, NoiseCodes: 16},
	Dialect: func() scope.Dialect {
		return dho{common{divisions: 10, above: 4.4, wide: true, depth: suffixed, setup: []string{":TRIG:SWE AUTO", ":TIM:ROLL 0"}}}
	},
}

// dho reads words of 16 bits, little-endian, into which the 12 of the converter
// are spread. Its rates are few, so that memory may span twice the screen.
type dho struct{ common }

// ReadBack learns what the scope really does.
func (d dho) ReadBack(ctx context.Context, c *scpi.Client, p *scope.Plan) (scope.Memory, error) {
	step, err := d.readBack(ctx, c, p)
	return scope.Memory{Points: p.Points, Step: step, Piece: 125_000, Codes: scope.Codes{Bytes: 2}}, err
}

// Scale is what the preamble says of a channel.
func (d dho) Scale(ctx context.Context, c *scpi.Client, channel int) (scope.Scale, error) {
	p, err := preamble(ctx, c, channel, "WORD")
	if err != nil {
		return scope.Scale{}, err
	}
	return scaled(ctx, c, channel, p, 65535)
}

// Held is the depth: the preamble's points are the size of a page, so that it
// cannot be known how many were taken before a stop.
func (d dho) Held(ctx context.Context, c *scpi.Client, _ int) (points int, told bool, err error) {
	depth, err := c.QueryNumber(ctx, ":ACQ:MDEP?")
	return int(depth), false, err
}

// Read reads a piece.
func (d dho) Read(ctx context.Context, c *scpi.Client, channel, first, n int, dst []byte) ([]byte, error) {
	return read(ctx, c, channel, "WORD", first, n, 2*n, dst)
}

package rigol

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"wattmark/monitor/instrument/scope"
	"wattmark/monitor/scpi"
)

// DS1000Z is the DS1054Z and its sisters: four channels of 8 bits on a memory
// of 12 million points. Sources: its programming manual and data sheet.
var DS1000Z = &scope.Family{
	Kind: "rigol-ds1000z", Name: "Rigol DS1000Z (DS1054Z, DS1074Z, DS1104Z, MSO1074Z, …)", Port: 5555,
	Channels: 4, Usual: 4, Memory: 12_000_000, MaxWindow: 12 * 50 * time.Second,
	MinScale: 1e-3, MaxScale: 10, MaxOffset: 100,
	Depths:  thousandths,
	Spec:    scope.Spec{Gain: 0.03, ZeroDiv: 0.1, ZeroVolt: 2e-3, OffsetPart: 0.01, Clock: 25e-6, NoiseCodes: 0.7},
	Dialect: func() scope.Dialect { return ds1000z{common{divisions: 12, above: 4.9, depth: strconv.Itoa}} },
}

// thousandths are a thousandth, a hundredth, a tenth and the whole of each
// channel's share of memory.
func thousandths(m scope.Model, used int) (out []int) {
	most := m.Memory / share(used)
	for d := most / 1000; d <= most; d *= 10 {
		out = append(out, d)
	}
	return out
}

// share is into how many parts memory is divided: with three or four channels
// all converters are in use.
func share(used int) int {
	if used > 2 {
		return 4
	}
	return max(1, used)
}

type ds1000z struct{ common }

// ReadBack learns what the scope really does.
func (d ds1000z) ReadBack(ctx context.Context, c *scpi.Client, p *scope.Plan) (scope.Memory, error) {
	step, err := d.common.readBack(ctx, c, p)
	return scope.Memory{Points: p.Points, Step: step, Piece: 250_000, Codes: scope.Codes{Bytes: 1}}, err
}

// Scale is what the preamble says of a channel.
func (d ds1000z) Scale(ctx context.Context, c *scpi.Client, channel int) (scope.Scale, error) {
	p, err := preamble(ctx, c, channel, "BYTE")
	if err != nil {
		return scope.Scale{}, err
	}
	return scaled(ctx, c, channel, p, 255)
}

// Held is what the preamble says: the points really taken.
func (d ds1000z) Held(ctx context.Context, c *scpi.Client, channel int) (points int, told bool, err error) {
	p, err := preamble(ctx, c, channel, "BYTE")
	return p.Points, true, err
}

// Read reads a piece of at most 250 000 points.
func (d ds1000z) Read(ctx context.Context, c *scpi.Client, channel, first, n int, dst []byte) ([]byte, error) {
	return read(ctx, c, channel, "BYTE", first, n, n, dst)
}

// preamble selects a channel's deep memory and asks how its codes are scaled.
func preamble(ctx context.Context, c *scpi.Client, channel int, format string) (scpi.Preamble, error) {
	if err := selectMemory(ctx, c, channel, format); err != nil {
		return scpi.Preamble{}, err
	}
	p, err := scpi.Ask(ctx, c, ":WAV:PRE?", scpi.ParsePreamble)
	if want := map[string]int{"BYTE": 0, "WORD": 1}[format]; err == nil && p.Format != want {
		err = fmt.Errorf("%w: format %d of the points after %s was set", scpi.ErrInstrument, p.Format, format)
	}
	return p, err
}

package sim

import (
	"context"
	"fmt"
	"time"

	"wattmark/hostagent"
	"wattmark/measure"
)

// Roofline is a simulated GPU's cost of work, after the energy roofline of Choi et
// al. (IPDPS 2013): what it can do in a second, and what that takes.
type Roofline struct {
	Flops, Bytes  float64       // a second, at most
	Flop, Byte    measure.Joule // each
	ConstantPower measure.Watt
}

// DefaultRoofline is that of a card of 300 W: 270 W where both limits meet, at 20
// flop a byte.
func DefaultRoofline() Roofline {
	return Roofline{Flops: 20e12, Bytes: 1e12, Flop: 6e-12, Byte: 90e-12, ConstantPower: 60}
}

var _ hostagent.MixRunner = (*Device)(nil)

// RunMix draws what the work would take, and says that it was done.
func (d *Device) RunMix(ctx context.Context, rounds uint32, length time.Duration) (hostagent.MixRan, error) {
	if rounds == 0 || length <= 0 {
		return hostagent.MixRan{}, fmt.Errorf("sim: mix of %d rounds for %v: both must be positive", rounds, length)
	}
	m := DefaultRoofline()
	flops := min(m.Flops, m.Bytes*hostagent.MixIntensity(rounds))
	bytes := flops / hostagent.MixIntensity(rounds)
	level := m.ConstantPower + measure.Watt(flops*float64(m.Flop)+bytes*float64(m.Byte))
	span, err := d.step(ctx, Step{Level: level, For: length})
	if err != nil {
		return hostagent.MixRan{}, fmt.Errorf("sim: mix: %w", err)
	}
	took := length.Seconds()
	return hostagent.MixRan{
		Kernel: hostagent.Kernel{Name: fmt.Sprintf("mix of %d rounds", rounds), Span: span},
		Flops:  flops * took, Bytes: bytes * took,
	}, nil
}

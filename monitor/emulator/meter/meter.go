// Package meter reads the emulated board without a wire, for tests:
//
//	Spread      the uncertainties that a meter states; with Draw its true errors are drawn from them
//	Sampler     an ADC of any rate and width in every wiring, in virtual time
//	Instrument  a Sampler as an instrument.Instrument
package meter

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/monitor/emulator/pace"
	"github.com/wattmark/wattmark/monitor/instrument"
)

// Spread is the maker's statement about a meter: standard uncertainties
// (k = 1). With Config.Draw set, the true errors are drawn from normal
// distributions of these widths; without, the meter is perfect and merely states
// that it might not be.
type Spread struct {
	UGainI, UGainV   float64        // relative, of the gain of current and voltage channels
	UOffsetI         measure.Ampere // of a current channel's zero
	UOffsetV         measure.Volt   // of a voltage channel's zero
	UShunt           float64        // relative, of a shunt's resistance
	UAssumed         measure.Volt   // of an assumed voltage
	UClock           float64        // relative, of the tick rate
	NoiseI           measure.Ampere // white noise of one reading; always there
	NoiseV           measure.Volt
	ClockOffsetRange time.Duration // the capture begins at an unknown instant within this
}

// Config describes an ADC on the board's rails.
type Config struct {
	Seed uint64
	// Rate is the scans a second (default 100 kS/s) and Bits the converter's
	// width (default 16).
	Rate measure.Hertz
	Bits int
	// Wiring of every rail: shunt, clamp or assumed (default clamp).
	Wiring measure.Wiring
	// Shunt is the nominal resistance of a shunt rail (default 5 mΩ).
	Shunt measure.Ohm
	// VoltRange and CurrentRange are the ends of the bipolar ranges (defaults
	// 15 V and 50 A).
	VoltRange    measure.Volt
	CurrentRange measure.Ampere
	// Skew is the delay from one channel's conversion to the next.
	Skew time.Duration
	// TickHz of the device's counter (default 1 GHz).
	TickHz measure.Hertz
	Spread Spread
	Draw   bool
	// Omit names rails that the meter does not see: they become Setup.Missing.
	Omit []string
	// Start is the board's time at the first scan.
	Start time.Duration
}

// withDefaults replaces zeros: 100 kS/s, 16 bits, clamps of 50 A and ranges of 15 V.
func (c Config) withDefaults() Config {
	c.Rate, c.TickHz, c.Bits = cmp.Or(c.Rate, 100e3), cmp.Or(c.TickHz, 1e9), cmp.Or(c.Bits, 16)
	c.VoltRange, c.CurrentRange = cmp.Or(c.VoltRange, 15), cmp.Or(c.CurrentRange, 50)
	c.Wiring, c.Shunt = cmp.Or(c.Wiring, measure.WiringClamp), cmp.Or(c.Shunt, 5e-3)
	return c
}

// validate reports a setting that no converter has.
func (c Config) validate() error {
	switch c.Wiring {
	case measure.WiringShunt, measure.WiringClamp, measure.WiringAssumed:
	default:
		return fmt.Errorf("emulated meter: wiring %v: want shunt, clamp or assumed", c.Wiring)
	}
	if c.Bits < 8 || c.Bits > 24 {
		return fmt.Errorf("emulated meter: %d bits: want 8 to 24", c.Bits)
	}
	if !(c.Rate > 0) || c.Rate > 10e6 {
		return fmt.Errorf("emulated meter: rate %v: want up to 10 MHz", c.Rate)
	}
	if c.VoltRange <= 0 || c.CurrentRange <= 0 || c.Shunt <= 0 {
		return fmt.Errorf("emulated meter: ranges and shunt must be positive")
	}
	return nil
}

// Drawn holds the true errors of one meter. Tests know it; the meter does not.
type Drawn struct {
	Gain    []float64 // relative error of each channel's stated gain
	Offset  []float64 // error of each channel's stated offset, in its unit
	Shunt   []float64 // relative error of each rail's stated shunt
	Assumed []measure.Volt
	Clock   float64       // the device's clock runs fast by this much (relative)
	Start   time.Duration // board time of the first scan
}

// Drawing draws from N(0, sigma). Where nothing is to be drawn the numbers are zero, and the
// generator moves on all the same.
func Drawing(rng *rand.Rand, draw bool) func(sigma float64) float64 {
	return func(sigma float64) float64 {
		n := rng.NormFloat64()
		if !draw {
			return 0
		}
		return n * sigma
	}
}

// Default sets an option that was left at zero; a negative one stands for zero.
func Default[T ~float64](v *T, d T) {
	*v = max(0, cmp.Or(*v, d))
}

// Instrument is a Sampler as the monitor sees a meter: kind "emulated", no wire
// between. Its pace is a wall clock's or as fast as the sink takes the blocks.
type Instrument struct {
	src  *Sampler
	pace pace.Pace
	name string
	// Limit ends a stream after so many scans of it; zero for none. A free
	// pace without a limit runs until ctx ends.
	Limit uint64

	block measure.Block
}

var _ instrument.Instrument = (*Instrument)(nil)

// NewInstrument makes an instrument of a sampler.
func NewInstrument(name string, src *Sampler, p pace.Pace) *Instrument {
	return &Instrument{src: src, pace: p, name: name}
}

// Open does nothing: there is nothing to connect to.
func (m *Instrument) Open(ctx context.Context) error { return ctx.Err() }

// Close does nothing.
func (m *Instrument) Close() error { return nil }

// Identity reports that it is emulated.
func (m *Instrument) Identity() instrument.Identity {
	return instrument.Identity{Kind: "emulated", Model: m.name, Serial: "0", Firmware: "1", Address: "virtual"}
}

// Inputs are the sampler's channels.
func (m *Instrument) Inputs() instrument.Inputs {
	s := m.src.Setup()
	return instrument.Inputs{Timebase: s.Timebase, Response: s.Response, Channels: s.Channels}
}

// Setup is the sampler's setup, with the rails that its channels make.
func (m *Instrument) Setup() measure.Setup { return m.src.Setup() }

// Stream delivers blocks of one batch each until ctx ends.
func (m *Instrument) Stream(ctx context.Context, sink instrument.Sink) error {
	m.src.Restart(m.pace.Now(m.src.Elapsed()))
	timer := m.pace.NewTimer()
	defer timer.Stop()
	scan := 1 / float64(m.src.Setup().Timebase.SampleRate())
	for sent := uint64(0); m.Limit == 0 || sent < m.Limit; {
		done := m.src.Elapsed()
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C(done):
		}
		if ctx.Err() != nil {
			return nil
		}
		n := uint64(max(1, (m.pace.Due(done)-done).Seconds()/scan))
		n = min(n, maxBlock)
		if m.Limit > 0 {
			n = min(n, m.Limit-sent)
		}
		m.src.Next(&m.block, int(n))
		if err := sink.Block(&m.block); err != nil {
			return fmt.Errorf("emulated meter: %w", err)
		}
		sent += n
	}
	return nil
}

// maxBlock bounds a block after a long wait.
const maxBlock = 65536

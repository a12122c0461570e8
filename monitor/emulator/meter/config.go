// Package meter reads the emulated board without a wire: an ADC of any rate and
// width in every wiring (Sampler), a slow sensor in the manner of NVML (Slow),
// and either of them as an instrument (Instrument).
package meter

import (
	"fmt"
	"math/rand/v2"
	"time"

	"wattmark/measure"
)

// Spread is what a meter's maker states about it: standard uncertainties
// (k = 1). With Config.Draw set, the true errors are drawn from normal
// distributions of these widths; without, the meter is perfect and merely says
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

func (c Config) withDefaults() Config {
	def := func(v *float64, d float64) {
		if *v == 0 {
			*v = d
		}
	}
	def((*float64)(&c.Rate), 100e3)
	def((*float64)(&c.Shunt), 5e-3)
	def((*float64)(&c.VoltRange), 15)
	def((*float64)(&c.CurrentRange), 50)
	def((*float64)(&c.TickHz), 1e9)
	if c.Bits == 0 {
		c.Bits = 16
	}
	if c.Wiring == 0 {
		c.Wiring = measure.WiringClamp
	}
	return c
}

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

// Drawn is what is wrong with one meter. Tests know it; the meter does not.
type Drawn struct {
	Gain    []float64 // relative error of each channel's stated gain
	Offset  []float64 // error of each channel's stated offset, in its unit
	Shunt   []float64 // relative error of each rail's stated shunt
	Assumed []measure.Volt
	Clock   float64       // the device's clock runs fast by this much (relative)
	Start   time.Duration // board time of the first scan
}

// normal draws from N(0, sigma); zero where nothing is to be drawn.
func normal(rng *rand.Rand, draw bool, sigma float64) float64 {
	n := rng.NormFloat64()
	if !draw {
		return 0
	}
	return n * sigma
}

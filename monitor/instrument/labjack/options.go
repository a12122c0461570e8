package labjack

import (
	"fmt"
	"slices"
	"time"

	"wattmark/measure"
	"wattmark/monitor/instrument"
	"wattmark/monitor/instrument/analog"
)

// Options are the settings of the driver in a bench file.
type Options struct {
	// ScanRate is the scans a second; default 10000.
	ScanRate float64 `yaml:"scan_rate"`
	// Inputs in the order of the scan; put each rail's current and voltage next to
	// each other. Default: the wiring of the emulated device.
	Inputs []analog.Input `yaml:"inputs"`
	// Settling is the time before each conversion of a T7; zero leaves it to the
	// device.
	Settling time.Duration `yaml:"settling"`
	// Skew is the time from one input's conversion to the next on a T7; default
	// 10 µs, or Settling where that is longer.
	Skew time.Duration `yaml:"skew"`
	// UGain (relative) and UOffset (of the range) are the standard uncertainties of
	// the scale. Zero, the default: those of the device's own constants, or of the
	// nominal scale where these cannot be right.
	UGain   float64 `yaml:"u_gain"`
	UOffset float64 `yaml:"u_offset"`
	// StreamPort is the TCP port of the scans; default 200 above the registers'.
	StreamPort int `yaml:"stream_port"`
	// Silence is how long the stream may fall silent before the device counts as
	// lost; default 5 s.
	Silence time.Duration `yaml:"silence"`
}

// Defaults are the options of the emulated device's first rail.
func Defaults() Options {
	return Options{ScanRate: 10_000, Silence: 5 * time.Second, Inputs: []analog.Input{
		{AIN: 0, Name: "aux.voltage", PerVolt: 2}, {AIN: 1, Name: "aux.current", Unit: "A", PerVolt: 10},
	}}
}

const (
	crystal     = 3e-5 // relative standard uncertainty of the clock
	minSkew     = 10 * time.Microsecond
	noiseCodes  = 2 // of a conversion at the fastest setting
	bytesSample = 2
)

// Validate reports an option that cannot be used, on a T7 or on a T8.
func (o Options) Validate() error {
	switch {
	case o.Settling < 0 || o.Settling > 5*time.Millisecond || o.Skew < 0:
		return fmt.Errorf("settling %v, skew %v: want 0 to 5ms", o.Settling, o.Skew)
	case !(o.UGain >= 0 && o.UGain <= 1) || !(o.UOffset >= 0 && o.UOffset <= 1):
		return fmt.Errorf("u_gain %v, u_offset %v: want 0 to 1", o.UGain, o.UOffset)
	case o.StreamPort < 0 || o.StreamPort > 65535:
		return fmt.Errorf("stream_port %d: want 1 to 65535", o.StreamPort)
	case o.Silence < 100*time.Millisecond || o.Silence > time.Hour:
		return fmt.Errorf("silence %v: want 100ms to 1h", o.Silence)
	}
	_, err := guess(o)
	return err
}

// skew is the time between two neighbours' conversions.
func (o Options) skew() time.Duration {
	if o.Skew > 0 {
		return o.Skew
	}
	return max(minSkew, o.Settling)
}

// rangeIndex is the place of an input's range among the model's.
func (m model) rangeIndex(i analog.Input) int { return slices.Index(m.Ranges, m.RangeOf(i)) }

// Inputs are the channels of the scan before the device is opened: with the
// nominal scale, of a T7 where it can do what is wanted, else of a T8.
func Inputs(o Options) instrument.Inputs {
	m, err := guess(o)
	if err != nil {
		return instrument.Inputs{}
	}
	scales := make([]analog.Scale, len(o.Inputs))
	for k, i := range o.Inputs {
		scales[k] = m.nominal(m.rangeIndex(i))
	}
	return inputs(o, m, scales)
}

// inputs are the channels of the scan, each with its scale.
func inputs(o Options, m model, scales []analog.Scale) instrument.Inputs {
	in := instrument.Inputs{Timebase: measure.Timebase{TickHz: measure.Hertz(o.ScanRate), UTickHz: crystal, TicksPerScan: 1}}
	for k, i := range o.Inputs {
		s := scales[k]
		s.Noise, s.Max = noiseCodes, 65535
		if o.UGain > 0 {
			s.UGain = o.UGain
		}
		if o.UOffset > 0 {
			s.UOffset = measure.Volt(o.UOffset * m.RangeOf(i))
		}
		c := i.Channel(s)
		c.Skew = m.skewOf(o, k)
		in.Channels = append(in.Channels, c)
	}
	return in
}

// NaturalRails are those that the channels' names suggest.
func NaturalRails(in instrument.Inputs) (rails []measure.Rail, missing []string) {
	return instrument.PairRails(in.Channels), nil
}

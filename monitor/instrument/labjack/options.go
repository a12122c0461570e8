package labjack

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"wattmark/measure"
	"wattmark/monitor/instrument"
)

// Input is one analog input in the scan.
type Input struct {
	// AIN is its number, 0 to 13.
	AIN int `yaml:"ain"`
	// Name of the channel; default ainN.
	Name string `yaml:"name"`
	// Unit is V, A or W; default V.
	Unit string `yaml:"unit"`
	// PerVolt is the units a volt at the input: a divider's ratio, a clamp's A/V;
	// default 1.
	PerVolt float64 `yaml:"per_volt"`
	// Range is 10, 1, 0.1 or 0.01 V; default 10.
	Range float64 `yaml:"range"`
}

// Options are the settings of the driver in a bench file.
type Options struct {
	// ScanRate is the scans a second; default 10000.
	ScanRate float64 `yaml:"scan_rate"`
	// Inputs in the order of the scan; put each rail's current and voltage next to
	// each other. Default: the wiring of the emulated device.
	Inputs []Input `yaml:"inputs"`
	// Settling is the time before each conversion; zero leaves it to the device.
	Settling time.Duration `yaml:"settling"`
	// Skew is the time from one input's conversion to the next; default 10 µs, or
	// Settling where that is longer.
	Skew time.Duration `yaml:"skew"`
	// UGain (relative) and UOffset (of the range) are the standard uncertainties of
	// the nominal scale; defaults 0.003 and 0.001.
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
	return Options{ScanRate: 10_000, UGain: 0.003, UOffset: 0.001, Silence: 5 * time.Second, Inputs: []Input{
		{AIN: 0, Name: "aux.voltage", PerVolt: 2}, {AIN: 1, Name: "aux.current", Unit: "A", PerVolt: 10},
	}}
}

// The nominal scale of a T7: V = (code − center) · slope · range/10.
const (
	center      = 33523
	slope       = 3.158058e-4 // V a code on the range of ±10 V
	maxSample   = 100e3       // conversions a second in all
	crystal     = 3e-5        // relative standard uncertainty of the clock
	minSkew     = 10 * time.Microsecond
	noiseCodes  = 2 // of a conversion at the fastest setting
	lastAIN     = 13
	bytesSample = 2
)

var units = map[string]measure.Unit{"": measure.UnitVolt, "V": measure.UnitVolt, "A": measure.UnitAmpere, "W": measure.UnitWatt}

func (i Input) withDefaults() Input {
	if i.Name == "" {
		i.Name = fmt.Sprintf("ain%d", i.AIN)
	}
	if i.PerVolt == 0 {
		i.PerVolt = 1
	}
	if i.Range == 0 {
		i.Range = 10
	}
	return i
}

// Validate reports an option that cannot be used.
func (o Options) Validate() error {
	n := len(o.Inputs)
	switch {
	case n == 0 || n > lastAIN+1:
		return fmt.Errorf("inputs: %d of them: want 1 to %d", n, lastAIN+1)
	case !(o.ScanRate >= 1 && o.ScanRate*float64(n) <= maxSample):
		return fmt.Errorf("scan_rate %v with %d inputs: want at least 1 and at most %v in all", o.ScanRate, n, maxSample/float64(n))
	case o.Settling < 0 || o.Settling > 5*time.Millisecond || o.Skew < 0 || float64(o.skew())*float64(n) > 1e9/o.ScanRate+1:
		return fmt.Errorf("settling %v, skew %v: %d conversions must fit into a scan of %v", o.Settling, o.skew(), n, time.Duration(1e9/o.ScanRate))
	case !(o.UGain >= 0 && o.UGain <= 1) || !(o.UOffset >= 0 && o.UOffset <= 1):
		return fmt.Errorf("u_gain %v, u_offset %v: want 0 to 1", o.UGain, o.UOffset)
	case o.StreamPort < 0 || o.StreamPort > 65535:
		return fmt.Errorf("stream_port %d: want 1 to 65535", o.StreamPort)
	case o.Silence < 100*time.Millisecond || o.Silence > time.Hour:
		return fmt.Errorf("silence %v: want 100ms to 1h", o.Silence)
	}
	names, ains := map[string]bool{}, map[int]bool{}
	for k, raw := range o.Inputs {
		i := raw.withDefaults()
		_, unit := units[i.Unit]
		switch {
		case i.AIN < 0 || i.AIN > lastAIN || ains[i.AIN]:
			return fmt.Errorf("inputs[%d].ain %d: want 0 to %d, each once", k, i.AIN, lastAIN)
		case names[i.Name]:
			return fmt.Errorf("inputs[%d].name %q: there is one already", k, i.Name)
		case !unit:
			return fmt.Errorf("inputs[%d].unit %q: want V, A or W", k, i.Unit)
		case !(i.PerVolt > -1e9 && i.PerVolt < 1e9):
			return errors.New("per_volt must be finite")
		case !slices.Contains([]float64{10, 1, 0.1, 0.01}, i.Range):
			return fmt.Errorf("inputs[%d].range %v V: want 10, 1, 0.1 or 0.01", k, i.Range)
		}
		names[i.Name], ains[i.AIN] = true, true
	}
	return nil
}

// skew is the time between two neighbours' conversions.
func (o Options) skew() time.Duration {
	if o.Skew > 0 {
		return o.Skew
	}
	return max(minSkew, o.Settling)
}

// Inputs are the channels of the scan with the nominal scale of a T7.
func Inputs(o Options) instrument.Inputs {
	in := instrument.Inputs{Timebase: measure.Timebase{TickHz: measure.Hertz(o.ScanRate), UTickHz: crystal, TicksPerScan: 1}}
	for k, raw := range o.Inputs {
		i := raw.withDefaults()
		gain := slope * i.Range / 10 * i.PerVolt
		per := max(i.PerVolt, -i.PerVolt)
		in.Channels = append(in.Channels, measure.Channel{
			Name: i.Name, Unit: units[i.Unit], Gain: gain, Offset: -center * gain, UGain: o.UGain, UOffset: o.UOffset * i.Range * per,
			Noise: noiseCodes * max(gain, -gain), MinCount: 0, MaxCount: 65535, Skew: measure.SecondsOf(time.Duration(k) * o.skew()),
		})
	}
	return in
}

// NaturalRails are those that the channels' names suggest.
func NaturalRails(in instrument.Inputs) (rails []measure.Rail, missing []string) {
	return instrument.PairRails(in.Channels), nil
}

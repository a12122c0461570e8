// Package analog is what the drivers of data acquisition boxes share: how a
// bench file describes what is wired to an analog input, and the channel that
// this makes.
package analog

import (
	"fmt"
	"slices"
	"strings"

	"wattmark/measure"
)

// Input is one analog input in the scan.
type Input struct {
	// AIN is its number, from 0.
	AIN int `yaml:"ain"`
	// Name of the channel; default ainN.
	Name string `yaml:"name"`
	// Unit is V, A or W; default V.
	Unit string `yaml:"unit"`
	// PerVolt is the units a volt at the input: a divider's ratio, a clamp's A/V;
	// default 1.
	PerVolt float64 `yaml:"per_volt"`
	// Range in V, one of the device's; default its widest.
	Range float64 `yaml:"range"`
}

var units = map[string]measure.Unit{"": measure.UnitVolt, "V": measure.UnitVolt, "A": measure.UnitAmpere, "W": measure.UnitWatt}

// WithDefaults fills in what a bench file leaves out.
func (i Input) WithDefaults() Input {
	if i.Name == "" {
		i.Name = fmt.Sprintf("ain%d", i.AIN)
	}
	if i.PerVolt == 0 {
		i.PerVolt = 1
	}
	return i
}

// Device is what a kind of device offers.
type Device struct {
	// Inputs is the number of its analog inputs.
	Inputs int
	// Ranges in V, the widest first.
	Ranges []float64
}

// RangeOf is an input's range on this device.
func (d Device) RangeOf(i Input) float64 {
	if i.Range == 0 {
		return d.Ranges[0]
	}
	return i.Range
}

// Check reports an input that the device does not have, or that is described in
// a way that cannot be used.
func (d Device) Check(inputs []Input) error {
	if n := len(inputs); n == 0 || n > d.Inputs {
		return fmt.Errorf("inputs: %d of them: want 1 to %d", n, d.Inputs)
	}
	names, ains := map[string]bool{}, map[int]bool{}
	for k, raw := range inputs {
		i := raw.WithDefaults()
		_, unit := units[i.Unit]
		switch {
		case i.AIN < 0 || i.AIN >= d.Inputs || ains[i.AIN]:
			return fmt.Errorf("inputs[%d].ain %d: want 0 to %d, each once", k, i.AIN, d.Inputs-1)
		case names[i.Name]:
			return fmt.Errorf("inputs[%d].name %q: there is one already", k, i.Name)
		case !unit:
			return fmt.Errorf("inputs[%d].unit %q: want V, A or W", k, i.Unit)
		case !(i.PerVolt > -1e9 && i.PerVolt < 1e9):
			return fmt.Errorf("inputs[%d].per_volt %v: must be finite", k, i.PerVolt)
		case !slices.Contains(d.Ranges, d.RangeOf(i)):
			return fmt.Errorf("inputs[%d].range %v V: want %s", k, i.Range, d.choices())
		}
		names[i.Name], ains[i.AIN] = true, true
	}
	return nil
}

func (d Device) choices() string {
	var s []string
	for _, r := range d.Ranges {
		s = append(s, fmt.Sprint(r))
	}
	return strings.Join(s, ", ")
}

// Scale is how a converter's codes become volts at the input.
type Scale struct {
	// Gain is V a code and Zero the code of 0 V.
	Gain, Zero float64
	// UGain (relative) and UOffset (V) are its standard uncertainties.
	UGain   float64
	UOffset measure.Volt
	// Noise of one conversion, in codes.
	Noise float64
	// Min and Max are the ends of the codes: there an input is over range.
	Min, Max measure.Count
}

// Channel is what is wired to an input, seen through its converter.
func (i Input) Channel(s Scale) measure.Channel {
	i = i.WithDefaults()
	gain, per := s.Gain*i.PerVolt, max(i.PerVolt, -i.PerVolt)
	return measure.Channel{
		Name: i.Name, Unit: units[i.Unit], Gain: gain, Offset: -s.Zero * gain, UGain: s.UGain, UOffset: float64(s.UOffset) * per,
		Noise: s.Noise * max(gain, -gain), MinCount: s.Min, MaxCount: s.Max,
	}
}

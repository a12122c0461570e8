// Package analog is shared by the drivers of data acquisition boxes: the description
// of an analog input's wiring in a bench file, and the channel that follows from it.
package analog

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/wattmark/wattmark/measure"
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

// Units that an input may have; volts where none is named.
var Units = map[string]measure.Unit{
	"": measure.UnitVolt, "V": measure.UnitVolt, "A": measure.UnitAmpere,
	"W": measure.UnitWatt,
}

// WithDefaults fills in the fields that a bench file leaves out.
func (i Input) WithDefaults() Input {
	i.Name, i.PerVolt = cmp.Or(i.Name, fmt.Sprintf("ain%d", i.AIN)), cmp.Or(i.PerVolt, 1)
	return i
}

// Device describes a kind of device.
type Device struct {
	// Inputs is the number of its analog inputs.
	Inputs int
	// Ranges in V, the widest first.
	Ranges []float64
}

// RangeOf is an input's range on this device.
func (d Device) RangeOf(i Input) float64 {
	return cmp.Or(i.Range, d.Ranges[0])
}

// Check reports an input that the device does not have, or that is described in
// a way that cannot be used.
func (d Device) Check(inputs []Input) error {
	return Check(inputs, d.Inputs, "ain", 0, d.Inputs-1, func(i Input) (_ Wiring, err error) {
		if i = i.WithDefaults(); !slices.Contains(d.Ranges, d.RangeOf(i)) {
			choices := strings.ReplaceAll(strings.Trim(fmt.Sprint(d.Ranges), "[]"), " ", ", ")
			err = fmt.Errorf("range %v V: want %s", i.Range, choices)
		}
		return Wiring{i.AIN, i.Name, i.Unit, i.PerVolt}, err
	})
}

// Wiring is the part of an input's description that all devices have.
type Wiring struct {
	Number     int
	Name, Unit string
	PerVolt    float64
}

// Check reports inputs that are too many, and one whose description cannot be used. Their numbers lie from
// least to last, under a key of the bench file; of returns an input's wiring, and the fault of its other keys.
func Check[I any](inputs []I, most int, key string, least, last int, of func(I) (Wiring, error)) error {
	if n := len(inputs); n == 0 || n > most {
		return fmt.Errorf("inputs: %d of them: want 1 to %d", n, most)
	}
	names, numbers := map[string]bool{}, map[int]bool{}
	for k, i := range inputs {
		w, err := of(i)
		_, known := Units[w.Unit]
		switch {
		case w.Number < least || w.Number > last || numbers[w.Number]:
			return fmt.Errorf("inputs[%d].%s %d: want %d to %d, each once", k, key, w.Number, least, last)
		case err != nil:
			return fmt.Errorf("inputs[%d].%w", k, err)
		case names[w.Name]:
			return fmt.Errorf("inputs[%d].name %q: there is one already", k, w.Name)
		case !known:
			return fmt.Errorf("inputs[%d].unit %q: want V, A or W", k, w.Unit)
		case !(w.PerVolt > -1e9 && w.PerVolt < 1e9):
			return fmt.Errorf("inputs[%d].per_volt %v: must be finite", k, w.PerVolt)
		}
		names[w.Name], numbers[w.Number] = true, true
	}
	return nil
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

// Channel returns the channel of an input: its wiring seen through its converter.
func (i Input) Channel(s Scale) measure.Channel {
	i = i.WithDefaults()
	gain, per := s.Gain*i.PerVolt, max(i.PerVolt, -i.PerVolt)
	return measure.Channel{
		Name: i.Name, Unit: Units[i.Unit], Gain: gain, Offset: -s.Zero * gain, UGain: s.UGain,
		UOffset: float64(s.UOffset) * per, Noise: s.Noise * max(gain, -gain), MinCount: s.Min, MaxCount: s.Max,
	}
}

// BytesCode is the size of a 16-bit code.
const BytesCode = 2

// Scans calls take for every whole scan of b: signed little-endian codes of 16
// bits, one input's after the other's, as many as counts has room for. counts is
// used for each scan anew. What is behind the last whole scan is left alone. The
// error is take's, which ends it.
func Scans(b []byte, counts []measure.Count, take func([]measure.Count) error) error {
	return ScansOf(func(b []byte, counts []measure.Count) {
		for c := range counts {
			counts[c] = measure.Count(int16(binary.LittleEndian.Uint16(b[BytesCode*c:])))
		}
	}, b, counts, take)
}

// ScansOf is Scans of codes that are read by decode, a scan a call: a call a code takes three times as long.
func ScansOf(decode func(b []byte, counts []measure.Count), b []byte, counts []measure.Count,
	take func([]measure.Count) error,
) error {
	size := BytesCode * len(counts)
	if size == 0 {
		return nil
	}
	for ; len(b) >= size; b = b[size:] {
		decode(b, counts)
		if err := take(counts); err != nil {
			return err
		}
	}
	return nil
}

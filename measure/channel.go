package measure

import (
	"fmt"
	"math"
)

// Unit is the physical unit of a channel after calibration.
type Unit string

// The units that a channel can have.
const (
	UnitVolt   Unit = "V"
	UnitAmpere Unit = "A"
	UnitWatt   Unit = "W"
)

// Channel is one input of an instrument with the calibration in force:
// value = Offset + Gain·count, in Unit. The uncertainties are standard ones
// (k = 1), as in the GUM.
type Channel struct {
	// Name is unique on a bench, for example "pcie_12v.current".
	Name string
	Unit Unit
	// Gain is the value of one count, in Unit a count.
	Gain float64
	// Offset is the value of count zero, in Unit.
	Offset float64
	// UGain is the relative standard uncertainty of the scale (0.01 = 1 %). It
	// bears on the value, not on the count: a Hall sensor whose zero lies at half
	// of its range reads zero amperes right however wrong its sensitivity is.
	UGain float64
	// UOffset is the standard uncertainty of Offset, in Unit.
	UOffset float64
	// Noise is the standard deviation of one reading, in Unit; zero where unknown.
	Noise float64
	// MinCount and MaxCount are the ends of the converter's range; a count at an
	// end is over range. Both zero where there is none.
	MinCount, MaxCount Count
	// Skew is the delay of this channel's reading behind the scan's tick.
	Skew Seconds
}

// Value returns the calibrated value of a count, in the channel's unit.
func (c Channel) Value(n Count) float64 { return c.Offset + c.Gain*float64(n) }

// OverRange reports whether a count stands at the end of the converter's range.
func (c Channel) OverRange(n Count) bool {
	return c.MinCount != c.MaxCount && (n <= c.MinCount || n >= c.MaxCount)
}

// Validate reports a calibration that cannot be used, naming the field.
func (c Channel) Validate() error {
	if c.Name == "" {
		return fmt.Errorf("channel without a name")
	}
	switch c.Unit {
	case UnitVolt, UnitAmpere, UnitWatt:
	default:
		return fmt.Errorf("channel %s: unit %q: want V, A or W", c.Name, c.Unit)
	}
	for _, f := range []struct {
		name string
		v    float64
	}{
		{"gain", c.Gain},
		{"offset", c.Offset},
		{"u_gain", c.UGain},
		{"u_offset", c.UOffset},
		{"noise", c.Noise},
		{"skew", float64(c.Skew)},
	} {
		if math.IsNaN(f.v) || math.IsInf(f.v, 0) {
			return fmt.Errorf("channel %s: %s is %v: must be a finite number", c.Name, f.name, f.v)
		}
	}
	if c.Gain == 0 {
		return fmt.Errorf("channel %s: gain is 0: every count would read the same", c.Name)
	}
	if c.UGain < 0 || c.UOffset < 0 || c.Noise < 0 {
		return fmt.Errorf("channel %s: an uncertainty is negative", c.Name)
	}
	return nil
}

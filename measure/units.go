// Package measure is the physics of wattmark: from raw counts to joules with an honest uncertainty.
// It is pure: no files, no sockets, no clocks.
//
//	Count ──Channel (gain, offset, u)──▶ volts, amperes, watts
//	  │                                        │
//	Block (scans × channels, device ticks)   Rail (one of four wirings) ──▶ Watt
//	  │                                        │
//	Timebase (ticks → seconds)               Integrator ──▶ Joule, mean, peak
//	                                           │
//	                                         Budget (GUM) ──▶ E ± U (k = 2)
//
// A scan is one reading of every channel at one instant; a block is a run of
// consecutive scans without a gap. Subpackages: chunk (the stored and wired
// form of scans), marker (codes and their detection), clock (host ↔ meter),
// stability (Allan deviation, noise floor), quality (a verdict on a result).
package measure

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"time"
)

// Physical quantities in SI units. They are distinct types so that a volt
// cannot be passed for an ampere between packages.
//
// NaN stands for a quantity that is not known. In JSON it is null, as are the
// infinities; every other value is the number that encoding/json prints for a
// float64. The options of a field's tag decide about leaving it out:
//
//	`json:"energy_j"`                     0 → 0            NaN → null
//	`json:"energy_j,omitempty"`           0 → left out     NaN → null
//	`json:"energy_j,omitzero"`            0 → 0            NaN → left out
//	`json:"energy_j,omitempty,omitzero"`  0 → left out     NaN → left out
//
// null is read as NaN, and a field that is absent keeps its value (0).
type (
	Volt    float64
	Ampere  float64
	Watt    float64
	Joule   float64
	Ohm     float64
	Hertz   float64
	Seconds float64 // a span or an instant on some stated clock
	Decibel float64
	// Number is a dimensionless figure, such as a ratio, a percentage or a probability.
	Number float64
	// Ratio is a dimensionless ratio that JSON has in percent: 0.05 is written as 5.
	Ratio float64
)

// Count is one raw reading of an ADC or of a sensor's register. Counts of up
// to 32 bits are kept exactly; nothing is scaled or rounded before it is stored.
type Count = int32

func (v Volt) String() string    { return format(float64(v), "V", unitPrefixes) }
func (a Ampere) String() string  { return format(float64(a), "A", unitPrefixes) }
func (w Watt) String() string    { return format(float64(w), "W", unitPrefixes) }
func (j Joule) String() string   { return format(float64(j), "J", unitPrefixes) }
func (o Ohm) String() string     { return format(float64(o), "Ω", unitPrefixes) }
func (h Hertz) String() string   { return format(float64(h), "Hz", unitPrefixes) }
func (s Seconds) String() string { return format(float64(s), "s", unitPrefixes) }

// Duration converts s to a time.Duration, to the nearest nanosecond.
func (s Seconds) Duration() time.Duration {
	return time.Duration(math.Round(float64(s) * 1e9))
}

// NameOf returns a numbered value's name, or kind(v) where names has none.
func NameOf[T ~uint8](names map[T]string, v T, kind string) string {
	if s, ok := names[v]; ok {
		return s
	}
	return fmt.Sprintf("%s(%d)", kind, uint8(v))
}

// SecondsOf converts a time.Duration to Seconds.
func SecondsOf(d time.Duration) Seconds { return Seconds(d.Seconds()) }

// Plural returns n with a noun, to which it adds an s unless n is 1.
func Plural[T ~int | ~int64 | ~uint16 | ~uint32 | ~uint64](n T, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// Known reports whether v is a finite number.
func Known[T ~float64](v T) bool { return !math.IsNaN(float64(v)) && !math.IsInf(float64(v), 0) }

// MarshalJSON writes the number, or null where it is not finite.
func (v Volt) MarshalJSON() ([]byte, error)    { return marshalUnit(v) }
func (a Ampere) MarshalJSON() ([]byte, error)  { return marshalUnit(a) }
func (w Watt) MarshalJSON() ([]byte, error)    { return marshalUnit(w) }
func (j Joule) MarshalJSON() ([]byte, error)   { return marshalUnit(j) }
func (o Ohm) MarshalJSON() ([]byte, error)     { return marshalUnit(o) }
func (h Hertz) MarshalJSON() ([]byte, error)   { return marshalUnit(h) }
func (s Seconds) MarshalJSON() ([]byte, error) { return marshalUnit(s) }
func (d Decibel) MarshalJSON() ([]byte, error) { return marshalUnit(d) }
func (n Number) MarshalJSON() ([]byte, error)  { return marshalUnit(n) }
func (r Ratio) MarshalJSON() ([]byte, error)   { return marshalUnit(100 * r) }

// UnmarshalJSON reads a number, or null as NaN.
func (v *Volt) UnmarshalJSON(b []byte) error    { return unmarshalUnit(v, b) }
func (a *Ampere) UnmarshalJSON(b []byte) error  { return unmarshalUnit(a, b) }
func (w *Watt) UnmarshalJSON(b []byte) error    { return unmarshalUnit(w, b) }
func (j *Joule) UnmarshalJSON(b []byte) error   { return unmarshalUnit(j, b) }
func (o *Ohm) UnmarshalJSON(b []byte) error     { return unmarshalUnit(o, b) }
func (h *Hertz) UnmarshalJSON(b []byte) error   { return unmarshalUnit(h, b) }
func (s *Seconds) UnmarshalJSON(b []byte) error { return unmarshalUnit(s, b) }
func (d *Decibel) UnmarshalJSON(b []byte) error { return unmarshalUnit(d, b) }
func (n *Number) UnmarshalJSON(b []byte) error  { return unmarshalUnit(n, b) }
func (r *Ratio) UnmarshalJSON(b []byte) error {
	err := unmarshalUnit(r, b)
	*r /= 100
	return err
}

// IsZero reports whether the value is unknown (NaN or infinite), for the option
// omitzero of a JSON tag. The number 0 is a known value: IsZero is false for it.
func (v Volt) IsZero() bool    { return !Known(v) }
func (a Ampere) IsZero() bool  { return !Known(a) }
func (w Watt) IsZero() bool    { return !Known(w) }
func (j Joule) IsZero() bool   { return !Known(j) }
func (o Ohm) IsZero() bool     { return !Known(o) }
func (h Hertz) IsZero() bool   { return !Known(h) }
func (s Seconds) IsZero() bool { return !Known(s) }
func (d Decibel) IsZero() bool { return !Known(d) }
func (n Number) IsZero() bool  { return !Known(n) }
func (r Ratio) IsZero() bool   { return !Known(r) }

var null = []byte("null")

func marshalUnit[T ~float64](v T) ([]byte, error) {
	if !Known(v) {
		return null, nil
	}
	return json.Marshal(float64(v))
}

func unmarshalUnit[T ~float64](v *T, b []byte) error {
	if bytes.Equal(b, null) {
		*v = T(math.NaN())
		return nil
	}
	var f float64
	if err := json.Unmarshal(b, &f); err != nil {
		return err
	}
	*v = T(f)
	return nil
}

type prefix struct {
	scale float64
	name  string
}

// prefixes are those of FormatSI; units' own String methods use those from nano to giga.
var (
	prefixes = []prefix{
		{1e15, "P"},
		{1e12, "T"},
		{1e9, "G"},
		{1e6, "M"},
		{1e3, "k"},
		{1, ""},
		{1e-3, "m"},
		{1e-6, "µ"},
		{1e-9, "n"},
		{1e-12, "p"},
		{1e-15, "f"},
	}
	unitPrefixes = prefixes[2:9]
)

// scaled returns the prefix with which v has one to three digits before the
// point. A value that four digits round up to the next prefix has that one:
// 999.96 J are 1 kJ.
func scaled(v float64, among []prefix) prefix {
	a := math.Abs(v)
	if a == 0 || !Known(v) {
		return prefix{scale: 1}
	}
	for _, p := range among {
		if a >= p.scale*0.99995 {
			return p
		}
	}
	return among[len(among)-1]
}

func format(v float64, unit string, among []prefix) string {
	p := scaled(v, among)
	return fmt.Sprintf("%.4g %s%s", v/p.scale, p.name, unit)
}

// SIPrefix returns the SI prefix, from femto to peta, with which v has one to
// three digits before the point, and its scale; none for 0, NaN and ±Inf.
func SIPrefix(v float64) (scale float64, name string) {
	p := scaled(v, prefixes)
	return p.scale, p.name
}

// FormatSI writes v with four significant digits and an SI prefix from femto to
// peta: "1.235 kJ".
func FormatSI(v float64, unit string) string { return format(v, unit, prefixes) }

// FormatU writes v with its uncertainty u, both to the decimal that holds two
// significant digits of u (GUM, 7.2.6), with the SI prefix of v:
// "1.2346 ± 0.0012 kJ". Without a positive finite u it is FormatSI(v, unit).
func FormatU(v, u float64, unit string) string {
	if !(u > 0) || !Known(u) {
		return FormatSI(v, unit)
	}
	s, name := SIPrefix(v)
	d := Decimals(u / s)
	return fmt.Sprintf("%.*f ± %.*f %s%s", d, v/s, d, u/s, name, unit)
}

// Decimals returns how many decimals show two significant digits of an
// uncertainty, from 0 to 9; 2 where u is not positive or not finite.
func Decimals(u float64) int {
	if !(u > 0) || !Known(u) {
		return 2
	}
	return min(max(1-int(math.Floor(math.Log10(u))), 0), 9)
}

// FormatPercent writes a deviation in percent with its sign and at least two
// significant digits: "+0.012 %", and rounding, below 1e-6 %, as "+0 %". The minus sign is ASCII.
func FormatPercent(v float64) string {
	if math.Abs(v) < 1e-6 {
		v = 0
	}
	if math.Abs(v) < 0.1 {
		return fmt.Sprintf("%+.2g %%", v)
	}
	return fmt.Sprintf("%+.2f %%", v)
}

package measure

import (
	"fmt"
	"math"
	"time"
)

// Physical quantities in SI units. They are distinct types so that a volt
// cannot be passed for an ampere between packages.
type (
	Volt    float64
	Ampere  float64
	Watt    float64
	Joule   float64
	Ohm     float64
	Hertz   float64
	Seconds float64 // a span or an instant on some stated clock
	Decibel float64
)

// Count is one raw reading of an ADC or of a sensor's register. Counts of up
// to 32 bits are kept exactly; nothing is scaled or rounded before it is stored.
type Count = int32

func (v Volt) String() string    { return format(float64(v), "V") }
func (a Ampere) String() string  { return format(float64(a), "A") }
func (w Watt) String() string    { return format(float64(w), "W") }
func (j Joule) String() string   { return format(float64(j), "J") }
func (o Ohm) String() string     { return format(float64(o), "Ω") }
func (h Hertz) String() string   { return format(float64(h), "Hz") }
func (s Seconds) String() string { return format(float64(s), "s") }

// Duration converts s to a time.Duration, to the nearest nanosecond.
func (s Seconds) Duration() time.Duration {
	return time.Duration(math.Round(float64(s) * 1e9))
}

// SecondsOf converts a time.Duration to Seconds.
func SecondsOf(d time.Duration) Seconds { return Seconds(d.Seconds()) }

var prefixes = []struct {
	scale float64
	name  string
}{{1e9, "G"}, {1e6, "M"}, {1e3, "k"}, {1, ""}, {1e-3, "m"}, {1e-6, "µ"}, {1e-9, "n"}}

// format writes v with four significant digits and an SI prefix.
func format(v float64, unit string) string {
	a := math.Abs(v)
	if a == 0 || math.IsNaN(v) || math.IsInf(v, 0) {
		return fmt.Sprintf("%g %s", v, unit)
	}
	p := prefixes[len(prefixes)-1]
	for _, c := range prefixes {
		if a >= c.scale*0.99995 {
			p = c
			break
		}
	}
	return fmt.Sprintf("%.4g %s%s", v/p.scale, p.name, unit)
}

package checkup

import (
	"fmt"
	"math"
	"strings"

	"wattmark/measure"
)

// supply is what a rail's voltage should be.
type supply struct {
	nominal measure.Volt
	// tolerance is relative, of the PCI Express card electromechanical
	// specification: 3.3 V ± 9 %, 12 V ± 8 %.
	tolerance float64
}

var (
	supply3V3 = supply{3.3, 0.09}
	supply12V = supply{12, 0.08}
)

func (s supply) holds(v float64) bool {
	return math.Abs(v-float64(s.nominal)) <= s.tolerance*float64(s.nominal)
}

// supplyOf knows a rail's supply by its role, else by its name.
func supplyOf(r measure.Rail) (supply, bool) {
	name := strings.ToLower(r.Name)
	switch {
	case r.Wiring == measure.WiringPower || r.Wiring == measure.WiringAssumed:
		return supply{}, false
	case r.Role == measure.RolePCIe3V3 || strings.Contains(name, "3v3"):
		return supply3V3, true
	case strings.Contains(name, "5v"): // a mainboard's rails, no graphics card's
		return supply{}, false
	case r.Role == measure.RolePCIe12V || r.Role == measure.RolePSU || strings.Contains(name, "12v"):
		return supply12V, true
	}
	return supply{}, false
}

// dead is a voltage below which nothing is connected or switched on.
const dead = 0.5

// supplies looks at every rail's voltage: swapped rails, reversed probes, cards
// without power.
func (r *Result) supplies() (out []Finding) {
	for i, rail := range r.Setup.Rails {
		want, known := supplyOf(rail)
		v := r.Rails[i].Voltage
		if !known || v.N == 0 {
			continue
		}
		text := fmt.Sprintf("reads %v, a supply of %v", measure.Volt(v.Mean), want.nominal)
		switch {
		case want.holds(v.Mean):
			out = append(out, Finding{Fine, rail.Name, text, ""})
		case want.holds(-v.Mean):
			out = append(out, Finding{Fault, rail.Name, text, "wrong polarity: swap the two leads of its voltage probe"})
		case math.Abs(v.Mean) < dead:
			out = append(out, Finding{Fault, rail.Name, text, "no voltage: is the machine on, is the probe connected, is its divider right?"})
		default:
			out = append(out, r.foreign(i, want, text))
		}
	}
	return out
}

// foreign explains a voltage that belongs to no supply of that rail.
func (r *Result) foreign(i int, want supply, text string) Finding {
	name, v := r.Setup.Rails[i].Name, r.Rails[i].Voltage.Mean
	for j, other := range r.Setup.Rails {
		if s, known := supplyOf(other); known && s != want && s.holds(v) && want.holds(r.Rails[j].Voltage.Mean) {
			return Finding{Fault, name, text, fmt.Sprintf("swapped with %s, which reads %v: swap them in the bench file, or at the probes", other.Name, measure.Volt(r.Rails[j].Voltage.Mean))}
		}
	}
	for _, s := range []supply{supply3V3, supply12V} {
		if s != want && s.holds(v) {
			return Finding{Fault, name, text, fmt.Sprintf("this is a supply of %v: another rail's probe, or the wrong name", s.nominal)}
		}
	}
	return Finding{Fault, name, text, fmt.Sprintf("outside of ± %.0f %%: check divider, probe ratio and the channel's gain", 100*want.tolerance)}
}

// current looks at the direction of a rail's current.
func (r *Result) current(i int) []Finding {
	rail, c := r.Setup.Rails[i], r.Rails[i].Current
	if c.N == 0 {
		return nil
	}
	u := zeroOf(rail, r.Setup.Channels, r.Rails[i])
	text := fmt.Sprintf("%v on average, ± %v of the zero (k = 2)", measure.Ampere(c.Mean), measure.Ampere(2*u))
	if c.Mean >= -3*u {
		return []Finding{{Fine, rail.Name, text, ""}}
	}
	remedy := "wrong polarity: turn the clamp round, or make the gain negative; if nothing flows, set its zero (wattmark calibrate zero)"
	if rail.Wiring == measure.WiringShunt {
		remedy = "wrong polarity: source and ground side of the shunt are swapped; if nothing flows, set its zero (wattmark calibrate zero)"
	}
	return []Finding{{Fault, rail.Name, text, remedy}}
}

// zeroOf is the standard uncertainty of a rail's current near zero.
func zeroOf(rail measure.Rail, channels []measure.Channel, seen Rail) float64 {
	x := channels[rail.X]
	if rail.Wiring != measure.WiringShunt {
		return x.UOffset
	}
	// Both sides read nearly the same voltage, so their gains matter as well.
	y, v := channels[rail.Y], seen.Voltage.Mean
	return math.Hypot(math.Hypot(x.UOffset, y.UOffset), math.Hypot(x.UGain, y.UGain)*v) / float64(rail.Shunt)
}

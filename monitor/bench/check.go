package bench

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/wattmark/wattmark/measure"
)

var roles = map[string]measure.Role{
	measure.RolePSU.String(): measure.RolePSU, measure.RolePCIe3V3.String(): measure.RolePCIe3V3,
	measure.RolePCIe12V.String(): measure.RolePCIe12V, measure.RoleWholeGPU.String(): measure.RoleWholeGPU,
}

// check returns all faults that are independent of the instrument, joined.
func (b *Bench) check() error {
	var faults []error
	add := func(p path, format string, a ...any) {
		faults = append(faults, b.src.fault(p, fmt.Errorf(format, a...)))
	}
	for i := range b.file.Instruments {
		b.checkChannels(i, add)
	}
	// owner maps a channel's name, as written, to its rail. The same channel under two names, bare and
	// with its instrument, is found by Setup, which has indices.
	names, owner, known := map[string]bool{}, map[string]string{}, slices.Sorted(maps.Keys(roles))
	for i, r := range b.file.Rails {
		at := path{"rails", i}
		switch {
		case r.Name == "":
			add(at, "name is missing")
		case names[r.Name]:
			add(at.with("name"), "rail %s: named twice", r.Name)
		}
		names[r.Name] = true
		if _, ok := roles[r.Role]; r.Role != "" && !ok {
			add(at.with("role"), "unknown role %q: want %s", r.Role, strings.Join(known, ", "))
		}
		for _, c := range checkWiring(r, at, add) {
			if o, taken := owner[c.name]; taken {
				add(c.at, "rail %s: channel %s is already used by rail %s", r.Name, c.name, o)
			}
			owner[c.name] = r.Name
		}
	}
	seen := map[string]bool{}
	for i, m := range b.file.Missing {
		at := path{"missing", i}
		switch {
		case m == "":
			add(at, "an empty name")
		case seen[m]:
			add(at, "%s: named twice", m)
		case names[m]:
			add(at, "%s: a rail that is measured cannot be missing", m)
		}
		seen[m] = true
	}
	if r := b.file.Response; r != nil && (r.Tau < 0 || r.Window < 0 || r.Update < 0) {
		add(path{"response"}, "a time is negative")
	}
	return errors.Join(faults...)
}

// report adds a fault at an entry.
type report func(p path, format string, a ...any)

// ref is a channel that a rail names.
type ref struct {
	name string
	at   path
}

// checkWiring checks a rail by itself and returns the channels that it names: two for a
// shunt (source and ground side) and a clamp (current and voltage), else one.
func checkWiring(r railYAML, at path, add report) []ref {
	n := 0 // wirings that are set
	for _, has := range []bool{r.Shunt != nil, r.Clamp != nil, r.Assumed != nil, r.Power != nil} {
		if has {
			n++
		}
	}
	if n != 1 {
		add(at, "rail %s has %d wirings: want one of shunt, clamp, assumed, power", r.Name, n)
		return nil
	}
	positive := func(key path, what string, v float64) {
		if !(v > 0) || math.IsInf(v, 0) { // NaN is not above 0 either
			add(key, "%s of %v: must be positive and finite", what, v)
		}
	}
	notNegative := func(key path, what string, v float64) {
		if !(v >= 0) || math.IsInf(v, 0) {
			add(key, "%s of %v: must be zero or positive and finite", what, v)
		}
	}
	var refs []ref
	name := func(key path, v string) {
		if v == "" {
			add(key, "%s is missing: name a channel", key[len(key)-1])
			return
		}
		refs = append(refs, ref{v, key})
	}
	switch {
	case r.Shunt != nil:
		at = at.with("shunt")
		name(at.with("source"), r.Shunt.Source)
		name(at.with("ground"), r.Shunt.Ground)
		positive(at.with("ohm"), "a shunt in Ω", r.Shunt.Ohm)
		notNegative(at.with("u_rel"), "a relative uncertainty", r.Shunt.URel)
	case r.Clamp != nil:
		at = at.with("clamp")
		name(at.with("current"), r.Clamp.Current)
		name(at.with("voltage"), r.Clamp.Voltage)
	case r.Assumed != nil:
		at = at.with("assumed")
		name(at.with("current"), r.Assumed.Current)
		positive(at.with("volt"), "an assumed voltage in V", r.Assumed.Volt)
		notNegative(at.with("u_volt"), "an uncertainty in V", r.Assumed.UVolt)
	default:
		name(at.with("power", "channel"), r.Power.Channel)
	}
	return refs
}

// checkChannels refuses calibrations that are not finite, negative uncertainties, and a
// gain of 0, under which every count reads the same.
func (b *Bench) checkChannels(of int, add report) {
	channels := b.file.Instruments[of].Channels
	for _, name := range slices.Sorted(maps.Keys(channels)) {
		c, at := channels[name], path{"instruments", of, "channels", name}
		keys := [...]string{"gain", "offset", "u_gain", "u_offset", "noise"}
		for i, v := range []*float64{c.Gain, c.Offset, c.UGain, c.UOffset, c.Noise} {
			key := keys[i]
			switch {
			case v == nil:
			case math.IsNaN(*v) || math.IsInf(*v, 0):
				add(at.with(key), "channel %s: %s is %v: must be a finite number", name, key, *v)
			case *v < 0 && key != "gain" && key != "offset":
				add(at.with(key), "channel %s: %s is negative", name, key)
			case *v == 0 && key == "gain":
				add(at.with(key), "channel %s: gain is 0: every count would read the same", name)
			}
		}
	}
}

// file is the YAML form of a bench. A nil pointer is an absent entry.
type file struct {
	Name        string           `yaml:"name"`
	GPU         string           `yaml:"gpu"`
	Instruments []instrumentYAML `yaml:"instruments"`
	Align       *alignYAML       `yaml:"align"`
	Rails       []railYAML       `yaml:"rails"`
	Missing     []string         `yaml:"missing"`
	Response    *responseYAML    `yaml:"response"`
}

// instrumentYAML is one entry of instruments. Port and Address are synonyms.
type instrumentYAML struct {
	Name     string                 `yaml:"name"`
	Kind     string                 `yaml:"kind"`
	Port     string                 `yaml:"port"`
	Address  string                 `yaml:"address"`
	Delay    time.Duration          `yaml:"delay"`
	Options  any                    `yaml:"options"`
	Channels map[string]channelYAML `yaml:"channels"`
}

// alignYAML is the alignment of the times of several instruments.
type alignYAML struct {
	By          string        `yaml:"by"`
	U           time.Duration `yaml:"u"`
	Master      string        `yaml:"master"`
	SharedClock bool          `yaml:"shared_clock"`
}

// channelYAML replaces the parts of a channel's calibration that are set.
type channelYAML struct {
	Gain    *float64       `yaml:"gain"`
	Offset  *float64       `yaml:"offset"`
	UGain   *float64       `yaml:"u_gain"`
	UOffset *float64       `yaml:"u_offset"`
	Noise   *float64       `yaml:"noise"`
	Skew    *time.Duration `yaml:"skew"`
}

// railYAML is one rail; exactly one of the wirings is set.
type railYAML struct {
	Name    string       `yaml:"name"`
	Role    string       `yaml:"role"`
	Shunt   *shuntYAML   `yaml:"shunt"`
	Clamp   *clampYAML   `yaml:"clamp"`
	Assumed *assumedYAML `yaml:"assumed"`
	Power   *powerYAML   `yaml:"power"`
}

// shuntYAML is a resistor in the supply's line, with a channel on either side of it.
type shuntYAML struct {
	Source string  `yaml:"source"`
	Ground string  `yaml:"ground"`
	Ohm    float64 `yaml:"ohm"`
	// URel is the relative standard uncertainty of Ohm.
	URel float64 `yaml:"u_rel"`
}

// clampYAML is a current probe, and a channel for the voltage.
type clampYAML struct {
	Current string `yaml:"current"`
	Voltage string `yaml:"voltage"`
}

// assumedYAML is a current probe on a rail whose voltage is not measured.
type assumedYAML struct {
	Current string  `yaml:"current"`
	Volt    float64 `yaml:"volt"`
	// UVolt is the standard uncertainty of Volt, in V.
	UVolt float64 `yaml:"u_volt"`
}

// powerYAML is a channel that reads watts, as of a GPU's own sensor.
type powerYAML struct {
	Channel string `yaml:"channel"`
}

// responseYAML replaces the instrument's response.
type responseYAML struct {
	Tau    time.Duration `yaml:"tau"`
	Window time.Duration `yaml:"window"`
	Update time.Duration `yaml:"update"`
}

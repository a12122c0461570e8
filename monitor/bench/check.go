package bench

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"wattmark/measure"
	"wattmark/monitor/instrument"
)

var roles = map[string]measure.Role{
	measure.RolePSU.String(): measure.RolePSU, measure.RolePCIe3V3.String(): measure.RolePCIe3V3,
	measure.RolePCIe12V.String(): measure.RolePCIe12V, measure.RoleWholeGPU.String(): measure.RoleWholeGPU,
}

// check finds all faults that can be seen without the instrument and reports
// them together.
func (b *Bench) check() error {
	var faults []error
	add := func(p path, format string, a ...any) {
		faults = append(faults, b.src.fault(p, fmt.Errorf(format, a...)))
	}
	for i := range b.file.Instruments {
		b.checkChannels(i, add)
	}
	names, owner := map[string]bool{}, map[string]string{}
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
			add(at.with("role"), "unknown role %q: want %s", r.Role, strings.Join(slices.Sorted(maps.Keys(roles)), ", "))
		}
		for _, c := range checkWiring(r, at, add) {
			if o, taken := owner[c.name]; taken {
				add(c.at, "rail %s: channel %s is already used by rail %s", r.Name, c.name, o)
			}
			owner[c.name] = r.Name
		}
	}
	b.checkMissing(names, add)
	b.checkResponse(add)
	return errors.Join(faults...)
}

type report func(p path, format string, a ...any)

// ref is a channel that a rail names.
type ref struct {
	name string
	at   path
}

// checkWiring checks a rail by itself and returns the channels that it names.
func checkWiring(r railYAML, at path, add report) []ref {
	n := 0
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
		if !(v > 0) || math.IsInf(v, 0) {
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

// checkChannels refuses calibrations that are no numbers.
func (b *Bench) checkChannels(of int, add report) {
	channels := b.file.Instruments[of].Channels
	for _, name := range slices.Sorted(maps.Keys(channels)) {
		c, at := channels[name], path{"instruments", of, "channels", name}
		for _, f := range []struct {
			key      string
			v        *float64
			negative bool
		}{{"gain", c.Gain, true}, {"offset", c.Offset, true}, {"u_gain", c.UGain, false}, {"u_offset", c.UOffset, false}, {"noise", c.Noise, false}} {
			switch {
			case f.v == nil:
			case math.IsNaN(*f.v) || math.IsInf(*f.v, 0):
				add(at.with(f.key), "channel %s: %s is %v: must be a finite number", name, f.key, *f.v)
			case *f.v < 0 && !f.negative:
				add(at.with(f.key), "channel %s: %s is negative", name, f.key)
			case *f.v == 0 && f.key == "gain":
				add(at.with(f.key), "channel %s: gain is 0: every count would read the same", name)
			}
		}
	}
}

func (b *Bench) checkMissing(rails map[string]bool, add report) {
	seen := map[string]bool{}
	for i, m := range b.file.Missing {
		at := path{"missing", i}
		switch {
		case m == "":
			add(at, "an empty name")
		case seen[m]:
			add(at, "%s: named twice", m)
		case rails[m]:
			add(at, "%s: a rail that is measured cannot be missing", m)
		}
		seen[m] = true
	}
}

func (b *Bench) checkResponse(add report) {
	r := b.file.Response
	if r == nil {
		return
	}
	if r.Tau < 0 || r.Window < 0 || r.Update < 0 {
		add(path{"response"}, "a time is negative")
	}
}

// role is a rail's stated role, or the one that its name suggests.
func (r railYAML) role() measure.Role {
	if r.Role == "" {
		return instrument.RoleOf(r.Name)
	}
	return roles[r.Role]
}

package bench

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"wattmark/measure"
	"wattmark/monitor/instrument"
)

// Setup makes rails of what the instrument delivers, under the calibration in
// force: the device's own, with what the file replaces. It fails with *Error
// where the file names channels that are not there or do not fit.
func (b *Bench) Setup(in instrument.Inputs) (measure.Setup, error) {
	s := measure.Setup{Timebase: in.Timebase, Response: in.Response, Channels: slices.Clone(in.Channels)}
	if r := b.file.Response; r != nil {
		s.Response = measure.Response{Tau: measure.SecondsOf(r.Tau), Window: measure.SecondsOf(r.Window), Update: measure.SecondsOf(r.Update)}
	}
	if err := b.calibrate(s.Channels); err != nil {
		return measure.Setup{}, err
	}
	if len(b.file.Rails) == 0 {
		s.Rails, s.Missing = b.kind.Rails(in)
	} else if err := b.rails(&s); err != nil {
		return measure.Setup{}, err
	}
	if len(b.file.Missing) > 0 {
		s.Missing = slices.Clone(b.file.Missing)
	}
	if len(s.Rails) == 0 {
		return measure.Setup{}, b.src.fault(nil, fmt.Errorf("no rails: the channels of this instrument (%s) suggest none; name them under rails", list(s.Channels)))
	}
	if err := s.Validate(); err != nil {
		return measure.Setup{}, b.src.fault(path{"rails"}, err)
	}
	return s, nil
}

// calibrate replaces what the file states of the channels.
func (b *Bench) calibrate(channels []measure.Channel) error {
	set := func(to *float64, v *float64) {
		if v != nil {
			*to = *v
		}
	}
	over := b.file.Instruments[0].Channels
	for _, name := range slices.Sorted(maps.Keys(over)) {
		y, at := over[name], path{"instruments", 0, "channels", name}
		i, err := b.channel(channels, name)
		if err != nil {
			return b.src.faultKey(at, err)
		}
		c := &channels[i]
		set(&c.Gain, y.Gain)
		set(&c.Offset, y.Offset)
		set(&c.UGain, y.UGain)
		set(&c.UOffset, y.UOffset)
		set(&c.Noise, y.Noise)
		if y.Skew != nil {
			c.Skew = measure.SecondsOf(*y.Skew)
		}
		if err := c.Validate(); err != nil {
			return b.src.faultKey(at, err)
		}
	}
	return nil
}

// rails makes the rails that the file names.
func (b *Bench) rails(s *measure.Setup) error {
	var faults []error
	owner := map[int]string{}
	for i, y := range b.file.Rails {
		at := path{"rails", i}
		r := measure.Rail{Name: y.Name, Role: y.role(), X: -1, Y: -1}
		bad := len(faults)
		find := func(to *int, name string, key path) {
			c, err := b.channel(s.Channels, name)
			if err == nil && owner[c] != "" {
				err = fmt.Errorf("rail %s: channel %s is already used by rail %s", y.Name, s.Channels[c].Name, owner[c])
			}
			if err != nil {
				faults = append(faults, b.src.fault(key, err))
				return
			}
			*to, owner[c] = c, y.Name
		}
		switch {
		case y.Shunt != nil:
			r.Wiring, r.Shunt, r.UShunt = measure.WiringShunt, measure.Ohm(y.Shunt.Ohm), y.Shunt.URel
			find(&r.X, y.Shunt.Source, at.with("shunt", "source"))
			find(&r.Y, y.Shunt.Ground, at.with("shunt", "ground"))
		case y.Clamp != nil:
			r.Wiring = measure.WiringClamp
			find(&r.X, y.Clamp.Current, at.with("clamp", "current"))
			find(&r.Y, y.Clamp.Voltage, at.with("clamp", "voltage"))
		case y.Assumed != nil:
			r.Wiring, r.Assumed, r.UAssumed = measure.WiringAssumed, measure.Volt(y.Assumed.Volt), measure.Volt(y.Assumed.UVolt)
			find(&r.X, y.Assumed.Current, at.with("assumed", "current"))
		default:
			r.Wiring = measure.WiringPower
			find(&r.X, y.Power.Channel, at.with("power", "channel"))
		}
		if len(faults) == bad {
			if err := r.Validate(s.Channels); err != nil {
				faults = append(faults, b.src.fault(at, err))
			}
		}
		s.Rails = append(s.Rails, r)
	}
	return errors.Join(faults...)
}

// channel finds a channel by name, or by instrument/name.
func (b *Bench) channel(channels []measure.Channel, name string) (int, error) {
	bare := name
	if on, rest, found := strings.Cut(name, "/"); found {
		if on != b.Instrument.Name {
			return 0, fmt.Errorf("unknown instrument %q in %q: this bench has %s", on, name, b.Instrument.Name)
		}
		bare = rest
	}
	i := slices.IndexFunc(channels, func(c measure.Channel) bool { return c.Name == bare })
	if i < 0 {
		return 0, fmt.Errorf("unknown channel %q: the %s has %s", name, b.Instrument.Kind, list(channels))
	}
	return i, nil
}

func list(channels []measure.Channel) string {
	names := make([]string, len(channels))
	for i, c := range channels {
		names[i] = c.Name
	}
	return strings.Join(names, ", ")
}

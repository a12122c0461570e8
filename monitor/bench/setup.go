package bench

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/monitor/instrument"
)

// Setup makes rails of the instrument's inputs, under the calibration in force: the
// device's own, with the parts that the file replaces. Errors are *Error, where the file
// names channels that are not there or do not fit.
func (b *Bench) Setup(in instrument.Inputs) (measure.Setup, error) {
	// The inputs belong to the driver: the calibration is applied to a copy of its channels.
	s := measure.Setup{Timebase: in.Timebase, Response: in.Response, Channels: slices.Clone(in.Channels)}
	if r := b.file.Response; r != nil {
		s.Response = measure.Response{
			Tau: measure.SecondsOf(r.Tau), Window: measure.SecondsOf(r.Window), Update: measure.SecondsOf(r.Update),
			Centred: in.Response.Centred,
		}
	}
	for i, y := range b.Instruments {
		// The delay of a single instrument is a skew of all its channels; of several the composite
		// takes it off.
		for c := range s.Channels {
			if !b.several() {
				s.Channels[c].Skew += y.Delay
			}
		}
		if err := b.calibrateOne(i, s.Channels); err != nil {
			return measure.Setup{}, err
		}
	}
	if len(b.file.Rails) == 0 {
		s.Rails, s.Missing = b.natural(in)
	} else if err := b.rails(&s); err != nil {
		return measure.Setup{}, err
	}
	if len(b.file.Missing) > 0 {
		s.Missing = slices.Clone(b.file.Missing)
	}
	if len(s.Rails) == 0 {
		return measure.Setup{}, b.src.fault(nil, fmt.Errorf(
			"no rails: the channels of this bench (%s) suggest none; name them under rails", list(s.Channels)))
	}
	if err := s.Validate(); err != nil {
		return measure.Setup{}, b.src.fault(path{"rails"}, err)
	}
	return s, nil
}

// natural returns the rails that the instruments' own channels suggest, and those that
// they lack. Of several instruments with a rail of one name the later ones get their
// instrument's name in front; a rail that one lacks and another has is not missing.
func (b *Bench) natural(in instrument.Inputs) (rails []measure.Rail, missing []string) {
	if !b.several() {
		return b.Instruments[0].kind.Rails(in)
	}
	// The channels of one instrument are neighbours, named instrument/channel. Its driver
	// knows them by their bare names, and its rails' indices count from its first channel.
	has := map[string]bool{}
	for _, i := range b.Instruments {
		own, first := instrument.Inputs{Timebase: in.Timebase, Response: in.Response}, -1
		for c, ch := range in.Channels {
			if bare, ok := strings.CutPrefix(ch.Name, i.Name+"/"); ok {
				if first < 0 {
					first = c
				}
				ch.Name = bare
				own.Channels = append(own.Channels, ch)
			}
		}
		found, lacks := i.kind.Rails(own)
		for _, r := range found {
			r.X += first
			if r.Y >= 0 {
				r.Y += first
			}
			if has[r.Name] {
				r.Name = i.Name + "/" + r.Name
			}
			has[r.Name] = true
			rails = append(rails, r)
		}
		missing = append(missing, lacks...)
	}
	slices.Sort(missing)
	missing = slices.DeleteFunc(slices.Compact(missing), func(m string) bool { return has[m] })
	return rails, missing
}

// calibrateOne applies the file's calibration to one instrument's channels.
func (b *Bench) calibrateOne(of int, channels []measure.Channel) error {
	set := func(to *float64, v *float64) {
		if v != nil {
			*to = *v
		}
	}
	// In the order of the names, so that of several faults always the same one is reported.
	over := b.file.Instruments[of].Channels
	for _, name := range slices.Sorted(maps.Keys(over)) {
		y, at := over[name], path{"instruments", of, "channels", name}
		i, err := b.channelOf(of, channels, name)
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

// rails makes the rails of the file. Each channel belongs to one rail.
func (b *Bench) rails(s *measure.Setup) error {
	var faults []error
	owner := map[int]string{}
	for i, y := range b.file.Rails {
		r, err := b.rail(y, path{"rails", i}, s.Channels, func(c int) string {
			was := owner[c]
			owner[c] = y.Name
			return was
		})
		if err != nil {
			faults = append(faults, err)
		}
		s.Rails = append(s.Rails, r)
	}
	return errors.Join(faults...)
}

// rail makes one rail. take claims a channel, and returns the rail that has it already.
func (b *Bench) rail(
	y railYAML, at path, channels []measure.Channel, take func(channel int) string,
) (measure.Rail, error) {
	r := measure.Rail{Name: y.Name, Role: roles[y.Role], X: -1, Y: -1}
	if y.Role == "" {
		r.Role = instrument.RoleOf(y.Name)
	}
	var faults []error
	// find sets an index to a channel that no other rail has.
	find := func(to *int, name string, key path) {
		c, err := b.channel(channels, name)
		if err == nil {
			if was := take(c); was != "" {
				err = fmt.Errorf("rail %s: channel %s is already used by rail %s", y.Name, channels[c].Name, was)
			}
		}
		if err != nil {
			faults = append(faults, b.src.fault(key, err))
			return
		}
		*to = c
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
		r.Wiring = measure.WiringAssumed
		r.Assumed, r.UAssumed = measure.Volt(y.Assumed.Volt), measure.Volt(y.Assumed.UVolt)
		find(&r.X, y.Assumed.Current, at.with("assumed", "current"))
	default:
		r.Wiring = measure.WiringPower
		find(&r.X, y.Power.Channel, at.with("power", "channel"))
	}
	if len(faults) == 0 {
		if err := r.Validate(channels); err != nil {
			faults = append(faults, b.src.fault(at, err))
		}
	}
	return r, errors.Join(faults...)
}

// channel finds a channel by name, or by instrument/name. The bare name suffices where one
// instrument alone has such a channel.
func (b *Bench) channel(channels []measure.Channel, name string) (int, error) {
	if on, rest, found := strings.Cut(name, "/"); found {
		of := slices.Index(b.names(), on)
		if of < 0 {
			return 0, fmt.Errorf(
				"unknown instrument %q in %q: this bench has %s", on, name, strings.Join(b.names(), ", "))
		}
		return b.channelOf(of, channels, rest)
	}
	if !b.several() {
		return b.channelOf(0, channels, name)
	}
	// A bare name: all instruments that have such a channel.
	at, owners := -1, []string(nil)
	for c, ch := range channels {
		if on, bare, _ := strings.Cut(ch.Name, "/"); bare == name {
			at, owners = c, append(owners, on)
		}
	}
	switch len(owners) {
	case 0:
		return 0, fmt.Errorf("unknown channel %q: this bench has %s", name, list(channels))
	case 1:
		return at, nil
	}
	return 0, fmt.Errorf(
		"channel %q is one of %s: write %s/%s", name, strings.Join(owners, " and of "), owners[0], name)
}

// channelOf finds a channel of one instrument, by name or by instrument/name. A name with
// another instrument in front is an error: it stands in the wrong place of the file.
func (b *Bench) channelOf(of int, channels []measure.Channel, name string) (int, error) {
	i := b.Instruments[of]
	bare := strings.TrimPrefix(name, i.Name+"/")
	if on, _, found := strings.Cut(bare, "/"); found && slices.Contains(b.names(), on) {
		return 0, fmt.Errorf("channel %q stands under %s: put it under its own instrument", name, i.Name)
	}
	// Several instruments have all their channels in one list, each under its instrument's name.
	full := bare
	if b.several() {
		full = i.Name + "/" + bare
	}
	if at := slices.IndexFunc(channels, func(c measure.Channel) bool { return c.Name == full }); at >= 0 {
		return at, nil
	}
	own := slices.DeleteFunc(slices.Clone(channels), func(c measure.Channel) bool {
		return b.several() && !strings.HasPrefix(c.Name, i.Name+"/")
	})
	return 0, fmt.Errorf("unknown channel %q: the %s has %s", name, i.Kind, list(own))
}

// list returns the names of channels, for an error.
func list(channels []measure.Channel) string {
	names := lists.Map(channels, func(c measure.Channel) string { return c.Name })
	return strings.Join(names, ", ")
}

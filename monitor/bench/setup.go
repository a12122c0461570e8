package bench

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/wall"
	"github.com/wattmark/wattmark/monitor/instrument"
	"github.com/wattmark/wattmark/monitor/instrument/composite"
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
				s.Channels[c].Skew += measure.SecondsOf(y.Delay)
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
	// In the order of the names, so that of several faults always the same one is reported.
	over := b.Instruments[of].Channels
	for _, name := range slices.Sorted(maps.Keys(over)) {
		y, at := over[name], path{"instruments", of, "channels", name}
		i, err := b.channelOf(of, channels, name)
		if err != nil {
			return b.src.faultKey(at, err)
		}
		c := &channels[i]
		for to, v := range map[*float64]*float64{
			&c.Gain: y.Gain, &c.Offset: y.Offset, &c.UGain: y.UGain, &c.UOffset: y.UOffset, &c.Noise: y.Noise,
		} {
			if v != nil {
				*to = *v
			}
		}
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
		if y.Role != roleWall {
			s.Rails = append(s.Rails, r)
		} else if err == nil {
			s.Channels[r.X].Unit = measure.UnitWall
		}
	}
	return errors.Join(faults...)
}

// roleWall is of the rail that is no rail of the card, but the supply of the whole machine. Its channel alone is part
// of a setup.
const roleWall = "wall"

// wall returns the channel of the meter at the wall as the file names it, "" for none.
func (b *Bench) wall() string {
	for _, r := range b.file.Rails {
		if r.Role == roleWall && r.Power != nil {
			return r.Power.Channel
		}
	}
	return ""
}

// checkWall refuses a second rail at the wall, one that is not a meter's own power, and one without the card's.
func (b *Bench) checkWall(add report) {
	first, walls := "", 0
	for i, r := range b.file.Rails {
		if r.Role != roleWall {
			continue
		}
		at := path{"rails", i}
		if walls++; walls > 1 {
			add(at.with("role"), "rail %s: %s is at the wall already: a machine has one supply", r.Name, first)
		} else if first = r.Name; r.Power == nil {
			add(at, "rail %s: at the wall a meter multiplies itself: wire it by power", r.Name)
		}
	}
	if u := measure.SecondsOf(b.align().U); walls > 0 && b.several() && u > wall.UTime {
		add(path{"align", "u"}, "%v: the energy at the wall is worked out for readings placed within %v", u, wall.UTime)
	}
	if walls > 0 && walls == len(b.file.Rails) {
		add(path{"rails"}, "rail %s is at the wall, and no rail of the card is beside it: name those, too", first)
	}
}

// rail makes one rail. take claims a channel, and returns the rail that has it already.
func (b *Bench) rail(
	y railYAML, at path, channels []measure.Channel, take func(channel int) string,
) (measure.Rail, error) {
	r := measure.Rail{Name: y.Name, Role: roles[y.Role], X: -1, Y: -1}
	if r.Role == 0 {
		r.Role = instrument.RoleOf(y.Name)
	}
	if y.Shunt != nil {
		r.Shunt, r.UShunt = measure.Ohm(y.Shunt.Ohm), y.Shunt.URel
	} else if y.Assumed != nil {
		r.Assumed, r.UAssumed = measure.Volt(y.Assumed.Volt), measure.Volt(y.Assumed.UVolt)
	}
	var refs []ref
	r.Wiring, refs = y.wiring(at)
	var faults []error
	for i, to := range []*int{&r.X, &r.Y}[:len(refs)] {
		c, err := b.channel(channels, refs[i].name)
		if err == nil {
			if was := take(c); was != "" {
				err = fmt.Errorf("rail %s: channel %s is already used by rail %s", y.Name, channels[c].Name, was)
			}
		}
		if err != nil {
			faults = append(faults, b.src.fault(refs[i].at, err))
			continue
		}
		*to = c
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
	return strings.Join(lists.Map(channels, func(c measure.Channel) string { return c.Name }), ", ")
}

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
	for i := range b.Instruments {
		b.checkChannels(i, add)
	}
	// owner maps a channel's name, as written, to its rail. The same channel under two names, bare and
	// with its instrument, is found by Setup, which has indices.
	names, owner, known := map[string]bool{}, map[string]string{}, append(slices.Sorted(maps.Keys(roles)), roleWall)
	for i, r := range b.file.Rails {
		at := path{"rails", i}
		switch {
		case r.Name == "":
			add(at, "name is missing")
		case names[r.Name]:
			add(at.with("name"), "rail %s: named twice", r.Name)
		}
		names[r.Name] = true
		if _, ok := roles[r.Role]; r.Role != "" && r.Role != roleWall && !ok {
			add(at.with("role"), "unknown role %q: want %s", r.Role, strings.Join(known, ", "))
		}
		for _, c := range checkWiring(r, at, add) {
			if o, taken := owner[c.name]; taken {
				add(c.at, "rail %s: channel %s is already used by rail %s", r.Name, c.name, o)
			}
			owner[c.name] = r.Name
		}
	}
	b.checkWall(add)
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

// wiring returns how a rail is wired and the channels that it names: two for a shunt (source
// and ground side) and a clamp (current and voltage), else one.
func (r railYAML) wiring(at path) (measure.Wiring, []ref) {
	switch {
	case r.Shunt != nil:
		at = at.with("shunt")
		return measure.WiringShunt, []ref{{r.Shunt.Source, at.with("source")}, {r.Shunt.Ground, at.with("ground")}}
	case r.Clamp != nil:
		at = at.with("clamp")
		return measure.WiringClamp, []ref{{r.Clamp.Current, at.with("current")}, {r.Clamp.Voltage, at.with("voltage")}}
	case r.Assumed != nil:
		return measure.WiringAssumed, []ref{{r.Assumed.Current, at.with("assumed", "current")}}
	}
	return measure.WiringPower, []ref{{r.Power.Channel, at.with("power", "channel")}}
}

// checkWiring checks a rail by itself and returns the channels that it names.
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
	_, refs := r.wiring(at)
	for _, c := range refs {
		if c.name == "" {
			add(c.at, "%s is missing: name a channel", c.at[len(c.at)-1])
		}
	}
	number := func(key path, what string, v float64, good bool, want string) {
		if !good || math.IsInf(v, 0) { // NaN is not good either
			add(key, "%s of %v: must be %s and finite", what, v, want)
		}
	}
	if s := r.Shunt; s != nil {
		number(at.with("shunt", "ohm"), "a shunt in Ω", s.Ohm, s.Ohm > 0, "positive")
		number(at.with("shunt", "u_rel"), "a relative uncertainty", s.URel, s.URel >= 0, "zero or positive")
	}
	if a := r.Assumed; a != nil {
		number(at.with("assumed", "volt"), "an assumed voltage in V", a.Volt, a.Volt > 0, "positive")
		number(at.with("assumed", "u_volt"), "an uncertainty in V", a.UVolt, a.UVolt >= 0, "zero or positive")
	}
	return slices.DeleteFunc(refs, func(c ref) bool { return c.name == "" })
}

// checkChannels refuses calibrations that are not finite, negative uncertainties, and a
// gain of 0, under which every count reads the same.
func (b *Bench) checkChannels(of int, add report) {
	channels := b.Instruments[of].Channels
	for _, name := range slices.Sorted(maps.Keys(channels)) {
		c, at := channels[name], path{"instruments", of, "channels", name}
		for i, v := range []*float64{c.Gain, c.Offset, c.UGain, c.UOffset, c.Noise} {
			switch key := [...]string{"gain", "offset", "u_gain", "u_offset", "noise"}[i]; {
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
	Name        string       `yaml:"name"`
	GPU         string       `yaml:"gpu"`
	Instruments []Instrument `yaml:"instruments"`
	// Align is the alignment of the times of several instruments.
	Align   *composite.Align `yaml:"align"`
	Rails   []railYAML       `yaml:"rails"`
	Missing []string         `yaml:"missing"`
	// Response replaces the instrument's.
	Response *struct {
		Tau    time.Duration `yaml:"tau"`
		Window time.Duration `yaml:"window"`
		Update time.Duration `yaml:"update"`
	} `yaml:"response"`
}

// railYAML is one rail; exactly one of the wirings is set.
type railYAML struct {
	Name string `yaml:"name"`
	Role string `yaml:"role"`
	// Shunt is a resistor in the supply's line, with a channel on either side of it.
	Shunt *struct {
		Source string  `yaml:"source"`
		Ground string  `yaml:"ground"`
		Ohm    float64 `yaml:"ohm"`
		URel   float64 `yaml:"u_rel"` // relative standard uncertainty of Ohm
	} `yaml:"shunt"`
	// Clamp is a current probe, and a channel for the voltage.
	Clamp *struct {
		Current string `yaml:"current"`
		Voltage string `yaml:"voltage"`
	} `yaml:"clamp"`
	// Assumed is a current probe on a rail whose voltage is not measured.
	Assumed *struct {
		Current string  `yaml:"current"`
		Volt    float64 `yaml:"volt"`
		UVolt   float64 `yaml:"u_volt"` // standard uncertainty of Volt, in V
	} `yaml:"assumed"`
	// Power is a channel that reads watts, as of a GPU's own sensor.
	Power *struct {
		Channel string `yaml:"channel"`
	} `yaml:"power"`
}

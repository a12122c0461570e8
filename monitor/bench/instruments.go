package bench

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"

	"wattmark/measure"
	"wattmark/monitor/instrument"
	"wattmark/monitor/instrument/composite"
	"wattmark/monitor/instrument/registry"
)

// instruments reads the entries of instruments, and how they are aligned.
func (b *Bench) instruments() error {
	list := path{"instruments"}
	if len(b.file.Instruments) == 0 {
		return b.src.fault(list, errors.New("no instrument: name one, for example {kind: pmd, port: /dev/ttyUSB0}"))
	}
	for i, y := range b.file.Instruments {
		if err := b.instrument(y, list.with(i)); err != nil {
			return err
		}
	}
	if a := b.file.Align; a != nil && len(b.Instruments) == 1 {
		return b.src.fault(path{"align"}, errors.New("there is one instrument: nothing to align it with"))
	}
	if err := b.align().Validate(b.names()); err != nil {
		return b.src.fault(path{"align"}, err)
	}
	return nil
}

// instrument reads one entry of instruments.
func (b *Bench) instrument(y instrumentYAML, at path) error {
	if y.Kind == "" {
		return b.src.fault(at, errors.New("kind is missing"))
	}
	k, err := registry.Lookup(y.Kind)
	if err != nil {
		return b.src.fault(at.with("kind"), err)
	}
	if y.Port != "" && y.Address != "" {
		return b.src.fault(at.with("address"), errors.New("port and address say the same thing: keep one"))
	}
	i := Instrument{Name: y.Name, Kind: y.Kind, Address: y.Port + y.Address, Delay: measure.SecondsOf(y.Delay), options: k.Options(), kind: k}
	if i.Name == "" {
		i.Name = y.Kind
	}
	switch {
	case strings.Contains(i.Name, "/"):
		return b.src.fault(at.with("name"), fmt.Errorf("name %q: no / in it: channels are called instrument/channel", i.Name))
	case slices.Contains(b.names(), i.Name):
		return b.src.fault(at, fmt.Errorf("two instruments are called %s: give each a name of its own", i.Name))
	case i.Address == "" && k.NeedsAddress:
		return b.src.fault(at, fmt.Errorf("port is missing: a %s wants a %s", k.Name, k.Address))
	}
	b.Instruments = append(b.Instruments, i)
	return b.options(y, i, at.with("options"))
}

// options decodes an instrument's options into the type that its driver names.
func (b *Bench) options(y instrumentYAML, i Instrument, at path) error {
	if y.Options != nil {
		node := b.src.find(at)
		if node == nil {
			return b.src.fault(at, errors.New("write the options out: an alias or a merge cannot be followed here"))
		}
		if err := yaml.NodeToValue(node, i.options, yaml.Strict()); err != nil {
			return b.src.yamlError(err, node, reflect.TypeOf(i.options))
		}
	}
	if err := i.kind.Check(i.options); err != nil {
		return b.src.fault(at, err)
	}
	return nil
}

// names are those of the instruments read so far.
func (b *Bench) names() (out []string) {
	for _, i := range b.Instruments {
		out = append(out, i.Name)
	}
	return out
}

// several tells whether channels carry their instrument's name.
func (b *Bench) several() bool { return len(b.Instruments) > 1 }

func (b *Bench) align() composite.Align {
	y := b.file.Align
	if y == nil {
		return composite.Align{}.WithDefaults()
	}
	return composite.Align{By: composite.By(y.By), U: y.U, Master: y.Master, SharedClock: y.SharedClock}.WithDefaults()
}

// members are the instruments as a composite wants them, but for the drivers.
func (b *Bench) members() []composite.Member {
	out := make([]composite.Member, len(b.Instruments))
	for i, y := range b.Instruments {
		out[i] = composite.Member{Name: y.Name, Delay: y.Delay, Power: func(in instrument.Inputs) ([]measure.Channel, []measure.Rail) {
			return b.power(i, in)
		}}
	}
	return out
}

// inputs are those of the whole bench, where they are known before it is opened.
func (b *Bench) inputs() (instrument.Inputs, bool) {
	var parts []instrument.Inputs
	for _, i := range b.Instruments {
		if i.kind.Inputs == nil {
			return instrument.Inputs{}, false
		}
		parts = append(parts, i.kind.Inputs(i.options))
	}
	if !b.several() {
		return parts[0], true
	}
	in, _ := composite.Join(b.members(), parts, b.align())
	return in, true
}

// power is one instrument of several by itself: its channels under the file's
// calibration, and the rails that are wholly its own.
func (b *Bench) power(i int, in instrument.Inputs) ([]measure.Channel, []measure.Rail) {
	name := b.Instruments[i].Name
	channels := slices.Clone(in.Channels)
	for c := range channels {
		channels[c].Name = name + "/" + channels[c].Name
	}
	if err := b.calibrateOne(i, channels); err != nil {
		return channels, nil // Setup tells of it
	}
	if len(b.file.Rails) == 0 {
		rails, _ := b.Instruments[i].kind.Rails(in)
		return channels, rails
	}
	var own []measure.Rail
	for _, y := range b.file.Rails {
		if r, err := b.rail(y, nil, channels, func(int) string { return "" }); err == nil {
			own = append(own, r)
		}
	}
	return channels, own
}

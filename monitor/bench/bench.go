// Package bench reads the bench file: the instruments, the calibration of their channels,
// and the rails that the channels make (docs/bench-file.md).
//
//	Load / Parse / Default ─▶ Bench ─▶ NewInstrument
//	                            └────▶ Setup(inputs) ─▶ measure.Setup
//
//	file    the YAML form, decoded strictly: an unknown key is an error
//	source  text and syntax tree, for the places of errors
//	Error   a fault with line, column, entry, remedy and the lines around
//
// Faults that are independent of the instrument are found by Parse, all at once; those that
// need its channels by Setup.
package bench

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/monitor/instrument"
	"github.com/wattmark/wattmark/monitor/instrument/composite"
	"github.com/wattmark/wattmark/monitor/instrument/registry"
	"github.com/wattmark/wattmark/monitor/regular"
)

// Bench is a bench file that was read and found sound. It is safe for concurrent use.
type Bench struct {
	// Name of the bench; its instruments' names where the file gives none.
	Name string
	// GPU is the UUID of the GPU that the bench measures: that of the file, or the address
	// of an instrument that is a GPU's own sensor. Empty where unknown.
	GPU string
	// Instruments in the file's order. Several are read as one, see package composite.
	Instruments []Instrument

	src  *source
	file file
	// written is false for Default: errors then have no place.
	written bool
}

// Instrument is one entry of instruments, with its driver's options decoded.
type Instrument struct {
	// Name within the file; its kind where the file gives none.
	Name string `yaml:"name"`
	Kind string `yaml:"kind"`
	// Address is a port, host:port, GPU or folder, as the kind wants it; Port is another key for it.
	Address string `yaml:"address"`
	Port    string `yaml:"port"`
	// Delay is the lag of its readings behind their times.
	Delay time.Duration `yaml:"delay"`
	// Options are the driver's as written, nil where the file has none.
	Options any `yaml:"options"`
	// Channels replace the parts of a channel's calibration that are set.
	Channels map[string]struct {
		Gain    *float64       `yaml:"gain"`
		Offset  *float64       `yaml:"offset"`
		UGain   *float64       `yaml:"u_gain"`
		UOffset *float64       `yaml:"u_offset"`
		Noise   *float64       `yaml:"noise"`
		Skew    *time.Duration `yaml:"skew"`
	} `yaml:"channels"`

	options any // of the driver's type
	kind    registry.Kind
}

// maxSize bounds a bench file; it is written by hand.
const maxSize = 1 << 20

// Load reads a bench file. Errors of its content are *Error.
func Load(name string) (*Bench, error) {
	data, err := regular.Read(name, maxSize)
	if err != nil {
		return nil, fmt.Errorf(
			"bench file: %w (docs/bench-file.md shows one; or name the instrument: --instrument)", err)
	}
	return Parse(name, data)
}

// Parse reads a bench file's text; name is for errors, which are *Error. It checks
// everything that is independent of the instrument; Setup checks the rest.
func Parse(name string, data []byte) (*Bench, error) {
	if len(data) > maxSize {
		return nil, &Error{File: name, Message: fmt.Sprintf("larger than %d bytes: this is no bench file", maxSize)}
	}
	src, err := parse(name, data)
	if err != nil {
		return nil, err
	}
	b := &Bench{src: src, written: true}
	if err := yaml.NewDecoder(bytes.NewReader(data), yaml.Strict()).Decode(&b.file); err != nil {
		return nil, src.yamlError(err, src.root, reflect.TypeFor[file]())
	}
	if err := b.instruments(); err != nil {
		return nil, err
	}
	b.Name = cmp.Or(b.file.Name, strings.Join(b.names(), "+"))
	// All faults at once: a person who corrects a file wants the whole list.
	if err := errors.Join(b.bind(), b.check()); err != nil {
		return nil, err
	}
	// Drivers with fixed inputs let the rails be checked already now.
	if in, known := b.inputs(); known {
		if _, err := b.Setup(in); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// Default returns the bench of an instrument of which only kind and address are known:
// nominal or stored calibration, natural rails.
func Default(kind, address string) (*Bench, error) {
	data, err := yaml.Marshal(map[string]any{"instruments": []map[string]string{{"kind": kind, "address": address}}})
	if err != nil {
		return nil, fmt.Errorf("bench of a %s: %w", kind, err)
	}
	b, err := Parse("(no bench file)", data)
	if e, ok := errors.AsType[*Error](err); ok { // the text was generated: leave out its places
		return nil, fmt.Errorf("bench of a %s: %w", kind, errors.Unwrap(e))
	}
	if err != nil {
		return nil, err
	}
	b.written = false
	return b, nil
}

// NewInstrument makes the bench's instrument, a composite where it has several. Nothing is
// opened yet.
func (b *Bench) NewInstrument(env registry.Env) (instrument.Instrument, error) {
	// Drivers check their options before any device is touched; their errors get the place of the entry.
	var made []instrument.Instrument
	for i, y := range b.Instruments {
		ins, err := y.kind.New(env, y.Address, y.options)
		if err != nil && b.written {
			err = b.src.fault(path{"instruments", i}, err)
		}
		if err != nil {
			return nil, err
		}
		made = append(made, ins)
	}
	if len(made) == 1 {
		return made[0], nil
	}
	members := b.members()
	for i := range members {
		members[i].Instrument = made[i]
	}
	c, err := composite.New(members, b.align())
	if err != nil {
		return nil, b.src.fault(path{"align"}, err)
	}
	return c, nil
}

// bind sets the GPU that the bench measures: that of the file, and that of any instrument
// that is a GPU's own sensor. They must agree.
func (b *Bench) bind() error {
	for i, y := range b.Instruments {
		sensor, err := measure.ParseGPUUUID(y.Address) // only such a sensor has such an address
		if err != nil {
			continue
		}
		if b.GPU != "" && b.GPU != sensor {
			return b.src.fault(path{"instruments", i}, fmt.Errorf(
				"this is the sensor of %s, another of %s: a bench measures one GPU", sensor, b.GPU))
		}
		b.GPU = sensor
	}
	if b.file.GPU == "" {
		return nil
	}
	stated, err := measure.ParseGPUUUID(b.file.GPU)
	if err != nil {
		return b.src.fault(path{"gpu"}, err)
	}
	if b.GPU != "" && b.GPU != stated {
		return b.src.fault(path{"gpu"}, fmt.Errorf(
			"the bench measures %s, and its instrument is the sensor of %s: correct one of them", stated, b.GPU))
	}
	b.GPU = stated
	return nil
}

// instruments reads the entries of instruments, and their alignment.
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

// instrument reads one entry of instruments and appends it, with the options decoded into its
// driver's type and checked.
func (b *Bench) instrument(i Instrument, at path) error {
	if i.Kind == "" {
		return b.src.fault(at, errors.New("kind is missing"))
	}
	k, err := registry.Lookup(i.Kind)
	if err != nil {
		return b.src.fault(at.with("kind"), err)
	}
	if i.Port != "" && i.Address != "" {
		return b.src.fault(at.with("address"), errors.New("port and address say the same thing: keep one"))
	}
	i.Name, i.Address, i.options, i.kind = cmp.Or(i.Name, i.Kind), cmp.Or(i.Address, i.Port), k.Options(), k
	switch {
	case strings.Contains(i.Name, "/"):
		return b.src.fault(at.with("name"), fmt.Errorf(
			"name %q: no / in it: channels are called instrument/channel", i.Name))
	case slices.Contains(b.names(), i.Name):
		return b.src.fault(at, fmt.Errorf("two instruments are called %s: give each a name of its own", i.Name))
	case i.Address == "" && k.NeedsAddress:
		return b.src.fault(at, fmt.Errorf("port is missing: a %s wants a %s", k.Name, k.Address))
	}
	b.Instruments = append(b.Instruments, i)
	at = at.with("options")
	if i.Options != nil {
		// Decoded from the syntax tree, so that errors keep their places.
		node, whole := b.src.find(at)
		if !whole {
			return b.src.fault(at, errors.New("write the options out: an alias or a merge cannot be followed here"))
		}
		if err := yaml.NodeToValue(node, i.options, yaml.Strict()); err != nil {
			return b.src.yamlError(err, node, reflect.TypeOf(i.options))
		}
	}
	if err := k.Check(i.options); err != nil {
		return b.src.fault(at, err)
	}
	return nil
}

// names returns the names of the instruments read so far.
func (b *Bench) names() (out []string) {
	return lists.Map(b.Instruments, func(i Instrument) string { return i.Name })
}

// several reports whether channels carry their instrument's name.
func (b *Bench) several() bool { return len(b.Instruments) > 1 }

// align returns the alignment of several instruments, with the defaults.
func (b *Bench) align() composite.Align {
	return cmp.Or(b.file.Align, &composite.Align{}).WithDefaults()
}

// members returns the members of a composite, without their drivers.
func (b *Bench) members() []composite.Member {
	out := make([]composite.Member, len(b.Instruments))
	for i, y := range b.Instruments {
		power := func(in instrument.Inputs) ([]measure.Channel, []measure.Rail) { return b.power(i, in) }
		out[i] = composite.Member{Name: y.Name, Delay: measure.SecondsOf(y.Delay), Power: power}
	}
	return out
}

// inputs returns the inputs of the whole bench; ok is false where a driver knows them only
// once it is open.
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

// power returns one instrument of several by itself: its channels under the file's
// calibration, and the rails of the card that are wholly its own. The composite aligns instruments by
// their power; a meter at the wall has none, and a channel of that unit.
func (b *Bench) power(i int, in instrument.Inputs) ([]measure.Channel, []measure.Rail) {
	// The channels are renamed as in the composite, so that the file's names find them.
	name := b.Instruments[i].Name
	channels := slices.Clone(in.Channels)
	for c := range channels {
		channels[c].Name = name + "/" + channels[c].Name
	}
	if err := b.calibrateOne(i, channels); err != nil {
		return channels, nil // Setup reports it
	}
	if len(b.file.Rails) == 0 {
		rails, _ := b.Instruments[i].kind.Rails(in)
		return channels, rails
	}
	// A rail that also needs another instrument's channels fails here, and is not this one's own.
	var own []measure.Rail
	for _, y := range b.file.Rails {
		switch r, err := b.rail(y, nil, channels, func(int) string { return "" }); {
		case err != nil:
		case y.Role == roleWall:
			channels[r.X].Unit = measure.UnitWall
		default:
			own = append(own, r)
		}
	}
	return channels, own
}

// SameInstruments reports whether two benches read the same instruments in the same way,
// and measure the same GPU under the same name. Then only the rails can differ, which a
// monitor can take over while it runs.
func (b *Bench) SameInstruments(o *Bench) bool {
	return b.Name == o.Name && b.GPU == o.GPU && b.wall() == o.wall() && reflect.DeepEqual(b.align(), o.align()) &&
		slices.EqualFunc(b.Instruments, o.Instruments, func(x, y Instrument) bool {
			return x.Name == y.Name && x.Kind == y.Kind && x.Address == y.Address && x.Delay == y.Delay &&
				reflect.DeepEqual(x.options, y.options)
		})
}

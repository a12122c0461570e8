package bench

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/goccy/go-yaml"

	"wattmark/measure"
	"wattmark/monitor/instrument"
	"wattmark/monitor/instrument/composite"
	"wattmark/monitor/instrument/registry"
	"wattmark/monitor/regular"
)

// Bench is a bench file that was read and found sound. It is safe for
// concurrent use.
type Bench struct {
	// Name of the bench; its instruments' names where the file gives none.
	Name string
	// GPU is the UUID of the GPU that the bench measures: what the file says, or
	// the address of an instrument that is a GPU's own sensor. Empty where
	// nothing says it.
	GPU string
	// Instruments are what it measures with, in the file's order. Several are read
	// as one, see package composite.
	Instruments []Instrument

	src  *source
	file file
	// written is false where nobody wrote a file: errors then name no place.
	written bool
}

// Instrument says which instrument, and where.
type Instrument struct {
	// Name within the file; its kind where the file gives none.
	Name string
	Kind string
	// Address is a port, host:port, GPU or folder, as the kind wants it.
	Address string
	// Delay is how far its readings lie behind the times that it tells.
	Delay measure.Seconds

	options any
	kind    registry.Kind
}

// maxSize bounds a bench file; it is written by hand.
const maxSize = 1 << 20

// Load reads a bench file. Errors of its content are *Error.
func Load(name string) (*Bench, error) {
	data, err := regular.Read(name, maxSize)
	if err != nil {
		return nil, fmt.Errorf("bench file: %w (docs/bench-file.md shows one; or name the instrument: --instrument)", err)
	}
	return Parse(name, data)
}

// Parse reads a bench file's text; name is for errors. It checks all that can be
// known before the instrument is there; Setup checks the rest.
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
	if b.Name = b.file.Name; b.Name == "" {
		b.Name = strings.Join(b.names(), "+")
	}
	if err := errors.Join(b.bind(), b.check()); err != nil {
		return nil, err
	}
	if in, known := b.inputs(); known {
		if _, err := b.Setup(in); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// Default is the bench of an instrument of which nothing but its kind and
// address is known: nominal or stored calibration, natural rails.
func Default(kind, address string) (*Bench, error) {
	data, err := yaml.Marshal(map[string]any{"instruments": []map[string]string{{"kind": kind, "address": address}}})
	if err != nil {
		return nil, fmt.Errorf("bench of a %s: %w", kind, err)
	}
	b, err := Parse("(no bench file)", data)
	var e *Error
	if errors.As(err, &e) { // nobody wrote those lines: leave out their places
		return nil, fmt.Errorf("bench of a %s: %w", kind, errors.Unwrap(e))
	}
	if err != nil {
		return nil, err
	}
	b.written = false
	return b, nil
}

// NewInstrument makes the bench's instrument, of several where it has several;
// nothing is opened yet.
func (b *Bench) NewInstrument(env registry.Env) (instrument.Instrument, error) {
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

// bind reads which GPU the bench measures: what the file says, and what any of
// its instruments that is a GPU's own sensor has for an address.
func (b *Bench) bind() error {
	for i, y := range b.Instruments {
		sensor, err := measure.ParseGPUUUID(y.Address) // only such a sensor has such an address
		if err != nil {
			continue
		}
		if b.GPU != "" && b.GPU != sensor {
			return b.src.fault(path{"instruments", i}, fmt.Errorf("this is the sensor of %s, another of %s: a bench measures one GPU", sensor, b.GPU))
		}
		b.GPU = sensor
	}
	if b.file.GPU == "" {
		return nil
	}
	said, err := measure.ParseGPUUUID(b.file.GPU)
	if err != nil {
		return b.src.fault(path{"gpu"}, err)
	}
	if b.GPU != "" && b.GPU != said {
		return b.src.fault(path{"gpu"}, fmt.Errorf("the bench measures %s, and its instrument is the sensor of %s: correct one of them", said, b.GPU))
	}
	b.GPU = said
	return nil
}

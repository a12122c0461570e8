package bench

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/goccy/go-yaml"

	"wattmark/measure"
	"wattmark/monitor/instrument"
	"wattmark/monitor/instrument/registry"
)

// Bench is a bench file that was read and found sound. It is safe for
// concurrent use.
type Bench struct {
	// Name of the bench; its instrument's name where the file gives none.
	Name string
	// GPU is the UUID of the GPU that the bench measures: what the file says, or
	// the address of an instrument that is a GPU's own sensor. Empty where
	// nothing says it.
	GPU string
	// Instrument is the one instrument of the bench.
	Instrument Instrument

	src  *source
	file file
	// written is false where nobody wrote a file: errors then name no place.
	written bool
	kind    registry.Kind
}

// Instrument says which instrument, and where.
type Instrument struct {
	// Name within the file; its kind where the file gives none.
	Name string
	Kind string
	// Address is a port, host:port, GPU or folder, as the kind wants it.
	Address string
	options any
}

// maxSize bounds a bench file; it is written by hand.
const maxSize = 1 << 20

// Load reads a bench file. Errors of its content are *Error.
func Load(name string) (*Bench, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("bench file: %w (docs/bench-file.md shows one; or name the instrument: --instrument)", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxSize+1))
	if err != nil {
		return nil, fmt.Errorf("bench file: %w", err)
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
		return nil, src.yamlError(err)
	}
	if err := b.instrument(); err != nil {
		return nil, err
	}
	b.Name = b.file.Name
	if b.Name == "" {
		b.Name = b.Instrument.Name
	}
	if err := errors.Join(b.bind(), b.check()); err != nil {
		return nil, err
	}
	if b.kind.Inputs != nil {
		if _, err := b.Setup(b.kind.Inputs(b.Instrument.options)); err != nil {
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

// NewInstrument makes the bench's instrument; nothing is opened yet.
func (b *Bench) NewInstrument(env registry.Env) (instrument.Instrument, error) {
	i, err := b.kind.New(env, b.Instrument.Address, b.Instrument.options)
	if err != nil && b.written {
		return nil, b.src.fault(path{"instruments", 0}, err)
	}
	return i, err
}

// instrument reads the one entry of instruments.
func (b *Bench) instrument() error {
	list := path{"instruments"}
	switch n := len(b.file.Instruments); {
	case n == 0:
		return b.src.fault(list, errors.New("no instrument: name one, for example {kind: pmd, port: /dev/ttyUSB0}"))
	case n > 1:
		return b.src.fault(list.with(1), fmt.Errorf("%d instruments: one instrument a bench can be measured now; run a monitor for each", n))
	}
	y, at := b.file.Instruments[0], list.with(0)
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
	b.kind = k
	b.Instrument = Instrument{Name: y.Name, Kind: y.Kind, Address: y.Port + y.Address, options: k.Options()}
	if b.Instrument.Name == "" {
		b.Instrument.Name = y.Kind
	}
	if b.Instrument.Address == "" && k.NeedsAddress {
		return b.src.fault(at, fmt.Errorf("port is missing: a %s wants a %s", k.Name, k.Address))
	}
	return b.options(at.with("options"))
}

// bind reads which GPU the bench measures.
func (b *Bench) bind() error {
	// Only a GPU's own sensor has such an address.
	sensor, err := measure.ParseGPUUUID(b.Instrument.Address)
	if err == nil {
		b.GPU = sensor
	}
	if b.file.GPU == "" {
		return nil
	}
	if b.GPU, err = measure.ParseGPUUUID(b.file.GPU); err != nil {
		return b.src.fault(path{"gpu"}, err)
	}
	if sensor != "" && b.GPU != sensor {
		return b.src.fault(path{"gpu"}, fmt.Errorf("the bench measures %s, and its instrument is the sensor of %s: correct one of them", b.GPU, sensor))
	}
	return nil
}

// options decodes the instrument's options into the type that its driver names.
func (b *Bench) options(at path) error {
	if b.file.Instruments[0].Options != nil {
		node := b.src.find(at)
		if node == nil {
			return b.src.fault(at, errors.New("write the options out: an alias or a merge cannot be followed here"))
		}
		if err := yaml.NodeToValue(node, b.Instrument.options, yaml.Strict()); err != nil {
			return b.src.yamlError(err)
		}
	}
	if err := b.kind.Check(b.Instrument.options); err != nil {
		return b.src.fault(at, err)
	}
	return nil
}

// Package registry knows the instruments by name: what to type in a bench file,
// which options each takes, and how to make one.
package registry

import (
	"errors"
	"fmt"
	"strings"

	"wattmark/measure"
	"wattmark/monitor/instrument"
	"wattmark/monitor/instrument/dataq"
	"wattmark/monitor/instrument/labjack"
	"wattmark/monitor/instrument/nidaqmx"
	"wattmark/monitor/instrument/nvml"
	"wattmark/monitor/instrument/pmd"
	"wattmark/monitor/instrument/pmd2"
	"wattmark/monitor/instrument/powenetics"
	"wattmark/monitor/instrument/powersensor3"
	"wattmark/monitor/instrument/replay"
	"wattmark/monitor/instrument/scope"
	"wattmark/monitor/instrument/scope/keysight"
	"wattmark/monitor/instrument/scope/rigol"
	"wattmark/monitor/instrument/scope/siglent"
	"wattmark/monitor/instrument/scope/tektronix"
	"wattmark/monitor/instrument/serialtext"
	"wattmark/monitor/instrument/u2300"
	"wattmark/monitor/instrument/wt300"
	"wattmark/monitor/scpi"
)

// ErrUnknown: there is no instrument of that kind.
var ErrUnknown = errors.New("unknown instrument")

// Env is what drivers need of the program around them.
type Env struct {
	// NVML opens a GPU's own sensor; nil where the program has no way to it.
	NVML nvml.OpenFunc
}

// Kind is one kind of instrument.
type Kind struct {
	Name    string
	Summary string
	// Address says what the address of such an instrument looks like.
	Address string
	// NeedsAddress is false where there is a sensible default.
	NeedsAddress bool
	// Options returns a pointer to new options with their defaults, to decode a
	// bench file into.
	Options func() any
	// Check reports options that cannot be used; o is what Options returned.
	Check func(o any) error
	// Inputs are the channels known before the instrument is opened; nil where
	// only the device knows.
	Inputs func(o any) instrument.Inputs
	// Rails makes rails where a bench file names none, and tells which are missing.
	Rails func(instrument.Inputs) (rails []measure.Rail, missing []string)
	// Accept refuses an identity that the driver refuses; nil where the device is
	// not asked for *IDN?.
	Accept func(scpi.Identity) error
	// New makes the driver; nothing is opened yet.
	New func(env Env, address string, o any) (instrument.Instrument, error)
}

type validator interface{ Validate() error }

// options builds the parts of a Kind that concern its options type.
func options[O validator](k Kind, defaults func() O, inputs func(O) instrument.Inputs, make func(Env, string, O) (instrument.Instrument, error)) Kind {
	k.Options = func() any { o := defaults(); return &o }
	k.Check = func(o any) error { return (*o.(*O)).Validate() }
	if inputs != nil {
		k.Inputs = func(o any) instrument.Inputs { return inputs(*o.(*O)) }
	}
	k.New = func(env Env, address string, o any) (instrument.Instrument, error) {
		return make(env, address, *o.(*O))
	}
	return k
}

// oscilloscope is a family of scopes.
func oscilloscope(f *scope.Family, summary string) Kind {
	return options(Kind{
		Name: f.Kind, Summary: summary, NeedsAddress: true, Rails: scope.NaturalRails, Accept: f.Accept,
		Address: fmt.Sprintf("tcp:host:%d or usbtmc:/dev/usbtmc0", f.Port),
	}, f.Defaults, nil, func(_ Env, a string, o scope.Options) (instrument.Instrument, error) {
		return made(scope.New(scope.Config{Family: f, Address: a, Options: o}))
	})
}

var kinds = []Kind{
	options(Kind{
		Name: powersensor3.Kind, Summary: "PowerSensor3: four voltage and current pairs at 20 kHz",
		Address: "serial port, e.g. /dev/ttyACM0, or tcp:host:port", NeedsAddress: true, Rails: powersensor3.NaturalRails,
	}, powersensor3.Defaults, nil, func(_ Env, a string, o powersensor3.Options) (instrument.Instrument, error) {
		return made(powersensor3.New(a, o))
	}),
	options(Kind{
		Name: pmd.Kind, Summary: "ElmorLabs PMD-USB: four connectors at 4.8 kHz",
		Address: "serial port, e.g. /dev/ttyUSB0, or tcp:host:port", NeedsAddress: true, Rails: pmd.NaturalRails,
	}, pmd.Defaults, pmd.Inputs, func(_ Env, a string, o pmd.Options) (instrument.Instrument, error) {
		return made(pmd.New(a, o))
	}),
	options(Kind{
		Name: pmd2.Kind, Summary: "ElmorLabs PMD2: ten connectors, asked every 2 ms",
		Address: "serial port, e.g. /dev/ttyACM0, or tcp:host:port", NeedsAddress: true, Rails: pmd2.NaturalRails,
	}, pmd2.Defaults, pmd2.Inputs, func(_ Env, a string, o pmd2.Options) (instrument.Instrument, error) {
		return made(pmd2.New(a, o))
	}),
	options(Kind{
		Name: powenetics.Kind, Summary: "Powenetics v2: slot, plugs and mainboard, 13 connectors at 1 kHz",
		Address: "serial port, e.g. /dev/ttyACM0, or tcp:host:port", NeedsAddress: true, Rails: powenetics.NaturalRails,
	}, powenetics.Defaults, powenetics.Inputs, func(_ Env, a string, o powenetics.Options) (instrument.Instrument, error) {
		return made(powenetics.New(a, o))
	}),
	options(Kind{
		Name: labjack.Kind, Summary: "LabJack T7 or T8 over Ethernet: 14 inputs and 100 kS/s in all, or 8 at once at 40 kS/s each",
		Address: "tcp:host:502", NeedsAddress: true, Rails: labjack.NaturalRails,
	}, labjack.Defaults, labjack.Inputs, func(_ Env, a string, o labjack.Options) (instrument.Instrument, error) {
		return made(labjack.New(a, o))
	}),
	options(Kind{
		Name: nidaqmx.Kind, Summary: "NI USB-6259 and its like through NI's gRPC Device Server: 1 MS/s over all inputs",
		Address: "tcp:host:31763", NeedsAddress: true, Rails: nidaqmx.NaturalRails,
	}, nidaqmx.Defaults, nidaqmx.Inputs, func(_ Env, a string, o nidaqmx.Options) (instrument.Instrument, error) {
		return made(nidaqmx.New(a, o))
	}),
	options(Kind{
		Name: dataq.Kind, Summary: "DATAQ DI-1100, DI-2108 or DI-2108-P: 4 or 8 inputs of ±10 V",
		Address: "serial port, e.g. /dev/ttyACM0, or tcp:host:port", NeedsAddress: true, Rails: dataq.NaturalRails,
	}, dataq.Defaults, dataq.Inputs, func(_ Env, a string, o dataq.Options) (instrument.Instrument, error) {
		return made(dataq.New(a, o))
	}),
	options(Kind{
		Name: serialtext.Kind, Summary: "a microcontroller that prints lines of numbers or sends binary frames, as a pattern describes them",
		Address: "serial port, e.g. /dev/ttyUSB0, or tcp:host:port", NeedsAddress: true, Rails: serialtext.NaturalRails,
	}, serialtext.Defaults, serialtext.Inputs, func(_ Env, a string, o serialtext.Options) (instrument.Instrument, error) {
		return made(serialtext.New(a, o))
	}),
	oscilloscope(rigol.DS1000Z, "Rigol DS1000Z oscilloscope: one window of deep memory, 12 million points in all"),
	oscilloscope(rigol.MSO5000, "Rigol MSO5000 oscilloscope: one window of deep memory, 100 million points in all"),
	oscilloscope(rigol.DHO, "Rigol DHO800 or DHO900 oscilloscope, 12 bits: one window of deep memory, 50 million points in all"),
	oscilloscope(keysight.InfiniiVision, "Keysight InfiniiVision oscilloscope, X-Series 1000 to 6000: one window of its memory"),
	oscilloscope(siglent.E11, "Siglent oscilloscope, SDS2000X Plus, 5000X, 6000A or HD, 8 to 12 bits: one window of deep memory"),
	oscilloscope(tektronix.Tektronix, "Tektronix oscilloscope, MDO, MSO or DPO 3000 and 4000, or 4, 5, 6 Series MSO: one window of deep memory"),
	options(Kind{
		Name: u2300.Kind, Summary: "Keysight U2300A data acquisition (U2351A to U2356A): up to 64 inputs, 500 kS/s in all",
		Address: "usbtmc:/dev/usbtmc0", NeedsAddress: true, Rails: u2300.NaturalRails, Accept: u2300.Accept,
	}, u2300.Defaults, u2300.Inputs, func(_ Env, a string, o u2300.Options) (instrument.Instrument, error) {
		return made(u2300.New(a, o))
	}),
	options(Kind{
		Name: wt300.Kind, Summary: "Yokogawa WT300 power meter (WT310, WT332, WT333): ten readings a second, as a reference",
		Address: "usbtmc:/dev/usbtmc0 or a serial port", NeedsAddress: true, Rails: wt300.NaturalRails, Accept: wt300.Accept,
	}, wt300.Defaults, wt300.Inputs, func(_ Env, a string, o wt300.Options) (instrument.Instrument, error) {
		return made(wt300.New(a, o))
	}),
	options(Kind{
		Name: nvml.Kind, Summary: "the GPU's own power sensor through NVML: slow, not the truth, no wiring needed",
		Address: "GPU index, UUID or PCI bus id; the first GPU when left out", Rails: nvml.NaturalRails,
	}, nvml.Defaults, nvml.Inputs, func(env Env, a string, o nvml.Options) (instrument.Instrument, error) {
		return made(nvml.New(a, o, env.NVML))
	}),
	options(Kind{
		Name: replay.Kind, Summary: "a recording of an instrument, played again",
		Address: "the recording's folder", NeedsAddress: true,
		Rails: func(in instrument.Inputs) ([]measure.Rail, []string) { return instrument.PairRails(in.Channels), nil },
	}, replay.Defaults, nil, func(_ Env, a string, o replay.Options) (instrument.Instrument, error) {
		return made(replay.New(a, o))
	}),
}

// made turns a concrete driver into the interface, without making a nil pointer
// look like an instrument. What its device says is fit to be shown from here on.
func made[I instrument.Instrument](i I, err error) (instrument.Instrument, error) {
	if err != nil {
		return nil, err
	}
	return instrument.Gate(i), nil
}

// Kinds returns all kinds of instrument.
func Kinds() []Kind { return append([]Kind(nil), kinds...) }

// Lookup finds a kind by name. Its error wraps ErrUnknown and lists what there is.
func Lookup(name string) (Kind, error) {
	var names []string
	for _, k := range kinds {
		if k.Name == name {
			return k, nil
		}
		names = append(names, k.Name)
	}
	return Kind{}, fmt.Errorf("%w %q: want one of %s", ErrUnknown, name, strings.Join(names, ", "))
}

// ForIdentity names the kinds whose driver takes a device with these first two
// fields of *IDN?; none where no driver does.
func ForIdentity(maker, model string) (names []string) {
	for _, k := range kinds {
		if k.Accept != nil && k.Accept(scpi.Identity{Maker: maker, Model: model}) == nil {
			names = append(names, k.Name)
		}
	}
	return names
}

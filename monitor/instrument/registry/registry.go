// Package registry lists the instruments by name: their summaries, options, and how to make
// one.
package registry

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/monitor/instrument"
	"github.com/wattmark/wattmark/monitor/instrument/dataq"
	"github.com/wattmark/wattmark/monitor/instrument/labjack"
	"github.com/wattmark/wattmark/monitor/instrument/nidaqmx"
	"github.com/wattmark/wattmark/monitor/instrument/nvml"
	"github.com/wattmark/wattmark/monitor/instrument/pmd"
	"github.com/wattmark/wattmark/monitor/instrument/pmd2"
	"github.com/wattmark/wattmark/monitor/instrument/powenetics"
	"github.com/wattmark/wattmark/monitor/instrument/powersensor3"
	"github.com/wattmark/wattmark/monitor/instrument/quarch"
	"github.com/wattmark/wattmark/monitor/instrument/replay"
	"github.com/wattmark/wattmark/monitor/instrument/scope"
	"github.com/wattmark/wattmark/monitor/instrument/scope/keysight"
	"github.com/wattmark/wattmark/monitor/instrument/scope/rigol"
	"github.com/wattmark/wattmark/monitor/instrument/scope/rohdeschwarz"
	"github.com/wattmark/wattmark/monitor/instrument/scope/siglent"
	"github.com/wattmark/wattmark/monitor/instrument/scope/tektronix"
	"github.com/wattmark/wattmark/monitor/instrument/serialtext"
	"github.com/wattmark/wattmark/monitor/instrument/u2300"
	"github.com/wattmark/wattmark/monitor/instrument/wt300"
	"github.com/wattmark/wattmark/monitor/scpi"
)

// ErrUnknown: there is no instrument of that kind.
var ErrUnknown = errors.New("unknown instrument")

// Env holds the drivers' needs of the program around them.
type Env struct {
	// NVML and AMD open a GPU's own sensor; nil where the program has no way to it.
	NVML, AMD nvml.OpenFunc
}

// Kind is one kind of instrument.
type Kind struct {
	Name    string
	Summary string
	// Address describes the form of such an instrument's address.
	Address string
	// NeedsAddress is false where there is a sensible default.
	NeedsAddress bool
	// Options returns a pointer to new options with their defaults, to decode a
	// bench file into.
	Options func() any
	// Check reports options that cannot be used; o comes from Options.
	Check func(o any) error
	// Inputs are the channels known before the instrument is opened; nil where
	// only the device knows.
	Inputs func(o any) instrument.Inputs
	// Rails makes rails where a bench file names none, and reports which are missing.
	Rails func(instrument.Inputs) (rails []measure.Rail, missing []string)
	// Accept refuses an identity that the driver refuses; nil where the device is
	// not asked for *IDN?.
	Accept func(scpi.Identity) error
	// New makes the driver; nothing is opened yet.
	New func(env Env, address string, o any) (instrument.Instrument, error)
}

// driver completes a Kind with the four functions of a driver's package. An inputs of
// nil: only the device knows its channels.
func driver[O interface{ Validate() error }, I instrument.Instrument](
	k Kind, defaults func() O, inputs func(O) instrument.Inputs, open func(address string, o O) (I, error),
) Kind {
	k.NeedsAddress = true
	if k.Rails == nil {
		k.Rails = instrument.NaturalRails
	}
	k.Options = func() any { o := defaults(); return &o }
	k.Check = func(o any) error { return (*o.(*O)).Validate() }
	if inputs != nil {
		k.Inputs = func(o any) instrument.Inputs { return inputs(*o.(*O)) }
	}
	k.New = func(_ Env, address string, o any) (instrument.Instrument, error) {
		return made(open(address, *o.(*O)))
	}
	return k
}

// oscilloscope is a family of oscilloscopes.
func oscilloscope(f *scope.Family, summary string) Kind {
	return driver(Kind{
		Name: f.Kind, Summary: summary, Rails: scope.NaturalRails, Accept: f.Accept,
		Address: fmt.Sprintf("tcp:host:%d or usbtmc:/dev/usbtmc0", f.Port),
	}, f.Defaults, nil, func(a string, o scope.Options) (*scope.Device, error) {
		return scope.New(scope.Config{Family: f, Address: a, Options: o})
	})
}

// gpuSensor is the driver of a vendor's GPUs, which needs something of the program around it.
func gpuSensor(kind, summary string, open func(Env) nvml.OpenFunc) Kind {
	k := driver(Kind{
		Name: kind, Summary: summary, Address: "GPU index, UUID or PCI bus id; the first GPU when left out",
	}, nvml.Defaults, nvml.InputsOf(kind), func(string, nvml.Options) (*nvml.Device, error) {
		return nil, nvml.ErrNoSensor
	})
	k.NeedsAddress = false
	k.New = func(env Env, address string, o any) (instrument.Instrument, error) {
		return made(nvml.New(kind, address, *o.(*nvml.Options), open(env)))
	}
	return k
}

const (
	acm = "serial port, e.g. /dev/ttyACM0, or tcp:host:port" // a device with USB of its own
	usb = "serial port, e.g. /dev/ttyUSB0, or tcp:host:port" // one behind a USB serial converter
)

// kinds in the order of the list that users see.
var kinds = []Kind{
	driver(Kind{
		Name: powersensor3.Kind, Summary: "PowerSensor3: four voltage and current pairs at 20 kHz", Address: acm,
		Rails: powersensor3.NaturalRails,
	}, powersensor3.Defaults, nil, powersensor3.New),
	driver(Kind{
		Name: pmd.Kind, Summary: "ElmorLabs PMD-USB: four connectors at 4.8 kHz", Address: usb, Rails: pmd.NaturalRails,
	}, pmd.Defaults, pmd.Inputs, pmd.New),
	driver(Kind{
		Name: pmd2.PMD2.Kind, Summary: "ElmorLabs PMD2: ten connectors, asked every 2 ms", Address: acm,
		Rails: pmd2.PMD2.NaturalRails,
	}, pmd2.Defaults, pmd2.PMD2.Inputs, pmd2.PMD2.New),
	driver(Kind{
		Name: pmd2.WireView.Kind, Summary: "Thermal Grizzly WireView Pro II: six pins of a 12V-2x6 plug, asked every 2 ms",
		Address: acm, Rails: pmd2.WireView.NaturalRails,
	}, pmd2.Defaults, pmd2.WireView.Inputs, pmd2.WireView.New),
	driver(Kind{
		Name: powenetics.Kind, Summary: "Powenetics v2: slot, plugs and mainboard, 13 connectors at 1 kHz",
		Address: acm, Rails: powenetics.NaturalRails,
	}, powenetics.Defaults, powenetics.Inputs, powenetics.New),
	driver(Kind{
		Name: labjack.Kind, Summary: "LabJack T7 or T8 over Ethernet: 14 inputs and 100 kS/s in all, or 8 at once " +
			"at 40 kS/s each", Address: "tcp:host:502",
	}, labjack.Defaults, labjack.Inputs, labjack.New),
	driver(Kind{
		Name: nidaqmx.Kind, Summary: "NI USB-6259 and its like through NI's gRPC Device Server: 1 MS/s over all inputs",
		Address: "tcp:host:31763",
	}, nidaqmx.Defaults, nidaqmx.Inputs, nidaqmx.New),
	driver(Kind{
		Name: quarch.Kind, Summary: "Quarch Power Analysis Module behind Quarch's server QIS", Address: "tcp:host:9722",
	}, quarch.Defaults, nil, quarch.New),
	driver(Kind{
		Name: dataq.Kind, Summary: "DATAQ DI-1100, DI-2108 or DI-2108-P: 4 or 8 inputs of ±10 V", Address: acm,
	}, dataq.Defaults, dataq.Inputs, dataq.New),
	driver(Kind{
		Name: serialtext.Kind, Address: usb,
		Summary: "a microcontroller that prints lines of numbers or sends binary frames, as a pattern describes them",
	}, serialtext.Defaults, serialtext.Inputs, serialtext.New),
	oscilloscope(rigol.DS1000Z, "Rigol DS1000Z oscilloscope: one window of deep memory, 12 million points in all"),
	oscilloscope(rigol.MSO5000, "Rigol MSO5000 oscilloscope: one window of deep memory, 100 million points in all"),
	oscilloscope(rigol.DHO, "Rigol DHO800 or DHO900 oscilloscope, 12 bits: one window of deep memory, 50 million "+
		"points in all"),
	oscilloscope(keysight.InfiniiVision,
		"Keysight InfiniiVision oscilloscope, X-Series 1000 to 6000: one window of its memory"),
	oscilloscope(rohdeschwarz.RTB2000, "Rohde & Schwarz RTB2000 oscilloscope, 10 bits: one window of deep memory, 10 or "+
		"20 million points per channel"),
	oscilloscope(siglent.E11, "Siglent oscilloscope, SDS2000X Plus, 5000X, 6000A or HD, 8 to 12 bits: one window of "+
		"deep memory"),
	oscilloscope(tektronix.Tektronix, "Tektronix oscilloscope, MDO, MSO or DPO 3000 and 4000, or 4, 5, 6 Series "+
		"MSO: one window of deep memory"),
	driver(Kind{
		Name: u2300.Kind, Summary: "Keysight U2300A data acquisition (U2351A to U2356A): up to 64 inputs, 500 kS/s in all",
		Address: "usbtmc:/dev/usbtmc0", Accept: u2300.Accept,
	}, u2300.Defaults, u2300.Inputs, u2300.New),
	driver(Kind{
		Name: wt300.Kind, Summary: "Yokogawa WT300 power meter (WT310, WT332, WT333): ten readings a second, as a " +
			"reference",
		Address: "usbtmc:/dev/usbtmc0 or a serial port", Rails: wt300.NaturalRails, Accept: wt300.Accept,
	}, wt300.Defaults, wt300.Inputs, wt300.New),
	gpuSensor(nvml.Kind, "the GPU's own power sensor through NVML: slow, not the truth, no wiring needed",
		func(e Env) nvml.OpenFunc { return e.NVML }),
	gpuSensor(nvml.AMD, "an AMD GPU's own power sensor through AMD SMI: never tried on such a card",
		func(e Env) nvml.OpenFunc { return e.AMD }),
	driver(Kind{
		Name: replay.Kind, Summary: "a recording of an instrument, played again", Address: "the recording's folder",
	}, replay.Defaults, nil, replay.New),
}

// made turns a concrete driver into the interface, without making a nil pointer
// look like an instrument, and puts the gate for the device's texts before it.
func made[I instrument.Instrument](i I, err error) (instrument.Instrument, error) {
	if err != nil {
		return nil, err
	}
	return instrument.Gate(i), nil
}

// Kinds returns all kinds of instrument.
func Kinds() []Kind { return slices.Clone(kinds) }

// Lookup finds a kind by name. Its error wraps ErrUnknown and lists the kinds.
func Lookup(name string) (Kind, error) {
	if i := slices.IndexFunc(kinds, func(k Kind) bool { return k.Name == name }); i >= 0 {
		return kinds[i], nil
	}
	names := lists.Map(kinds, func(k Kind) string { return k.Name })
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

// Package nvml makes a meter of the GPU's own power sensor, so that a
// measurement can be made where no external meter is connected.
//
// It measures the sensor's value, not the card's power: a new value every
// 100 ms or so, of a window that may be a quarter of that. The Response of its
// inputs reports so, and everything downstream (marker profile, uncertainty) takes
// it from there.
package nvml

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/monitor/instrument"
	"github.com/wattmark/wattmark/monitor/instrument/series"
)

// Kind and AMD are the driver's names in bench files: for NVIDIA's GPUs, and for AMD's.
const (
	Kind = "nvml"
	AMD  = "amdsmi"
)

// Standard uncertainties of the sensor. The public study (arXiv 2312.02741)
// found static gains of 0.944 (RTX 3090) and 0.954 (A100) and offsets of +4.6 W
// and −1.2 W against an external meter: a card of which nothing is known may lie
// that far off, so 3 % and 3 W.
const (
	uGain          = 0.03
	uOffset        = 3.0
	noise          = 0.5  // W; the registers show tenths of a watt
	clockTolerance = 5e-5 // of the host's monotonic clock, relative
)

// ErrNoSensor: this program was built, or is run, without a way to NVML or AMD SMI.
var ErrNoSensor = errors.New("no library")

// Device polls a GPU's sensor. It implements instrument.Instrument.
type Device struct {
	gpu  string
	opts Options
	open OpenFunc

	sensor   Sensor
	field    Field // the register that is polled
	identity instrument.Identity
	response measure.Response
}

// New makes a driver for the GPU of NVIDIA (Kind) or of AMD named by index, UUID or PCI bus id ("" is the
// first); nothing is opened yet.
func New(kind, gpu string, o Options, open OpenFunc) (*Device, error) {
	if err := o.Validate(); err != nil {
		return nil, fmt.Errorf("%s: %w", kind, err)
	}
	if open == nil {
		return nil, fmt.Errorf("%s: %w: nothing here can read a GPU's sensor", kind, ErrNoSensor)
	}
	return &Device{
		gpu: gpu, opts: o, open: open, identity: instrument.Identity{Kind: kind, Address: gpu},
		response: InputsOf(kind)(o).Response,
	}, nil
}

// Identity is the GPU's, once it was opened.
func (d *Device) Identity() instrument.Identity { return d.identity }

// Inputs is one channel in watts. Its response is the architecture's, once the
// GPU was opened.
func (d *Device) Inputs() instrument.Inputs {
	in := Inputs(d.opts)
	in.Response = d.response
	in.Channels[0].Skew = -d.response.Delay // a value read was true before
	return in
}

// InputsOf returns the channels of a kind before anything is opened.
func InputsOf(kind string) func(Options) instrument.Inputs {
	if kind != AMD {
		return Inputs
	}
	return func(o Options) instrument.Inputs {
		in := Inputs(o)
		in.Response = ResponseOf(Instinct, FieldInstant)
		return in
	}
}

// Inputs are the driver's channels before anything is opened, of NVIDIA's GPUs.
func Inputs(o Options) instrument.Inputs {
	return instrument.Inputs{
		Timebase: measure.Timebase{TickHz: 1e9, UTickHz: clockTolerance, TicksPerScan: float64(o.Period), Stamped: true},
		Response: ResponseOf(Unknown, FieldInstant),
		Channels: []measure.Channel{{
			Name: "gpu.power", Unit: measure.UnitWatt, Gain: 1e-3, UGain: uGain, UOffset: uOffset, Noise: noise,
		}},
	}
}

// Open finds the GPU and the register to poll.
func (d *Device) Open(ctx context.Context) error {
	if d.sensor != nil {
		return fmt.Errorf("%s: open: already open", d.identity.Kind)
	}
	s, err := d.open(ctx, d.gpu)
	if err != nil {
		return fmt.Errorf("%s: open GPU %q: %w", d.identity.Kind, d.gpu, err)
	}
	r, err := s.Read()
	if err != nil {
		_ = s.Close()
		return fmt.Errorf("%s: open GPU %q: first reading: %w: %w", d.identity.Kind, d.gpu, instrument.ErrSilent, err)
	}
	field, ok := d.opts.Field.resolve(r)
	if !ok {
		_ = s.Close()
		return fmt.Errorf("%s: GPU %q has no %s power reading (try options: {field: auto})", d.identity.Kind, d.gpu,
			d.opts.Field)
	}
	info := s.Info()
	d.sensor, d.field = s, field
	if d.identity.Kind == Kind {
		d.response = ResponseOf(ArchOf(info.Name), field)
	}
	d.identity.Model, d.identity.Serial, d.identity.Firmware = info.Name, info.UUID, info.Driver
	return nil
}

// Close releases the GPU.
func (d *Device) Close() error {
	if d.sensor == nil {
		return nil
	}
	err := d.sensor.Close()
	d.sensor = nil
	return err
}

const (
	blockPolls = 16          // a block
	deafTime   = time.Second // of failing polls, then the GPU counts as lost
)

// Options are the settings of the driver in a bench file.
type Options struct {
	// Period is the distance of two polls; default 3ms. The sensor is far slower:
	// the polls only find the moment of a new value. A period that does not divide
	// the sensor's meets every phase of it.
	Period time.Duration `yaml:"period"`
	// Field is auto, instant, average or usage; default auto.
	Field Field `yaml:"field"`
}

// Defaults are the options of a GPU that is not described further.
func Defaults() Options { return Options{Period: 3 * time.Millisecond, Field: FieldAuto} }

// Validate reports an option that cannot be used.
func (o Options) Validate() error {
	err := instrument.Within("period", o.Period, 500*time.Microsecond, time.Second, "500us to 1s")
	if err != nil || slices.Contains([]Field{FieldAuto, FieldInstant, FieldAverage, FieldUsage}, o.Field) {
		return err
	}
	return fmt.Errorf("field %q: want auto, instant, average or usage", o.Field)
}

// ResponseOf returns the findings of the public study (arXiv 2312.02741) for an
// architecture and field: update period and averaging window; of Hopper's instant field our own. There are
// exceptions within an architecture: where it matters, measure, and put the
// result into the bench file. Usage is the average where the driver is newer
// than 530.
func ResponseOf(a Arch, f Field) measure.Response {
	const ms = measure.Seconds(1e-3)
	long := f != FieldInstant
	switch {
	case a == Hopper && !long:
		// As sensor.Identify finds it in our recordings of H200s (driver 580). The delay wanders: it grows by
		// some 0.2 ms a second and falls back by 20 ms; its middle is stated.
		return measure.Response{Update: 100 * ms, Tau: 13.2 * ms, Delay: 10 * ms}
	case a == GA100:
		return measure.Response{Update: 100 * ms, Window: 25 * ms}
	case a == Turing:
		return measure.Response{Update: 100 * ms, Window: 100 * ms}
	case a == Volta, a == Pascal:
		return measure.Response{Update: 20 * ms, Window: 10 * ms}
	case a == Kepler: // a first-order lag; 58 ms was fitted on a K40m's public trace
		return measure.Response{Update: 15 * ms, Tau: 58 * ms}
	case long, a == Instinct: // no figure of AMD's is known here: the slowest of the others
		return measure.Response{Update: 100 * ms, Window: 1000 * ms}
	case a == Ada, a == GA10x:
		return measure.Response{Update: 100 * ms, Window: 100 * ms}
	}
	return measure.Response{Update: 100 * ms, Window: 25 * ms}
}

// NoReading stands for a register that the GPU does not have.
const NoReading = -1

// Reading is one look at the GPU's power registers, in milliwatts; NoReading
// where the GPU lacks one.
type Reading struct {
	Instant int32 // field 186
	Average int32 // field 185
	Usage   int32 // nvmlDeviceGetPowerUsage
}

// Info identifies the GPU.
type Info struct{ Name, UUID, Driver string }

// Sensor reads one GPU. Calls come from one locked OS thread. An error of Read
// may pass; one that lasts ends the stream.
type Sensor interface {
	Info() Info
	Read() (Reading, error)
	Close() error
}

// OpenFunc finds a GPU by index, UUID or PCI bus id; the first for "".
type OpenFunc func(ctx context.Context, gpu string) (Sensor, error)

// Field names a register.
type Field string

// The fields, as written in a bench file.
const (
	FieldAuto    Field = "auto" // instant, else average, else usage
	FieldInstant Field = "instant"
	FieldAverage Field = "average"
	FieldUsage   Field = "usage"
)

// of returns the field's value.
func (f Field) of(r Reading) int32 {
	switch f {
	case FieldInstant:
		return r.Instant
	case FieldAverage:
		return r.Average
	case FieldUsage:
		return r.Usage
	}
	return NoReading
}

// resolve picks the field to poll: the one asked for, or the best there is.
func (f Field) resolve(r Reading) (Field, bool) {
	if f != FieldAuto {
		return f, f.of(r) != NoReading
	}
	for _, g := range []Field{FieldInstant, FieldAverage, FieldUsage} {
		if g.of(r) != NoReading {
			return g, true
		}
	}
	return f, false
}

// Arch is a GPU's architecture as far as its power sensor is concerned.
type Arch string

// The architectures whose sensors the public study distinguishes.
const (
	Hopper  Arch = "hopper"
	Ada     Arch = "ada"
	GA10x   Arch = "ga10x"
	GA100   Arch = "ga100"
	Turing  Arch = "turing"
	Volta   Arch = "volta"
	Pascal  Arch = "pascal"
	Kepler  Arch = "kepler"
	Unknown Arch = "unknown"
	// Instinct stands for all of AMD's.
	Instinct Arch = "instinct"
)

// archNames are parts of product names, the more particular ones first.
var archNames = []struct {
	arch  Arch
	parts []string
}{
	{Hopper, []string{"H100", "H200", "H800", "H20", "GH200"}},
	{Ada, []string{"ADA", "RTX 40", "L40", "L4"}},
	{GA100, []string{"A100", "A800", "A30"}},
	{GA10x, []string{"RTX 30", "RTX A", "A10", "A40", "A16", "A2"}},
	{Turing, []string{"RTX 20", "QUADRO RTX", "TITAN RTX", "GTX 16", "T4"}},
	{Volta, []string{"V100", "TITAN V", "GV100"}},
	{Pascal, []string{"P100", "P40", "P4", "GTX 10", "TITAN X"}},
	{Kepler, []string{"K80", "K40", "K20"}},
}

// ArchOf returns the architecture of a product name such as "NVIDIA H200".
func ArchOf(name string) Arch {
	upper := " " + strings.ToUpper(name)
	for _, a := range archNames {
		for _, part := range a.parts {
			if strings.Contains(upper, " "+part) || (len(part) > 2 && strings.Contains(upper, part)) {
				return a.arch
			}
		}
	}
	return Unknown
}

// poller is one Stream call.
type poller struct {
	d        *Device
	out      *series.Builder
	zero     time.Time // of the ticks
	failed   uint64    // polls that failed since the last good one
	deaf     time.Time
	lastFail error
}

// Stream polls until ctx ends. It owns an OS thread meanwhile, so that a busy Go
// program delays it less; a poll that is late keeps its true time.
func (d *Device) Stream(ctx context.Context, sink instrument.Sink) error {
	if d.sensor == nil {
		return fmt.Errorf("%s: stream: not open", d.identity.Kind)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	p := &poller{d: d, out: series.New(Inputs(d.opts), blockPolls, sink), zero: time.Now()}
	err := series.Grid(ctx, d.opts.Period, p.poll)
	if err == nil {
		err = p.out.Flush()
	}
	if err != nil {
		return fmt.Errorf("%s: stream: %w", d.identity.Kind, err)
	}
	return nil
}

// poll reads once. The reading's time is the middle of the call.
func (p *poller) poll() error {
	begin := time.Now()
	r, err := p.d.sensor.Read()
	at := begin.Add(time.Since(begin) / 2)
	mw := p.d.field.of(r)
	if err == nil && mw == NoReading {
		err = fmt.Errorf("the %s reading is gone", p.d.field)
	}
	if err != nil {
		if p.failed == 0 {
			p.deaf = begin
		}
		p.failed++
		p.lastFail = err
		if begin.Sub(p.deaf) < deafTime {
			return nil
		}
		return p.out.Fail(fmt.Errorf("%w: no reading for %v (was the driver reloaded, or the GPU lost?): %w",
			instrument.ErrDisconnected, deafTime, err))
	}
	if err := p.out.Gap(p.failed, true, "%d polls failed: %v", p.failed, p.lastFail); err != nil {
		return err
	}
	p.failed = 0
	return p.out.Scan(at.Sub(p.zero).Nanoseconds(), []measure.Count{mw})
}

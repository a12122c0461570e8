package nvml

import (
	"context"
	"errors"
	"fmt"
	"time"

	"wattmark/measure"
	"wattmark/monitor/instrument"
)

// Kind is the driver's name in bench files.
const Kind = "nvml"

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

// ErrNoSensor: this program was built, or is run, without a way to NVML.
var ErrNoSensor = errors.New("no NVML")

// Device polls a GPU's sensor. It implements instrument.Instrument.
type Device struct {
	gpu  string
	opts Options
	open OpenFunc

	sensor   Sensor
	field    Field
	identity instrument.Identity
	response measure.Response
	lag      measure.Seconds
}

// New makes a driver for the GPU named by index, UUID or PCI bus id ("" is the
// first); nothing is opened yet.
func New(gpu string, o Options, open OpenFunc) (*Device, error) {
	if err := o.Validate(); err != nil {
		return nil, fmt.Errorf("%s: %w", Kind, err)
	}
	if open == nil {
		return nil, fmt.Errorf("%s: %w: nothing here can read a GPU's sensor", Kind, ErrNoSensor)
	}
	return &Device{
		gpu: gpu, opts: o, open: open, identity: instrument.Identity{Kind: Kind, Address: gpu},
		response: ResponseOf(Unknown, FieldInstant),
	}, nil
}

// Identity is the GPU's, once it was opened.
func (d *Device) Identity() instrument.Identity { return d.identity }

// Inputs is one channel in watts. Its response is the architecture's, once the
// GPU was opened.
func (d *Device) Inputs() instrument.Inputs {
	in := Inputs(d.opts)
	in.Response = d.response
	in.Channels[0].Skew = -d.lag // what is read was true before
	return in
}

// Inputs are the driver's channels before anything is opened.
func Inputs(o Options) instrument.Inputs {
	return instrument.Inputs{
		Timebase: measure.Timebase{TickHz: 1e9, UTickHz: clockTolerance, TicksPerScan: float64(o.Period), Stamped: true},
		Response: ResponseOf(Unknown, FieldInstant),
		Channels: []measure.Channel{{
			Name: "gpu.power", Unit: measure.UnitWatt, Gain: 1e-3, UGain: uGain, UOffset: uOffset, Noise: noise,
		}},
	}
}

// NaturalRails is the one rail that the sensor shows.
func NaturalRails(in instrument.Inputs) (rails []measure.Rail, missing []string) {
	return instrument.PairRails(in.Channels), nil
}

// Open finds the GPU and the register to poll.
func (d *Device) Open(ctx context.Context) error {
	if d.sensor != nil {
		return fmt.Errorf("%s: open: already open", Kind)
	}
	s, err := d.open(ctx, d.gpu)
	if err != nil {
		return fmt.Errorf("%s: open GPU %q: %w", Kind, d.gpu, err)
	}
	r, err := s.Read()
	if err != nil {
		_ = s.Close()
		return fmt.Errorf("%s: open GPU %q: first reading: %w: %w", Kind, d.gpu, instrument.ErrSilent, err)
	}
	field, ok := d.opts.Field.resolve(r)
	if !ok {
		_ = s.Close()
		return fmt.Errorf("%s: GPU %q has no %s power reading (try options: {field: auto})", Kind, d.gpu, d.opts.Field)
	}
	info := s.Info()
	d.sensor, d.field = s, field
	d.response, d.lag = ResponseOf(ArchOf(info.Name), field), lagOf(ArchOf(info.Name), field)
	d.identity.Model, d.identity.Serial, d.identity.Firmware = info.Name, info.UUID, info.Driver
	return nil
}

// Field is the register that is polled. Known after Open.
func (d *Device) Field() Field { return d.field }

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

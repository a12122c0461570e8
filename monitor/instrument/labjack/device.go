// Package labjack drives a LabJack T7 or T8 over Ethernet: registers over Modbus TCP
// (port 502), scans over a second connection (port 702).
//
// A stream packet is big-endian: a header of 16 bytes, then whole scans of u16.
//
//	0 transaction  2 protocol (0)  4 length of the rest  6 unit  7 function 76
//	8 type 16      9 –            10 backlog  12 status  14 more to the status
//
// The device reports its losses: status 2941 ends a loss, with the number of
// scans in the last field. A T7 converts its inputs one after another, a T8 at once.
package labjack

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/monitor/instrument"
	"github.com/wattmark/wattmark/monitor/instrument/analog"
	"github.com/wattmark/wattmark/monitor/transport"
)

// Kind is the driver's name in bench files.
const Kind = "labjack"

// Registers of a T7 and a T8.
const (
	regScanRate   = 4002 // f32
	regAddresses  = 4004
	regPerPacket  = 4006
	regSettling   = 4008 // f32, µs
	regResolution = 4010
	regBuffer     = 4012
	regTarget     = 4016 // 1: the stream's own TCP port
	regDataType   = 4018 // 0 by the datasheet
	regScans      = 4020
	regScanList   = 4100
	regEnable     = 4990
	regRange      = 40000 // + 2·AIN, f32
	regProduct    = 60000 // f32, 7 for a T7, 8 for a T8
	regFirmware   = 60004 // f32
	regSerial     = 60028
)

const (
	bufferBytes = 1 << 15
	portStep    = 200 // from the registers' port to the stream's: 502 to 702
	packetTime  = 0.01
)

// Device is a LabJack T7 or T8. It implements instrument.Instrument.
type Device struct {
	instrument.Base
	opts      Options
	registers modbus
	model     model
	doubt     string // why the device's constants cannot be right
}

// New makes a driver; nothing is opened yet. The address is tcp:host:port.
func New(address string, o Options) (*Device, error) {
	d := &Device{opts: o}
	err := instrument.Init(&d.Base, Kind, address, o, transport.Options{}, Inputs)
	// A stream that an earlier program left running is stopped, and every setting is read back.
	d.Steps, d.Run = []instrument.Step{d.identify, d.setUp, d.calibrate}, instrument.UntilDone(d.stream)
	d.Dial = func(ctx context.Context) (transport.Conn, error) { return d.connect(ctx, false) }
	return d, err
}

// connect reaches the registers' port or the stream's.
func (d *Device) connect(ctx context.Context, stream bool) (transport.Conn, error) {
	a, _ := transport.ParseAddress(d.ID.Address) // which New has checked
	if a.Scheme != "tcp" {
		return nil, fmt.Errorf("%w %q: a LabJack is reached over Ethernet: tcp:host:502", transport.ErrAddress,
			d.ID.Address)
	}
	target := a.Target
	if stream {
		host, port, _ := net.SplitHostPort(target)
		n, _ := strconv.Atoi(port)
		if n += portStep; d.opts.StreamPort > 0 {
			n = d.opts.StreamPort
		}
		target = net.JoinHostPort(host, strconv.Itoa(n))
	}
	return transport.Dial(ctx, "tcp:"+target, transport.Options{})
}

// identify reads product, firmware and serial number. A device that is neither a T7 nor a T8, or
// cannot do the options, is an error.
func (d *Device) identify(ctx context.Context) error {
	d.registers = modbus{conn: d.Conn}
	m := &d.registers
	var err error
	product := m.readF32(ctx, regProduct, &err)
	if err != nil {
		return fmt.Errorf("identify: %w", err)
	}
	k := slices.IndexFunc(models, func(m model) bool { return m.product == product })
	if k < 0 {
		return fmt.Errorf("%w: it calls itself product %v, and this driver knows the T7 and the T8",
			instrument.ErrIdentity, product)
	}
	d.model = models[k]
	if err := d.model.check(d.opts); err != nil {
		return fmt.Errorf("it is a %s: %w", d.model.name, err)
	}
	firmware, serial := m.readF32(ctx, regFirmware, &err), m.readU32(ctx, regSerial, &err)
	d.Identify(d.model.name, strconv.FormatUint(uint64(serial), 10),
		strings.TrimSuffix(fmt.Sprintf("%.4f", firmware), "00"))
	return err
}

// setUp writes the scan. A stream must be off for that; stopping one that does
// not run is refused, which is as good.
func (d *Device) setUp(ctx context.Context) error {
	m := &d.registers
	err := m.writeU32(ctx, regEnable, 0)
	if errors.Is(err, errRefused) {
		err = nil
	}
	n := len(d.opts.Inputs) // a packet holds whole scans, and not much time
	perPacket := max(1, min(int(d.opts.ScanRate*packetTime), maxSamples/n)) * n
	set := func(what string, register uint16, value, float float64) {
		m.set(ctx, &err, what, register, value, float)
	}
	for _, i := range d.opts.Inputs {
		set(fmt.Sprintf("range of AIN%d", i.AIN), regRange+2*uint16(i.AIN), d.model.RangeOf(i), 1e-6)
	}
	set("scan rate", regScanRate, d.opts.ScanRate, 1e-3)
	set("settling", regSettling, float64(d.opts.Settling)/1e3, 1e-6)
	set("inputs", regAddresses, float64(n), 0)
	set("packet", regPerPacket, float64(perPacket), 0)
	set("resolution", regResolution, 0, 0)
	set("buffer", regBuffer, bufferBytes, 0)
	set("target", regTarget, 1, 0)
	set("data type", regDataType, 0, 0)
	set("scans", regScans, 0, 0)
	for k, i := range d.opts.Inputs {
		set("scan list", regScanList+2*uint16(k), float64(2*i.AIN), 0)
	}
	return err
}

// Options are the settings of the driver in a bench file.
type Options struct {
	// ScanRate is the scans a second; default 10000.
	ScanRate float64 `yaml:"scan_rate"`
	// Inputs in the order of the scan; put each rail's current and voltage next to
	// each other. Default: the wiring of the emulated device.
	Inputs []analog.Input `yaml:"inputs"`
	// Settling is the time before each conversion of a T7; zero leaves it to the
	// device.
	Settling time.Duration `yaml:"settling"`
	// Skew is the time from one input's conversion to the next on a T7; default
	// 10 µs, or Settling where that is longer.
	Skew time.Duration `yaml:"skew"`
	// UGain (relative) and UOffset (of the range) are the standard uncertainties of
	// the scale. Zero, the default: those of the device's own constants, or of the
	// nominal scale where these cannot be right.
	UGain   float64 `yaml:"u_gain"`
	UOffset float64 `yaml:"u_offset"`
	// StreamPort is the TCP port of the scans; default 200 above the registers'.
	StreamPort int `yaml:"stream_port"`
	// Silence is how long the stream may fall silent before the device counts as
	// lost; default 5 s.
	Silence time.Duration `yaml:"silence"`
}

// Defaults are the options of the emulated device's first rail.
func Defaults() Options {
	return Options{ScanRate: 10_000, Silence: 5 * time.Second, Inputs: []analog.Input{
		{AIN: 0, Name: "aux.voltage", PerVolt: 2}, {AIN: 1, Name: "aux.current", Unit: "A", PerVolt: 10},
	}}
}

const (
	crystal    = 3e-5 // relative standard uncertainty of the clock
	minSkew    = 10 * time.Microsecond
	noiseCodes = 2 // of a conversion at the fastest setting
)

// Validate reports an option that cannot be used, on a T7 or on a T8.
func (o Options) Validate() error {
	switch {
	case o.Settling < 0 || o.Settling > 5*time.Millisecond || o.Skew < 0:
		return fmt.Errorf("settling %v, skew %v: want 0 to 5ms", o.Settling, o.Skew)
	case !(o.UGain >= 0 && o.UGain <= 1) || !(o.UOffset >= 0 && o.UOffset <= 1):
		return fmt.Errorf("u_gain %v, u_offset %v: want 0 to 1", o.UGain, o.UOffset)
	case o.StreamPort < 0 || o.StreamPort > 65535:
		return fmt.Errorf("stream_port %d: want 1 to 65535", o.StreamPort)
	}
	_, err := guess(o)
	return cmp.Or(instrument.CheckSilence(o.Silence), err)
}

// skew is the time between two neighbours' conversions.
func (o Options) skew() time.Duration {
	return cmp.Or(o.Skew, max(minSkew, o.Settling))
}

// Inputs are the channels of the scan before the device is opened: with the
// nominal scale, of a T7 where it fulfils the options, else of a T8.
func Inputs(o Options) instrument.Inputs {
	m, err := guess(o)
	if err != nil {
		return instrument.Inputs{}
	}
	scales := make([]analog.Scale, len(o.Inputs))
	for k, i := range o.Inputs {
		scales[k] = m.nominal(slices.Index(m.Ranges, m.RangeOf(i)))
	}
	return inputs(o, m, scales)
}

// inputs are the channels of the scan, each with its scale.
func inputs(o Options, m model, scales []analog.Scale) instrument.Inputs {
	in := instrument.Inputs{Timebase: measure.Timebase{
		TickHz: measure.Hertz(o.ScanRate), UTickHz: crystal, TicksPerScan: 1,
	}}
	for k, i := range o.Inputs {
		s := scales[k]
		s.Noise, s.Max = noiseCodes, 65535
		s.UGain = cmp.Or(o.UGain, s.UGain)
		if o.UOffset > 0 {
			s.UOffset = measure.Volt(o.UOffset * m.RangeOf(i))
		}
		c := i.Channel(s)
		if !m.simultaneous { // each conversion lies behind the one before it
			c.Skew = measure.SecondsOf(time.Duration(k) * o.skew())
		}
		in.Channels = append(in.Channels, c)
	}
	return in
}

// model holds the differences between the devices.
type model struct {
	analog.Device
	name    string
	product float32 // content of its register
	// each and all bound the conversions a second, of one input and of all.
	each, all float64
	// simultaneous converters have no settling time and no skew.
	simultaneous bool
	// spans are the true ends of the ranges: the nominal scale.
	spans []float64
	// center is the nominal code of zero.
	center float64
	// flash is where the constants of input 0, range 0 lie; perInput reports that
	// every input has its own.
	flash    uint32
	perInput bool
	// uGain and uOffset (of the range) are those of the nominal scale.
	uGain, uOffset float64
}

const (
	slopeT7 = 3.158058e-4 // V a code on a T7's range of ±10 V
	half    = 1 << 15
)

// The models, from the T-series datasheet: ranges and true spans (A-3-3-3 for the
// T8), nominal constants of the T7 (20.0.1), places of the constants (20.0.1,
// 20.0.2).
var models = []model{
	{
		name: "T7", product: 7, Device: analog.Device{Inputs: 14, Ranges: []float64{10, 1, 0.1, 0.01}}, each: 100e3,
		all:    100e3,
		spans:  []float64{half * slopeT7, half * slopeT7 / 10, half * slopeT7 / 100, half * slopeT7 / 1000},
		center: 33523,
		// one converter serves all inputs: its errors do not average out
		flash: 0x3C4000, uGain: 0.006, uOffset: 0.002,
	},
	{
		name: "T8", product: 8, Device: analog.Device{
			Inputs: 8,
			Ranges: []float64{11, 9.6, 4.8, 2.4, 1.2, 0.6, 0.3, 0.15, 0.075, 0.036, 0.018},
		},
		each: 40e3, all: 320e3, simultaneous: true,
		spans: []float64{11.0, 9.768, 4.884, 2.442, 1.221, 0.611, 0.305, 0.153, 0.076, 0.038, 0.019}, center: half,
		flash: 0x687000 + 64, perInput: true, uGain: 0.02, uOffset: 0.01,
	},
}

// check reports options that a model cannot do.
func (m model) check(o Options) error {
	if err := m.Check(o.Inputs); err != nil {
		return err
	}
	n := float64(len(o.Inputs))
	most := min(m.each, m.all/n)
	switch {
	case !(o.ScanRate >= 1 && o.ScanRate <= most):
		return fmt.Errorf("scan_rate %v with %v inputs: a %s does 1 to %.6g", o.ScanRate, n, m.name, most)
	case m.simultaneous && (o.Settling != 0 || o.Skew != 0):
		return fmt.Errorf("settling %v, skew %v: a %s converts all inputs at once", o.Settling, o.Skew, m.name)
	case !m.simultaneous && float64(o.skew())*n > 1e9/o.ScanRate+1:
		return fmt.Errorf("settling %v, skew %v: %v conversions must fit into a scan of %v", o.Settling, o.skew(), n,
			time.Duration(1e9/o.ScanRate))
	}
	return nil
}

// guess returns the first model that fulfils the options.
func guess(o Options) (model, error) {
	var errs []error
	for _, m := range models {
		err := m.check(o)
		if err == nil {
			return m, nil
		}
		errs = append(errs, fmt.Errorf("as a %s: %w", m.name, err))
	}
	return models[0], errors.Join(errs...)
}

package labjack

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"slices"
	"strconv"
	"strings"

	"wattmark/monitor/instrument"
	"wattmark/monitor/transport"
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
	regDataType   = 4018 // 0, says the datasheet
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
	address string
	opts    Options
	dial    func(ctx context.Context, stream bool) (transport.Conn, error)

	registers modbus
	model     model
	identity  instrument.Identity
	inputs    instrument.Inputs
	doubt     string // what is wrong with the device's constants
}

// New makes a driver; nothing is opened yet. The address is tcp:host:port.
func New(address string, o Options) (*Device, error) {
	if err := o.Validate(); err != nil {
		return nil, fmt.Errorf("%s: %w", Kind, err)
	}
	d := &Device{address: address, opts: o, inputs: Inputs(o)}
	d.identity = instrument.Identity{Kind: Kind, Address: address}
	d.dial = d.connect
	return d, nil
}

// connect reaches the registers' port or the stream's.
func (d *Device) connect(ctx context.Context, stream bool) (transport.Conn, error) {
	a, err := transport.ParseAddress(d.address)
	if err != nil {
		return nil, err
	}
	if a.Scheme != "tcp" {
		return nil, fmt.Errorf("%w %q: a LabJack is reached over Ethernet: tcp:host:502", transport.ErrAddress, d.address)
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

// Identity is the device's, once it was opened.
func (d *Device) Identity() instrument.Identity { return d.identity }

// Inputs are the channels of the scan.
func (d *Device) Inputs() instrument.Inputs { return d.inputs }

// Open connects, identifies the device, stops a stream that an earlier program
// left running, and sets the scan up; every setting is read back.
func (d *Device) Open(ctx context.Context) error {
	if d.registers.conn != nil {
		return fmt.Errorf("%s: open %s: already open", Kind, d.address)
	}
	conn, err := d.dial(ctx, false)
	if err != nil {
		return fmt.Errorf("%s: %w", Kind, err)
	}
	d.registers = modbus{conn: conn}
	err = d.identify(ctx)
	if err == nil {
		err = d.setUp(ctx)
	}
	if err == nil {
		err = d.calibrate(ctx)
	}
	if err != nil {
		_ = d.Close()
		return fmt.Errorf("%s: open %s: %w", Kind, d.address, err)
	}
	return nil
}

func (d *Device) identify(ctx context.Context) error {
	m := &d.registers
	product, err := m.readF32(ctx, regProduct)
	if err != nil {
		return fmt.Errorf("identify: %w", err)
	}
	k := slices.IndexFunc(models, func(m model) bool { return m.product == product })
	if k < 0 {
		return fmt.Errorf("%w: it calls itself product %v, and this driver knows the T7 and the T8", instrument.ErrIdentity, product)
	}
	d.model = models[k]
	if err := d.model.check(d.opts); err != nil {
		return fmt.Errorf("it is a %s: %w", d.model.name, err)
	}
	firmware, err := m.readF32(ctx, regFirmware)
	if err != nil {
		return err
	}
	serial, err := m.readU32(ctx, regSerial)
	if err != nil {
		return err
	}
	d.identity.Model, d.identity.Serial = d.model.name, strconv.FormatUint(uint64(serial), 10)
	d.identity.Firmware = strings.TrimSuffix(fmt.Sprintf("%.4f", firmware), "00")
	return nil
}

// perPacket is a number of samples that holds whole scans and not much time.
func (d *Device) perPacket() int {
	n := len(d.opts.Inputs)
	scans := min(int(d.opts.ScanRate*packetTime), maxSamples/n)
	return max(1, scans) * n
}

// setUp writes the scan. A stream must be off for that; stopping one that does
// not run is refused, which is as good.
func (d *Device) setUp(ctx context.Context) error {
	m := &d.registers
	if err := m.writeU32(ctx, regEnable, 0); err != nil && !errors.Is(err, errRefused) {
		return err
	}
	for _, i := range d.opts.Inputs {
		if err := m.setF32(ctx, regRange+2*uint16(i.AIN), d.model.RangeOf(i), 1e-6); err != nil {
			return fmt.Errorf("range of AIN%d: %w", i.AIN, err)
		}
	}
	if err := m.setF32(ctx, regScanRate, d.opts.ScanRate, 1e-3); err != nil {
		return fmt.Errorf("scan rate: %w", err)
	}
	if err := m.setF32(ctx, regSettling, float64(d.opts.Settling)/1e3, 1e-6); err != nil {
		return fmt.Errorf("settling: %w", err)
	}
	for _, r := range []struct {
		address uint16
		value   int
	}{
		{regAddresses, len(d.opts.Inputs)},
		{regPerPacket, d.perPacket()},
		{regResolution, 0},
		{regBuffer, bufferBytes},
		{regTarget, 1},
		{regDataType, 0},
		{regScans, 0},
	} {
		if err := m.set(ctx, r.address, uint32(r.value)); err != nil {
			return err
		}
	}
	for k, i := range d.opts.Inputs {
		if err := m.set(ctx, regScanList+2*uint16(k), uint32(2*i.AIN)); err != nil {
			return fmt.Errorf("scan list: %w", err)
		}
	}
	return nil
}

// checkRate compares the rate that the device really keeps with the one asked for.
func (d *Device) checkRate(ctx context.Context) error {
	rate, err := d.registers.readF32(ctx, regScanRate)
	if err != nil {
		return fmt.Errorf("scan rate: %w", err)
	}
	if off := float64(rate)/d.opts.ScanRate - 1; math.Abs(off) > crystal {
		return fmt.Errorf("the device scans at %v a second, not %v: set scan_rate: %v", rate, d.opts.ScanRate, rate)
	}
	return nil
}

// Close releases the device; Stream has stopped it.
func (d *Device) Close() error {
	if d.registers.conn == nil {
		return nil
	}
	err := d.registers.conn.Close()
	d.registers.conn = nil
	return err
}

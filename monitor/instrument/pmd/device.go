// Package pmd drives an ElmorLabs PMD-USB: four connectors, each with a voltage
// and a current, at some 4.8 thousand scans a second over a CH340 serial port.
//
// In continuous mode a record is a time stamp (16 bits, little-endian) and one
// 16-bit word a channel with a signed 12-bit count in bits 15..4 and zeros below:
//
//	tt tt | v0 VV | i0 II | v0 VV | i0 II | v0 VV | i0 II | v0 VV | i0 II
//
// There is no delimiter and no checksum. The zeros and the step of the stamps
// alone separate a record from its neighbours.
package pmd

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/monitor/instrument"
	"github.com/wattmark/wattmark/monitor/transport"
)

// Kind is the driver's name in bench files.
const Kind = "pmd"

// Device is a PMD-USB behind a serial port or a socket. It implements
// instrument.Instrument.
type Device struct {
	instrument.Base
	opts Options
}

// New makes a driver; nothing is opened yet.
func New(address string, o Options) (*Device, error) {
	base, err := instrument.NewBase(Kind, address, o, transport.Options{Baud: powerOnBaud})
	if err != nil {
		return nil, err
	}
	base.In = Inputs(o)
	return &Device{Base: base, opts: o}, nil
}

// Open connects, finds the line's speed, checks that it is a PMD-USB, and
// raises the speed.
func (d *Device) Open(ctx context.Context) error { return d.Connect(ctx, d.setUp) }

// setUp finds the line's speed, identifies the device, reads its offsets and raises the speed.
func (d *Device) setUp(ctx context.Context) error {
	baud, err := d.find(ctx)
	if err != nil {
		return err
	}
	if err := d.identify(ctx); err != nil {
		return err
	}
	if d.opts.DeviceOffsets {
		// The device's own zero adjustment, in counts: the eight signed bytes from byte 4 of its
		// configuration (version, padding and checksum come first). The rest belongs to its display and
		// differs between firmwares.
		var b [12]byte
		err := transport.Ask(ctx, d.Conn, []byte{cmdReadConfig}, b[:], answerTime)
		if err == nil {
			_, err = d.Conn.Drain(ctx, quietTime)
		}
		if err != nil {
			return fmt.Errorf("read the stored offsets: %w", err)
		}
		var offsets [Channels]int8
		for i := range offsets {
			offsets[i] = int8(b[4+i])
		}
		d.In.Channels = channels(offsets)
	}
	return d.raise(ctx, baud)
}

// Options are the settings of the driver in a bench file.
type Options struct {
	// Baud is the line's speed while measuring; default 921600. The device starts
	// at 115200, too slow for its own samples, and is set back when closed.
	Baud int `yaml:"baud"`
	// TickHz is the rate of the device's time stamps; default 2.9345e6, which the
	// public captures fit (the nominal value is 3 MHz).
	TickHz float64 `yaml:"tick_hz"`
	// UTick is its relative standard uncertainty; default 5e-4. Against the host's
	// clock, by the edges of its load, the public capture of a square wave runs
	// 529 ppm off this rate; the others 10 to 300 ppm.
	UTick float64 `yaml:"u_tick"`
	// DeviceOffsets adds the offsets that the device stores; default true.
	DeviceOffsets bool `yaml:"device_offsets"`
	// Silence is how long the stream may fall silent before the device counts as
	// lost; default 5 s.
	Silence time.Duration `yaml:"silence"`
}

// Defaults are the options of a device that is not described further.
func Defaults() Options {
	return Options{Baud: 921600, TickHz: 2.9345e6, UTick: 5e-4, DeviceOffsets: true, Silence: 5 * time.Second}
}

// bauds are the speeds that the device knows, the likeliest first.
var bauds = []int{115200, 921600, 460800, 2000000, 1500000, 230400}

// Validate reports an option that cannot be used.
func (o Options) Validate() error {
	switch {
	case !slices.Contains(bauds, o.Baud):
		return fmt.Errorf("baud %d: the device knows 115200, 230400, 460800, 921600, 1500000 and 2000000", o.Baud)
	case !(o.TickHz >= 1e6 && o.TickHz <= 1e7):
		return fmt.Errorf("tick_hz %v: want 1e6 to 1e7", o.TickHz)
	case !(o.UTick >= 0 && o.UTick <= 0.1):
		return fmt.Errorf("u_tick %v: want 0 to 0.1", o.UTick)
	case o.Silence < 100*time.Millisecond || o.Silence > time.Hour:
		return fmt.Errorf("silence %v: want 100ms to 1h", o.Silence)
	}
	return nil
}

const (
	voltsPerCount   = 0.007568
	amperesPerCount = 0.0488
	ticksPerScan    = 613.7 // mean of the public captures; single steps vary from 581 to 1017
)

// The uncertainties of a device as it is sold. The maker states none, so they
// are set wide on purpose: 1 % for the current's gain (shunt and amplifier),
// 0.5 % for the voltage's (divider and reference). The zero of the current is
// 2 counts: a connector with nothing plugged in read 1.5 to 1.7 counts in all of
// the public captures. The noise of one reading was 0.95 counts there, that of a
// voltage 1.0 to 1.5. A bench file that holds a calibration replaces all of them.
const (
	uGainVoltage   = 0.005
	uGainCurrent   = 0.01
	uOffsetVoltage = 2 * voltsPerCount
	uOffsetCurrent = 2 * amperesPerCount
	noiseVoltage   = 1.2 * voltsPerCount
	noiseCurrent   = 0.95 * amperesPerCount
)

// connectors in the order of the channels.
var connectors = [Channels / 2]string{"pcie1", "pcie2", "eps1", "eps2"}

// channels are the device's inputs; offsets are counts to add to a reading.
func channels(offsets [Channels]int8) []measure.Channel {
	out := instrument.VoltAmpere(connectors[:], measure.Channel{
		Gain: voltsPerCount, UGain: uGainVoltage, UOffset: uOffsetVoltage, Noise: noiseVoltage, MinCount: -2048,
		MaxCount: 2047,
	}, measure.Channel{
		Gain: amperesPerCount, UGain: uGainCurrent, UOffset: uOffsetCurrent, Noise: noiseCurrent, MinCount: -2048,
		MaxCount: 2047,
	})
	for i := range out {
		out[i].Offset = float64(offsets[i]) * out[i].Gain
	}
	return out
}

// Inputs are the device's channels before it is opened: those of a device
// without stored offsets.
func Inputs(o Options) instrument.Inputs {
	return instrument.Inputs{Timebase: measure.Timebase{ // the device's stamps; a scan takes 613.7 ticks on average
		TickHz: measure.Hertz(o.TickHz), UTickHz: o.UTick, TicksPerScan: ticksPerScan, Stamped: true,
	}, Channels: channels([Channels]int8{})}
}

// NaturalRails makes a rail of each connector, wired as in the public captures:
// an adapter brings the slot's 12 V to EPS1, the card's own connectors are on
// the others, and the slot's 3.3 V is not measured.
func NaturalRails(instrument.Inputs) (rails []measure.Rail, missing []string) {
	return instrument.ClampRails(connectors[:], []int{0, 1, 2, 3}, func(name string) measure.Role {
		if name == "eps1" {
			return measure.RolePCIe12V
		}
		return measure.RolePSU
	}), []string{"pcie_3v3"}
}

// lost counts the scans missing between two that lie delta ticks apart. The
// device's steps vary, so that the number is certain only for a single one.
func lost(delta int64) (uint64, bool) {
	if delta < MaxStep {
		return 0, true
	}
	n := max(1, int64(float64(delta)/ticksPerScan+0.5)-1)
	return uint64(n), delta < 1770 // three of the shortest steps
}

// Package dataq drives DATAQ's DI-1100, DI-2108 and DI-2108-P in their CDC mode:
// text commands that end in a carriage return and are echoed, and after start a
// bare stream of little-endian words, one for each item of the scan list.
//
//	DI-1100   12 bits, left-justified; bits 1 and 0 of the first item are the two
//	          digital inputs
//	DI-2108   16 bits; the digital inputs are an item of their own, their state in
//	          the high byte
//
// There is no delimiter, no number and no check sum. The bits that never change
// mark where a scan begins; whole scans that are missing show only against the host's clock.
package dataq

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/monitor/instrument"
	"github.com/wattmark/wattmark/monitor/instrument/analog"
	"github.com/wattmark/wattmark/monitor/transport"
)

// Kind is the driver's name in bench files.
const Kind = "dataq"

const (
	answerTime = time.Second     // for one exchange
	settleTime = 2 * time.Second // for a device to stop
	staleBytes = 1 << 16
	packetTime = 0.01 // seconds that a packet may take to fill
	maxAnswer  = 128
)

// Device is a DATAQ box behind a serial port. It implements
// instrument.Instrument.
type Device struct {
	instrument.Base
	opts  Options
	model model
}

// New makes a driver; nothing is opened yet.
func New(address string, o Options) (*Device, error) {
	d := &Device{opts: o, model: models[o.Model]}
	// Whatever an earlier program left running is stopped first; every command must be echoed.
	d.Steps, d.Run = []instrument.Step{d.stop, d.identify, d.setUp}, instrument.UntilDone(d.stream)
	return d, instrument.Init(&d.Base, Kind, address, o, transport.Options{}, Inputs)
}

// stop ends a scan, whether ours or another program's, and discards its remaining bytes: the echo
// comes behind the last packet.
func (d *Device) stop(ctx context.Context) error {
	short, cancel := context.WithTimeout(ctx, settleTime)
	defer cancel()
	if _, err := d.Conn.Write(short, []byte("stop\r")); err != nil {
		return fmt.Errorf("stop: %w", err)
	}
	var last [5]byte
	err := d.Listen(ctx, short, "stop", func(b []byte) (bool, error) {
		tail := append(last[:], b...)
		copy(last[:], tail[len(tail)-len(last):])
		return string(last[:]) == "stop\r", nil
	}, fmt.Sprintf("nothing came back to stop within %v (is it in CDC mode, its LED blinking yellow?)", settleTime),
		func(total int) string {
			return fmt.Sprintf("%d bytes came within %v of a stop, but no echo: is this a DATAQ in CDC mode?", total,
				settleTime)
		})
	if err != nil {
		return err
	}
	return transport.Stale(short, d.Conn, staleBytes)
}

// ask sends a command and returns the text behind it in the echo. A line that is no
// echo of it, such as the late answer to an earlier one, is passed over.
func (d *Device) ask(ctx context.Context, command string) (answer string, err error) {
	var line, other []byte
	// How long an echo may take, and how long once the command was sent again.
	for _, within := range []time.Duration{answerTime, 2 * answerTime} {
		short, cancel := context.WithTimeout(ctx, within)
		answer, err = d.askOnce(short, command, &line, &other)
		cancel()
		if err == nil || ctx.Err() != nil || !transport.Ended(err) {
			return answer, err
		}
	}
	switch {
	case other != nil:
		return "", fmt.Errorf("%w: to %q it answered %q and not the echo that a DATAQ gives", instrument.ErrIdentity,
			command, other)
	case len(line) == 0:
		return "", fmt.Errorf("%w: no echo of %q within %v", instrument.ErrSilent, command, answerTime)
	}
	return "", fmt.Errorf("%w: to %q it sent %q and no end of line", instrument.ErrIdentity, command, line)
}

// askOnce adds the bytes that came to line, and sets other to one that is no echo.
func (d *Device) askOnce(ctx context.Context, command string, line, other *[]byte) (string, error) {
	if _, err := d.Conn.Write(ctx, []byte(command+"\r")); err != nil {
		return "", fmt.Errorf("send %q: %w", command, err)
	}
	var b [1]byte
	for len(*line) < maxAnswer {
		if _, err := d.Conn.Read(ctx, b[:]); err != nil {
			return "", fmt.Errorf("answer to %q: %w", command, err)
		}
		switch {
		case b[0] == '\r' && len(*line) > 0:
			if rest, ok := strings.CutPrefix(string(*line), command); ok {
				return strings.TrimSpace(rest), nil
			}
			*other, *line = *line, nil
		case b[0] != '\r' && b[0] != '\n' && b[0] != 0:
			*line = append(*line, b[0])
		}
	}
	return "", fmt.Errorf("%w: to %q it answered %q and no end of line", instrument.ErrIdentity, command, *line)
}

// identify reads the device's type and number.
func (d *Device) identify(ctx context.Context) error {
	var told [10]string
	for _, i := range []int{0, 1, 2, 6, 9} {
		var err error
		if told[i], err = d.ask(ctx, fmt.Sprintf("info %d", i)); err != nil {
			return err
		}
	}
	switch {
	case told[0] != "DATAQ":
		return fmt.Errorf("%w: it calls itself %q, not DATAQ", instrument.ErrIdentity, told[0])
	case !slices.Contains(d.model.numbers, told[1]):
		return fmt.Errorf("%w: it is a %q, not a %s: set model", instrument.ErrIdentity, told[1], d.opts.Model)
	case told[9] != fmt.Sprint(dividend):
		return fmt.Errorf("%w: its clock is %q, and this driver knows %d", instrument.ErrIdentity, told[9], dividend)
	}
	d.ID.Model, d.ID.Firmware = d.opts.Model, told[2]
	d.ID.Serial = told[6][:min(8, len(told[6]))] // two more digits are the maker's
	return nil
}

// digitalItem is the number of the digital inputs in a scan list.
const digitalItem = 8

// setUp writes the scan. Putting its first item begins a new list.
func (d *Device) setUp(ctx context.Context) error {
	// The largest packet that fills in the time that a live view may lag: 32 bytes << ps.
	ps, bytes := 0, d.opts.rate()*float64(2*d.opts.items())*packetTime
	for ps < 7 && float64(int(32)<<ps) <= bytes {
		ps++
	}
	commands := []string{"encode 0", fmt.Sprintf("ps %d", ps)}
	put := func(item int) {
		commands = append(commands, fmt.Sprintf("slist %d %d", len(commands)-2, item))
	}
	if d.opts.sync() {
		put(digitalItem)
	}
	for _, i := range d.opts.Inputs {
		put(slices.Index(d.model.Ranges, d.model.RangeOf(i))<<8 | i.AIN)
	}
	if d.model.digital { // and so has decimation, which an earlier program may have left on
		for _, i := range d.opts.Inputs {
			commands = append(commands, fmt.Sprintf("filter %d 0", i.AIN))
		}
		commands = append(commands, "dec 1")
	}
	commands = append(commands, fmt.Sprintf("srate %d", int(d.opts.srate())))
	for _, c := range commands {
		if _, err := d.ask(ctx, c); err != nil {
			return fmt.Errorf("set up: %w", err)
		}
	}
	return nil
}

// Options are the settings of the driver in a bench file.
type Options struct {
	// Model is DI-1100 (the default), DI-2108 or DI-2108-P.
	Model string `yaml:"model"`
	// Rate is the scans a second; default 2000. The device divides 60 MHz by a
	// whole number, and the nearest rate is taken.
	Rate float64 `yaml:"rate"`
	// Inputs in the order of the scan; put each rail's current and voltage next to
	// each other. Default: the wiring of the emulated device.
	Inputs []analog.Input `yaml:"inputs"`
	// Sync puts a DI-2108's digital inputs first into each scan, so that lost bytes
	// can be seen; default true.
	Sync bool `yaml:"sync"`
	// SrateCounts is the unit of the srate command: whole scans, or items of
	// the scan list. Default: scans on a DI-1100, items on a DI-2108.
	SrateCounts string `yaml:"srate_counts"`
	// Skew is the time from one item's conversion to the next. Default: none on a
	// DI-1100, an even share of the scan on a DI-2108.
	Skew time.Duration `yaml:"skew"`
	// UGain (relative) and UOffset (of the range) are the standard uncertainties of
	// the nominal scale, UClock that of the clock.
	UGain   float64 `yaml:"u_gain"`
	UOffset float64 `yaml:"u_offset"`
	UClock  float64 `yaml:"u_clock"`
	// Silence is how long the stream may fall silent before the device counts as
	// lost; default 5 s.
	Silence time.Duration `yaml:"silence"`
}

// Defaults are the options of the emulated device's first rail. The
// uncertainties are set wide on purpose: no public statement of a whole device's
// accuracy stands behind them. A calibration in the bench file replaces them.
func Defaults() Options {
	return Options{
		Model: "DI-1100", Rate: 2000, Sync: true, UGain: 0.005, UOffset: 0.002, UClock: 1e-4, Silence: 5 * time.Second,
		Inputs: []analog.Input{
			{AIN: 0, Name: "aux.voltage", PerVolt: 2},
			{AIN: 1, Name: "aux.current", Unit: "A", PerVolt: 10},
		},
	}
}

const (
	dividend = 60_000_000 // divided by srate, on all models
	maxSrate = 65535
)

// model holds the differences between the devices.
type model struct {
	analog.Device
	numbers []string // possible answers to info 1
	bits    int      // of the converter
	// digital reports that the digital inputs are an item of the scan list, and that
	// there are commands for it and for decimation.
	digital bool
	// least is the smallest srate with so many items.
	least func(items int) float64
	items bool // srate divides into items
}

// models by name, as their protocol documents and datasheets describe them.
var models = map[string]model{
	"DI-1100": {
		Device: analog.Device{Inputs: 4, Ranges: []float64{10}}, numbers: []string{"1100"}, bits: 12,
		least: func(items int) float64 { return 1000 + 500*float64(items) },
	},
	"DI-2108": {
		Device: analog.Device{Inputs: 8, Ranges: []float64{10}}, numbers: []string{"2108"}, bits: 16, digital: true,
		items: true,
		least: func(int) float64 { return 375 },
	},
	"DI-2108-P": {
		Device: analog.Device{Inputs: 8, Ranges: []float64{10, 5, 2.5}}, numbers: []string{"2109", "2108P", "2108-P"},
		bits:    16,
		digital: true, items: true, least: func(int) float64 { return 375 },
	},
}

// sync reports whether the scan begins with the digital inputs as an item.
func (o Options) sync() bool { return o.Sync && models[o.Model].digital }

// items of the scan list.
func (o Options) items() int {
	if o.sync() {
		return len(o.Inputs) + 1
	}
	return len(o.Inputs)
}

// Layout returns the form of a scan in the stream.
func (o Options) Layout() Layout {
	return Layout{Items: o.items(), Low: models[o.Model].bits == 12, Digital: o.sync()}
}

// perScan is how many periods of srate make a scan.
func (o Options) perScan() float64 {
	if o.SrateCounts == "items" || o.SrateCounts == "" && models[o.Model].items {
		return float64(o.items())
	}
	return 1
}

// srate is the divisor nearest to the rate that is wanted.
func (o Options) srate() float64 { return math.Round(dividend / (o.Rate * o.perScan())) }

// rate is the nearest rate that the divisor allows.
func (o Options) rate() float64 { return dividend / (o.srate() * o.perScan()) }

// Validate reports an option that cannot be used.
func (o Options) Validate() error {
	m, ok := models[o.Model]
	if !ok {
		return fmt.Errorf("model %q: want DI-1100, DI-2108 or DI-2108-P", o.Model)
	}
	if err := m.Check(o.Inputs); err != nil {
		return err
	}
	most, least := dividend/(m.least(o.items())*o.perScan()), dividend/(maxSrate*o.perScan())
	switch {
	case !slices.Contains([]string{"", "scans", "items"}, o.SrateCounts):
		return fmt.Errorf("srate_counts %q: want scans or items", o.SrateCounts)
	case !(o.Rate >= least && o.Rate <= most):
		return fmt.Errorf("rate %v: a %s with %d items in its scan does %.6g to %.6g scans a second", o.Rate, o.Model,
			o.items(), least, most)
	case o.Skew < 0 || o.Skew.Seconds()*float64(o.items()) > 1.001/o.Rate:
		return fmt.Errorf("skew %v: %d items must fit into a scan of %v", o.Skew, o.items(), time.Duration(1e9/o.Rate))
	case !(o.UGain >= 0 && o.UGain <= 1) || !(o.UOffset >= 0 && o.UOffset <= 1) || !(o.UClock >= 0 && o.UClock <= 0.01):
		return fmt.Errorf("u_gain %v, u_offset %v, u_clock %v: want 0 to 1, 1 and 0.01", o.UGain, o.UOffset, o.UClock)
	}
	return instrument.CheckSilence(o.Silence)
}

// Inputs are the channels of the scan with the nominal scale: ± the range over
// 16 bits, of which a DI-1100 uses the upper twelve.
func Inputs(o Options) instrument.Inputs {
	m := models[o.Model]
	step := 1 << (16 - m.bits)
	in := instrument.Inputs{Timebase: measure.Timebase{
		TickHz: measure.Hertz(o.rate()), UTickHz: o.UClock, TicksPerScan: 1,
	}}
	skew := o.Skew // between two neighbours' conversions: without one, an even share of the scan
	if skew == 0 && m.items {
		skew = time.Duration(1e9 / (o.rate() * float64(o.items())))
	}
	for k, i := range o.Inputs {
		r := m.RangeOf(i)
		c := i.Channel(analog.Scale{
			Gain: r / (1 << 15), UGain: o.UGain, UOffset: measure.Volt(o.UOffset * r), Noise: float64(step),
			Min: -1 << 15, Max: measure.Count(1<<15 - step),
		})
		c.Skew = measure.SecondsOf(time.Duration(k+o.items()-len(o.Inputs)) * skew)
		in.Channels = append(in.Channels, c)
	}
	return in
}

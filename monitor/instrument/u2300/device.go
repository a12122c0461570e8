// Package u2300 drives a Keysight U2300A data acquisition device (U2351A to
// U2356A): up to 64 multiplexed 16-bit inputs, streamed without an end.
//
//	Open    ranges, polarities, scan list, rate are set, read back and compared
//	Stream  RUN; WAV:STAT? until DATA; WAV:DATA? ─▶ a block of scans; …; STOP
//
// Scans carry neither a number nor a stamp. While the device reports no OVER its
// memory has held all of them, so their number is their time. After OVER, or an
// exchange that failed, the loss is unknown: the acquisition is begun
// anew, and the host's clock shows how long nothing was measured.
package u2300

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/monitor/instrument"
	"github.com/wattmark/wattmark/monitor/instrument/analog"
	"github.com/wattmark/wattmark/monitor/scpi"
	"github.com/wattmark/wattmark/monitor/transport"
)

// Kind is the driver's name in bench files.
const Kind = "keysight-u2300"

// Device is a U2300A. It implements instrument.Instrument.
type Device struct {
	instrument.Base
	opts   Options
	client *scpi.Client
	model  model
}

// New makes a driver; nothing is opened yet.
func New(address string, o Options) (*Device, error) {
	d := &Device{opts: o}
	err := instrument.Init(&d.Base, Kind, address, o, transport.Options{}, Inputs)
	d.client, d.Run = scpi.New(d.config()), d.stream
	d.Dial, d.Release = nil, func() error { return d.client.Close() } // the client holds the link
	// The capture itself insists on the same device.
	d.Steps = []instrument.Step{func(ctx context.Context) error { return d.client.OpenAny(ctx) }, d.identify, d.setUp}
	return d, err
}

// config is the client's: a lost link is tried again for as long as the device may be silent.
func (d *Device) config() scpi.Config {
	return scpi.Config{Address: d.ID.Address, Timeout: d.opts.Timeout, Reconnect: d.opts.Silence, Accept: Accept}
}

// identify checks model and options, and completes the inputs with the model's skew.
func (d *Device) identify(context.Context) (err error) {
	id := d.client.Identity()
	d.Identify(id.Model, id.Serial, id.Firmware)
	if d.model, err = lookup(id); err != nil {
		return err
	}
	d.In = d.opts.inputs(d.model)
	return d.model.fits(d.opts)
}

// list writes a channel list: (@101,102).
func list(numbers ...int) string {
	return "(@" + strings.Trim(strings.ReplaceAll(fmt.Sprint(numbers), " ", ","), "[]") + ")"
}

// setUp sets the scan. The rate goes down first: a device refuses a scan list
// that the rate before it does not allow.
func (d *Device) setUp(ctx context.Context) error {
	l := d.client.Link(ctx)
	set := func(option, command string, a ...any) { l.SetChecked("device", fmt.Sprintf(command, a...), option) }
	const before, rate = "its settings from before (switch it off and on)", "scan_rate, or use fewer inputs"
	set(before, "STOP")
	set(before, "TRIG:SOUR NONE")
	set(rate, "ACQ:SRAT %d", slowest)
	numbers := make([]int, len(d.opts.Inputs))
	for k, raw := range d.opts.Inputs {
		i := raw.withDefaults()
		numbers[k] = i.Channel
		at := list(i.Channel)
		set("the input's unipolar", "ROUT:CHAN:POL %s,%s", i.polarity(), at)
		set("the input's range", "ROUT:CHAN:RANG %g,%s", i.Range, at)
		set("the input's ground", "ROUT:CHAN:STYP %s,%s", grounds[i.Ground], at)
	}
	set("inputs", "ROUT:SCAN %s", list(numbers...))
	set("burst", "ACQ:BURS %s", map[bool]string{false: "OFF", true: "ON"}[d.opts.Burst])
	set(rate, "ACQ:SRAT %g", d.opts.ScanRate)
	set("block", "WAV:POIN %d", d.opts.points())
	d.readBack(l, numbers)
	return l.Err
}

// readBack compares the device's settings with the options.
func (d *Device) readBack(l *scpi.Link, numbers []int) {
	if got := scpi.Answer(l, "ROUT:SCAN?", parseChannels); !slices.Equal(got, numbers) {
		l.Fail("%w: it scans %v after %v was set: give the inputs in the order that it keeps", scpi.ErrInstrument, got,
			numbers)
	}
	number := func(query, option string, want float64) {
		if v := l.Number(query); v != want {
			l.Fail("%w: %s gives %v after %v was set: set %s: %v", scpi.ErrInstrument, query, v, want, option, v)
		}
	}
	text := func(s string) (string, error) { return s, nil }
	for k, raw := range d.opts.Inputs {
		i := raw.withDefaults()
		at := " " + list(i.Channel)
		number("ROUT:CHAN:RANG?"+at, fmt.Sprintf("inputs[%d].range", k), i.Range)
		for query, want := range map[string]string{"ROUT:CHAN:POL?": i.polarity(), "ROUT:CHAN:STYP?": grounds[i.Ground]} {
			if s := scpi.Answer(l, query+at, text); !strings.HasPrefix(strings.ToUpper(strings.TrimSpace(s)), want) {
				l.Fail("%w: %s%s gives %q after %s was set", scpi.ErrInstrument, query, at, s, want)
			}
		}
	}
	number("ACQ:SRAT?", "scan_rate", d.opts.ScanRate)
	if b := scpi.Answer(l, "ACQ:BURS?", scpi.ParseBool); b != d.opts.Burst {
		l.Fail("%w: burst is %v after %v was set", scpi.ErrInstrument, b, d.opts.Burst)
	}
	number("WAV:POIN?", "block to the time of as many scans", float64(d.opts.points()))
}

const (
	firstChannel = 101
	slowest      = 3 // scans a second
)

// model describes one member of the family. All convert 16 bits.
type model struct {
	name     string
	channels int     // single-ended inputs; half as many differential ones
	fastest  float64 // conversions a second in all
}

// models as the maker's Programmer's Guide lists them; the most able last. The
// U2331A, of 12 bits and other ranges, is not among them.
var models = []model{
	{"U2351A", 16, 250e3},
	{"U2352A", 16, 250e3},
	{"U2353A", 16, 500e3},
	{"U2354A", 16, 500e3},
	{"U2355A", 64, 250e3},
	{"U2356A", 64, 500e3},
}

// lookup finds a model by the answer to *IDN?.
func lookup(id scpi.Identity) (model, error) {
	maker := strings.ToUpper(id.Maker)
	i := slices.IndexFunc(models, func(m model) bool { return strings.EqualFold(id.Model, m.name) })
	if i >= 0 && (strings.Contains(maker, "KEYSIGHT") || strings.Contains(maker, "AGILENT")) {
		return models[i], nil
	}
	return model{}, fmt.Errorf("%w: it is a %s %s, wanted a Keysight or Agilent U2351A to U2356A",
		instrument.ErrIdentity, id.Maker, id.Model)
}

// Accept refuses a device that is no U2300A; its error wraps instrument.ErrIdentity.
func Accept(id scpi.Identity) error {
	_, err := lookup(id)
	return err
}

// fits reports options that this model cannot keep, with the remedy.
func (m model) fits(o Options) error {
	n := len(o.Inputs)
	if o.ScanRate*float64(n) > m.fastest {
		return fmt.Errorf("scan_rate %v with %d inputs: a %s converts %v times a second in all: set scan_rate: %v or less",
			o.ScanRate, n, m.name, m.fastest, math.Floor(m.fastest/float64(n)))
	}
	for k, i := range o.Inputs {
		last, second := firstChannel+m.channels-1, 0 // the last such input, and the second wire of this one
		if i.Ground == "diff" {
			last, second = firstChannel+m.channels/2-1, i.Channel+m.channels/2
		}
		if i.Channel > last {
			return fmt.Errorf("inputs[%d].channel %d: a %s has %d to %d for such an input", k, i.Channel, m.name,
				firstChannel, last)
		}
		if slices.ContainsFunc(o.Inputs, func(other Input) bool { return other.Channel == second }) {
			return fmt.Errorf("inputs[%d].channel %d: diff takes channel %d as its second wire: leave that out", k,
				i.Channel, second)
		}
	}
	return nil
}

// Input is one analog input in the scan.
type Input struct {
	// Channel is its number, 101 and on.
	Channel int `yaml:"channel"`
	// Name of the channel; default its number.
	Name string `yaml:"name"`
	// Unit is V, A or W; default V.
	Unit string `yaml:"unit"`
	// PerVolt is the units a volt at the input: a divider's ratio, a clamp's A/V;
	// default 1.
	PerVolt float64 `yaml:"per_volt"`
	// Range is 10, 5, 2.5 or 1.25 V; default 10.
	Range float64 `yaml:"range"`
	// Unipolar makes the range 0 to Range in place of ±Range.
	Unipolar bool `yaml:"unipolar"`
	// Ground is the reference of the input: single (AI_GND), nrs
	// (AI_SENSE) or diff (its own second wire); default single.
	Ground string `yaml:"ground"`
}

// Options are the settings of the driver in a bench file.
type Options struct {
	// ScanRate is the scans a second; default 10000.
	ScanRate float64 `yaml:"scan_rate"`
	// Inputs in the order of the scan; put each rail's current and voltage next to
	// each other. Default: the wiring of the emulated device's first rail.
	Inputs []Input `yaml:"inputs"`
	// Burst converts a scan's inputs one right after the other, as fast as the
	// device can; default true. Without it they share the scan's time evenly.
	Burst bool `yaml:"burst"`
	// Block is the time of one block of scans; default 50 ms.
	Block time.Duration `yaml:"block"`
	// UGain (relative) and UOffset (volts at the input) are the standard
	// uncertainties of the nominal scale; defaults 0.003 and 0.6 mV.
	UGain   float64 `yaml:"u_gain"`
	UOffset float64 `yaml:"u_offset"`
	// UClock is the relative standard uncertainty of the rate; default 1e-4.
	UClock float64 `yaml:"u_clock"`
	// Timeout bounds one exchange; default 2 s.
	Timeout time.Duration `yaml:"timeout"`
	// Silence is how long no block may come before the device counts as lost;
	// default 5 s.
	Silence time.Duration `yaml:"silence"`
}

// Defaults are the options of the emulated device's first rail.
func Defaults() Options {
	return Options{
		ScanRate: 10_000, Burst: true, Block: 50 * time.Millisecond, UGain: 0.003, UOffset: 6e-4, UClock: 1e-4,
		Timeout: 2 * time.Second, Silence: 5 * time.Second,
		Inputs: []Input{
			{Channel: 101, Name: "aux.voltage", PerVolt: 2}, {Channel: 102, Name: "aux.current", Unit: "A", PerVolt: 10},
		},
	}
}

var (
	grounds = map[string]string{"": "SING", "single": "SING", "nrs": "NRS", "diff": "DIFF"}
	ranges  = []float64{10, 5, 2.5, 1.25}
)

// withDefaults fills in the fields that a bench file leaves out.
func (i Input) withDefaults() Input {
	i.Name, i.PerVolt = cmp.Or(i.Name, fmt.Sprintf("ch%d", i.Channel)), cmp.Or(i.PerVolt, 1)
	i.Range = cmp.Or(i.Range, ranges[0])
	return i
}

// polarity is the device's word for it.
func (i Input) polarity() string {
	if i.Unipolar {
		return "UNIP"
	}
	return "BIP"
}

// Validate reports an option that cannot be used by any model.
func (o Options) Validate() error {
	most := models[len(models)-1]
	n := len(o.Inputs)
	switch {
	case !(o.ScanRate >= slowest && o.ScanRate*float64(n) <= most.fastest):
		return fmt.Errorf("scan_rate %v with %d inputs: want %d to %v", o.ScanRate, n, slowest,
			math.Floor(most.fastest/float64(n)))
	case o.Block < time.Millisecond || o.Block > time.Second:
		return fmt.Errorf("block %v: want 1ms to 1s", o.Block)
	case !(o.UGain >= 0 && o.UGain <= 1) || !(o.UOffset >= 0 && o.UOffset <= 1) || !(o.UClock >= 0 && o.UClock <= 0.1):
		return fmt.Errorf("u_gain %v, u_offset %v, u_clock %v: want 0 to 1, 0 to 1 V and 0 to 0.1", o.UGain, o.UOffset,
			o.UClock)
	case o.Timeout < 100*time.Millisecond || o.Timeout > time.Minute:
		return fmt.Errorf("timeout %v: want 100ms to 1m", o.Timeout)
	case o.Silence < 2*o.Block || o.Silence > time.Hour:
		return fmt.Errorf("silence %v: want at least two blocks (%v), at most 1h", o.Silence, 2*o.Block)
	}
	return o.validateInputs(most)
}

// validateInputs reports an input that no model has or that stands there twice.
func (o Options) validateInputs(most model) error {
	wiring := func(i Input) (_ analog.Wiring, err error) {
		i = i.withDefaults()
		if _, ground := grounds[i.Ground]; !ground {
			err = fmt.Errorf("ground %q: want single, nrs or diff", i.Ground)
		} else if !slices.Contains(ranges, i.Range) {
			err = fmt.Errorf("range %v V: want 10, 5, 2.5 or 1.25", i.Range)
		}
		return analog.Wiring{Number: i.Channel, Name: i.Name, Unit: i.Unit, PerVolt: i.PerVolt}, err
	}
	return analog.Check(o.Inputs, most.channels, "channel", firstChannel, firstChannel+most.channels-1, wiring)
}

// points is how many scans make a block.
func (o Options) points() int { return max(1, int(o.ScanRate*o.Block.Seconds())) }

// Inputs are the channels of the scan as far as they are known before a model
// is: the faster models' skew is taken.
func Inputs(o Options) instrument.Inputs { return o.inputs(models[len(models)-1]) }

const (
	codes      = 1 << 16
	noiseCodes = 2 // of a conversion; ours
)

// inputs are the channels on a model, each later than the one before by its conversion. The scale,
// from the maker's User's Guide: V = 2·code/2^16·range on a bipolar range, (code/2^16 + 1/2)·range
// on a unipolar one.
func (o Options) inputs(m model) instrument.Inputs {
	in := instrument.Inputs{Timebase: measure.Timebase{
		TickHz: measure.Hertz(o.ScanRate), UTickHz: o.UClock, TicksPerScan: 1,
	}}
	skew := 1 / m.fastest
	if !o.Burst { // they share the scan's time evenly
		skew = 1 / (o.ScanRate * float64(len(o.Inputs)))
	}
	for k, raw := range o.Inputs {
		i := raw.withDefaults()
		gain, offset := 2*i.Range/codes, 0.0
		if i.Unipolar {
			gain, offset = i.Range/codes, i.Range/2
		}
		per := math.Abs(i.PerVolt)
		in.Channels = append(in.Channels, measure.Channel{
			Name: i.Name, Unit: analog.Units[i.Unit], Gain: gain * i.PerVolt, Offset: offset * i.PerVolt, UGain: o.UGain,
			UOffset: o.UOffset * per, Noise: noiseCodes * gain * per, MinCount: math.MinInt16, MaxCount: math.MaxInt16,
			Skew: measure.Seconds(float64(k) * skew),
		})
	}
	return in
}

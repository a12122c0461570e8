package nidaqmx

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"time"

	"wattmark/measure"
	"wattmark/monitor/instrument"
	"wattmark/monitor/instrument/nidaqmx/nipb"
)

// Input is one analog input in the scan.
type Input struct {
	// AI is its number: 0 for Dev1/ai0.
	AI int `yaml:"ai"`
	// Name of the channel; default aiN.
	Name string `yaml:"name"`
	// Unit is V, A or W; default V.
	Unit string `yaml:"unit"`
	// PerVolt is the units a volt at the input: a divider's ratio, a clamp's A/V;
	// default 1.
	PerVolt float64 `yaml:"per_volt"`
	// Range in volts, both ways; the device takes its next larger one. Default 10.
	Range float64 `yaml:"range"`
	// Terminal is differential, rse, nrse, or default: the device's choice.
	Terminal string `yaml:"terminal"`
}

// Options are the settings of the driver in a bench file.
type Options struct {
	// Device is its name on NI's machine; default Dev1.
	Device string `yaml:"device"`
	// Serial is the device's number in hexadecimal, as printed on it; another
	// device is refused. Empty takes any.
	Serial string `yaml:"serial"`
	// Rate is the scans a second; default 10000. The device keeps the next that
	// its clock can be divided to.
	Rate float64 `yaml:"rate"`
	// Inputs in the order of the scan; put each rail's current and voltage next to
	// each other. Default: the wiring of the emulated device.
	Inputs []Input `yaml:"inputs"`
	// Interval is the distance of two reads; default 100 ms.
	Interval time.Duration `yaml:"interval"`
	// Buffer is how much time the buffer on NI's machine holds; default 10 s.
	Buffer time.Duration `yaml:"buffer"`
	// Session is the task's name on the server; default wattmark.
	Session string `yaml:"session"`
	// TakeOver clears a session of that name that is there already.
	TakeOver bool `yaml:"take_over"`
	// UGain (relative) and UOffset (of the range) are the standard uncertainties of
	// the device's own scale; defaults 0.0001 each.
	UGain   float64 `yaml:"u_gain"`
	UOffset float64 `yaml:"u_offset"`
	// Silence is how long the server may say nothing, or the device sample nothing,
	// before it counts as lost; default 5 s.
	Silence time.Duration `yaml:"silence"`
}

// Defaults are the options of the emulated device's first rail.
func Defaults() Options {
	return Options{
		Device: "Dev1", Rate: 10_000, Interval: 100 * time.Millisecond, Buffer: 10 * time.Second, Session: "wattmark",
		UGain: 1e-4, UOffset: 1e-4, Silence: 5 * time.Second,
		Inputs: []Input{
			{AI: 0, Name: "aux.voltage", PerVolt: 2}, {AI: 1, Name: "aux.current", Unit: "A", PerVolt: 10, Range: 5},
		},
	}
}

const (
	maxInputs  = 80 // of the largest multiplexed device
	lastAI     = 207
	maxRate    = 10e6
	maxScans   = 1 << 24 // of a read and of the buffer
	halfScale  = 1 << 15 // codes of half a range
	bytesCode  = 2
	u50ppm     = 2.9e-5 // the maker's 50 ppm of the clock, taken as rectangular
	fastest    = 1e-6   // s, from one conversion to the next, of a USB-6259
	padding    = 10e-6  // s, that the driver adds where it fits
	overRange  = 1.05   // codes reach so far beyond the range, nominally
	noiseRel   = 2.8e-5 // of the range, of one conversion: the maker's figure for ±10 V
	noiseFloor = 1.5e-5 // V, the same for the smallest range
	offFloor   = 1e-5   // V, of the zero, on top of UOffset
)

var (
	units     = map[string]measure.Unit{"": measure.UnitVolt, "V": measure.UnitVolt, "A": measure.UnitAmpere, "W": measure.UnitWatt}
	terminals = map[string]nipb.TerminalConfig{
		"": nipb.TerminalConfig_TERMINAL_CONFIG_DEFAULT, "default": nipb.TerminalConfig_TERMINAL_CONFIG_DEFAULT,
		"differential": nipb.TerminalConfig_TERMINAL_CONFIG_DIFFERENTIAL,
		"rse":          nipb.TerminalConfig_TERMINAL_CONFIG_RSE, "nrse": nipb.TerminalConfig_TERMINAL_CONFIG_NRSE,
	}
	serials = regexp.MustCompile(`^[0-9A-Fa-f]{1,8}$`)
	devices = regexp.MustCompile(`^[^/,: \t]{1,255}$`)
)

func (i Input) withDefaults() Input {
	if i.Name == "" {
		i.Name = fmt.Sprintf("ai%d", i.AI)
	}
	if i.PerVolt == 0 {
		i.PerVolt = 1
	}
	if i.Range == 0 {
		i.Range = 10
	}
	return i
}

// physical is the input's name on the server.
func (o Options) physical(k int) string { return fmt.Sprintf("%s/ai%d", o.Device, o.Inputs[k].AI) }

// Validate reports an option that cannot be used. What the device can do, the
// device says when it is opened.
func (o Options) Validate() error {
	n := len(o.Inputs)
	switch {
	case !devices.MatchString(o.Device):
		return fmt.Errorf("device %q: want its name in NI MAX, for example Dev1", o.Device)
	case o.Serial != "" && !serials.MatchString(o.Serial):
		return fmt.Errorf("serial %q: want up to eight hexadecimal digits", o.Serial)
	case n == 0 || n > maxInputs:
		return fmt.Errorf("inputs: %d of them: want 1 to %d", n, maxInputs)
	case !(o.Rate >= 1 && o.Rate*float64(n) <= maxRate):
		return fmt.Errorf("rate %v with %d inputs: want at least 1 and at most %v in all", o.Rate, n, maxRate)
	case o.Interval < 5*time.Millisecond || o.Interval > 10*time.Second || o.Interval.Seconds()*o.Rate > maxScans:
		return fmt.Errorf("interval %v: want 5ms to 10s, and at most %d scans", o.Interval, maxScans)
	case o.Buffer < 4*o.Interval || o.Buffer.Seconds()*o.Rate > maxScans*4:
		return fmt.Errorf("buffer %v: want at least four intervals of %v, and at most %d scans", o.Buffer, o.Interval, maxScans*4)
	case o.Session == "" || len(o.Session) > 255:
		return errors.New("session: want a name, so that a session that was left behind can be found again")
	case !(o.UGain >= 0 && o.UGain <= 1) || !(o.UOffset >= 0 && o.UOffset <= 1):
		return fmt.Errorf("u_gain %v, u_offset %v: want 0 to 1", o.UGain, o.UOffset)
	case o.Silence < 100*time.Millisecond || o.Silence > time.Hour:
		return fmt.Errorf("silence %v: want 100ms to 1h", o.Silence)
	}
	return o.validateInputs()
}

func (o Options) validateInputs() error {
	names, ais := map[string]bool{}, map[int]bool{}
	for k, raw := range o.Inputs {
		i := raw.withDefaults()
		_, unit := units[i.Unit]
		_, terminal := terminals[i.Terminal]
		switch {
		case i.AI < 0 || i.AI > lastAI || ais[i.AI]:
			return fmt.Errorf("inputs[%d].ai %d: want 0 to %d, each once", k, i.AI, lastAI)
		case names[i.Name]:
			return fmt.Errorf("inputs[%d].name %q: there is one already", k, i.Name)
		case !unit:
			return fmt.Errorf("inputs[%d].unit %q: want V, A or W", k, i.Unit)
		case !terminal:
			return fmt.Errorf("inputs[%d].terminal %q: want differential, rse, nrse or default", k, i.Terminal)
		case !(i.PerVolt > -1e9 && i.PerVolt < 1e9):
			return fmt.Errorf("inputs[%d].per_volt %v: want a finite number", k, i.PerVolt)
		case !(i.Range > 0 && i.Range <= 100):
			return fmt.Errorf("inputs[%d].range %v V: want up to 100, both ways", k, i.Range)
		}
		names[i.Name], ais[i.AI] = true, true
	}
	return nil
}

// perRead is the scans that one read asks for.
func (o Options) perRead() int { return max(1, int(o.Interval.Seconds()*o.Rate)) }

// Inputs are the channels of the scan with the nominal scale and skew of a
// USB-6259; the device tells its own when it is opened.
func Inputs(o Options) instrument.Inputs {
	n := len(o.Inputs)
	skew := fastest + padding
	if skew*float64(n) > 1/o.Rate {
		skew = 1 / (o.Rate * float64(n))
	}
	in := instrument.Inputs{Timebase: timebase(o.Rate)}
	for k, raw := range o.Inputs {
		i := raw.withDefaults()
		c := linear([]float64{0, overRange * i.Range / halfScale}, i, o)
		c.Skew = measure.Seconds(float64(k) * skew)
		in.Channels = append(in.Channels, c)
	}
	return in
}

func timebase(rate float64) measure.Timebase {
	return measure.Timebase{TickHz: measure.Hertz(rate), UTickHz: u50ppm, TicksPerScan: 1}
}

// NaturalRails are those that the channels' names suggest.
func NaturalRails(in instrument.Inputs) (rails []measure.Rail, missing []string) {
	return instrument.PairRails(in.Channels), nil
}

// clone keeps a driver's options apart from the caller's.
func (o Options) clone() Options {
	o.Inputs = slices.Clone(o.Inputs)
	return o
}

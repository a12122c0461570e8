package u2300

import (
	"fmt"
	"math"
	"slices"
	"time"

	"wattmark/measure"
	"wattmark/monitor/instrument"
)

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
	// Ground is what the input is measured against: single (AI_GND), nrs
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
	units   = map[string]measure.Unit{"": measure.UnitVolt, "V": measure.UnitVolt, "A": measure.UnitAmpere, "W": measure.UnitWatt}
	grounds = map[string]string{"": "SING", "single": "SING", "nrs": "NRS", "diff": "DIFF"}
	ranges  = []float64{10, 5, 2.5, 1.25}
)

func (i Input) withDefaults() Input {
	if i.Name == "" {
		i.Name = fmt.Sprintf("ch%d", i.Channel)
	}
	if i.PerVolt == 0 {
		i.PerVolt = 1
	}
	if i.Range == 0 {
		i.Range = ranges[0]
	}
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
	case n == 0 || n > most.channels:
		return fmt.Errorf("inputs: %d of them: want 1 to %d", n, most.channels)
	case !(o.ScanRate >= slowest && o.ScanRate*float64(n) <= most.fastest):
		return fmt.Errorf("scan_rate %v with %d inputs: want %d to %v", o.ScanRate, n, slowest, math.Floor(most.fastest/float64(n)))
	case o.Block < time.Millisecond || o.Block > time.Second:
		return fmt.Errorf("block %v: want 1ms to 1s", o.Block)
	case !(o.UGain >= 0 && o.UGain <= 1) || !(o.UOffset >= 0 && o.UOffset <= 1) || !(o.UClock >= 0 && o.UClock <= 0.1):
		return fmt.Errorf("u_gain %v, u_offset %v, u_clock %v: want 0 to 1, 0 to 1 V and 0 to 0.1", o.UGain, o.UOffset, o.UClock)
	case o.Timeout < 100*time.Millisecond || o.Timeout > time.Minute:
		return fmt.Errorf("timeout %v: want 100ms to 1m", o.Timeout)
	case o.Silence < 2*o.Block || o.Silence > time.Hour:
		return fmt.Errorf("silence %v: want at least two blocks (%v), at most 1h", o.Silence, 2*o.Block)
	}
	return o.validateInputs(most)
}

func (o Options) validateInputs(most model) error {
	names, numbers := map[string]bool{}, map[int]bool{}
	for k, raw := range o.Inputs {
		i := raw.withDefaults()
		_, unit := units[i.Unit]
		_, ground := grounds[i.Ground]
		switch {
		case i.Channel < firstChannel || i.Channel >= firstChannel+most.channels || numbers[i.Channel]:
			return fmt.Errorf("inputs[%d].channel %d: want %d to %d, each once", k, i.Channel, firstChannel, firstChannel+most.channels-1)
		case names[i.Name]:
			return fmt.Errorf("inputs[%d].name %q: there is one already", k, i.Name)
		case !unit:
			return fmt.Errorf("inputs[%d].unit %q: want V, A or W", k, i.Unit)
		case !ground:
			return fmt.Errorf("inputs[%d].ground %q: want single, nrs or diff", k, i.Ground)
		case !(i.PerVolt > -1e9 && i.PerVolt < 1e9):
			return fmt.Errorf("inputs[%d].per_volt %v: must be finite", k, i.PerVolt)
		case !slices.Contains(ranges, i.Range):
			return fmt.Errorf("inputs[%d].range %v V: want 10, 5, 2.5 or 1.25", k, i.Range)
		}
		names[i.Name], numbers[i.Channel] = true, true
	}
	return nil
}

// points is how many scans make a block.
func (o Options) points() int { return max(1, int(o.ScanRate*o.Block.Seconds())) }

// skew is the time between two neighbours' conversions on a model.
func (o Options) skew(m model) measure.Seconds {
	if o.Burst {
		return measure.Seconds(1 / m.fastest)
	}
	return measure.Seconds(1 / (o.ScanRate * float64(len(o.Inputs))))
}

// Inputs are the channels of the scan as far as they are known before a model
// is: the faster models' skew is taken.
func Inputs(o Options) instrument.Inputs { return o.inputs(models[len(models)-1]) }

// The scale, from the maker's User's Guide: V = 2·code/2^16·range on a bipolar
// range, (code/2^16 + 1/2)·range on a unipolar one.
func (i Input) scale() (gain, offset float64) {
	if i.Unipolar {
		return i.Range / codes, i.Range / 2
	}
	return 2 * i.Range / codes, 0
}

const (
	codes      = 1 << 16
	noiseCodes = 2 // of a conversion; ours
)

func (o Options) inputs(m model) instrument.Inputs {
	in := instrument.Inputs{Timebase: measure.Timebase{TickHz: measure.Hertz(o.ScanRate), UTickHz: o.UClock, TicksPerScan: 1}}
	for k, raw := range o.Inputs {
		i := raw.withDefaults()
		gain, offset := i.scale()
		per := math.Abs(i.PerVolt)
		in.Channels = append(in.Channels, measure.Channel{
			Name: i.Name, Unit: units[i.Unit], Gain: gain * i.PerVolt, Offset: offset * i.PerVolt, UGain: o.UGain, UOffset: o.UOffset * per,
			Noise: noiseCodes * gain * per, MinCount: math.MinInt16, MaxCount: math.MaxInt16, Skew: measure.Seconds(k) * o.skew(m),
		})
	}
	return in
}

// NaturalRails are those that the channels' names suggest.
func NaturalRails(in instrument.Inputs) (rails []measure.Rail, missing []string) {
	return instrument.PairRails(in.Channels), nil
}

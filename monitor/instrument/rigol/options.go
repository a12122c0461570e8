package rigol

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"wattmark/measure"
)

// Input is how one channel is set.
type Input struct {
	// Scale is volts a division at the probe's tip; the scope has steps of 1, 2, 5
	// and rounds up. Eight divisions are the range.
	Scale float64 `yaml:"scale"`
	// Offset is added before the converter, as the scope counts it: −12 puts 12 V
	// in the middle of the range.
	Offset float64 `yaml:"offset"`
	// Probe is the probe's ratio; default 1.
	Probe float64 `yaml:"probe"`
	// AmperePerVolt makes the channel a current: the scale of a clamp; 0 for none.
	AmperePerVolt float64 `yaml:"ampere_per_volt"`
}

// Options are the settings of the driver in a bench file.
type Options struct {
	// Window is the time that memory has to span; the scope's next larger one is
	// taken. Default 6 s.
	Window time.Duration `yaml:"window"`
	// Depth is the memory depth of one channel in points; 0 for the deepest:
	// 3 million with three or four channels, 6 with two, 12 with one.
	Depth int `yaml:"depth"`
	// Inputs are the channels in use by name, ch1 to ch4.
	Inputs map[string]Input `yaml:"inputs"`
	// Timeout bounds one exchange; default 5 s.
	Timeout time.Duration `yaml:"timeout"`
	// Trigger makes the acquisition wait for a rising edge, as another scope's
	// trigger output gives it; without it the driver forces the trigger.
	Trigger Trigger `yaml:"trigger"`
}

// Trigger is an edge to wait for.
type Trigger struct {
	// Channel of the edge, one of the inputs; empty for a forced trigger.
	Channel string `yaml:"channel"`
	// Level of the edge, in volts at the probe's tip; default 1.5.
	Level float64 `yaml:"level"`
}

// external tells whether a trigger from outside is waited for.
func (t Trigger) external() bool { return t.Channel != "" }

// level is where the edge is looked for, in volts.
func (t Trigger) level() float64 {
	const logic = 1.5
	if t.Level == 0 {
		return logic
	}
	return t.Level
}

// Defaults are two 12 V rails, each with a clamp of 10 mV/A on the odd channel
// and a probe on the even one, and 6 s of memory.
func Defaults() Options {
	in := map[string]Input{}
	for n := 1; n <= channels; n += 2 {
		in[channelName(n)] = Input{Scale: 0.05, Offset: -0.1, AmperePerVolt: 100}
		in[channelName(n+1)] = Input{Scale: 0.5, Offset: -12}
	}
	return Options{Window: 6 * time.Second, Timeout: 5 * time.Second, Inputs: in}
}

func channelName(n int) string { return fmt.Sprintf("ch%d", n) }

// Validate reports an option that cannot be used.
func (o Options) Validate() error {
	switch {
	case o.Window < time.Microsecond || o.Window > divisions*50*time.Second:
		return fmt.Errorf("window %v: want 1µs to 10m", o.Window)
	case o.Timeout < 100*time.Millisecond || o.Timeout > 5*time.Minute:
		return fmt.Errorf("timeout %v: want 100ms to 5m", o.Timeout)
	case len(o.Inputs) == 0:
		return fmt.Errorf("inputs: no channel: name one of ch1 to ch4")
	}
	if err := o.checkTrigger(); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(o.Inputs)) {
		if !strings.HasPrefix(name, "ch") || len(name) != 3 || name[2] < '1' || name[2] > '0'+channels {
			return fmt.Errorf("inputs: unknown channel %q: want ch1 to ch4", name)
		}
		in := o.Inputs[name]
		ratio := in.ratio()
		switch {
		case !(ratio >= 0.01 && ratio <= 1000):
			return fmt.Errorf("inputs: %s: probe %v: want 0.01 to 1000", name, ratio)
		case !(in.Scale >= 1e-3*ratio && in.Scale <= 10*ratio):
			return fmt.Errorf("inputs: %s: scale %v V: want %v to %v V a division with this probe", name, in.Scale, 1e-3*ratio, 10*ratio)
		case !(math.Abs(in.Offset) <= 100*ratio):
			return fmt.Errorf("inputs: %s: offset %v V: want at most ±%v V with this probe", name, in.Offset, 100*ratio)
		case math.IsNaN(in.AmperePerVolt) || math.IsInf(in.AmperePerVolt, 0):
			return fmt.Errorf("inputs: %s: ampere_per_volt %v: must be finite", name, in.AmperePerVolt)
		}
	}
	if o.Depth != 0 && !slices.Contains(depths(len(o.Inputs)), o.Depth) {
		return fmt.Errorf("depth %d: with %d channels the scope knows %v", o.Depth, len(o.Inputs), depths(len(o.Inputs)))
	}
	return nil
}

func (o Options) checkTrigger() error {
	t := o.Trigger
	if !t.external() {
		if t.Level != 0 {
			return fmt.Errorf("trigger: a level without a channel")
		}
		return nil
	}
	in, ok := o.Inputs[t.Channel]
	if !ok {
		return fmt.Errorf("trigger: channel %q is none of the inputs: name it there, the scope must see its edge", t.Channel)
	}
	const half = 4 // divisions from the screen's middle to its edge
	if reach := math.Abs(t.level() + in.Offset); !(reach <= half*in.Scale) {
		return fmt.Errorf("trigger: a level of %v V is off the screen of %s: want %v to %v V", t.level(), t.Channel, -half*in.Scale-in.Offset, half*in.Scale-in.Offset)
	}
	return nil
}

func (i Input) ratio() float64 {
	if i.Probe == 0 {
		return 1
	}
	return i.Probe
}

// used lists the numbers of the channels in use, ascending.
func (o Options) used() (out []int) {
	for n := 1; n <= channels; n++ {
		if _, ok := o.Inputs[channelName(n)]; ok {
			out = append(out, n)
		}
	}
	return out
}

// depths are the memory depths of one channel when so many are in use.
func depths(used int) (out []int) {
	most := maxMemory
	switch {
	case used == 2:
		most /= 2
	case used > 2:
		most /= 4
	}
	for d := most / 1000; d <= most; d *= 10 {
		out = append(out, d)
	}
	return out
}

func (o Options) depth() int {
	if o.Depth != 0 {
		return o.Depth
	}
	d := depths(len(o.Inputs))
	return d[len(d)-1]
}

// timeScale is the scope's next time per division for a window.
func timeScale(window time.Duration) float64 {
	want := window.Seconds() / divisions
	decade := math.Pow(10, math.Floor(math.Log10(want)))
	for _, m := range []float64{1, 2, 5} {
		if want <= m*decade*(1+1e-9) {
			return m * decade
		}
	}
	return 10 * decade
}

// The scope as its maker states it. The specification gives limits; a limit
// with nothing known inside of it has a standard uncertainty of limit/√3 (GUM,
// 4.3.7).
const (
	channels     = 4
	divisions    = 12
	maxMemory    = 12_000_000
	readPoints   = 250_000 // a read, in BYTE
	gainLimit    = 0.03    // of full scale, eight divisions; taken of the value
	zeroLimit    = 0.1     // divisions
	zeroVolts    = 2e-3
	offsetLimit  = 0.01  // of the offset that is set
	clockLimit   = 25e-6 // relative
	noiseCodes   = 0.7
	maxCode      = 255
	model        = "DS1"
	makerPattern = "RIGOL"
)

// channel makes a channel of what the scope says of its scale.
func (i Input) channel(name string, p scale) measure.Channel {
	k, unit := 1.0, measure.UnitVolt
	if i.AmperePerVolt != 0 {
		k, unit = i.AmperePerVolt, measure.UnitAmpere
	}
	root3 := math.Sqrt(3)
	zero := zeroLimit*p.volts + zeroVolts*i.ratio() + offsetLimit*math.Abs(i.Offset)
	return measure.Channel{
		Name: name, Unit: unit, Gain: p.increment * k, Offset: -(p.origin + p.reference) * p.increment * k,
		UGain: gainLimit / root3, UOffset: math.Abs(k) * zero / root3, Noise: math.Abs(p.increment*k) * noiseCodes,
		MinCount: 0, MaxCount: maxCode,
	}
}

// scale is how codes make volts: V = (code − origin − reference)·increment.
type scale struct {
	volts                        float64 // a division, as read back
	increment, origin, reference float64
}

package scope

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"
)

// Input is how one channel is set.
type Input struct {
	// Scale is volts a division at the probe's tip; many scopes have steps of 1, 2,
	// 5 and round up. Eight divisions are the range.
	Scale float64 `yaml:"scale"`
	// Offset is added before the converter: −12 puts 12 V in the middle of the range.
	Offset float64 `yaml:"offset"`
	// Probe is the probe's ratio; default 1.
	Probe float64 `yaml:"probe"`
	// AmperePerVolt makes the channel a current: the scale of a clamp; 0 for none.
	AmperePerVolt float64 `yaml:"ampere_per_volt"`
}

// Ratio is the probe's.
func (i Input) Ratio() float64 {
	if i.Probe == 0 {
		return 1
	}
	return i.Probe
}

// Options are the settings of a scope in a bench file. Family.Defaults makes them.
type Options struct {
	// Window is the time that memory has to span; the scope's next larger one is
	// taken. Default 6 s.
	Window time.Duration `yaml:"window"`
	// Depth is the memory depth of one channel in points; 0 for the deepest that is
	// read within seconds: 12 million points over all channels.
	Depth int `yaml:"depth"`
	// Inputs are the channels in use by name, ch1 to ch4.
	Inputs map[string]Input `yaml:"inputs"`
	// Timeout bounds one exchange; default 5 s.
	Timeout time.Duration `yaml:"timeout"`

	family *Family
}

// Validate reports an option that cannot be used with any scope of the family.
func (o Options) Validate() error {
	f := o.family
	switch {
	case f == nil:
		return errors.New("options of no family of scopes: begin with its Defaults")
	case o.Window < time.Microsecond || o.Window > f.MaxWindow:
		return fmt.Errorf("window %v: want 1µs to %v", o.Window, f.MaxWindow)
	case o.Timeout < 100*time.Millisecond || o.Timeout > 5*time.Minute:
		return fmt.Errorf("timeout %v: want 100ms to 5m", o.Timeout)
	}
	if err := o.validInputs(f); err != nil {
		return fmt.Errorf("inputs: %w", err)
	}
	return o.validDepth(f, Model{Channels: f.Channels, Memory: f.Memory})
}

func (o Options) validInputs(f *Family) error {
	if len(o.Inputs) == 0 {
		return fmt.Errorf("no channel: name one of ch1 to ch%d", f.Channels)
	}
	for _, name := range slices.Sorted(maps.Keys(o.Inputs)) {
		if len(name) != 3 || name[:2] != "ch" || name[2] < '1' || int(name[2]-'0') > f.Channels {
			return fmt.Errorf("unknown channel %q: want ch1 to ch%d", name, f.Channels)
		}
		in := o.Inputs[name]
		ratio := in.Ratio()
		least, most := f.MinScale*ratio, f.MaxScale*ratio
		switch {
		case !(ratio >= 0.01 && ratio <= 1000):
			return fmt.Errorf("%s: probe %v: want 0.01 to 1000", name, ratio)
		case !(in.Scale >= least && in.Scale <= most):
			return fmt.Errorf("%s: scale %v V: want %v to %v V a division with this probe", name, in.Scale, least, most)
		case !(abs(in.Offset) <= f.MaxOffset*ratio):
			return fmt.Errorf("%s: offset %v V: want at most ±%v V with this probe", name, in.Offset, f.MaxOffset*ratio)
		case math.IsNaN(in.AmperePerVolt) || math.IsInf(in.AmperePerVolt, 0):
			return fmt.Errorf("%s: ampere_per_volt %v: must be finite", name, in.AmperePerVolt)
		}
	}
	return nil
}

func (o Options) validDepth(f *Family, m Model) error {
	known := f.depths(m, len(o.Inputs))
	switch {
	case o.Depth == 0:
		return nil
	case known == nil:
		return fmt.Errorf("depth %d: a %s chooses its depth by itself: leave it out", o.Depth, f.Name)
	case !slices.Contains(known, o.Depth):
		return fmt.Errorf("depth %d: with %d channels the scope knows %v", o.Depth, len(o.Inputs), known)
	}
	return nil
}

// plan fits the options to the model that answers.
func (o Options) plan(f *Family, m Model) (*Plan, error) {
	p := &Plan{Options: o, Model: m}
	for n := 1; n <= f.Channels; n++ {
		if _, on := p.On(n); !on {
			continue
		}
		if n > m.Channels {
			return nil, fmt.Errorf("inputs: %s: this model has %d channels", ChannelName(n), m.Channels)
		}
		p.Used = append(p.Used, n)
	}
	p.Points = f.depth(&o, m)
	return p, o.validDepth(f, m)
}

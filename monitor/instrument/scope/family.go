package scope

import (
	"fmt"
	"math"
	"time"

	"wattmark/measure"
)

// Family is what is known of a kind of scopes before one is met.
type Family struct {
	Kind string // in bench files
	Name string // as its owner calls it: Rigol DS1000Z
	Port int    // where its raw socket listens
	// Channels and Memory are those of its largest member; Memory is in points, over
	// all channels.
	Channels, Memory int
	// Usual is how many channels Defaults puts to use: those that all members have.
	Usual int
	// MaxWindow is the longest time that memory can span.
	MaxWindow time.Duration
	// Scale is the range of volts a division, and Offset the most volts of offset,
	// with a probe of 1:1. The scope itself may refuse more.
	MinScale, MaxScale, MaxOffset float64
	// Depths lists the depths of one channel, ascending, that can be set on a model
	// with so many channels in use; nil where the scope chooses by itself. Before a
	// model is met it is asked for one without a series, with the family's Memory:
	// all that any may have.
	Depths func(m Model, used int) []int
	// Whole is true where nobody knows what a stop leaves of a recording in its
	// middle: the Device then waits until memory is full, and reads what is due.
	Whole bool
	// Spec is its accuracy.
	Spec Spec
	// Dialect makes a speaker of its commands.
	Dialect func() Dialect
}

// Spec is the accuracy that the maker states, as limits. A limit with nothing
// known inside of it has a standard uncertainty of limit/√3 (GUM, 4.3.7).
type Spec struct {
	Gain       float64 // relative; stated of full scale, taken of the value
	ZeroDiv    float64 // of the zero, in divisions
	ZeroVolt   float64 // … and in volts, with a probe of 1:1
	OffsetPart float64 // … and as a part of the offset that is set
	Clock      float64 // relative
	NoiseCodes float64 // standard deviation of one reading, in steps of the converter
}

// readable bounds what is read where nobody said how much: points over all
// channels. At the 1.7 MB/s of the slowest that is 7 s.
const readable = 12_000_000

// depths are the depths that can be set when so many channels are in use.
func (f *Family) depths(m Model, used int) []int {
	if f.Depths == nil {
		return nil
	}
	return f.Depths(m, used)
}

// depth is the depth to set: the one that is wanted, else the largest that is
// read in reasonable time; 0 where the scope chooses.
func (f *Family) depth(o *Options, m Model) (best int) {
	if o.Depth != 0 {
		return o.Depth
	}
	for _, d := range f.depths(m, len(o.Inputs)) {
		if best == 0 || d*len(o.Inputs) <= readable {
			best = d
		}
	}
	return best
}

// Defaults are a 12 V rail on every two of the usual channels, with a clamp of
// 10 mV/A on the odd one and a probe on the even one, and 6 s of memory.
func (f *Family) Defaults() Options {
	in := map[string]Input{}
	for n := 1; n < f.Usual; n += 2 {
		in[ChannelName(n)] = Input{Scale: 0.05, Offset: -0.1, AmperePerVolt: 100}
		in[ChannelName(n+1)] = Input{Scale: 0.5, Offset: -12}
	}
	return Options{Window: 6 * time.Second, Timeout: 5 * time.Second, Inputs: in, family: f}
}

// channel makes a channel of what the scope says of its scale.
func (s Spec) channel(name string, in Input, p Scale) measure.Channel {
	k, unit := 1.0, measure.UnitVolt
	if in.AmperePerVolt != 0 {
		k, unit = in.AmperePerVolt, measure.UnitAmpere
	}
	root3 := math.Sqrt(3)
	zero := s.ZeroDiv*p.Division + s.ZeroVolt*in.Ratio() + s.OffsetPart*abs(in.Offset)
	return measure.Channel{
		Name: name, Unit: unit, Gain: p.Gain * k, Offset: p.Zero * k,
		UGain: s.Gain / root3, UOffset: abs(k) * zero / root3, Noise: abs(p.Gain*k) * s.NoiseCodes * max(1, p.Quantum),
		MinCount: p.Least, MaxCount: p.Most,
	}
}

// Step125 rounds up to 1, 2 or 5 times a power of ten, as scopes' scales are.
func Step125(v float64) float64 {
	decade := math.Pow(10, math.Floor(math.Log10(v)))
	for _, m := range []float64{1, 2, 5} {
		if v <= m*decade*(1+1e-9) {
			return m * decade
		}
	}
	return 10 * decade
}

// ChannelName is how a channel is called in bench files.
func ChannelName(n int) string { return fmt.Sprintf("ch%d", n) }

package calib

import (
	"math"
	"slices"
	"strings"

	"wattmark/measure"
)

// find returns what a record says of a channel, nil for nothing.
func (r *Record) find(name string) *Channel {
	for i := range r.Channels {
		if r.Channels[i].Name == name {
			return &r.Channels[i]
		}
	}
	return nil
}

// InForce returns the newest record of a device with a scale for a channel, as the
// record names it, or with a resistance for a rail; nil without one.
func (h History) InForce(of Instrument, name string) *Record {
	for i := len(h) - 1; i >= 0; i-- {
		if h[i].Instrument != of {
			continue
		}
		if c := h[i].find(name); c != nil && c.Scale != nil {
			return &h[i]
		}
		if slices.ContainsFunc(h[i].Rails, func(x Rail) bool { return x.Name == name }) {
			return &h[i]
		}
	}
	return nil
}

// Nominal takes the records off a setup: what the instrument and the bench file
// alone say. Channels that no record is in force for stay as they are.
func Nominal(s measure.Setup) (measure.Setup, error) {
	h, err := HistoryOf(&s)
	if err != nil {
		return s, err
	}
	s.Channels, s.Rails, s.Records = slices.Clone(s.Channels), slices.Clone(s.Rails), nil
	for i, c := range s.Channels {
		for k := len(h) - 1; k >= 0; k-- {
			if x := h[k].either(c.Name); x != nil && x.Scale != nil && x.Scale.near(ScaleOf(c)) {
				s.Channels[i] = x.Nominal.On(c)
				break
			}
		}
	}
	for i, r := range s.Rails {
		for k := len(h) - 1; k >= 0; k-- {
			j := slices.IndexFunc(h[k].Rails, func(x Rail) bool { return x.Name == r.Name && alike(x.Ohm, float64(r.Shunt)) })
			if j >= 0 && r.Wiring == measure.WiringShunt {
				x := h[k].Rails[j]
				s.Rails[i].Shunt, s.Rails[i].UShunt = measure.Ohm(x.NominalOhm), x.NominalURel
				break
			}
		}
	}
	return s, nil
}

// either finds a channel by its name or, on a bench of several instruments, by that
// without its instrument's.
func (r *Record) either(name string) *Channel {
	x := r.find(name)
	if _, bare, several := strings.Cut(name, "/"); x == nil && several {
		x = r.find(bare)
	}
	return x
}

// near reports whether two scales are the same but for rounding.
func (s *Scale) near(t Scale) bool {
	return alike(s.Gain, t.Gain) && alike(s.Offset, t.Offset) && alike(s.UGain, t.UGain) && alike(s.UOffset, t.UOffset) && alike(s.Noise, t.Noise)
}

// alike forgives what a number loses on its way through another program.
func alike(a, b float64) bool { return math.Abs(a-b) <= 1e-9*max(math.Abs(a), math.Abs(b)) }

package wt300face

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"wattmark/monitor/emulator/scpiface"
)

type (
	call    = scpiface.Call
	command = scpiface.Command
)

var (
	rates   = []float64{0.1, 0.25, 0.5, 1, 2, 5}
	voltage = []float64{15, 30, 60, 150, 300, 600}
	current = []float64{0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20}
)

// multipliers of a quantity's suffix; MA is mega at volts and seconds, but milli
// at amperes.
var multipliers = map[string]float64{"": 1, "K": 1e3, "M": 1e-3, "U": 1e-6}

// quantity reads parameter 0 with an optional multiplier and unit.
func quantity(c call, unit string) (float64, error) {
	if len(c.Args) == 0 {
		return 0, scpiface.ErrMissing
	}
	s := strings.ToUpper(c.Args[0])
	if v, err := strconv.ParseFloat(s, 64); err == nil {
		return v, nil
	}
	s = strings.TrimSuffix(s, unit)
	digits := strings.TrimRight(s, "KMU")
	v, err := strconv.ParseFloat(digits, 64)
	k, ok := multipliers[s[len(digits):]]
	if err != nil || !ok {
		return 0, scpiface.ErrType
	}
	return v * k, nil
}

// told is a setting's reply, with its header where headers are on.
func (f *Face) told(header, value string) ([]byte, error) {
	if f.header {
		return []byte(":" + header + " " + value), nil
	}
	return []byte(value), nil
}

// choice is a setting out of a list of numbers.
func (f *Face) choice(pattern, header, unit string, of []float64, get func() float64, set func(float64)) command {
	return command{Pattern: pattern, Set: func(c call) error {
		v, err := quantity(c, unit)
		if err == nil && !slices.ContainsFunc(of, func(x float64) bool { return math.Abs(v-x) < 1e-9 }) {
			err = scpiface.ErrRange
		}
		if err == nil {
			set(v)
		}
		return err
	}, Query: func(call) ([]byte, error) { return f.told(header, nr3(get())) }}
}

// nr3 writes a number as this maker does: 15.0E+00, 100.0E-03.
func nr3(v float64) string {
	exponent := 0
	for v != 0 && math.Abs(v) < 1 && exponent > -9 {
		v, exponent = v*1000, exponent-3
	}
	return fmt.Sprintf("%.1fE%+03d", v, exponent)
}

func (f *Face) flag(pattern, header string, at *bool) command {
	return command{Pattern: pattern, Set: func(c call) error {
		v, err := c.Bool(0)
		if err == nil {
			*at = v
		}
		return err
	}, Query: func(call) ([]byte, error) {
		if *at {
			return f.told(header, "1")
		}
		return f.told(header, "0")
	}}
}

func (f *Face) word(pattern, header string, at *string, words ...string) command {
	return command{Pattern: pattern, Set: func(c call) error {
		w, err := c.Word(0, words...)
		if err == nil {
			*at = w
		}
		return err
	}, Query: func(call) ([]byte, error) { return f.told(header, *at) }}
}

// commands is the tree.
func (f *Face) commands() []command {
	all := []command{
		f.flag("COMMunicate:HEADer", "COMMUNICATE:HEADER", &f.header),
		f.flag("COMMunicate:VERBose", "COMMUNICATE:VERBOSE", &f.verbose),
		f.flag("COMMunicate:REMote", "COMMUNICATE:REMOTE", &f.remote),
		f.flag("HOLD", "HOLD", &f.hold),
		f.flag("MEASure:AVERaging[:STATe]", "MEASURE:AVERAGING:STATE", &f.average),
		f.flag("[:INPut]:FILTer:LINE", "INPUT:FILTER:LINE", &f.filt),
		f.flag("[:INPut]:VOLTage:AUTO", "INPUT:VOLTAGE:AUTO", &f.autoU),
		f.flag("[:INPut]:CURRent:AUTO", "INPUT:CURRENT:AUTO", &f.autoI),
		f.word("[:INPut]:MODE", "INPUT:MODE", &f.mode, "RMS", "VMEan", "DC"),
		f.word("[:INPut]:SYNChronize", "INPUT:SYNCHRONIZE", &f.sync, "VOLTage", "CURRent", "OFF"),
		f.word("NUMeric:FORMat", "NUMERIC:FORMAT", &f.format, "ASCii", "FLOat"),
		f.choice("[:INPut]:CFACtor", "INPUT:CFACTOR", "", []float64{3, 6}, func() float64 { return f.crest }, func(v float64) { f.crest = v }),
		f.choice("[:INPut]:VOLTage:RANGe", "INPUT:VOLTAGE:RANGE", "V", voltage, func() float64 { return f.volts }, func(v float64) { f.volts, f.autoU = v, false }),
		f.choice("[:INPut]:CURRent:RANGe", "INPUT:CURRENT:RANGE", "A", f.currents(), func() float64 { return f.amperes }, func(v float64) { f.amperes, f.autoI = v, false }),
		f.choice("RATE", "RATE", "S", rates, func() float64 { return f.rate.Seconds() }, func(v float64) { f.setRate(time.Duration(math.Round(v * 1e9))) }),
	}
	all = append(all, f.numericCommands()...)
	return append(all, f.statusCommands()...)
}

// currents are the ranges of the model.
func (f *Face) currents() []float64 {
	switch {
	case strings.HasSuffix(f.cfg.Model, "HC"):
		return []float64{1, 2, 5, 10, 20, 40}
	case strings.HasPrefix(f.cfg.Model, "WT33"):
		return current[6:]
	}
	return current
}

func (f *Face) statusCommands() []command {
	return []command{
		{Pattern: "STATus:FILTer<n>", Set: func(c call) error {
			n := c.Suffixes[0]
			if n < 1 || n > len(f.filter) {
				return scpiface.ErrRange
			}
			w, err := c.Word(0, "RISE", "FALL", "BOTH", "NEVer")
			if err == nil {
				f.update()
				f.filter[n-1] = w
			}
			return err
		}, Query: func(c call) ([]byte, error) {
			if n := c.Suffixes[0]; n >= 1 && n <= len(f.filter) {
				return f.told(fmt.Sprintf("STATUS:FILTER%d", n), f.filter[n-1])
			}
			return nil, scpiface.ErrRange
		}},
		{Pattern: "STATus:EESE", Set: func(c call) error {
			v, err := c.Number(0)
			if err == nil && (v < 0 || v > math.MaxUint16) {
				err = scpiface.ErrRange
			}
			if err == nil {
				f.enabled = uint16(v)
			}
			return err
		}, Query: func(call) ([]byte, error) { return f.told("STATUS:EESE", strconv.Itoa(int(f.enabled))) }},
		{Pattern: "STATus:EESR", Query: func(call) ([]byte, error) {
			f.update()
			v := f.events
			f.events = 0
			return scpiface.Text("%d", v)
		}},
		{Pattern: "STATus:CONDition", Query: func(call) ([]byte, error) { return scpiface.Text("%d", f.condition()) }},
		{
			Pattern: "COMMunicate:WAIT", Set: func(c call) error {
				v, err := c.Number(0)
				if err == nil && (v < 0 || v > math.MaxUint16) {
					err = scpiface.ErrRange
				}
				f.await = uint16(max(0, min(v, math.MaxUint16)))
				return err
			},
			Pause: func() time.Duration {
				next := f.update()
				if f.events&f.await != 0 {
					return 0
				}
				return next
			},
		},
	}
}

// condition is the condition register: an element that is over its range.
func (f *Face) condition() (bits int) {
	f.update()
	for n := 1; n <= maxElements; n++ {
		if v := f.shown[n]; v[2] == infinite {
			bits |= 1 << (3 + 3*n)
		}
	}
	return bits
}

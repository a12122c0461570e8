package rigolface

import (
	"strconv"
	"strings"
	"time"

	"wattmark/monitor/emulator/scopeface"
	"wattmark/monitor/emulator/scpiface"
)

// DS1000Z is the DS1054Z and its sisters.
var DS1000Z = &Family{
	traits: scopeface.Traits{
		Name: "DS1000Z", Channels: 4, PerDiv: 25, Middle: 127, Most: 255, WholeShift: true,
		GainLimit: 0.03, ZeroLimit: 0.1, ClockLimit: 25e-6,
	},
	model: "DS1054Z", serial: "DS1ZA000000001", firmware: "00.04.04.SP3",
	divisions: 12, screen: 1200, maxRate: 1e9, maxRead: 250_000, edge: "EDGe", level: 5, offset: offsets(0.5, 2, 100), showDepth: strconv.Itoa,
	depths: func(share int) (out []int) {
		most := 12_000_000 / share
		for d := most / 1000; d <= most; d *= 10 {
			out = append(out, d)
		}
		return out
	},
}

// MSO5000 is the MSO5074 and its sisters, whose reader needs a moment after an
// acquisition.
var MSO5000 = &Family{
	traits: scopeface.Traits{
		Name: "MSO5000", Channels: 4, PerDiv: 25, Middle: 128, Most: 255, WholeShift: true,
		GainLimit: 0.02, ZeroLimit: 0.1, ClockLimit: 2e-6,
	},
	model: "MSO5074", serial: "MS5A000000001", firmware: "00.01.03.03.00",
	divisions: 10, screen: 1000, maxRate: 8e9, maxRead: 250_000, edge: "EDGE", level: 5, offset: offsets(0.0651, 1, 0.2601, 30, 100), showDepth: strconv.Itoa,
	depths: shared(100_000_000, 1000, 10_000, 100_000, 1_000_000, 10_000_000, 25_000_000, 50_000_000, 100_000_000),
	settle: 40 * time.Millisecond,
}

// DHO is the DHO804 and its sisters, of 12 bits in words of 16.
var DHO = &Family{
	traits: scopeface.Traits{
		Name: "DHO800", Channels: 4, PerDiv: 7500, Middle: 32768, Most: 65535, Quantum: 16, WholeShift: true,
		GainLimit: 0.01, ZeroLimit: 0.1, ClockLimit: 25e-6,
	},
	model: "DHO804", serial: "DHO8A000000001", firmware: "00.01.03",
	divisions: 10, screen: 1000, maxRate: 1.25e9, maxRead: 250_000, edge: "EDGE", pages: true, words: true,
	level: 4.5, offset: offsets(0.06501, 1, 0.26001, 8, 2.6501, 20, 100),
	rates: []float64{
		200, 500, 1e3, 2e3, 5e3, 10e3, 20e3, 50e3, 100e3, 125e3, 250e3, 500e3, 1.25e6, 2.5e6, 6.25e6, 12.5e6, 31.25e6, 62.5e6,
		156.25e6, 312.5e6, 625e6, 1.25e9,
	},
	depths: shared(50_000_000, 1000, 10_000, 100_000, 1_000_000, 5_000_000, 10_000_000, 25_000_000, 50_000_000),
	showDepth: func(n int) string { // 1.000E+6
		s := strconv.FormatFloat(float64(n), 'E', 3, 64)
		return strings.Replace(s, "E+0", "E+", 1)
	},
}

// Settling is the family with a reader that needs so long behind an acquisition.
func (f Family) Settling(d time.Duration) *Family {
	f.settle = d
	return &f
}

// shared are those of some depths that fit a share of a memory.
func shared(memory int, all ...int) func(int) []int {
	return func(share int) (out []int) {
		for _, d := range all {
			if d*share <= memory {
				out = append(out, d)
			}
		}
		return out
	}
}

// offsets are pairs of a scale and the most volts of offset below it, and at last
// the most at any other.
func offsets(table ...float64) func(float64) float64 {
	return func(scale float64) float64 {
		for i := 0; i+1 < len(table); i += 2 {
			if scale < table[i]*0.999 {
				return table[i+1]
			}
		}
		return table[len(table)-1]
	}
}

// points reads a number of points, also as 10k or 1M.
func points(s string) (float64, error) {
	unit := 1.0
	if t, ok := strings.CutSuffix(strings.ToLower(s), "k"); ok {
		s, unit = t, 1e3
	} else if t, ok := strings.CutSuffix(strings.ToLower(s), "m"); ok {
		s, unit = t, 1e6
	}
	v, err := strconv.ParseFloat(s, 64)
	if err != nil {
		return 0, scpiface.ErrType
	}
	return v * unit, nil
}

package pmd

import (
	"wattmark/measure"
	"wattmark/monitor/instrument"
)

const (
	voltsPerCount   = 0.007568
	amperesPerCount = 0.0488
	ticksPerScan    = 613.7 // mean of the public captures; single steps vary from 581 to 1017
)

// The uncertainties of a device as it is sold. The maker states none, so they
// are set wide on purpose: 1 % for the current's gain (shunt and amplifier),
// 0.5 % for the voltage's (divider and reference). The zero of the current is
// 2 counts: a connector with nothing plugged in read 1.5 to 1.7 counts in all of
// the public captures. The noise of one reading was 0.95 counts there, that of a
// voltage 1.0 to 1.5. A bench file that holds a calibration replaces all of them.
const (
	uGainVoltage   = 0.005
	uGainCurrent   = 0.01
	uOffsetVoltage = 2 * voltsPerCount
	uOffsetCurrent = 2 * amperesPerCount
	noiseVoltage   = 1.2 * voltsPerCount
	noiseCurrent   = 0.95 * amperesPerCount
)

// connectors in the order of the channels.
var connectors = [Channels / 2]string{"pcie1", "pcie2", "eps1", "eps2"}

// channels are the device's inputs; offsets are counts to add to a reading.
func channels(offsets [Channels]int8) []measure.Channel {
	out := make([]measure.Channel, Channels)
	for i := range out {
		c := measure.Channel{
			Name: connectors[i/2] + ".voltage", Unit: measure.UnitVolt, Gain: voltsPerCount,
			UGain: uGainVoltage, UOffset: uOffsetVoltage, Noise: noiseVoltage, MinCount: -2048, MaxCount: 2047,
		}
		if i%2 == 1 {
			c.Name, c.Unit, c.Gain = connectors[i/2]+".current", measure.UnitAmpere, amperesPerCount
			c.UGain, c.UOffset, c.Noise = uGainCurrent, uOffsetCurrent, noiseCurrent
		}
		c.Offset = float64(offsets[i]) * c.Gain
		out[i] = c
	}
	return out
}

// Inputs are the device's channels before it is opened: those of a device
// without stored offsets.
func Inputs(o Options) instrument.Inputs {
	return instrument.Inputs{Timebase: o.timebase(), Channels: channels([Channels]int8{})}
}

// NaturalRails makes a rail of each connector, wired as in the public captures:
// an adapter brings the slot's 12 V to EPS1, the card's own connectors are on
// the others, and the slot's 3.3 V is not measured.
func NaturalRails(in instrument.Inputs) (rails []measure.Rail, missing []string) {
	for i, name := range connectors {
		if 2*i+1 >= len(in.Channels) {
			break
		}
		role := measure.RolePSU
		if name == "eps1" {
			role = measure.RolePCIe12V
		}
		rails = append(rails, measure.Rail{Name: name, Role: role, Wiring: measure.WiringClamp, X: 2*i + 1, Y: 2 * i})
	}
	return rails, []string{"pcie_3v3"}
}

// lost counts the scans missing between two that lie delta ticks apart. The
// device's steps vary, so that the number is certain only for a single one.
func lost(delta int64) (uint64, bool) {
	if delta < MaxStep {
		return 0, true
	}
	n := max(1, int64(float64(delta)/ticksPerScan+0.5)-1)
	return uint64(n), delta < 1770 // three of the shortest steps
}

package powenetics

import (
	"wattmark/measure"
	"wattmark/monitor/instrument"
)

// connectors in the order of the frame.
var connectors = [Connectors]string{
	"atx_3v3", "atx_5vsb", "atx_12v", "atx_5v", "eps_12v_1", "atx_12vsb", "eps_12v_3", "eps_12v_2",
	"aux_12v_3", "aux_12v_2", "pcie_3v3", "pcie_12v", "aux_12v_1",
}

// natural are the connectors of the graphics card, slot first.
var natural = []int{10, 11, 12, 9, 8}

// The uncertainties of a device as it is sold. Its makers state a resolution of
// 1 mV and 5 mA and no accuracy, so the rest is set wide on purpose: 1 % and
// 0.5 % in gain of current and voltage, some steps of the zero. A bench file that
// holds a calibration replaces all of them.
const (
	uGainCurrent, uGainVoltage     = 0.01, 0.005
	uOffsetCurrent, uOffsetVoltage = 0.02, 0.01
	noiseCurrent, noiseVoltage     = 0.005, 0.001
)

// Inputs are the device's 26 channels; a count is a millivolt or a milliampere.
// A count of zero is an open connector, not the end of a range.
func Inputs(o Options) instrument.Inputs {
	in := instrument.Inputs{Timebase: o.timebase()}
	for _, name := range connectors {
		in.Channels = append(in.Channels, measure.Channel{
			Name: name + ".voltage", Unit: measure.UnitVolt, Gain: 1e-3, UGain: uGainVoltage, UOffset: uOffsetVoltage,
			Noise: noiseVoltage, MinCount: -1, MaxCount: 1<<16 - 1,
		}, measure.Channel{
			Name: name + ".current", Unit: measure.UnitAmpere, Gain: 1e-3, UGain: uGainCurrent, UOffset: uOffsetCurrent,
			Noise: noiseCurrent, MinCount: -1, MaxCount: 1<<24 - 1,
		})
	}
	return in
}

// NaturalRails are the graphics card's: the slot's two and three plugs. The
// mainboard's and the processor's connectors are no part of a GPU.
func NaturalRails(in instrument.Inputs) (rails []measure.Rail, missing []string) {
	for _, c := range natural {
		if 2*c+1 >= len(in.Channels) {
			continue
		}
		rails = append(rails, measure.Rail{
			Name: connectors[c], Role: instrument.RoleOf(connectors[c]), Wiring: measure.WiringClamp, X: 2*c + 1, Y: 2 * c,
		})
	}
	return rails, nil
}

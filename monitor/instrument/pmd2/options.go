package pmd2

import (
	"fmt"
	"time"

	"wattmark/measure"
	"wattmark/monitor/instrument"
)

// Options are the settings of the driver in a bench file.
type Options struct {
	// Period is the distance of two questions; default 2 ms, which a USB device can
	// keep: questions that are left out for want of time make markers hard to find.
	Period time.Duration `yaml:"period"`
	// Silence is how long the device may leave questions without an answer before
	// it counts as lost; default 5 s.
	Silence time.Duration `yaml:"silence"`
}

// Defaults are the options of a device that is not described further.
func Defaults() Options { return Options{Period: 2 * time.Millisecond, Silence: 5 * time.Second} }

// Validate reports an option that cannot be used.
func (o Options) Validate() error {
	switch {
	case o.Period < 200*time.Microsecond || o.Period > time.Second:
		return fmt.Errorf("period %v: want 200µs to 1s", o.Period)
	case o.Silence < 200*time.Millisecond || o.Silence > time.Hour:
		return fmt.Errorf("silence %v: want 200ms to 1h", o.Silence)
	}
	return nil
}

// sensors in the order of the reply.
var sensors = [Sensors]string{
	"atx_12v", "atx_5v", "atx_5vsb", "atx_3v3", "hpwr", "eps1", "eps2", "pcie1", "pcie2", "pcie3",
}

// natural are the sensors of a graphics card's own connectors.
var natural = []int{4, 7, 8, 9}

// The uncertainties of a device as it is sold: its maker publishes none, so they
// are set wide on purpose. A calibration in the bench file replaces them.
const (
	uGainCurrent, uGainVoltage     = 0.01, 0.005
	uOffsetCurrent, uOffsetVoltage = 0.02, 0.01
	noiseCurrent, noiseVoltage     = 0.01, 0.002
	uHostClock                     = 2e-5
)

// Inputs are the device's 20 channels; a count is a millivolt or a milliampere.
// Time is the host's: the middle of each question and answer.
func Inputs(o Options) instrument.Inputs {
	in := instrument.Inputs{Timebase: measure.Timebase{
		TickHz: 1e9, UTickHz: uHostClock, TicksPerScan: float64(o.Period), Stamped: true,
	}}
	for _, name := range sensors {
		in.Channels = append(in.Channels, measure.Channel{
			Name: name + ".voltage", Unit: measure.UnitVolt, Gain: 1e-3, UGain: uGainVoltage, UOffset: uOffsetVoltage,
			Noise: noiseVoltage, MinCount: -mostMillivolts, MaxCount: mostMillivolts,
		}, measure.Channel{
			Name: name + ".current", Unit: measure.UnitAmpere, Gain: 1e-3, UGain: uGainCurrent, UOffset: uOffsetCurrent,
			Noise: noiseCurrent, MinCount: -mostMilliamperes, MaxCount: mostMilliamperes,
		})
	}
	return in
}

// NaturalRails are a graphics card's own connectors. What it draws from its slot
// comes through the mainboard, and is not measured.
func NaturalRails(in instrument.Inputs) (rails []measure.Rail, missing []string) {
	for _, s := range natural {
		if 2*s+1 >= len(in.Channels) {
			continue
		}
		rails = append(rails, measure.Rail{
			Name: sensors[s], Role: measure.RolePSU, Wiring: measure.WiringClamp, X: 2*s + 1, Y: 2 * s,
		})
	}
	return rails, []string{"pcie_12v", "pcie_3v3"}
}

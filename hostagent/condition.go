package hostagent

import "wattmark/measure"

// Condition is what else bears on a GPU's power: clocks, temperature, throttling.
// Values that the GPU does not tell are NaN; Throttle is then zero.
type Condition struct {
	SM, Memory  measure.Hertz
	Temperature float64 // °C
	Throttle    uint64  // nvmlClocksEventReasons bits; zero for none
}

// ConditionReader is a PowerSensor that also tells the GPU's condition.
type ConditionReader interface{ Condition() Condition }

// throttleReasons are NVML's reasons for clocks below what was asked for, from
// bit 1 on (nvml.h, nvmlClocksEventReason…). Bit 0 is idleness, which is none.
var throttleReasons = []string{
	"the clocks that were set", "its power cap", "hardware (slowdown)", "sync boost",
	"heat (software)", "heat (hardware)", "the power brake", "the display's clock",
}

// Throttled names what held the clocks down; empty for nothing.
func (c Condition) Throttled() (by []string) {
	for i, name := range throttleReasons {
		if c.Throttle>>(i+1)&1 == 1 {
			by = append(by, name)
		}
	}
	return by
}

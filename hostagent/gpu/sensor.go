package gpu

import (
	"errors"
	"fmt"
	"math"

	"github.com/wattmark/wattmark/measure"
)

// ErrNoPower: the GPU has no power sensor that can be read.
var ErrNoPower = errors.New("the GPU has no power reading")

// Milliwatts is a power sensor as a meter of whole milliwatts, for the nvml
// instrument: the instant power where the GPU has it, else its usage.
type Milliwatts struct{ Sensor PowerSensor }

// Read returns the power now.
func (m Milliwatts) Read() (int32, error) {
	r, err := m.Sensor.Read()
	if err != nil {
		return 0, err
	}
	w := float64(r.Instant)
	if math.IsNaN(w) {
		w = float64(r.Usage)
	}
	mw := math.Round(w * 1e3)
	switch {
	case math.IsNaN(mw):
		return 0, ErrNoPower
	case mw < 0 || mw > math.MaxInt32:
		return 0, fmt.Errorf("a power reading of %v W: out of range", w)
	}
	return int32(mw), nil
}

// PowerRegisters is a PowerSensor whose registers can be read one by one, each at its own
// cost. A register that the GPU lacks reads NaN.
type PowerRegisters interface {
	// ReadUsage is nvmlDeviceGetPowerUsage alone.
	ReadUsage() (measure.Watt, error)
	// ReadFields is one query of the instant and the average field.
	ReadFields() (instant, average measure.Watt, err error)
}

// Condition holds the other quantities that bear on a GPU's power: clocks, temperature,
// throttling. Unknown values are NaN; Throttle is then zero.
type Condition struct {
	SM, Memory  measure.Hertz
	Temperature float64 // °C
	Throttle    uint64  // nvmlClocksEventReasons bits; zero for none
}

// ConditionReader is a PowerSensor that also reads the GPU's condition.
type ConditionReader interface{ Condition() Condition }

// throttleReasons are NVML's reasons for clocks below the requested ones, from bit 1 on
// (nvml.h, nvmlClocksEventReason…). Bit 0 is idleness, which is none.
var throttleReasons = []string{
	"the clocks that were set", "its power cap", "hardware (slowdown)", "sync boost",
	"heat (software)", "heat (hardware)", "the power brake", "the display's clock",
}

// Throttled names the causes that held the clocks down; empty for none.
func (c Condition) Throttled() (by []string) {
	for i, name := range throttleReasons {
		if c.Throttle>>(i+1)&1 == 1 {
			by = append(by, name)
		}
	}
	return by
}

// ProcessUse is a process that has a context on a GPU.
type ProcessUse struct {
	PID  int
	Name string
	// Busy is the share of the time for which it had kernels there, 0 to 1; NaN where the
	// driver does not report it.
	Busy float64
}

// ProcessReader is a PowerSensor that also lists the processes that use the GPU.
type ProcessReader interface {
	// Processes returns those that hold a context now, or had kernels within a span. Busy
	// is over the parts of the span for which the driver has samples.
	Processes(within Span) ([]ProcessUse, error)
}

package hostagent

import "wattmark/measure"

// PowerRegisters is a PowerSensor whose registers can be read one by one, each at
// its own cost. What the GPU does not have is NaN.
type PowerRegisters interface {
	// ReadUsage is nvmlDeviceGetPowerUsage alone.
	ReadUsage() (measure.Watt, error)
	// ReadFields is one query of the instant and the average field.
	ReadFields() (instant, average measure.Watt, err error)
}

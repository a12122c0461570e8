package hostagent

import (
	"errors"
	"fmt"
	"math"
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

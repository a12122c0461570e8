package powenetics

import (
	"fmt"
	"time"

	"wattmark/measure"
)

// Options are the settings of the driver in a bench file.
type Options struct {
	// Rate is the frames a second; default 1000, what the maker states. The device
	// stamps no time, so that device time is the frame's number over this rate.
	Rate float64 `yaml:"rate"`
	// URate is its relative standard uncertainty; default 2e-3. Nobody states how
	// the device keeps its rate.
	URate float64 `yaml:"u_rate"`
	// CalibrationOK sends CA AC BD 01 before the start, as the maker's program
	// does; default false, since it is said to confirm a calibration.
	CalibrationOK bool `yaml:"calibration_ok"`
	// Silence is how long the stream may fall silent before the device counts as
	// lost; default 5 s.
	Silence time.Duration `yaml:"silence"`
}

// Defaults are the options of a device that is not described further.
func Defaults() Options { return Options{Rate: 1000, URate: 2e-3, Silence: 5 * time.Second} }

// Validate reports an option that cannot be used.
func (o Options) Validate() error {
	switch {
	case !(o.Rate >= 10 && o.Rate <= 1336):
		return fmt.Errorf("rate %v: want 10 to 1336, all that 921600 baud carry", o.Rate)
	case !(o.URate >= 0 && o.URate <= 0.1):
		return fmt.Errorf("u_rate %v: want 0 to 0.1", o.URate)
	case o.Silence < 100*time.Millisecond || o.Silence > time.Hour:
		return fmt.Errorf("silence %v: want 100ms to 1h", o.Silence)
	}
	return nil
}

func (o Options) timebase() measure.Timebase {
	return measure.Timebase{TickHz: measure.Hertz(o.Rate), UTickHz: o.URate, TicksPerScan: 1}
}

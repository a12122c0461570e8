package pmd

import (
	"fmt"
	"slices"
	"time"

	"wattmark/measure"
)

// Options are the settings of the driver in a bench file.
type Options struct {
	// Baud is the line's speed while measuring; default 921600. The device starts
	// at 115200, too slow for its own samples, and is set back when closed.
	Baud int `yaml:"baud"`
	// TickHz is the rate of the device's time stamps; default 2.9345e6, which the
	// public captures fit (the nominal value is 3 MHz).
	TickHz float64 `yaml:"tick_hz"`
	// UTick is its relative standard uncertainty; default 5e-4. Against the host's
	// clock, by the edges of its load, the public capture of a square wave runs
	// 529 ppm off this rate; the others 10 to 300 ppm.
	UTick float64 `yaml:"u_tick"`
	// DeviceOffsets adds the offsets that the device stores; default true.
	DeviceOffsets bool `yaml:"device_offsets"`
	// Silence is how long the stream may fall silent before the device counts as
	// lost; default 5 s.
	Silence time.Duration `yaml:"silence"`
}

// Defaults are the options of a device that is not described further.
func Defaults() Options {
	return Options{Baud: 921600, TickHz: 2.9345e6, UTick: 5e-4, DeviceOffsets: true, Silence: 5 * time.Second}
}

// bauds are the speeds that the device knows, the likeliest first.
var bauds = []int{115200, 921600, 460800, 2000000, 1500000, 230400}

// Validate reports an option that cannot be used.
func (o Options) Validate() error {
	switch {
	case !slices.Contains(bauds, o.Baud):
		return fmt.Errorf("baud %d: the device knows 115200, 230400, 460800, 921600, 1500000 and 2000000", o.Baud)
	case !(o.TickHz >= 1e6 && o.TickHz <= 1e7):
		return fmt.Errorf("tick_hz %v: want 1e6 to 1e7", o.TickHz)
	case !(o.UTick >= 0 && o.UTick <= 0.1):
		return fmt.Errorf("u_tick %v: want 0 to 0.1", o.UTick)
	case o.Silence < 100*time.Millisecond || o.Silence > time.Hour:
		return fmt.Errorf("silence %v: want 100ms to 1h", o.Silence)
	}
	return nil
}

func (o Options) timebase() measure.Timebase {
	return measure.Timebase{TickHz: measure.Hertz(o.TickHz), UTickHz: o.UTick, TicksPerScan: ticksPerScan, Stamped: true}
}

package dataq

import (
	"fmt"
	"math"
	"slices"
	"time"

	"wattmark/measure"
	"wattmark/monitor/instrument"
	"wattmark/monitor/instrument/analog"
)

// Options are the settings of the driver in a bench file.
type Options struct {
	// Model is DI-1100 (the default), DI-2108 or DI-2108-P.
	Model string `yaml:"model"`
	// Rate is the scans a second; default 2000. The device divides 60 MHz by a
	// whole number, and the nearest rate is taken.
	Rate float64 `yaml:"rate"`
	// Inputs in the order of the scan; put each rail's current and voltage next to
	// each other. Default: the wiring of the emulated device.
	Inputs []analog.Input `yaml:"inputs"`
	// Sync puts a DI-2108's digital inputs first into each scan, so that lost bytes
	// can be seen; default true.
	Sync bool `yaml:"sync"`
	// SrateCounts is what the srate command divides into: whole scans, or items of
	// the scan list. Default: scans on a DI-1100, items on a DI-2108.
	SrateCounts string `yaml:"srate_counts"`
	// Skew is the time from one item's conversion to the next. Default: none on a
	// DI-1100, an even share of the scan on a DI-2108.
	Skew time.Duration `yaml:"skew"`
	// UGain (relative) and UOffset (of the range) are the standard uncertainties of
	// the nominal scale, UClock that of the clock.
	UGain   float64 `yaml:"u_gain"`
	UOffset float64 `yaml:"u_offset"`
	UClock  float64 `yaml:"u_clock"`
	// Silence is how long the stream may fall silent before the device counts as
	// lost; default 5 s.
	Silence time.Duration `yaml:"silence"`
}

// Defaults are the options of the emulated device's first rail. The
// uncertainties are set wide on purpose: no public statement of a whole device's
// accuracy stands behind them. A calibration in the bench file replaces them.
func Defaults() Options {
	return Options{
		Model: "DI-1100", Rate: 2000, Sync: true, UGain: 0.005, UOffset: 0.002, UClock: 1e-4, Silence: 5 * time.Second,
		Inputs: []analog.Input{{AIN: 0, Name: "aux.voltage", PerVolt: 2}, {AIN: 1, Name: "aux.current", Unit: "A", PerVolt: 10}},
	}
}

const (
	dividend = 60_000_000 // what srate divides, on all models
	maxSrate = 65535
)

// model is what the devices differ in.
type model struct {
	analog.Device
	numbers []string // what info 1 may tell
	bits    int      // of the converter
	// digital says that the digital inputs are an item of the scan list, and that
	// there are commands for it and for decimation.
	digital bool
	// least is the smallest srate with so many items.
	least func(items int) float64
	items bool // srate divides into items
}

var models = map[string]model{
	"DI-1100": {
		Device: analog.Device{Inputs: 4, Ranges: []float64{10}}, numbers: []string{"1100"}, bits: 12,
		least: func(items int) float64 { return 1000 + 500*float64(items) },
	},
	"DI-2108": {
		Device: analog.Device{Inputs: 8, Ranges: []float64{10}}, numbers: []string{"2108"}, bits: 16, digital: true, items: true,
		least: func(int) float64 { return 375 },
	},
	"DI-2108-P": {
		Device: analog.Device{Inputs: 8, Ranges: []float64{10, 5, 2.5}}, numbers: []string{"2109", "2108P", "2108-P"}, bits: 16,
		digital: true, items: true, least: func(int) float64 { return 375 },
	},
}

// sync tells whether the scan begins with the digital inputs as an item.
func (o Options) sync() bool { return o.Sync && models[o.Model].digital }

// items of the scan list.
func (o Options) items() int {
	if o.sync() {
		return len(o.Inputs) + 1
	}
	return len(o.Inputs)
}

// perScan is how many periods of srate make a scan.
func (o Options) perScan() float64 {
	if o.SrateCounts == "items" || o.SrateCounts == "" && models[o.Model].items {
		return float64(o.items())
	}
	return 1
}

// srate is the divisor nearest to the rate that is wanted.
func (o Options) srate() float64 { return math.Round(dividend / (o.Rate * o.perScan())) }

// rate is what the divisor makes of it.
func (o Options) rate() float64 { return dividend / (o.srate() * o.perScan()) }

// Validate reports an option that cannot be used.
func (o Options) Validate() error {
	m, ok := models[o.Model]
	if !ok {
		return fmt.Errorf("model %q: want DI-1100, DI-2108 or DI-2108-P", o.Model)
	}
	if err := m.Check(o.Inputs); err != nil {
		return err
	}
	most, least := dividend/(m.least(o.items())*o.perScan()), dividend/(maxSrate*o.perScan())
	switch {
	case !slices.Contains([]string{"", "scans", "items"}, o.SrateCounts):
		return fmt.Errorf("srate_counts %q: want scans or items", o.SrateCounts)
	case !(o.Rate >= least && o.Rate <= most):
		return fmt.Errorf("rate %v: a %s with %d items in its scan does %.6g to %.6g scans a second", o.Rate, o.Model, o.items(), least, most)
	case o.Skew < 0 || o.Skew.Seconds()*float64(o.items()) > 1.001/o.Rate:
		return fmt.Errorf("skew %v: %d items must fit into a scan of %v", o.Skew, o.items(), time.Duration(1e9/o.Rate))
	case !(o.UGain >= 0 && o.UGain <= 1) || !(o.UOffset >= 0 && o.UOffset <= 1) || !(o.UClock >= 0 && o.UClock <= 0.01):
		return fmt.Errorf("u_gain %v, u_offset %v, u_clock %v: want 0 to 1, 1 and 0.01", o.UGain, o.UOffset, o.UClock)
	case o.Silence < 100*time.Millisecond || o.Silence > time.Hour:
		return fmt.Errorf("silence %v: want 100ms to 1h", o.Silence)
	}
	return nil
}

// skew is the time between two neighbours' conversions.
func (o Options) skew() time.Duration {
	if o.Skew > 0 || !models[o.Model].items {
		return o.Skew
	}
	return time.Duration(1e9 / (o.rate() * float64(o.items())))
}

// Inputs are the channels of the scan with the nominal scale: ± the range over
// 16 bits, of which a DI-1100 uses the upper twelve.
func Inputs(o Options) instrument.Inputs {
	m := models[o.Model]
	step := 1 << (16 - m.bits)
	in := instrument.Inputs{Timebase: measure.Timebase{TickHz: measure.Hertz(o.rate()), UTickHz: o.UClock, TicksPerScan: 1}}
	for k, i := range o.Inputs {
		r := m.RangeOf(i)
		c := i.Channel(analog.Scale{
			Gain: r / (1 << 15), UGain: o.UGain, UOffset: measure.Volt(o.UOffset * r), Noise: float64(step),
			Min: -1 << 15, Max: measure.Count(1<<15 - step),
		})
		c.Skew = measure.SecondsOf(time.Duration(k+o.items()-len(o.Inputs)) * o.skew())
		in.Channels = append(in.Channels, c)
	}
	return in
}

// NaturalRails are those that the channels' names suggest.
func NaturalRails(in instrument.Inputs) (rails []measure.Rail, missing []string) {
	return instrument.PairRails(in.Channels), nil
}

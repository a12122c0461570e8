package labjack

import (
	"errors"
	"fmt"
	"time"

	"wattmark/measure"
	"wattmark/monitor/instrument/analog"
)

// model is what the devices differ in.
type model struct {
	analog.Device
	name    string
	product float32 // what its register says
	// each and all bound the conversions a second, of one input and of all.
	each, all float64
	// simultaneous converters have no settling time and no skew.
	simultaneous bool
	// spans are the true ends of the ranges: the nominal scale.
	spans []float64
	// center is the nominal code of zero.
	center float64
	// flash is where the constants of input 0, range 0 lie; perInput says that
	// every input has its own.
	flash    uint32
	perInput bool
	// uGain and uOffset (of the range) are those of the nominal scale.
	uGain, uOffset float64
}

const (
	slopeT7 = 3.158058e-4 // V a code on a T7's range of ±10 V
	half    = 1 << 15
)

// The models, from the T-series datasheet: ranges and true spans (A-3-3-3 for the
// T8), nominal constants of the T7 (20.0.1), places of the constants (20.0.1,
// 20.0.2).
var models = []model{
	{
		name: "T7", product: 7, Device: analog.Device{Inputs: 14, Ranges: []float64{10, 1, 0.1, 0.01}}, each: 100e3, all: 100e3,
		spans: []float64{half * slopeT7, half * slopeT7 / 10, half * slopeT7 / 100, half * slopeT7 / 1000}, center: 33523,
		flash: 0x3C4000, uGain: 0.006, uOffset: 0.002, // one converter serves all inputs: its errors do not average out
	},
	{
		name: "T8", product: 8, Device: analog.Device{Inputs: 8, Ranges: []float64{11, 9.6, 4.8, 2.4, 1.2, 0.6, 0.3, 0.15, 0.075, 0.036, 0.018}},
		each: 40e3, all: 320e3, simultaneous: true,
		spans: []float64{11.0, 9.768, 4.884, 2.442, 1.221, 0.611, 0.305, 0.153, 0.076, 0.038, 0.019}, center: half,
		flash: 0x687000 + 64, perInput: true, uGain: 0.02, uOffset: 0.01,
	},
}

// check reports options that a model cannot do.
func (m model) check(o Options) error {
	if err := m.Check(o.Inputs); err != nil {
		return err
	}
	n := float64(len(o.Inputs))
	most := min(m.each, m.all/n)
	switch {
	case !(o.ScanRate >= 1 && o.ScanRate <= most):
		return fmt.Errorf("scan_rate %v with %v inputs: a %s does 1 to %.6g", o.ScanRate, n, m.name, most)
	case m.simultaneous && (o.Settling != 0 || o.Skew != 0):
		return fmt.Errorf("settling %v, skew %v: a %s converts all inputs at once", o.Settling, o.Skew, m.name)
	case !m.simultaneous && float64(o.skew())*n > 1e9/o.ScanRate+1:
		return fmt.Errorf("settling %v, skew %v: %v conversions must fit into a scan of %v", o.Settling, o.skew(), n, time.Duration(1e9/o.ScanRate))
	}
	return nil
}

// guess is the first model that can do what is wanted.
func guess(o Options) (model, error) {
	var errs []error
	for _, m := range models {
		err := m.check(o)
		if err == nil {
			return m, nil
		}
		errs = append(errs, fmt.Errorf("as a %s: %w", m.name, err))
	}
	return models[0], errors.Join(errs...)
}

// skewOf is the delay of an input's conversion behind the scan's time.
func (m model) skewOf(o Options, k int) measure.Seconds {
	if m.simultaneous {
		return 0
	}
	return measure.SecondsOf(time.Duration(k) * o.skew())
}

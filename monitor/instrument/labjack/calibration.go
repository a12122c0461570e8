package labjack

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"

	"wattmark/measure"
	"wattmark/monitor/instrument/analog"
)

const (
	regFlashPointer = 61810
	regFlashRead    = 61812
	setBytes        = 16
	// variance is how far a constant may be off its nominal value, relative, before
	// it counts as no constant: what the maker's own program allows.
	variance = 0.05
	// The standard uncertainties of a device with its own constants: of the reading,
	// and of the range. Wider than the 0.01 % of the range that its maker states, for
	// the years and the temperature since.
	uGainOwn, uOffsetOwn = 5e-4, 3e-4
)

// set are the constants of one input on one range:
// V = (code − Center)·PSlope above the center, (Center − code)·NSlope below.
type set struct{ PSlope, NSlope, Center, Offset float32 }

// parseSet reads a set as the flash holds it.
func parseSet(b [setBytes]byte) set {
	f := func(i int) float32 { return math.Float32frombits(binary.BigEndian.Uint32(b[4*i:])) }
	return set{f(0), f(1), f(2), f(3)}
}

// scale turns constants into that of the stream's 16-bit codes. A device may keep
// them for its 24-bit codes, of which the stream sends the upper sixteen: which
// of the two, the numbers themselves tell. ok is false for constants that cannot
// be this model's.
func (s set) scale(m model, r int) (sc analog.Scale, ok bool) {
	nominal := m.spans[r] / half
	for _, k := range []float64{1, 1 << 8} {
		p, n, c := float64(s.PSlope)*k, float64(s.NSlope)*k, float64(s.Center)/k
		if near(p, nominal) && near(-n, nominal) && near(c, m.center) {
			// Power flows one way, so that the upper slope counts; what the other is off
			// goes into the uncertainty.
			u := math.Hypot(uGainOwn, math.Abs(p+n)/(2*p))
			return analog.Scale{Gain: p, Zero: c, UGain: u, UOffset: measure.Volt(uOffsetOwn * m.Ranges[r])}, true
		}
	}
	return sc, false
}

// near tells a value within the variance of its nominal one; a NaN is not.
func near(v, nominal float64) bool { return math.Abs(v-nominal) < variance*math.Abs(nominal) }

// nominal is the scale of a device whose constants are not known.
func (m model) nominal(r int) analog.Scale {
	return analog.Scale{Gain: m.spans[r] / half, Zero: m.center, UGain: m.uGain, UOffset: measure.Volt(m.uOffset * m.Ranges[r])}
}

// readSet reads the constants of an input on a range.
func (d *Device) readSet(ctx context.Context, ain, r int) (set, error) {
	at := d.model.flash + uint32(setBytes*r)
	if d.model.perInput {
		at += uint32(setBytes * len(d.model.Ranges) * ain)
	}
	if err := d.registers.writeU32(ctx, regFlashPointer, at); err != nil {
		return set{}, err
	}
	b, err := d.registers.read(ctx, regFlashRead, setBytes/2)
	if err != nil {
		return set{}, err
	}
	return parseSet([setBytes]byte(b)), nil
}

// calibrate reads the constants of all inputs. Where one is not plausible the
// nominal scale with its wide uncertainty serves, and the stream says so.
func (d *Device) calibrate(ctx context.Context) error {
	d.doubt = ""
	scales := make([]analog.Scale, len(d.opts.Inputs))
	for k, i := range d.opts.Inputs {
		r := d.model.rangeIndex(i)
		s, err := d.readSet(ctx, i.AIN, r)
		if err != nil {
			return fmt.Errorf("calibration constants: %w", err)
		}
		var ok bool
		if scales[k], ok = s.scale(d.model, r); !ok {
			scales[k] = d.model.nominal(r)
			d.doubt = fmt.Sprintf("the device's constants for AIN%d, ±%v V, cannot be right (%+v): the nominal scale is taken, with u_gain %v",
				i.AIN, d.model.Ranges[r], s, d.model.uGain)
		}
	}
	d.inputs = inputs(d.opts, d.model, scales)
	return nil
}

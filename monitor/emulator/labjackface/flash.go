package labjackface

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
)

// model is what the devices differ in.
type model struct {
	name      string
	inputs    int
	each, all float64 // conversions a second, of one input and of all
	ranges    []float64
	spans     []float64 // the volts that 32768 codes stand for, by range
	center    float64
	flash     uint32 // where the constants of input 0, range 0 lie
	perInput  bool
	scale     float64 // of the constants: a T8 keeps those of its 24-bit codes
}

var models = map[float32]*model{
	7: {
		name: "T7", inputs: 14, each: 100e3, all: 100e3, ranges: []float64{10, 1, 0.1, 0.01},
		spans: []float64{10.3483244, 1.03483244, 0.103483244, 0.0103483244}, center: 33523, flash: 0x3C4000, scale: 1,
	},
	8: {
		name: "T8", inputs: 8, each: 40e3, all: 320e3, ranges: []float64{11, 9.6, 4.8, 2.4, 1.2, 0.6, 0.3, 0.15, 0.075, 0.036, 0.018},
		spans: []float64{11, 9.768, 4.884, 2.442, 1.221, 0.611, 0.305, 0.153, 0.076, 0.038, 0.019}, center: 32768,
		flash: 0x687040, perInput: true, scale: 256,
	},
}

// Calibration is what the flash of a device holds.
type Calibration uint8

// The states of a flash.
const (
	Factory Calibration = iota // the constants of the device, as well as it was calibrated
	Erased                     // all ones
	Foreign                    // those of another device, a third too large
)

// converter is what is true of one input on one range: code = Center + V/slope.
type converter struct{ slope, center float64 }

// manufacture draws the converters and writes the constants that calibrating them
// gives into the flash.
func (f *Face) manufacture(rng *rand.Rand) {
	m := f.model
	normal := func(u float64) float64 {
		x := rng.NormFloat64()
		if !f.cfg.Draw {
			return 0
		}
		return x * u
	}
	f.flash = map[uint32]uint32{}
	f.converters = make([][]converter, m.inputs)
	for ain := range f.converters {
		f.converters[ain] = make([]converter, len(m.ranges))
		for r := range m.ranges {
			c := converter{m.spans[r] / 32768 * (1 + normal(0.003)), m.center * (1 + normal(0.001))}
			if ain > 0 && !m.perInput {
				c = f.converters[0][r] // one converter, one set of constants
			}
			f.converters[ain][r] = c
			if ain == 0 || m.perInput {
				f.store(m.flash+16*uint32(r+ain*len(m.ranges)), c)
			}
		}
	}
}

// store writes a converter's constants.
func (f *Face) store(at uint32, c converter) {
	slope, center := c.slope/f.model.scale, c.center*f.model.scale
	switch f.cfg.Calibration {
	case Erased:
		return
	case Foreign:
		slope *= 1.33
	}
	for i, v := range []float64{slope, -slope, center, -slope * center} {
		f.flash[at+4*uint32(i)] = math.Float32bits(float32(v))
	}
}

// readFlash reads registers from the flash, beginning where the pointer stands.
func (f *Face) readFlash(n int) []byte {
	out := []byte{byte(2 * n)}
	for i := range uint32(n+1) / 2 {
		v, ok := f.flash[f.u32(regFlashPointer)+4*i]
		if !ok {
			v = math.MaxUint32
		}
		out = binary.BigEndian.AppendUint32(out, v)
	}
	return out[:1+2*n]
}

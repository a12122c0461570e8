package dataqface

import (
	"encoding/binary"
	"math"
	"time"

	"wattmark/measure"
)

const maxScans = 256 // converted at once

// batch sends the scans up to a board instant. A device whose buffer is full
// says so in clear text and stops.
func (f *Face) batch(until time.Duration) error {
	if f.beat.Late(until) {
		f.scanning = false
		f.overflows.Add(1)
		return f.w.Write([]byte("stop 01\r"))
	}
	for n := f.beat.Due(until); n > 0; {
		k := int(min(n, maxScans))
		if err := f.send(k); err != nil {
			return err
		}
		n -= int64(k)
	}
	return nil
}

// send converts so many scans and writes the packets that they fill.
func (f *Face) send(scans int) error {
	for i := range f.scanList {
		f.board.Trace(f.power[i][:scans], f.beat.Now()+f.behind(i), f.beat.Step)
	}
	digital := byte(f.digital.Load())
	for s := range scans {
		for i, item := range f.scanList {
			w := f.word(i, item, f.power[i][s], digital)
			f.out = binary.LittleEndian.AppendUint16(f.out, w)
		}
		f.beat.Next++
	}
	f.scans.Add(uint64(scans))
	whole := len(f.out) / f.packet * f.packet
	if whole == 0 {
		return nil
	}
	err := f.w.Write(f.out[:whole])
	f.out = f.out[:copy(f.out, f.out[whole:])]
	return err
}

// behind is an item's delay behind its scan.
func (f *Face) behind(item int) time.Duration {
	if !f.model.items {
		return 0
	}
	return time.Duration(float64(item) * f.beat.Step / float64(len(f.scanList)))
}

// word is what an item of the scan sends.
func (f *Face) word(i int, item uint16, p measure.Watt, digital byte) uint16 {
	if item == digitalItem {
		return uint16(digital) << 8
	}
	shift := 16 - f.model.bits
	full := f.model.ranges[item>>8]
	v := f.inputs.Volts(int(item&0xFF), p) / full * float64(int(1)<<(f.model.bits-1))
	if f.cfg.Noise > 0 {
		v += f.cfg.Noise * f.rng.NormFloat64()
	}
	most := float64(int(1)<<(f.model.bits-1) - 1)
	w := uint16(int16(min(max(math.Round(v), -most-1), most))) << shift
	if f.cfg.Numbered && (i == 0 || i == 1 && f.scanList[0] == digitalItem) {
		w = uint16(f.beat.Next) << shift
	}
	if i == 0 && f.model.bits == 12 {
		w |= uint16(digital) // which the first item carries
	}
	return w
}

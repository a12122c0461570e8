package pmd2

import (
	"encoding/binary"
	"fmt"

	"wattmark/measure"
)

// Sensors of a device, and the size of their readings on the wire.
const (
	Sensors    = 10
	ReplyBytes = 4 + sensorSize*Sensors + 8 + Sensors
	sensorSize = 10
)

// What a sensor can show at all: beyond, a reply is out of step.
const (
	mostMillivolts   = 30_000
	mostMilliamperes = 200_000
)

// Parse reads a reply into counts: the millivolts and milliamperes of each
// sensor, in turn. There is no check sum. What there is instead is the power
// that the device itself makes of each pair: where one does not fit, the bytes
// are not what they seem.
func Parse(b *[ReplyBytes]byte, counts *[2 * Sensors]measure.Count) error {
	for s := range Sensors {
		p := b[4+sensorSize*s:]
		mV := int64(int16(binary.LittleEndian.Uint16(p)))
		mA := int64(int32(binary.LittleEndian.Uint32(p[2:])))
		mW := int64(int32(binary.LittleEndian.Uint32(p[6:])))
		// A filter of its own may stand between these: a quarter and 5 W are allowed.
		off := abs(mW - mV*mA/1000)
		if abs(mV) > mostMillivolts || abs(mA) > mostMilliamperes || off > abs(mV*mA/4000)+5000 {
			return fmt.Errorf("%s shows %d mV, %d mA and %d mW: the reply is out of step", sensors[s], mV, mA, mW)
		}
		counts[2*s], counts[2*s+1] = measure.Count(mV), measure.Count(mA)
	}
	return nil
}

func abs(x int64) int64 { return max(x, -x) }

package wt300

import (
	"encoding/binary"
	"fmt"
	"math"

	"wattmark/measure"
	"wattmark/monitor/scpi"
)

// What FLOAT sends where there is no value.
var (
	nothing  = math.Float32bits(9.91e37) // no data
	infinite = math.Float32bits(9.9e37)  // over range, overflow, error
)

const bytesItem = 4

// readings turns a block of big-endian floats into counts of the channels' steps.
// Over-range, and what no meter of these ranges shows, stands at ±limitCount; ok
// is false where an item has no data.
func readings(data []byte, channels []measure.Channel, counts []measure.Count) (ok bool, err error) {
	if len(data) != bytesItem*len(channels) {
		return false, fmt.Errorf("%w: %d bytes of values, %d are due", scpi.ErrReply, len(data), bytesItem*len(channels))
	}
	ok = true
	for i, c := range channels {
		bits := binary.BigEndian.Uint32(data[bytesItem*i:])
		v := float64(math.Float32frombits(bits))
		switch {
		case bits == nothing || math.IsNaN(v):
			ok = false
		case bits&^(1<<31) == infinite:
			v = math.Copysign(math.Inf(1), v)
		}
		if ok {
			counts[i] = count(v / c.Gain)
		}
	}
	return ok, nil
}

// count rounds to a whole number of steps.
func count(n float64) measure.Count {
	return measure.Count(min(max(math.RoundToEven(n), -limitCount), limitCount))
}

// Package powenetics drives a Powenetics v2: thirteen connectors of a PC, the
// graphics card's slot and plugs among them, at about 1000 scans a second over a
// serial line of 921600 baud.
//
// On the wire a frame is 69 bytes, big-endian, without a checksum:
//
//	CA AC                   mark
//	u16                     number of the frame, counting up and wrapping
//	13 × {u16 mV, u24 mA}   the connectors
//
// The number tells exactly what was lost; a frame's true length is seen by the
// mark and the number of the next. The device stamps no time and has no command
// that stops it: once started it sends until it loses its power.
package powenetics

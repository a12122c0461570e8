// Package powersensor3 drives a PowerSensor3: four pairs of a current and a
// voltage sensor at 20 kHz over USB CDC (firmware 1.6).
//
// On the wire a frame is a time stamp (µs modulo 1024) and up to eight sensors,
// two bytes each:
//
//	byte 0: 1 i i i a a a a    sensor id, high bits of the level
//	byte 1: 0 m b b b b b b    marker, low bits of the level
//
// The stamp is a packet of sensor 7 with the marker set. There is no checksum:
// what is lost shows in the ids and in the stamps.
package powersensor3

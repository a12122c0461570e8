// Package pmd drives an ElmorLabs PMD-USB: four connectors, each with a voltage
// and a current, at some 4.8 thousand scans a second over a CH340 serial port.
//
// In continuous mode a record is a time stamp (16 bits, little-endian) and one
// 16-bit word a channel with a signed 12-bit count in bits 15..4 and zeros below:
//
//	tt tt | v0 VV | i0 II | v0 VV | i0 II | v0 VV | i0 II | v0 VV | i0 II
//
// There is no delimiter and no checksum. The zeros and the step of the stamps
// are all that tells a record from its neighbours.
package pmd

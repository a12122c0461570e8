// Package labjack drives a LabJack T7 or T8 over Ethernet: registers over Modbus TCP
// (port 502), scans over a second connection (port 702).
//
// A stream packet is big-endian: a header of 16 bytes, then whole scans of u16.
//
//	0 transaction  2 protocol (0)  4 length of what follows  6 unit  7 function 76
//	8 type 16      9 –            10 backlog  12 status  14 more to the status
//
// The device tells what it lost: status 2941 ends a loss, with the number of
// scans in the last field. A T7 converts its inputs one after another, a T8 at once.
package labjack

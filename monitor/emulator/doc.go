// Package emulator is a bench in software, so that everything above the wire
// can be tried, tested and shown without a riser card.
//
//	board        a GPU's supply: loads over time, slew, drift, rails; knows its exact energy
//	pace         board time against a wall clock, or as fast as the reader takes the data
//	meter        the board read without a wire, for tests
//	fault, pty   a line that loses and spoils bytes; a serial port in software
//
// One folder a device, named as its driver in monitor/instrument, turns the board's
// power into the device's bytes:
//
//	powersensor3, pmd, pmd2, powenetics, serialtext, dataq    serial: internal/line
//	labjack, nidaqmx, quarch                                  Modbus TCP, gRPC, text over TCP
//	u2300, wt300                                              SCPI: scpi
//	keysight, rigol, rohdeschwarz, siglent, tektronix         SCPI, oscilloscopes: scope
//
// A device listens on a pty.Port or a TCP connection, most behind a fault.Line. The model
// (state advanced by time) is kept apart from the protocols (bytes). Drivers are tested
// against these devices in their own folders; tests over several drivers are here.
package emulator

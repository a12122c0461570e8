// Package nidaqmx drives National Instruments' multiplexed DAQ devices, above all
// the USB-6259 of the papers, through NI's gRPC Device Server: the machine with
// the device runs NI's driver and server, this package is a plain gRPC client.
//
// A task is made, its inputs are added, and samples are read as the converter
// gave them (ReadRaw: little-endian i16, scan by scan). The device tells the
// polynomial from codes to volts, the rate that it keeps and the rate at which it
// converts one input after the other. What a full buffer loses is counted by the
// position at which reading goes on.
package nidaqmx

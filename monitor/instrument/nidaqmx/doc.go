// Package nidaqmx drives National Instruments' multiplexed DAQ devices, above all
// the USB-6259 of the papers, through NI's gRPC Device Server: the machine with
// the device runs NI's driver and server, this package is a plain gRPC client.
//
// A task is made, its inputs are added, and samples are read as the converter
// gave them (ReadRaw: little-endian i16, scan by scan). The device tells the
// polynomial from codes to volts, the rate that it keeps and the rate at which it
// converts one input after the other. What a full buffer loses is counted by the
// position at which reading goes on.
//
// # Where the numbers come from
//
// Calls, fields and enum values of making a task, its inputs, its clock, starting,
// reading and clearing, the trailers and the behaviour of sessions were seen at
// work on NI's own server. CfgInputBuffer, the calls that read and set attributes,
// the numbers of attributes, errors and read modes were read in NI's published
// interface (nidaqmx.proto and its list of errors). That reads can be moved and
// where the position then stands is the manual's word, as are accuracy, noise and
// rates of the USB-6259. From memory: which errors mean that the device has
// stopped by itself, and the noise on small ranges.
package nidaqmx

// Package pmd2 drives an ElmorLabs PMD2: ten sensors of a voltage and a current
// each, over USB CDC. The device answers commands of one byte:
//
//	00  "ElmorLabs PMD2" and a zero; it also greets with this when it is opened
//	01  vendor EE, product 15, firmware
//	02  a number of its own, 12 bytes
//	04  the readings, 122 bytes, little-endian and packed:
//	    supply mV u16, temperature i16; ten times mV i16, mA i32, mW i32;
//	    W of EPS, PCIe, mainboard and all u16; ten states of overcurrent u8
//
// This is what the maker's published example shows. It has a command 05 as well,
// for a stream; its form is published nowhere, so that the driver asks instead.
package pmd2

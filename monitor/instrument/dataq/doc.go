// Package dataq drives DATAQ's DI-1100, DI-2108 and DI-2108-P in their CDC mode:
// text commands that end in a carriage return and are echoed, and after start a
// bare stream of little-endian words, one for each item of the scan list.
//
//	DI-1100   12 bits, left-justified; bits 1 and 0 of the first item are the two
//	          digital inputs
//	DI-2108   16 bits; the digital inputs are an item of their own, their state in
//	          the high byte
//
// There is no delimiter, no number and no check sum. The bits that never change
// tell where a scan begins; how many whole scans are missing, only the host's
// clock knows.
package dataq

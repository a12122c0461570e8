// Package serialtext reads any microcontroller that prints lines of numbers, or
// sends small frames of binary ones, over a serial line: an INA226 or INA228
// board, an ADC on an Arduino. A pattern in the bench file names the fields:
//
//	{seq},{t:us},{aux.current:mA.1},{aux.voltage:mV}
//
//	NAME:UNIT      a channel in V, mV, uV, A, mA, uA, W or mW
//	     .DIGITS   so many decimals are kept, as whole counts (text only, default 0)
//	     *FACTOR   of the unit, for what the board does not scale itself
//	t:UNIT         the board's time, an unsigned 32-bit number of us or ms
//	seq            the line's number; seq:u8 and seq:u16 wrap sooner than 32 bits
//	*              a word that is not wanted (text only)
//	xor            two hex digits: XOR of all bytes of the line before it (text only)
//
// All else stands for itself. Numbers become counts without rounding.
package serialtext

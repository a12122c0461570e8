// Package wt300 drives a Yokogawa WT300 digital power meter (WT310, WT332, WT333
// and their E models) as a slow reference: some ten readings a second of a
// supply's voltage, current and power, which it multiplies itself.
//
//	Open    ranges, mode, rate and items are set, read back and compared
//	Stream  :COMM:WAIT 1;:STAT:EESR?;:NUM:NORM:VAL?  waits for the next update,
//	        clears its mark and reads it, in one message
//
// A reading is the mean over one update. Its tick is the middle of that: the
// instant of its arrival less half an update. It is shown half an update later,
// which is its channels' skew. Readings are floats; they are kept as whole numbers
// of a step that is finer than the meter, see step.
package wt300

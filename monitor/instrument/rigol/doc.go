// Package rigol drives a Rigol DS1000Z oscilloscope (DS1054Z and its sisters) as
// a deferred instrument: one single acquisition into deep memory between start
// and stop, read afterwards.
//
//	Open    channels, window and depth are set, read back, and compared
//	Stream  :SING, wait until armed, :TFOR ─▶ Armed
//	        until ctx ends: the scope samples; then :STOP if it still does
//	        :WAV:DATA? in pieces of 250 000 points, channel by channel ─▶ Blocks
//
// The forced trigger stands at the left edge, so that memory holds the FIRST
// points of the capture: time zero is known when it begins. A capture longer
// than the window ends in a gap.
package rigol

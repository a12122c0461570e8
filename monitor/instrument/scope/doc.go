// Package scope drives oscilloscopes as deferred instruments: one single
// acquisition into deep memory between start and stop, read afterwards.
//
//	Device (this package)                      Dialect (a family's package)
//	Open    connect, identify                ─▶ SetUp, then the error queue, ReadBack, Scale
//	Stream  arm, wait until it waits         ─▶ Arm, State, Force ─▶ Armed
//	        until ctx ends: the scope samples ─▶ State; then Stop
//	        Held, then piece by piece, channel by channel ─▶ Read ─▶ Blocks
//
// A family is a Family (what is known without a scope) with a Dialect (its
// commands), and rows in the table of models. Retries, reconnection, progress,
// time, and the account of what is lost are the Device's alone.
//
// The forced trigger stands at the left edge, so that memory holds the FIRST
// points of the capture: time zero is known when it begins. A capture longer
// than the window ends in a gap.
package scope

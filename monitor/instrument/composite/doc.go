// Package composite makes one instrument of several: two scopes for six signals, a
// DAQ for the slot beside a serial meter for the plugs. What comes out is one
// stream on the timebase of the fastest member, the base.
//
//	member ─▶ feed ─┐ (a goroutine each; blocks are copied, host's time noted)
//	member ─▶ feed ─┼─▶ session ─▶ tracks ─▶ merger ─▶ Sink
//	member ─▶ feed ─┘       │         ▲
//	                        ├─▶ lead: how a member's clock runs against the host's
//	                        ├─▶ detector: the start marker in the member's own power
//	                        └─▶ spool file, where a member delivers only at the end
//
// # Placing
//
// Every scan of the base shows, of each other member, the reading that is nearest
// in time: a reading of a slower member stands from half-way to its predecessor
// to half-way to its successor. So each of its counts appears, the hold delays
// nothing on average, and no count is made up. A scan of the base for which a
// member has no reading within half of its period, because the member lost
// some, is left out and is part of an EventGap. A member that runs faster than
// the base, by the tolerance of two crystals, has a reading now and then that
// no scan shows; a note at the end counts them.
//
// Held readings are not independent: Inputs gives the longest hold as the
// Response's Update, by which the budget counts independent readings.
//
// # Aligning
//
// Trigger: all first scans were taken at one instant. Clock: device times are
// compared through the arrival of blocks at the host. Markers: as Clock until the
// start marker was seen in every member's own power, then by that; output lags
// behind by the length of a marker meanwhile, so that the marker itself and all
// behind it lie right, while the capture runs: the host plays its marker only
// once the first scans have come. From there on the rates of the members are
// compared through the host's clock (series.Rate's least delays, as lines), or,
// where the whole is deferred, by the two markers.
package composite

// Package measure is the physics of wattmark: from raw counts to joules with an honest uncertainty.
// It is pure: no files, no sockets, no clocks.
//
//	Count ──Channel (gain, offset, u)──▶ volts, amperes, watts
//	  │                                        │
//	Block (scans × channels, device ticks)   Rail (one of four wirings) ──▶ Watt
//	  │                                        │
//	Timebase (ticks → seconds)               Integrator ──▶ Joule, mean, peak
//	                                           │
//	                                         Budget (GUM) ──▶ E ± U (k = 2)
//
// A scan is one reading of every channel at one instant; a block is a run of
// consecutive scans without a gap. Subpackages: chunk (the stored and wired
// form of scans), marker (codes and their detection), clock (host ↔ meter),
// stability (Allan deviation, noise floor), quality (a verdict on a result).
package measure

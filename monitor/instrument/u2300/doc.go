// Package u2300 drives a Keysight U2300A data acquisition device (U2351A to
// U2356A): up to 64 multiplexed 16-bit inputs, streamed without an end.
//
//	Open    ranges, polarities, scan list, rate are set, read back and compared
//	Stream  RUN; WAV:STAT? until DATA; WAV:DATA? ─▶ a block of scans; …; STOP
//
// Scans carry neither a number nor a stamp. While the device says no OVER its
// memory has held all of them, so their number is their time. After OVER, or an
// exchange that failed, nobody can tell what is lost: the acquisition is begun
// anew, and the host's clock says how long nothing was measured.
package u2300

// Package capture takes captures: it owns the instrument, arbitrates who has
// the bench, and gives the samples away until they are released.
//
//	Start ──▶ Owner (one goroutine, owns the instrument)
//	             │ instrument.Sink
//	             ▼
//	          pipeline: stitch ─▶ detector ─▶ markers, the trim
//	             │           └──▶ encoder ─▶ over-range ─▶ spool.Log
//	             └─▶ live watchers (may drop, and count)
//	Read ◀── spool.Reader, while the log is written
//
// A capture's life is the transition table in state.go, and in
// docs/protocol.md. What ends a capture (a stop, an ended lease, a lost meter,
// a full disk) seals its pipeline: the tail is coded, the last state is written
// and made durable, and only then is anybody told.
package capture

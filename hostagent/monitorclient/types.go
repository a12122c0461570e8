// Package monitorclient talks to a monitor over gRPC: it takes the bench,
// keeps the lease alive, and reads the samples back, however often the line
// breaks. Its types are the product's own; the generated ones stay inside.
package monitorclient

import (
	"errors"
	"time"

	"wattmark/measure"
	"wattmark/measure/chunk"
	"wattmark/measure/marker"
	"wattmark/store"
)

// Sentinel errors, wrapped with what was done and what to do next.
var (
	// ErrBusy: somebody else holds the bench.
	ErrBusy = errors.New("bench is busy")
	// ErrGone: the monitor does not hold the capture.
	ErrGone = errors.New("capture is not on the monitor")
	// ErrUnreachable: the monitor does not answer.
	ErrUnreachable = errors.New("monitor does not answer")
	// ErrPastEnd: the monitor has less of the capture than it has sent: its disk lost
	// the rest.
	ErrPastEnd = errors.New("past the end of the capture")
	// ErrDamaged: what the monitor's disk has of the capture does not match its checksum.
	ErrDamaged = errors.New("capture is damaged on the monitor")
	// ErrRunning: the capture still runs, and was not to be followed.
	ErrRunning = errors.New("capture still runs")
	// ErrMismatch: what arrived is not what the monitor sent.
	ErrMismatch = errors.New("stream does not match its trailer")
)

// State is the state of a capture on the monitor. The numbers are those of the protocol.
type State uint8

// The states.
const (
	Arming     State = 1
	Running    State = 2
	Stopping   State = 3
	Complete   State = 4
	Incomplete State = 5
	Released   State = 6
)

// Ended reports whether no more samples will come.
func (s State) Ended() bool { return s >= Complete }

// Bench is what a monitor measures with, and who holds it.
type Bench struct {
	Name string
	// GPU is the UUID of the GPU that the bench measures; empty where nobody said.
	GPU        string
	Instrument store.Instrument
	// Setup is empty where the instrument was never opened and cannot be now.
	Setup measure.Setup
	// Trouble is why the instrument cannot be used, as far as the monitor knows: from
	// a failure on until the instrument has answered again.
	Trouble string
	// Nominal is Setup without calibration records, as far as the monitor tells;
	// Notes are on the records.
	Nominal       measure.Setup
	Notes         []string
	CalibrationID string
	Holder        string // empty when free
	HeldSince     time.Time
	CaptureID     string
	Waiting       []Waiting // in line for it, the first first
	Version       string
	// Protocol is what the monitor speaks; Bridged says what is missing between its
	// version and this one, and is empty where nothing is.
	Protocol Protocol
	Bridged  string
	// Draining: it takes no new captures, because it is being stopped.
	Draining bool
	// SetAside says what of the monitor's spool could not be used.
	SetAside []string
}

// Waiting is somebody who stands in line for a bench.
type Waiting struct {
	Holder string
	Since  time.Time
}

// StartRequest asks for a capture.
type StartRequest struct {
	Holder   string // user@host, shown to others
	TaskName string
	Marker   marker.Spec
	Lease    time.Duration // 30 s when zero
	Wait     time.Duration // how long to queue for a busy bench
}

// Started confirms a capture.
type Started struct {
	CaptureID           string
	SampleRate          measure.Hertz
	Instrument          store.Instrument
	CalibrationID       string
	Started, LeaseUntil time.Time // monitor's wall clock
}

// Capture is one capture that the monitor holds.
type Capture struct {
	ID, Holder, TaskName string
	Started              time.Time
	State                State
	Reason               string
	SpoolBytes           uint64
}

// Window is a span of device time.
type Window = measure.Window

// Summary is what a capture came to.
type Summary struct {
	State                        State
	Reason                       string // why it is incomplete
	Scans, Lost, Gaps, OverRange uint64
	Chunks, FirstChunk, EndChunk uint64 // in the spool; the trimmed stream is [FirstChunk, EndChunk)
	Markers                      []marker.Found
	Window                       *Window // nil when a marker is missing
	NoWindowReason               string
	End                          measure.Seconds // device time at the end of the last scan
}

// Trailer ends a stream.
type Trailer struct {
	Summary       Summary
	Chunks, Scans uint64
	CRC           uint32
}

// ReadOptions says what to read.
type ReadOptions struct {
	CaptureID string
	From      uint64 // first chunk wanted
	Follow    bool   // stay on the line until the capture has ended
	Untrimmed bool   // also what lies outside the markers
}

// Sink takes what a stream brings, in order. Chunks are borrowed until the
// call returns. An error ends the stream and is returned by Read.
type Sink interface {
	chunk.Sink
	// Header comes first, and again each time the stream is resumed.
	Header(h store.Header, firstChunk uint64) error
}

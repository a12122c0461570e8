// Package session holds what a monitor and its hosts exchange about captures, each
// type declared once: the monitor fills it in, api/wire converts it to and from the
// messages of wattmark.v1, and host, live view and command line read it.
//
//	Bench    a monitor's instrument, setup and holder; Waiting is its queue
//	Request  asks for the bench; Started confirms
//	State    of a capture: Arming → Running → Stopping → Complete or Incomplete → Released
//	Capture  one line of a list of captures
//	Header   opens a stream of samples, Trailer with its Summary ends it
//	Moment   one average of a live view, a RailValue per rail
//
// Times in seconds are device time; time.Time is the monitor's wall clock. Values are
// plain data without methods that block, and may be copied.
package session

import (
	"fmt"
	"time"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/marker"
)

// State is the state of a capture. The numbers travel and are stored, also in JSON: never
// renumber, and never marshal them as text.
type State uint8

// The states, in the order of a capture's life.
const (
	Arming     State = 1 // the instrument is being opened, no scan yet
	Running    State = 2 // sampling
	Stopping   State = 3 // stop requested; the tail is still on its way
	Complete   State = 4 // ended as requested; readable
	Incomplete State = 5 // ended otherwise, with a reason; readable up to there
	Released   State = 6 // given back; the samples are dropped
)

var stateNames = map[State]string{
	Arming: "ARMING", Running: "RUNNING", Stopping: "STOPPING",
	Complete: "COMPLETE", Incomplete: "INCOMPLETE", Released: "RELEASED",
}

// String returns the state's name in the protocol, "state(n)" for an unknown number.
func (s State) String() string { return measure.NameOf(stateNames, s, "state") }

// Ended reports whether no more samples will come.
func (s State) Ended() bool { return s >= Complete }

// Protocol is the version of wattmark.v1 that a peer speaks. Peers of equal major
// numbers understand each other; a larger minor number only adds.
type Protocol struct {
	Major uint32 `json:"major"`
	Minor uint32 `json:"minor"`
}

func (p Protocol) String() string { return fmt.Sprintf("%d.%d", p.Major, p.Minor) }

// Fits reports whether two peers understand each other.
func (p Protocol) Fits(q Protocol) bool { return p.Major == q.Major }

// Bench is a monitor's measuring setup and its present use.
type Bench struct {
	Name string `json:"name"`
	// GPU is the UUID of the GPU that the bench measures; empty where unknown.
	GPU        string           `json:"gpu_uuid,omitempty"`
	Instrument measure.Identity `json:"instrument"`
	// Setup, with the calibration records in force, and Nominal, without them, have no
	// channels until the instrument was opened once.
	Setup         measure.Setup `json:"setup"`
	Nominal       measure.Setup `json:"nominal"`
	CalibrationID string        `json:"calibration_id"`
	Notes         []string      `json:"notes,omitempty"` // on the calibration records, for the operator
	// Trouble is the reason why the instrument cannot be used: from a failure on until
	// it answers again.
	Trouble   string    `json:"trouble,omitempty"`
	Holder    string    `json:"holder"` // user@host; empty for a free bench
	HeldSince time.Time `json:"held_since,omitzero"`
	CaptureID string    `json:"capture_id"`        // of the capture that holds the bench
	Waiting   []Waiting `json:"waiting,omitempty"` // first in the queue first
	// Draining: no new captures are taken, the monitor is stopping.
	Draining bool `json:"draining"`
	// SetAside lists the parts of the spool that could not be used at start-up.
	SetAside []string `json:"set_aside,omitempty"`
	Version  string   `json:"version"`
	Protocol Protocol `json:"protocol"`
	// Bridged is, on a host, the difference between two versions that understand each
	// other; empty where there is none.
	Bridged string `json:"bridged,omitempty"`
}

// Known reports whether the instrument's setup is known.
func (b *Bench) Known() bool { return len(b.Setup.Channels) > 0 }

// Waiting is one entry in the queue for a bench.
type Waiting struct {
	Holder string    `json:"holder"`
	Since  time.Time `json:"since"`
}

// Request asks for a capture.
type Request struct {
	Holder string `json:"holder"` // user@host, shown to other users
	// Owner is the authenticated user who may end and release the capture. The monitor
	// sets it; empty where callers are not authenticated.
	Owner    string `json:"owner,omitempty"`
	TaskName string `json:"task_name"`
	// Marker is the pattern to look for; code marker.None for none.
	Marker marker.Spec `json:"marker"`
	// Lease ends the capture when not renewed for so long: 1 s to 24 h, 30 s when zero.
	Lease time.Duration `json:"lease"`
	// Wait is the longest time in the queue for a busy bench; zero fails at once.
	Wait time.Duration `json:"wait"`
}

// Started confirms a capture.
type Started struct {
	CaptureID     string           `json:"capture_id"`
	SampleRate    measure.Hertz    `json:"sample_rate_hz"`
	Instrument    measure.Identity `json:"instrument"`
	CalibrationID string           `json:"calibration_id"`
	Started       time.Time        `json:"started"` // at device time zero
	LeaseUntil    time.Time        `json:"lease_until"`
}

// Capture is one capture in a monitor's list.
type Capture struct {
	ID         string    `json:"capture_id"`
	Holder     string    `json:"holder"`
	TaskName   string    `json:"task_name"`
	Started    time.Time `json:"started,omitzero"`
	State      State     `json:"state"`
	Reason     string    `json:"reason,omitempty"` // of an incomplete capture
	SpoolBytes uint64    `json:"spool_bytes"`
	// Released: the host has the samples, and replication does not yet. Only the
	// monitor itself sees it; on the wire it is part of Reason.
	Released bool `json:"-"`
}

// Summary is the result of a capture, final once State.Ended.
type Summary struct {
	State     State  `json:"state"`
	Reason    string `json:"reason,omitempty"` // of an incomplete capture
	Scans     uint64 `json:"scans"`
	Lost      uint64 `json:"scans_lost"` // scans lost in gaps
	Gaps      uint64 `json:"gaps"`
	OverRange uint64 `json:"over_range"` // readings at an end of a converter's range
	Chunks    uint64 `json:"chunks"`
	// The trimmed stream is the chunks [FirstChunk, EndChunk).
	FirstChunk uint64         `json:"first_chunk"`
	EndChunk   uint64         `json:"end_chunk"`
	Markers    []marker.Found `json:"markers,omitempty"`
	// Window runs from the end of the start marker to the begin of the stop marker; nil
	// where one is missing, with the reason in NoWindowReason once the capture has ended.
	Window         *measure.Window `json:"window,omitempty"`
	NoWindowReason string          `json:"no_window_reason,omitempty"`
	End            measure.Seconds `json:"end_s"` // end of the last scan
}

// Header is everything that is known of a capture before its first sample. The spool
// stores it as JSON in this order of fields: add at the end, never rename.
type Header struct {
	CaptureID string `json:"capture_id"`
	Bench     string `json:"bench"`
	Holder    string `json:"holder"`
	// Owner is the authenticated user who took the capture; see Request.Owner.
	Owner         string           `json:"owner,omitempty"`
	TaskName      string           `json:"task_name"`
	Created       time.Time        `json:"created"`
	Instrument    measure.Identity `json:"instrument"`
	Setup         measure.Setup    `json:"setup"`
	CalibrationID string           `json:"calibration_id"`
	Marker        marker.Spec      `json:"marker"`
	// GPU is the UUID of the GPU that the bench measures; empty where unknown.
	GPU string `json:"gpu,omitempty"`
}

// Opening opens a stream of samples.
type Opening struct {
	Header
	Started    time.Time // at device time zero
	FirstChunk uint64    // number of the first chunk that follows
}

// Trailer ends a stream that reached the end of its capture.
type Trailer struct {
	Summary Summary `json:"summary"`
	// Chunks, Scans and CRC cover the whole stream, wherever it was resumed: CRC is the
	// CRC-32C over the chunks' own, each as four little-endian bytes.
	Chunks uint64 `json:"chunks"`
	Scans  uint64 `json:"scans"`
	CRC    uint32 `json:"crc32c"`
}

// WatchOptions selects the moments of a live view.
type WatchOptions struct {
	// Every is the distance of the moments in device time; 100 ms when zero.
	Every time.Duration
	// Idle also samples a bench that nobody holds, until it is taken.
	Idle bool
	// Wave adds Moment.Wave.
	Wave bool
}

// RailValue is one rail, averaged over a moment. Voltage and Current are 0 where the
// rail is measured as power.
type RailValue struct {
	Rail    string         `json:"rail"`
	Power   measure.Watt   `json:"power_w"`
	Voltage measure.Volt   `json:"voltage_v"`
	Current measure.Ampere `json:"current_a"`
}

// Moment is one average of a live view, over the time since the moment before.
type Moment struct {
	CaptureID string          `json:"capture_id"` // empty for a free bench
	T         measure.Seconds `json:"t_s"`        // at the end of the average
	Rails     []RailValue     `json:"rails"`
	Total     measure.Watt    `json:"total_w"`
	Dropped   uint64          `json:"dropped"` // moments lost so far because the viewer was slow
	// Rate, Scans, Lost, Gaps and OverRange are zero from a monitor of protocol 1.0.
	// They count from the begin of the capture, or of the look at the free bench.
	Rate      measure.Hertz `json:"sample_rate_hz"`
	Scans     uint64        `json:"scans"`
	Lost      uint64        `json:"lost"` // scans
	Gaps      uint64        `json:"gaps"`
	OverRange uint64        `json:"over_range"` // readings at an end of a converter's range, as far as known
	// Min and Max are the least and the greatest sum of the rails among the scans; both 0 from an
	// older monitor.
	Min measure.Watt `json:"-"`
	Max measure.Watt `json:"-"`
	// Wave is the sum of the rails as means over stretches of Step, since the moment before.
	Wave []measure.Watt  `json:"-"`
	Step measure.Seconds `json:"-"`
	// Trouble is the reason why a free bench cannot be sampled; there are no rails then.
	Trouble string `json:"trouble,omitempty"`
}

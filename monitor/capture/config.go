package capture

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"wattmark/measure"
	"wattmark/measure/chunk"
	"wattmark/measure/marker"
	"wattmark/monitor/instrument"
	"wattmark/monitor/spool"
)

// Config is what an Owner is made of. Zero durations mean the defaults.
type Config struct {
	// Bench is the bench's name.
	Bench string
	// GPU is the UUID of the GPU that the bench measures; empty where the bench
	// file does not say.
	GPU string
	// Instrument is owned by the Owner from New on.
	Instrument instrument.Instrument
	// Setup makes rails of what the instrument delivers, with the calibration in
	// force.
	Setup func(instrument.Inputs) (measure.Setup, error)
	// Calibrate puts calibration records on what Setup made, each time the
	// instrument is opened for a capture, with notes for the operator; nil for no
	// records.
	Calibrate func(measure.Setup, instrument.Identity) (measure.Setup, []string, error)
	// Store keeps the captures.
	Store *spool.Store
	// Room is what the captures may take.
	Room Room
	// Hold keeps captures that were released until Owner.Replicated is told of them.
	Hold bool
	// Log gets what an operator wants to know; nil for silence.
	Log *slog.Logger
	// Now is the monitor's clock: time.Now when nil. What it says of the wall's time
	// may jump; spans are taken from its monotonic reading.
	Now func() time.Time

	// FlushEvery is how old a scan may grow before its chunk is ended and
	// written: 200 ms. A slow meter's chunk waits up to five times as long for a
	// full coding block.
	FlushEvery time.Duration
	// ChunkScans ends a chunk: chunk.MaxScans.
	ChunkScans int
	// Reopen is how long a lost instrument is tried again before the capture is
	// given up: 10 s. Negative: not at all.
	Reopen time.Duration
	// OpenTimeout bounds one opening of the instrument: 10 s.
	OpenTimeout time.Duration
	// ArmTimeout is how long the first scan may take once the instrument is
	// open: 10 s.
	ArmTimeout time.Duration
	// StopTail is how much device time after a stop request is still awaited
	// when the stop marker was not seen yet, beyond the instrument's response
	// and four chips: 150 ms. A line may hold samples back for that long without
	// the monitor knowing.
	StopTail time.Duration
	// StopGrace bounds that wait on the wall clock, beyond the tail: 1.5 s. It is
	// used up only where the tail does not come: a driver that judges a silence
	// holds scans back for 0.6 s, and a machine may be busy.
	StopGrace time.Duration
}

const (
	defaultLease = 30 * time.Second
	minLease     = time.Second
	maxLease     = 24 * time.Hour
	// maxChip bounds how long the bench can be held after a stop request. The
	// slowest meter's chips take 26 s.
	maxChip = time.Minute
)

func (c Config) withDefaults() Config {
	def := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	def(&c.FlushEvery, 200*time.Millisecond)
	def(&c.Reopen, 10*time.Second)
	def(&c.OpenTimeout, 10*time.Second)
	def(&c.ArmTimeout, 10*time.Second)
	def(&c.StopTail, 150*time.Millisecond)
	def(&c.StopGrace, 1500*time.Millisecond)
	if c.ChunkScans <= 0 {
		c.ChunkScans = chunk.MaxScans
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}

// Request asks for a capture.
type Request struct {
	Holder   string // user@host, shown to others
	Owner    string // who may end and release it; empty where nobody was asked who they are
	TaskName string
	// Marker is what to look for; code marker.None for nothing.
	Marker marker.Spec
	// Lease ends the capture when it is not renewed for so long: 30 s, 1 s to 24 h.
	Lease time.Duration
	// Wait is how long to stand in line for a busy bench; zero fails at once.
	Wait time.Duration
}

// check fills in the defaults. Errors wrap ErrRequest.
func (r *Request) check() error {
	if r.Holder == "" {
		return fmt.Errorf("%w: no holder: say who asks, as user@host", ErrRequest)
	}
	// The next who wants the bench is shown both.
	if err := errors.Join(measure.CheckText("holder", r.Holder), measure.CheckText("task", r.TaskName)); err != nil {
		return fmt.Errorf("%w: %w", ErrRequest, err)
	}
	if r.Lease == 0 {
		r.Lease = defaultLease
	}
	if r.Lease < minLease || r.Lease > maxLease {
		return fmt.Errorf("%w: a lease of %v: want %v to %v", ErrRequest, r.Lease, minLease, maxLease)
	}
	if r.Wait < 0 {
		return fmt.Errorf("%w: a wait of %v", ErrRequest, r.Wait)
	}
	if r.Marker.Code != marker.None {
		if err := r.Marker.Validate(); err != nil {
			return fmt.Errorf("%w: %w", ErrRequest, err)
		}
		if chip := r.Marker.Chip; chip > measure.SecondsOf(maxChip) {
			return fmt.Errorf("%w: a marker's chip of %g s: want at most %v, since the stop marker is awaited for four", ErrRequest, float64(chip), maxChip)
		}
	}
	return nil
}

// Bench is what is measured and who has it.
type Bench struct {
	Name string
	// GPU is the UUID of the GPU that is measured; empty where nobody said.
	GPU        string
	Instrument instrument.Identity
	// Setup is nil while the instrument's inputs are not known; Err then says why.
	Setup         *measure.Setup
	CalibrationID string
	// Nominal is Setup without calibration records; nil as Setup is. Notes tell
	// what an operator should know of the records.
	Nominal *measure.Setup
	Notes   []string
	// Err is why the instrument cannot be used: set when it fails, until it has
	// answered again.
	Err       error
	Holder    string // empty when the bench is free
	HeldSince time.Time
	CaptureID string
	// Waiting are those who want it next, the first in line first.
	Waiting []Waiting
	// Draining: nobody may take it any more.
	Draining bool
	// SetAside says what of the spool could not be used when the monitor started.
	SetAside []string
}

// Waiting is somebody who stands in line for the bench.
type Waiting struct {
	Holder string
	Since  time.Time
}

// Window is a span of device time.
type Window = measure.Window

// Summary is what a capture came to, or has come to so far.
type Summary struct {
	State      State
	Reason     string // why it is incomplete
	Scans      uint64
	Lost       uint64 // scans lost in gaps
	Gaps       uint64
	OverRange  uint64 // readings at the end of a converter's range
	Chunks     uint64
	FirstChunk uint64 // the trimmed stream is [FirstChunk, EndChunk)
	EndChunk   uint64
	Markers    []marker.Found
	Window     *Window // from the end of the start marker to the begin of the stop marker
	// NoWindowReason says why an ended capture has no window.
	NoWindowReason string
	// End is the device time at the end of the last scan.
	End measure.Seconds
}

// Info is one capture in a list.
type Info struct {
	CaptureID, Holder, TaskName string
	Started                     time.Time
	State                       State
	Reason                      string
	SpoolBytes                  int64
	// Released: its host needs it no more, and it is kept until it is replicated.
	Released bool
}

// Package capture takes captures: it owns the instrument, grants the bench to one holder
// at a time, and serves the samples until they are released.
//
//	Start ─▶ queue ─▶ Owner (one goroutine, owns the instrument)
//	                    │ instrument.Sink
//	                    ▼
//	                 Capture ─▶ pipeline.Pipeline ─▶ spool.Log
//	Read  ◀── spool.Reader, while the log is written
//	Watch ◀── pipeline.Viewers (may drop moments, and count them)
//
//	Owner    the bench: instrument, queue, captures
//	Capture  one run of samples, from the request to the release
//	queue    holders that wait for the bench, served by turns of their users
//	lease    ends a capture whose host is gone; claims keep one until host and replicas have it
//	Quota    bounds on the spool
//
// A capture's life is the transition table in state.go and docs/protocol.md. An end (a
// stop, an ended lease, a lost meter, a full disk) seals its pipeline: the tail is coded,
// the last state is written and made durable, and only then is the end visible.
package capture

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/chunk"
	"github.com/wattmark/wattmark/measure/marker"
	"github.com/wattmark/wattmark/measure/session"
	"github.com/wattmark/wattmark/monitor/instrument"
	"github.com/wattmark/wattmark/monitor/spool"
)

// Bench is a measuring setup, made from a bench file, or by hand in a test.
type Bench struct {
	// Name is shown to hosts.
	Name string
	// GPU is the UUID of the GPU that the bench measures; empty where unknown.
	GPU string
	// Instrument belongs to the Owner from New on.
	Instrument instrument.Instrument
	// Setup makes rails of the instrument's inputs, with the calibration in force. It is
	// called whenever the instrument was opened.
	Setup MakeSetup
	// Calibrate applies calibration records to the result of Setup; nil for none.
	Calibrate Calibrate
}

// Open opens the instrument, and makes the setup under which a monitor would measure now;
// notes are on the calibration records, for the operator. The caller closes the
// instrument, also after an error.
func (b *Bench) Open(ctx context.Context) (setup measure.Setup, notes []string, err error) {
	ins := b.Instrument
	if err := ins.Open(ctx); err != nil {
		return setup, nil, err
	}
	_, setup, notes, err = calibrated(ins.Inputs(), ins.Identity(), b.GPU, b.Setup, b.Calibrate)
	return setup, notes, err
}

// Config describes an Owner. Zero durations mean the defaults.
type Config struct {
	Bench
	// Store keeps the captures.
	Store *spool.Store
	// Quota bounds the captures.
	Quota Quota
	// AwaitReplicas keeps captures that were released until Owner.Replicated.
	AwaitReplicas bool
	// Log records events for the operator; nil for silence.
	Log *slog.Logger
	// Now is the monitor's clock; nil for time.Now. Its wall time may jump: spans are
	// taken from its monotonic reading.
	Now func() time.Time

	// FlushEvery is the age of a scan at which its chunk is ended and written: 200 ms.
	// See pipeline.Options.
	FlushEvery time.Duration
	// ChunkScans ends a chunk: chunk.MaxScans.
	ChunkScans int
	// Reopen is how long a lost instrument is tried again before the capture is given
	// up: 10 s. Negative: not at all.
	Reopen time.Duration
	// OpenTimeout bounds one opening of the instrument: 10 s.
	OpenTimeout time.Duration
	// ArmTimeout bounds the time from the opening to the first scan: 10 s.
	ArmTimeout time.Duration
	// StopTail is the device time after a stop request in which the stop marker is still
	// awaited, beyond the instrument's response and four chips: 1 s. A line or a busy
	// machine that has held back all samples since the first for as long, loses no marker.
	StopTail time.Duration
	// StopGrace bounds that wait on the wall clock, beyond the tail: 1.5 s. It passes
	// only where the tail does not come: a driver that judges a silence holds scans back
	// for 0.6 s, and a machine may be busy.
	StopGrace time.Duration
}

// MakeSetup makes rails of an instrument's inputs.
type MakeSetup = func(instrument.Inputs) (measure.Setup, error)

// Calibrate applies the calibration records for an instrument to a nominal setup, with
// notes on the records for the operator.
type Calibrate = func(measure.Setup, instrument.Identity) (measure.Setup, []string, error)

func (c Config) withDefaults() Config {
	c.FlushEvery = cmp.Or(c.FlushEvery, 200*time.Millisecond)
	c.Reopen = cmp.Or(c.Reopen, 10*time.Second)
	c.OpenTimeout = cmp.Or(c.OpenTimeout, 10*time.Second)
	c.ArmTimeout = cmp.Or(c.ArmTimeout, 10*time.Second)
	c.StopTail = cmp.Or(c.StopTail, time.Second)
	c.StopGrace = cmp.Or(c.StopGrace, 1500*time.Millisecond)
	c.ChunkScans = cmp.Or(max(c.ChunkScans, 0), chunk.MaxScans)
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	if c.Now == nil {
		c.Now = time.Now
	}
	return c
}

const (
	minLease = time.Second
	maxLease = 24 * time.Hour
	// maxChip bounds the time for which the bench can be held after a stop request. The
	// slowest meter's chips take 26 s.
	maxChip = time.Minute
	// deferredTail is for how long after a stop request, beyond the marker's tail, an
	// instrument samples that delivers later.
	deferredTail = 150 * time.Millisecond
)

// check fills in a request's defaults. Errors wrap ErrRequest.
func check(r *session.Request) error {
	if r.Holder == "" {
		return fmt.Errorf("%w: no holder: say who asks, as user@host", ErrRequest)
	}
	// Other users are shown both.
	err := errors.Join(measure.CheckText("holder", r.Holder), measure.CheckText("task", r.TaskName))
	if err != nil {
		return fmt.Errorf("%w: %w", ErrRequest, err)
	}
	r.Lease = cmp.Or(r.Lease, 30*time.Second)
	switch chip := r.Marker.Chip; {
	case r.Lease < minLease || r.Lease > maxLease:
		return fmt.Errorf("%w: a lease of %v: want %v to %v", ErrRequest, r.Lease, minLease, maxLease)
	case r.Wait < 0:
		return fmt.Errorf("%w: a wait of %v", ErrRequest, r.Wait)
	case r.Marker.Code == marker.None:
		return nil
	case chip > measure.SecondsOf(maxChip):
		return fmt.Errorf("%w: a marker's chip of %g s: want at most %v, since the stop marker is awaited for four",
			ErrRequest, float64(chip), maxChip)
	}
	if err := r.Marker.Validate(); err != nil {
		return fmt.Errorf("%w: %w", ErrRequest, err)
	}
	return nil
}

// Sentinel errors, wrapped with the operation and the remedy.
var (
	// ErrBusy: another holder has the bench; the error is a *BusyError.
	ErrBusy = errors.New("bench is busy")
	// ErrUnknown: there is no such capture on this monitor.
	ErrUnknown = errors.New("no such capture")
	// ErrRequest: a value of the request is out of its range.
	ErrRequest = errors.New("bad request")
	// ErrTransition: the capture's state does not allow it.
	ErrTransition = errors.New("not possible in this state")
	// ErrNoStart: a trimmed read of a running capture whose start marker was not yet seen.
	ErrNoStart = errors.New("no start marker yet")
	// ErrPastEnd: a read from a chunk that the capture does not have.
	ErrPastEnd = errors.New("past the end of the capture")
	// ErrMended: a damaged record was met and became an event: read on from the next chunk.
	ErrMended = errors.New("damaged on the monitor's disk")
	// ErrStopped: the monitor is stopping.
	ErrStopped = errors.New("monitor is stopping")
	// ErrUnavailable: the bench's instrument cannot be used now.
	ErrUnavailable = errors.New("instrument is not available")
	// ErrMisfit: the bench file names inputs that its instrument does not have.
	ErrMisfit = errors.New("the bench does not fit the instrument")
	// ErrQuota: the spool has no room for another capture.
	ErrQuota = errors.New("no room in the spool")
)

// errUnopened is the trouble of a bench whose inputs only the opened instrument knows.
var errUnopened = fmt.Errorf("%w: it was not opened yet", ErrUnavailable)

// errDraining refuses a capture while the running one may still end.
var errDraining = fmt.Errorf("%w: it takes no new captures; try again when it has been started anew", ErrStopped)

// BusyError names the holder of the bench; how to wait in line, the caller adds. It wraps ErrBusy.
type BusyError struct {
	Holder    string
	Since     time.Time
	CaptureID string
	Waited    time.Duration
}

func (e *BusyError) Error() string {
	since := e.Since.UTC().Format(time.RFC3339)
	s := fmt.Sprintf("%v: held by %s since %s (capture %s)", ErrBusy, e.Holder, since, e.CaptureID)
	if e.Waited > 0 {
		return s + fmt.Sprintf("; gave up after %v: wait longer, or ask them", e.Waited.Round(time.Millisecond))
	}
	return s + ": ask them, or wait"
}

func (e *BusyError) Unwrap() error { return ErrBusy }

// Trigger moves a capture from state to state. The numbers are stored: never renumber.
type Trigger uint8

// The triggers.
const (
	Created     Trigger = 1 // the bench was taken
	FirstScan   Trigger = 2 // the first scan arrived
	StopAsked   Trigger = 3 // StopCapture was called
	TailWritten Trigger = 4 // all samples of the capture are durable
	Failed      Trigger = 5 // the meter, the disk or the monitor gave up
	LeaseEnded  Trigger = 6 // the holder did not renew its lease
	Restarted   Trigger = 7 // the monitor found the capture unfinished when it started
	ReleaseDone Trigger = 8 // the spool was dropped
)

var triggerNames = map[Trigger]string{
	Created: "created", FirstScan: "first scan", StopAsked: "stop asked", TailWritten: "tail written",
	Failed: "failed", LeaseEnded: "lease ended", Restarted: "monitor restarted", ReleaseDone: "released",
}

func (t Trigger) String() string { return measure.NameOf(triggerNames, t, "trigger") }

// transitions is the whole life of a capture: other steps are refused. docs/protocol.md
// has the same table (a test compares the two).
var transitions = Transitions{
	0: {Created: session.Arming},
	session.Arming: {
		FirstScan: session.Running, StopAsked: session.Incomplete, Failed: session.Incomplete,
		Restarted: session.Incomplete,
	},
	session.Running: {
		StopAsked: session.Stopping, Failed: session.Incomplete, LeaseEnded: session.Incomplete,
		Restarted: session.Incomplete,
	},
	session.Stopping:   {TailWritten: session.Complete, Failed: session.Incomplete, Restarted: session.Incomplete},
	session.Complete:   {ReleaseDone: session.Released},
	session.Incomplete: {ReleaseDone: session.Released},
	session.Released:   {},
}

// Transitions is a table of a capture's life.
type Transitions map[session.State]map[Trigger]session.State

// Life returns a copy of the table that captures follow.
func Life() Transitions {
	t := maps.Clone(transitions)
	for s, m := range t {
		t[s] = maps.Clone(m)
	}
	return t
}

// Next returns the state that a trigger leads to. Errors wrap ErrTransition.
func (t Transitions) Next(s session.State, on Trigger) (session.State, error) {
	if n, ok := t[s][on]; ok {
		return n, nil
	}
	return s, fmt.Errorf("%w: %q while %v", ErrTransition, on, s)
}

// Quota bounds the captures in the spool. Zeros are no limits.
type Quota struct {
	// Bytes bounds all captures in the spool together.
	Bytes int64
	// Free is the bytes that must be left on the spool's disk for a capture to begin. A
	// running one ends when half of it is left, so that its end can be written, and other
	// programs are not the first to fail.
	Free int64
	// PerHolder bounds the captures of one holder in the spool.
	PerHolder int
}

// howReleased is how captures leave the spool.
const howReleased = "hosts release what they fetched (wattmark host does for interrupted tasks), and the monitor's keep " +
	"drops what none fetches"

// checkQuota refuses a capture that would find no room. Errors wrap ErrQuota.
func (o *Owner) checkQuota(holder string) error {
	q := o.cfg.Quota
	held, used := o.usedBy(holder)
	if q.PerHolder > 0 && held >= q.PerHolder {
		return fmt.Errorf("%w: %s has %d captures here, which is the limit (ListCaptures names them): %s",
			ErrQuota, holder, held, howReleased)
	}
	if q.Bytes > 0 && used >= q.Bytes {
		remedy := howReleased
		if o.cfg.AwaitReplicas {
			remedy += "; those that were released wait until the cluster has them (wattmark cluster status)"
		}
		return fmt.Errorf("%w: its captures take %s, the quota is %s: %s",
			ErrQuota, sizeText(used), sizeText(q.Bytes), remedy)
	}
	if q.Free <= 0 {
		return nil
	}
	free, err := o.cfg.Store.Free()
	if err != nil {
		return fmt.Errorf("%w: %w", ErrQuota, err)
	}
	if free < q.Free {
		return fmt.Errorf("%w: %s are free at %s, a capture needs %s: make room; %s",
			ErrQuota, sizeText(free), o.cfg.Store.Dir(), sizeText(q.Free), howReleased)
	}
	return nil
}

// exceeded returns the reason why a running capture must end, empty while it need not.
func (o *Owner) exceeded() string {
	q := o.cfg.Quota
	if _, used := o.usedBy(""); q.Bytes > 0 && used > q.Bytes {
		return fmt.Sprintf("%v: its captures take %s, the quota is %s", ErrQuota, sizeText(used), sizeText(q.Bytes))
	}
	if q.Free > 0 {
		if free, err := o.cfg.Store.Free(); err == nil && free < q.Free/2 {
			return fmt.Sprintf("%v: only %s are free at %s", ErrQuota, sizeText(free), o.cfg.Store.Dir())
		}
	}
	return ""
}

// usedBy counts a holder's captures, and the bytes of all.
func (o *Owner) usedBy(holder string) (held int, used int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, c := range o.captures {
		used += c.log.Held()
		if c.req.Holder == holder && !c.Has(spool.MarkReleased) {
			held++
		}
	}
	return held, used
}

// checkQuota ends the capture when it exceeds the quota.
func (c *Capture) checkQuota(time.Time) {
	if c.hasEnded() {
		return
	}
	if why := c.owner.exceeded(); why != "" {
		c.owner.cfg.Log.Warn("a capture is ended", "capture", c.id, "reason", why)
		c.end(Failed, why)
	}
}

// sizeText formats bytes with a decimal prefix: 1.0 kB.
func sizeText(n int64) string { return humanize.Bytes(uint64(max(n, 0))) }

package capture

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/marker"
	"github.com/wattmark/wattmark/measure/session"
	"github.com/wattmark/wattmark/measure/wall"
	"github.com/wattmark/wattmark/monitor/instrument"
	"github.com/wattmark/wattmark/monitor/pipeline"
)

// Owner is a bench: its instrument, its queue, and the captures taken on it. Run is the
// one goroutine that touches the instrument; the other methods are safe for concurrent
// use.
type Owner struct {
	cfg   Config
	queue queue
	live  *pipeline.Viewers

	starts chan *Capture
	probes chan probeRequest
	done   chan struct{} // closed when Run ends

	setAside []string // parts of the spool that cannot be used; fixed after New

	expiring sync.Mutex
	// waits are since when captures could have been fetched; time under earlier monitors is put before this one's. Only
	// time under a running monitor counts, on the monotonic clock: the wall clock may be wrong by years, as on a machine
	// without a battery for its clock.
	waits map[string]time.Time

	mu       sync.Mutex
	captures map[string]*Capture
	dropped  Stats // sums over the captures that were dropped
	device   device

	probed time.Time // when the last probe began; Run's alone
}

// New makes an owner of an instrument, and reopens the captures in the spool: those that
// had not ended become Incomplete.
func New(cfg Config) (*Owner, error) {
	switch {
	case cfg.Instrument == nil || cfg.Store == nil:
		return nil, errors.New("capture: an instrument and a spool are needed")
	case cfg.Setup == nil:
		return nil, errors.New("capture: nothing says how channels make rails")
	}
	cfg = cfg.withDefaults()
	o := &Owner{
		cfg: cfg, captures: map[string]*Capture{}, queue: queue{clock: cfg.Now},
		starts: make(chan *Capture), probes: make(chan probeRequest), done: make(chan struct{}),
		live:   pipeline.NewViewers(),
		device: device{identity: cfg.Instrument.Identity(), trouble: errUnopened},
	}
	// Drivers with fixed inputs know them before they are opened. The identity, and so
	// the calibration records, may not be known yet.
	if in := cfg.Instrument.Inputs(); len(in.Channels) > 0 {
		_, o.device.trouble = o.learn(in, nil)
	}
	o.restore()
	return o, nil
}

// Run owns the instrument until ctx ends; a capture that then runs ends Incomplete,
// durable and readable. An instrument in trouble is probed every few seconds while the
// bench is free. It returns nil, or an error that wraps ErrMisfit.
func (o *Owner) Run(ctx context.Context) error {
	defer close(o.done)
	if o.state().setup == nil {
		o.probe(ctx)
	}
	// A free bench serves viewers with a preview, and answers probes. Each failure of
	// either pauses it for retryAfter, so that a broken instrument is not hammered; a
	// capture goes first at any time.
	var again, retry <-chan time.Time // when a failed preview, and an instrument in trouble, are tried again
	var p *preview                    // for viewers of the free bench; nil for none
	defer func() { p.end() }()
	for {
		if p == nil && again == nil {
			p = o.startPreview(ctx)
		}
		var over <-chan struct{} // of the preview
		if p != nil {
			over = p.done
		}
		switch d := o.state(); {
		case d.misfit != nil:
			return d.misfit
		case p == nil && again == nil && retry == nil && d.trouble != nil:
			retry = time.After(retryAfter)
		}
		select {
		case <-ctx.Done():
			return nil
		case c := <-o.starts:
			p, again = p.end(), nil
			o.take(ctx, c)
		case q := <-o.probes:
			// Samples, or a probe since the request, answer it as well.
			if !p.samples() && !o.probed.After(q.at) {
				p = p.end()
				o.probe(ctx)
			}
			close(q.done)
		case <-o.live.Changed():
			if !o.live.Wanted() {
				p = p.end()
			}
		case <-again:
			again = nil
		case <-retry:
			if retry = nil; p == nil {
				o.probe(ctx)
			}
		case <-over:
			p, again = nil, time.After(retryAfter)
		}
	}
}

// Bench describes the bench, with the trouble that is known. It returns at once, unless
// the instrument's inputs are not known yet: then it is Ask.
func (o *Owner) Bench(ctx context.Context) session.Bench {
	if o.state().setup == nil {
		return o.Ask(ctx)
	}
	return o.bench()
}

// Ask is Bench after a probe of the instrument, within ctx. A bench that is held is not
// disturbed: its capture reports trouble by itself.
func (o *Owner) Ask(ctx context.Context) session.Bench {
	probed := true
	if o.queue.held().holder == "" {
		probed = o.Probe(ctx)
	}
	b := o.bench()
	if !probed && b.Trouble == "" && b.Holder == "" {
		b.Trouble = fmt.Sprintf("%v: it did not answer in the time that there was: %v", ErrUnavailable, ctx.Err())
	}
	return b
}

// bench describes the bench without touching the instrument.
func (o *Owner) bench() session.Bench {
	d := o.state()
	b := session.Bench{
		Name: o.cfg.Bench.Name, SetAside: o.setAside, GPU: o.gpuOf(d.identity), Instrument: d.identity, Notes: d.notes,
	}
	o.queue.describe(&b)
	if d.trouble != nil {
		b.Trouble = d.trouble.Error()
	}
	if d.setup != nil {
		b.Setup, b.Nominal, b.CalibrationID = *d.setup, *d.nominal, d.setup.CalibrationID()
	}
	return b
}

// Start waits for the bench, takes it and starts a capture; it returns once the first scan
// has arrived. Errors: a *BusyError; ErrRequest; ErrQuota; ErrUnavailable with the
// instrument's own; ErrStopped; ctx's.
func (o *Owner) Start(ctx context.Context, req session.Request) (*Capture, error) {
	if err := check(&req); err != nil {
		return nil, err
	}
	if err := o.checkQuota(req.Holder); err != nil {
		return nil, fmt.Errorf("start capture: %w", err)
	}
	// The id sorts by time and cannot be guessed.
	var b [4]byte
	_, _ = rand.Read(b[:]) // never fails
	id := o.cfg.Now().UTC().Format("20060102-150405-") + hex.EncodeToString(b[:])
	c := newCapture(o, id, req)
	if err := o.queue.enter(ctx, req.Holder, c.id, req.Wait); err != nil {
		return nil, err
	}
	select {
	case o.starts <- c:
	case <-ctx.Done():
		o.queue.leave(c.id)
		return nil, fmt.Errorf("start capture: %w", ctx.Err())
	case <-o.done:
		o.queue.leave(c.id)
		return nil, ErrStopped
	}
	select {
	case <-c.ready:
	case <-c.ended:
	case <-ctx.Done():
	}
	if err := ctx.Err(); err != nil {
		// The caller never learns of this capture, even if it has just begun, and so
		// could neither stop nor release it.
		c.end(Failed, req.Holder+" went away before the capture began")
		<-c.ended
		return nil, errors.Join(fmt.Errorf("start capture: %w", err), o.forget(c.id))
	}
	select {
	case <-c.ready:
		return c, nil
	default:
		return nil, fmt.Errorf("start capture: %w", c.failure())
	}
}

// Get returns a capture. Errors wrap ErrUnknown.
func (o *Owner) Get(id string) (*Capture, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if c, ok := o.captures[id]; ok {
		return c, nil
	}
	return nil, fmt.Errorf("%w: %q: it was released, or never was; ListCaptures names those that are held",
		ErrUnknown, id)
}

// all returns the captures held, in no order, and the sums over those that were dropped,
// of one moment.
func (o *Owner) all() ([]*Capture, Stats) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Collect(maps.Values(o.captures)), o.dropped
}

// List returns the captures held, newest first.
func (o *Owner) List() []session.Capture {
	all, _ := o.all()
	list := lists.Map(all, (*Capture).info)
	slices.SortFunc(list, func(a, b session.Capture) int { return cmp.Compare(b.ID, a.ID) })
	return list
}

// tail returns the device time after a stop request that may still hold a part of the stop
// marker: its four chips, widened by the instrument's response and the reach of a meter at the wall.
func (o *Owner) tail(h *session.Header) time.Duration {
	r := h.Setup.Response
	tail := (5*r.Tau + r.Window + 2*r.Update + wall.Reach(&h.Setup)).Duration()
	if h.Marker.Code != marker.None {
		tail += (4 * h.Marker.Chip).Duration()
	}
	return tail
}

// End takes the bench from its holder: the capture, or the one that has the bench where id
// is empty, ends Incomplete with by and why in its reason. A capture that has ended stays
// as it is. It returns when the end is durable. Errors wrap ErrRequest or ErrUnknown.
func (o *Owner) End(ctx context.Context, id, by, why string) (*Capture, error) {
	for _, f := range [][2]string{{"who", by}, {"why", why}} {
		if f[1] == "" {
			return nil, fmt.Errorf("%w: say who ends another's capture, and why: no %s", ErrRequest, f[0])
		}
		if err := measure.CheckText(f[0], f[1]); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrRequest, err)
		}
	}
	if id == "" {
		if id = o.queue.held().captureID; id == "" {
			return nil, fmt.Errorf("%w: nobody has the bench", ErrUnknown)
		}
	}
	c, err := o.Get(id)
	if err != nil {
		return nil, err
	}
	if !c.Summary().State.Ended() {
		o.cfg.Log.Warn("the bench is taken from its holder",
			"capture", id, "holder", c.req.Holder, "by", by, "reason", why)
	}
	c.end(Failed, fmt.Sprintf("taken over by %s: %s", by, why))
	select {
	case <-c.ended:
		return c, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("end capture %s: %w", id, ctx.Err())
	}
}

// Drain refuses new holders, those in the queue included. The channel is closed once the
// bench is free. It may be called again.
func (o *Owner) Drain() <-chan struct{} { return o.queue.close() }

// StopCause ends Run's context with a reason of its own for the capture that then runs.
type StopCause string

func (s StopCause) Error() string { return string(s) }

// stopReason returns the reason for the end of the monitor's context.
func stopReason(ctx context.Context) string {
	cause, _ := errors.AsType[StopCause](context.Cause(ctx))
	return cmp.Or(string(cause), "the monitor was stopped")
}

// Rebind changes the rails from the next opening of the instrument on, to b.Setup and
// b.Calibrate. The running capture keeps its own. Nothing changes where b does not fit the
// inputs that the instrument had last; the error wraps ErrMisfit and names the place.
func (o *Owner) Rebind(b Bench) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if in := o.device.inputs; in != nil {
		if _, err := b.Setup(*in); err != nil {
			return fmt.Errorf("%w: %w", ErrMisfit, err)
		}
	}
	o.cfg.Setup, o.cfg.Calibrate = b.Setup, b.Calibrate
	o.device.recordsLogged = false
	return nil
}

// making returns the functions in force.
func (o *Owner) making() (MakeSetup, Calibrate) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.cfg.Setup, o.cfg.Calibrate
}

// Watch sends live averages of the rails to send until ctx ends or send fails, whose error
// it returns, or Run ends (ErrStopped). See pipeline.Viewers.
func (o *Owner) Watch(ctx context.Context, opt session.WatchOptions, send func(session.Moment) error) error {
	if err := o.live.Watch(ctx, opt, o.done, send); err != nil {
		return err
	}
	return ErrStopped
}

// Stats sums an owner's captures: those since it began, and those that it found in the
// spool.
type Stats struct {
	Held       map[session.State]int // captures in the spool by state
	SpoolBytes int64
	// The counters include captures that were released.
	Captures, Scans, Lost, Gaps, OverRange uint64
	SetAside                               int  // parts of the spool that cannot be used
	Busy                                   bool // the bench is held
	Trouble                                bool // the instrument cannot be used, as far as known
	// Lag is the age of the running capture's last sample, 0 where none runs. It includes
	// the difference of the two clocks.
	Lag measure.Seconds
}

func (s *Stats) add(c session.Summary) {
	s.Captures++
	s.Scans += c.Scans
	s.Lost += c.Lost
	s.Gaps += c.Gaps
	s.OverRange += c.OverRange
}

// Stats returns the sums. Its cost grows with the captures held.
func (o *Owner) Stats() Stats {
	all, s := o.all()
	s.SetAside = len(o.setAside)
	s.Held = map[session.State]int{}
	for _, c := range all {
		sum := c.Summary()
		s.add(sum)
		s.Held[sum.State]++
		s.SpoolBytes += c.log.Held()
		if begun := c.Started(); sum.State == session.Running && !begun.IsZero() {
			s.Lag = measure.SecondsOf(time.Since(begun)) - sum.End
		}
	}
	s.Trouble, s.Busy = o.state().trouble != nil, o.queue.held().holder != ""
	return s
}

// device is the state of the instrument, guarded by Owner.mu.
type device struct {
	identity instrument.Identity
	inputs   *instrument.Inputs // at its last opening
	setup    *measure.Setup     // made of them; nil while they are not known
	nominal  *measure.Setup     // without calibration records
	made     MakeSetup          // made the setup
	notes    []string           // on the records
	trouble  error              // why it cannot be used, as far as known
	failed   time.Time          // when that was last found
	mute     bool               // the trouble is that it opens, and then sends no samples
	misfit   error              // it can never be used on this bench: Run ends
	// recordsLogged: the records in force are in the log.
	recordsLogged bool
}

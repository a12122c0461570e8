package capture

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"wattmark/measure"
	"wattmark/measure/marker"
	"wattmark/monitor/instrument"
	"wattmark/monitor/spool"
)

// Owner is a bench: its instrument, who has it, and the captures taken on it.
// Run is the one goroutine that touches the instrument; the other methods are
// safe for concurrent use.
type Owner struct {
	cfg  Config
	line line
	live watchers

	starts chan *Capture
	probes chan question
	done   chan struct{} // closed when Run ends

	aside []string // what of the spool cannot be used, from New on

	expiring sync.Mutex
	waits    waits // of captures to be fetched

	mu       sync.Mutex
	captures map[string]*Capture
	gone     Stats // of the captures that were released
	identity instrument.Identity
	setup    *measure.Setup
	nominal  *measure.Setup // without calibration records
	made     maker          // what made setup
	notes    []string       // on the records
	told     bool           // which records are in force was logged
	inputs   *instrument.Inputs
	trouble  error // why the instrument cannot be used, as far as is known; nil for none
	mute     bool  // the trouble is that it opens, and then sends no samples
	misfit   error // the bench can never measure with this instrument: Run ends

	asked time.Time // when the last probe began; Run's alone
}

// New makes an owner of an instrument, and reopens the captures that the spool
// holds: those that were not ended become INCOMPLETE.
func New(cfg Config) (*Owner, error) {
	switch {
	case cfg.Instrument == nil || cfg.Store == nil:
		return nil, errors.New("capture: an instrument and a spool are needed")
	case cfg.Setup == nil:
		return nil, errors.New("capture: nothing says how channels make rails")
	}
	cfg = cfg.withDefaults()
	o := &Owner{
		cfg: cfg, captures: map[string]*Capture{}, line: line{clock: cfg.Now},
		starts: make(chan *Capture), probes: make(chan question), done: make(chan struct{}),
		identity: cfg.Instrument.Identity(),
		live:     watchers{wants: make(chan struct{}, 1)},
	}
	// Drivers with fixed inputs know them before they are opened.
	if in := cfg.Instrument.Inputs(); len(in.Channels) > 0 {
		_, o.trouble = o.learn(in, nil)
	} else {
		o.trouble = errUnopened
	}
	o.restore()
	return o, nil
}

// Run owns the instrument until ctx ends; a capture that then runs ends
// INCOMPLETE, durable and readable. An instrument in trouble is asked again every
// few seconds while the bench is free. An error wraps ErrMisfit.
func (o *Owner) Run(ctx context.Context) error {
	defer close(o.done)
	if !o.known() {
		o.probe(ctx)
	}
	var again <-chan time.Time // when a look that failed is tried again
	var retry <-chan time.Time // when an instrument in trouble is asked again
	var l *look                // for viewers of the free bench; nil for none
	for {
		if l == nil && again == nil {
			l = o.lookIfWanted(ctx)
		}
		troubled, misfit := o.inTrouble()
		switch {
		case misfit != nil:
			l.end()
			return misfit
		case l == nil && again == nil && retry == nil && troubled:
			retry = time.After(lookAgain)
		}
		select {
		case <-ctx.Done():
			l.end()
			return nil
		case c := <-o.starts:
			l = l.end()
			again = nil
			o.take(ctx, c)
		case q := <-o.probes:
			if !l.sees() && !o.asked.After(q.at) { // else samples, or another's question, have answered
				l = l.end()
				o.probe(ctx)
			}
			close(q.answer)
		case <-o.live.wants:
			if !o.live.wanted() {
				l = l.end()
			}
		case <-again:
			again = nil
		case <-retry:
			if retry = nil; l == nil {
				o.probe(ctx)
			}
		case <-l.over():
			l, again = nil, time.After(lookAgain)
		}
	}
}

// known tells whether the instrument's inputs are known.
func (o *Owner) known() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.setup != nil
}

// Bench describes the bench and who has it, with the trouble that is known. When the
// instrument's inputs are not known yet and the bench is free, the instrument is
// tried, within ctx.
func (o *Owner) Bench(ctx context.Context) Bench {
	if !o.known() {
		return o.Ask(ctx)
	}
	return o.bench()
}

// Ask is Bench after the instrument was asked, within ctx. A bench that is held is
// not disturbed: its capture says what it sees of the instrument.
func (o *Owner) Ask(ctx context.Context) Bench {
	asked := true
	if o.line.held().holder == "" {
		asked = o.Probe(ctx)
	}
	b := o.bench()
	if !asked && b.Err == nil && b.Holder == "" {
		b.Err = fmt.Errorf("%w: it did not answer in the time that there was: %w", ErrUnavailable, ctx.Err())
	}
	return b
}

func (o *Owner) bench() Bench {
	h := o.line.held()
	o.mu.Lock()
	defer o.mu.Unlock()
	b := Bench{
		Name: o.cfg.Bench, GPU: o.gpuOf(o.identity), Instrument: o.identity, Setup: o.setup, Nominal: o.nominal, Notes: o.notes, Err: o.trouble,
		Holder: h.holder, HeldSince: h.since, CaptureID: h.captureID, Waiting: o.line.queue(), Draining: o.line.isClosed(),
		SetAside: o.aside,
	}
	if o.setup != nil {
		b.CalibrationID = o.setup.CalibrationID()
	}
	return b
}

// Start takes the bench and starts a capture; it returns once the first scan
// has arrived. Errors: a *BusyError; ErrRequest; ErrUnavailable with the
// instrument's own; ErrStopped; ctx's.
func (o *Owner) Start(ctx context.Context, req Request) (*Capture, error) {
	if err := req.check(); err != nil {
		return nil, err
	}
	if err := o.room(req.Holder); err != nil {
		return nil, fmt.Errorf("start capture: %w", err)
	}
	c := newCapture(o, newID(o.cfg.Now()), req)
	if err := o.line.enter(ctx, req.Holder, c.id, req.Wait); err != nil {
		return nil, err
	}
	select {
	case o.starts <- c:
	case <-ctx.Done():
		o.line.leave(c.id)
		return nil, fmt.Errorf("start capture: %w", ctx.Err())
	case <-o.done:
		o.line.leave(c.id)
		return nil, ErrStopped
	}
	select {
	case <-c.ready:
	case <-c.ended:
	case <-ctx.Done():
	}
	if err := ctx.Err(); err != nil {
		// Nobody is told of this capture, also if it has just begun: nobody would
		// stop it, or release it.
		c.end(Failed, req.Holder+" went away before the capture began")
		<-c.ended
		return nil, errors.Join(fmt.Errorf("start capture: %w", err), o.forget(c.id))
	}
	select {
	case <-c.ready:
		return c, nil
	default:
		return nil, fmt.Errorf("start capture: %w", c.neverBegan())
	}
}

// newID returns a name that sorts by time and is not guessed twice.
func newID(now time.Time) string {
	var b [4]byte
	_, _ = rand.Read(b[:]) // never fails
	return now.UTC().Format("20060102-150405-") + hex.EncodeToString(b[:])
}

// Get returns a capture. Errors wrap ErrUnknown.
func (o *Owner) Get(id string) (*Capture, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if c, ok := o.captures[id]; ok {
		return c, nil
	}
	return nil, fmt.Errorf("%w: %q: it was released, or never was; ListCaptures names those that are held", ErrUnknown, id)
}

// List returns the captures held, newest first.
func (o *Owner) List() []Info {
	o.mu.Lock()
	all := make([]*Capture, 0, len(o.captures))
	for _, c := range o.captures {
		all = append(all, c)
	}
	o.mu.Unlock()
	infos := make([]Info, len(all))
	for i, c := range all {
		infos[i] = c.info()
	}
	slices.SortFunc(infos, func(a, b Info) int { return cmp.Compare(b.CaptureID, a.CaptureID) })
	return infos
}

// over gives the bench to the next in line.
func (o *Owner) over(c *Capture) { o.line.leave(c.id) }

// tail is how much device time after a stop request may still hold a part of
// the stop marker as the instrument shows it.
func (o *Owner) tail(h spool.Header) time.Duration {
	r := h.Setup.Response
	tail := o.cfg.StopTail + (5*r.Tau + r.Window + 2*r.Update).Duration()
	if h.Marker.Code != marker.None {
		tail += (4 * h.Marker.Chip).Duration()
	}
	return tail
}

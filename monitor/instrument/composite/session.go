package composite

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"time"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/marker"
	"github.com/wattmark/wattmark/monitor/instrument"
)

// readyWithin is how long the master waits for members that do not report when they
// would take its trigger.
const readyWithin = 2 * time.Second

// beginWithin is how long the members may take to begin, once they are started.
const beginWithin = 9 * time.Second

// errStopped ends a member whose samples are not wanted any more.
var errStopped = errors.New("composite: stopped")

// session is one Stream of a composite. Its goroutine alone calls the sink.
type session struct {
	c       *Composite
	sink    instrument.Sink
	in      chan message
	feeds   []*feed
	stopped atomic.Bool
	cancel  context.CancelFunc
	// unwanted ends the delivery of members whose memory is not wanted any more.
	unwanted context.Context
	drop     context.CancelFunc

	members  []member
	running  int
	started  bool // all members were started
	begun    bool // all have begun, and it is known whether the whole is deferred
	deferred bool
	before   []message // blocks and events of members from before that
	epoch    time.Time

	merger *merger
	live   *live
	spools []*spool
}

// member is where one of them stands.
type member struct {
	launched, ready, begun, armed bool
	at                            time.Time // the host's time of its first scan
	done, total                   uint64
}

// Stream delivers the samples of all members, until ctx ends or one of them fails.
func (c *Composite) Stream(ctx context.Context, sink instrument.Sink) error {
	if !c.open {
		return errors.New("composite: stream: not open")
	}
	s := &session{
		c: c, sink: sink, in: make(chan message, 64), epoch: time.Now(), members: make([]member, len(c.members)),
	}
	s.unwanted, s.drop = context.WithCancel(context.WithoutCancel(ctx))
	defer s.drop()
	go func() {
		select {
		case <-sink.Unwanted:
			s.drop()
		case <-s.unwanted.Done():
		}
	}()
	for i := range c.members {
		s.feeds = append(s.feeds, &feed{
			member: i, to: s.in, free: make(chan *packet, 256), stopped: &s.stopped, unwanted: s.unwanted.Done(),
		})
	}
	s.merger = newMerger(c, sink, s.free)
	defer s.close()
	ctx, s.cancel = context.WithCancel(ctx)
	defer s.cancel()
	err := s.run(ctx)
	if c.was = nil; s.live != nil && errors.Is(err, instrument.ErrDisconnected) {
		c.was = s.live.known()
	}
	return err
}

// free gives a packet back to its member, or leaves it to the collector.
func (s *session) free(member int, p *packet) {
	select {
	case s.feeds[member].free <- p:
	default:
	}
}

// close releases the members' files.
func (s *session) close() {
	for _, f := range s.spools {
		f.close()
	}
}

// run takes the members' messages until all have ended.
func (s *session) run(ctx context.Context) (err error) {
	s.launchFirst(ctx)
	timer := time.NewTimer(beginWithin)
	defer timer.Stop()
	ready := time.NewTimer(readyWithin)
	defer ready.Stop()
	for s.running > 0 {
		select {
		case m := <-s.in:
			if m.kind == ended {
				s.running--
			}
			if err == nil {
				err = s.take(ctx, m)
			}
		case <-ready.C:
			s.launchMaster(ctx, true)
		case <-timer.C:
			if err == nil && !s.begun && ctx.Err() == nil {
				err = s.late()
			}
		}
		if err != nil {
			s.stopped.Store(true)
			s.cancel()
			s.drop()
		}
	}
	if err != nil || !s.begun {
		if s.live != nil && errors.Is(err, instrument.ErrDisconnected) {
			_ = s.live.m.flush() // the loss itself is the error
		}
		return err
	}
	if s.deferred {
		return s.replay()
	}
	return s.live.finish()
}

// take handles one message.
func (s *session) take(ctx context.Context, m message) error {
	of := &s.members[m.member]
	switch m.kind {
	case waiting:
		of.ready = true
		s.launchMaster(ctx, false)
	case armed:
		of.armed, of.ready, of.begun, of.at = true, true, true, m.at
		s.launchMaster(ctx, false)
		return s.decide()
	case gaveBlock:
		if !of.begun {
			of.ready, of.begun, of.at = true, true, m.packet.at.Add(-s.span(m.member, &m.packet.block).Duration())
			s.launchMaster(ctx, false)
			if err := s.decide(); err != nil {
				return err
			}
		}
		return s.keep(m)
	case gaveEvent:
		return s.keep(m)
	case progress:
		of.done, of.total = m.done, m.total
		s.reportProgress()
	case ended:
		if m.err != nil {
			return fmt.Errorf("%s: %w", s.c.members[m.member].Name, m.err)
		}
		s.cancel() // a recording is over: so is the whole
	}
	return nil
}

// span is how much time the scans of a block cover.
func (s *session) span(member int, b *measure.Block) measure.Seconds {
	return measure.Seconds(b.Scans()) * period(s.c.parts[member].Timebase)
}

// decide finds out, once all members have begun, whether the whole is deferred.
func (s *session) decide() error {
	if s.begun || !s.started {
		return nil
	}
	var last time.Time
	for _, m := range s.members {
		if !m.begun {
			return nil
		}
		s.deferred = s.deferred || m.armed
		if m.at.After(last) {
			last = m.at
		}
	}
	s.begun = true
	if s.deferred {
		if err := s.openSpools(); err != nil {
			return err
		}
		if s.sink.Armed != nil {
			if err := s.sink.Armed(last); err != nil {
				return err
			}
		}
	} else {
		var err error
		if s.live, err = newLive(s); err != nil {
			return err
		}
	}
	before := s.before
	s.before = nil
	for _, m := range before {
		if err := s.keep(m); err != nil {
			return err
		}
	}
	return nil
}

// keep puts a block or an event where it belongs.
func (s *session) keep(m message) error {
	p := m.packet
	if m.kind == gaveEvent {
		e := m.event
		p = &packet{event: &e}
	}
	switch {
	case !s.begun:
		s.before = append(s.before, m)
		return nil
	case s.deferred:
		err := s.spools[m.member].write(p)
		s.free(m.member, p)
		return err
	}
	return s.live.take(m.member, p)
}

// reportProgress sums up the deliveries of all members.
func (s *session) reportProgress() {
	if s.sink.Progress == nil {
		return
	}
	var done, total uint64
	for _, m := range s.members {
		done, total = done+m.done, total+m.total
	}
	s.sink.Progress(done, total)
}

// spec is the marker that the samples will hold; its code is marker.None where
// that is unknown.
func (s *session) spec() marker.Spec {
	if s.sink.Marker == nil {
		return marker.Spec{}
	}
	return s.sink.Marker()
}

// detectors look for the marker in each member's own power; nil where there is
// nothing to look for.
func (s *session) detectors() ([]*marker.Detector, error) {
	spec := s.spec()
	if spec.Code == marker.None || s.c.align.By != Markers {
		return nil, nil
	}
	var out []*marker.Detector
	for i, m := range s.c.members {
		setup, err := s.c.setup(i)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", m.Name, err)
		}
		d, err := marker.NewDetector(spec, &setup)
		if err != nil {
			return nil, fmt.Errorf("align by markers: %s: %w", m.Name, err)
		}
		out = append(out, d)
	}
	return out, nil
}

// launchFirst starts the members, but for the one that triggers the others.
func (s *session) launchFirst(ctx context.Context) {
	for i := range s.members {
		if s.c.align.By != Trigger || i != s.master() {
			s.launch(ctx, i)
		}
	}
	s.launchMaster(ctx, s.c.align.By != Trigger)
}

// launchMaster starts it once all the others are ready for its trigger, or at once.
func (s *session) launchMaster(ctx context.Context, now bool) {
	if s.started {
		return
	}
	for _, m := range s.members {
		if m.launched && !m.ready && !now {
			return
		}
	}
	if i := s.master(); !s.members[i].launched && ctx.Err() == nil {
		s.launch(ctx, i)
	}
	s.started = true
}

// master is the index of the member that gives the trigger.
func (s *session) master() int {
	for i, m := range s.c.members {
		if m.Name == s.c.align.Master {
			return i
		}
	}
	return 0
}

// launch runs one member's Stream on a goroutine of its own; its end is a message.
func (s *session) launch(ctx context.Context, i int) {
	s.members[i].launched = true
	s.running++
	go func() {
		s.in <- message{member: i, kind: ended, err: s.c.members[i].Instrument.Stream(ctx, s.feeds[i].sink())}
	}()
}

// late names the members that did not begin.
func (s *session) late() error {
	var names []string
	for i, m := range s.members {
		if m.launched && !m.begun {
			names = append(names, s.c.members[i].Name)
		}
	}
	return fmt.Errorf("composite: %w: no scan of %s within %v of its start: is its trigger line connected?",
		instrument.ErrSilent, strings.Join(names, ", "), beginWithin)
}

// lead follows how far a member's time runs ahead of the host's: its device time
// less the host's. A line only ever delays, so the greatest lead of a window is
// nearest to the truth.
type lead struct {
	width float64 // of a window, in seconds
	since float64
	begun bool
	// firstSeen and lastSeen are the host's times of the first and latest arrival.
	firstSeen, lastSeen float64
	best                sight
	seen                []sight // the best of each whole window
	fit                 line
	fresh               bool // fit is of all that was seen
}

// sight is a lead at a host's instant.
type sight struct{ host, lead float64 }

const (
	leadWindow = 0.5 // seconds, to begin with
	maxSights  = 256 // then windows are made twice as wide
)

// observe takes the arrival of readings up to a device time. It reports whether a
// window ended.
func (l *lead) observe(host, device float64) bool {
	if !l.begun {
		*l = lead{
			begun: true, since: host, firstSeen: host, width: leadWindow, best: sight{host, math.Inf(-1)},
			seen: make([]sight, 0, maxSights),
		}
	}
	l.lastSeen = host
	if v := device - host; v > l.best.lead {
		l.best = sight{host, v}
	}
	if host-l.since < l.width {
		return false
	}
	l.seen = append(l.seen, l.best)
	l.best, l.since, l.fresh = sight{host, math.Inf(-1)}, host, false
	if len(l.seen) == maxSights {
		l.widen()
	}
	return true
}

// widen makes one window of two.
func (l *lead) widen() {
	for i := range maxSights / 2 {
		a, b := l.seen[2*i], l.seen[2*i+1]
		if b.lead > a.lead {
			a = b
		}
		l.seen[i] = a
	}
	l.seen, l.width = l.seen[:maxSights/2], 2*l.width
}

// line is a straight line through sights.
type line struct {
	n           int
	host, lead  float64 // their centre
	slope       float64
	uSlope, rms float64 // standard uncertainty of the slope; scatter about the line
}

// at is the lead at a host's time, in seconds.
func (l line) at(host float64) float64 { return l.lead + l.slope*(host-l.host) }

// floor is a scatter below which no operating system's clock is trusted.
const floor = 1e-6

// line fits the leads seen. Before two windows it is the best lead yet, and flat.
func (l *lead) line() line {
	if l.fresh {
		return l.fit
	}
	if len(l.seen) < 2 {
		best := l.best
		if len(l.seen) == 1 && l.seen[0].lead > best.lead {
			best = l.seen[0]
		}
		return line{n: len(l.seen), host: best.host, lead: best.lead}
	}
	f := line{n: len(l.seen)}
	n := float64(f.n)
	for _, s := range l.seen {
		f.host += s.host / n
		f.lead += s.lead / n
	}
	var xx, xy, rr float64
	for _, s := range l.seen {
		x := s.host - f.host
		xx += x * x
		xy += x * (s.lead - f.lead)
	}
	f.slope = xy / xx
	for _, s := range l.seen {
		r := s.lead - f.at(s.host)
		rr += r * r
	}
	f.rms = math.Max(math.Sqrt(rr/math.Max(n-2, 1)), floor)
	f.uSlope = f.rms / math.Sqrt(xx)
	l.fit, l.fresh = f, true
	return f
}

// place maps the base's time to a member's: base + d + slope·(base − at).
type place struct {
	at, d, slope float64
}

// of is the member's time at a time of the base, in seconds.
func (p place) of(base float64) float64 { return base + p.offset(base) }

// offset is the member's time less the base's, in seconds.
func (p place) offset(base float64) float64 { return p.d + p.slope*(base-p.at) }

// maxSlew is how fast a placing is moved to its place by the clocks.
const maxSlew = 500e-6

// steer makes a placing that goes on where the old one is and reaches the clocks'
// place a second later, or as far as maxSlew beside their own slope lets it.
func (p place) steer(base, wanted, slope float64) place {
	d := p.offset(base)
	lead := wanted + slope - d // over the next second
	return place{at: base, d: d, slope: min(max(lead, slope-maxSlew), slope+maxSlew)}
}

package composite

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
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
	spare   []chan *packet            // of each member, used up
	stopped atomic.Bool               // no more samples are wanted
	asked   atomic.Pointer[time.Time] // when the whole was asked to stop
	cancel  context.CancelFunc
	// unwanted ends the delivery of members whose memory is not wanted any more.
	unwanted context.Context
	drop     context.CancelFunc

	members  []member
	running  int
	started  bool // all members were started
	begun    bool // all have begun, and it is known whether the whole is deferred
	deferred bool
	before   []func() error // keep the members' blocks and events from before that
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
	s.unwanted, s.drop = sink.WhileWanted(context.WithoutCancel(ctx))
	defer s.drop()
	for range c.members {
		s.spare = append(s.spare, make(chan *packet, 256))
	}
	s.merger = newMerger(c, sink)
	defer func() {
		for _, f := range s.spools {
			f.close()
		}
	}()
	defer context.AfterFunc(ctx, func() { now := time.Now(); s.asked.Store(&now) })()
	ctx, s.cancel = context.WithCancel(ctx)
	defer s.cancel()
	err := s.run(ctx)
	c.was = nil
	if l := s.live; l != nil && l.detect != nil && !l.awaiting && errors.Is(err, instrument.ErrDisconnected) {
		c.was = &known{spec: l.spec, hidden: l.hidden} // for another stream of the same task
	}
	return err
}

// packet is one of a member's that was used up, or a new one.
func (s *session) packet(member int) *packet {
	select {
	case p := <-s.spare[member]:
		return p
	default:
		return &packet{home: s.spare[member]}
	}
}

// message goes from a member's goroutine to the session's, which carries it out there. Where the
// session has failed only the ends of the members' streams are of interest.
type message struct {
	ended bool // the member's Stream returned
	do    func() error
}

// receive makes the sink of a member, whose functions run on the member's goroutine. Blocks are
// copied, as their memory is the member's. Order is kept.
func (s *session) receive(ctx context.Context, i int) instrument.Sink {
	of := &s.members[i]
	send := func(do func() error) error { s.in <- message{do: do}; return nil }
	return instrument.Sink{
		Unwanted: s.unwanted.Done(),
		Block: func(b *measure.Block) error {
			at := time.Now()
			switch {
			case s.stopped.Load():
				return errStopped
			case b.Scans() == 0:
				return nil
			}
			p := s.packet(i)
			p.fill(b, at)
			return send(func() error { return s.gave(ctx, i, p) })
		},
		Event: func(e measure.Event) error {
			if s.stopped.Load() {
				return errStopped
			}
			return send(func() error { return s.keep(i, &packet{event: &e}) })
		},
		Waiting: func() error {
			return send(func() error { of.ready = true; s.launchMaster(ctx, false); return nil })
		},
		Armed: func(at time.Time) error {
			return send(func() error {
				of.armed, of.ready, of.begun, of.at = true, true, true, at
				s.launchMaster(ctx, false)
				return s.decide()
			})
		},
		Progress: func(done, total uint64) {
			_ = send(func() error { s.progress(of, done, total); return nil })
		},
	}
}

// run takes the members' messages until all have ended.
func (s *session) run(ctx context.Context) (err error) {
	// All but the member that triggers the others.
	for i := range s.members {
		if s.c.align.By != Trigger || i != s.master() {
			s.launch(ctx, i)
		}
	}
	s.launchMaster(ctx, s.c.align.By != Trigger)
	late, ready := time.After(beginWithin), time.After(readyWithin)
	for s.running > 0 {
		select {
		case m := <-s.in:
			if m.ended {
				s.running--
			}
			if err == nil {
				err = m.do()
			}
		case <-ready:
			s.launchMaster(ctx, true)
		case <-late:
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
	if asked := s.asked.Load(); asked != nil {
		s.merger.stop = asked.Sub(s.members[s.c.base].at).Seconds()
	}
	if s.deferred {
		return s.replay()
	}
	return s.live.finish()
}

// gave takes a block of a member; the first one shows that the member has begun.
func (s *session) gave(ctx context.Context, i int, p *packet) error {
	if of := &s.members[i]; !of.begun {
		span := measure.Seconds(p.block.Scans()) * period(s.c.parts[i].Timebase)
		of.ready, of.begun, of.at = true, true, p.at.Add(-span.Duration())
		s.launchMaster(ctx, false)
		if err := s.decide(); err != nil {
			return err
		}
	}
	return s.keep(i, p)
}

// progress sums up the deliveries of all members.
func (s *session) progress(of *member, done, total uint64) {
	of.done, of.total = done, total
	if s.sink.Progress == nil {
		return
	}
	done, total = 0, 0
	for _, m := range s.members {
		done, total = done+m.done, total+m.total
	}
	s.sink.Progress(done, total)
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
		for _, in := range s.c.parts {
			f, err := newSpool(len(in.Channels))
			if err != nil {
				return err
			}
			s.spools = append(s.spools, f)
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
	for _, keep := range before {
		if err := keep(); err != nil {
			return err
		}
	}
	return nil
}

// keep puts a block or an event of a member where it belongs.
func (s *session) keep(i int, p *packet) error {
	switch {
	case !s.begun:
		s.before = append(s.before, func() error { return s.keep(i, p) })
		return nil
	case s.deferred:
		defer p.free()
		return s.spools[i].out.Encode(&record{p.block, p.at.UnixNano(), p.event})
	}
	return s.live.take(i, p)
}

// spec is the marker that the samples will hold; its code is marker.None where
// that is unknown.
func (s *session) spec() marker.Spec {
	if s.sink.Marker == nil {
		return marker.Spec{}
	}
	return s.sink.Marker()
}

// detectors look for the marker in each member's own power, nil for one at the wall; nil where there is
// nothing to align by them.
func (s *session) detectors() ([]*marker.Detector, error) {
	spec := s.spec()
	if spec.Code == marker.None || s.c.align.By != Markers {
		return nil, nil
	}
	var out []*marker.Detector
	seeing := 0
	for i, m := range s.c.members {
		if m.beside(s.c.parts[i]) {
			out = append(out, nil)
			continue
		}
		seeing++
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
	if seeing < 2 {
		return nil, nil
	}
	return out, nil
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
	named := func(m Member) bool { return m.Name == s.c.align.Master }
	return max(0, slices.IndexFunc(s.c.members, named)) // the first where none is named
}

// launch runs one member's Stream on a goroutine of its own; its end is a message.
func (s *session) launch(ctx context.Context, i int) {
	s.members[i].launched = true
	s.running++
	go func() {
		m := &s.c.members[i]
		err := m.Instrument.Stream(ctx, s.receive(ctx, i))
		s.in <- message{ended: true, do: func() error {
			if err != nil {
				return fmt.Errorf("%s: %w", m.Name, err)
			}
			s.cancel() // a recording is over: so is the whole
			return nil
		}}
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
		// Two windows become one.
		for i := range maxSights / 2 {
			a, b := l.seen[2*i], l.seen[2*i+1]
			if b.lead > a.lead {
				a = b
			}
			l.seen[i] = a
		}
		l.seen, l.width = l.seen[:maxSights/2], 2*l.width
	}
	return true
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

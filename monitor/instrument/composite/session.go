package composite

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"wattmark/measure"
	"wattmark/measure/marker"
	"wattmark/monitor/instrument"
)

// readyWithin is how long the master waits for members that do not tell when they
// would take its trigger.
const readyWithin = 2 * time.Second

// beginWithin is how long the members may take to begin, once they are started.
const beginWithin = 9 * time.Second

// errStopped ends a member whose samples nobody wants any more.
var errStopped = errors.New("composite: stopped")

// session is one Stream of a composite. Its goroutine alone calls the sink.
type session struct {
	c       *Composite
	sink    instrument.Sink
	in      chan message
	feeds   []*feed
	stopped atomic.Bool
	cancel  context.CancelFunc
	// unwanted ends the delivery of members that hold what nobody wants any more.
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

// Stream delivers what all members measure, until ctx ends or one of them fails.
func (c *Composite) Stream(ctx context.Context, sink instrument.Sink) error {
	if !c.open {
		return errors.New("composite: stream: not open")
	}
	s := &session{c: c, sink: sink, in: make(chan message, 64), epoch: time.Now(), members: make([]member, len(c.members))}
	s.unwanted, s.drop = context.WithCancel(context.WithoutCancel(ctx))
	defer s.drop()
	if d, ok := sink.(instrument.DeferredSink); ok {
		go func() {
			select {
			case <-d.Unwanted():
				s.drop()
			case <-s.unwanted.Done():
			}
		}()
	}
	for i := range c.members {
		s.feeds = append(s.feeds, &feed{member: i, to: s.in, free: make(chan *packet, 256), stopped: &s.stopped, unwanted: s.unwanted.Done()})
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

func (s *session) free(member int, p *packet) {
	select {
	case s.feeds[member].free <- p:
	default:
	}
}

func (s *session) close() {
	for _, f := range s.spools {
		f.close()
	}
}

// run takes what the members say until all have ended.
func (s *session) run(ctx context.Context) (err error) {
	s.launchFirst(ctx)
	timer := time.NewTimer(beginWithin)
	defer timer.Stop()
	ready := time.NewTimer(readyWithin)
	defer ready.Stop()
	for s.running > 0 {
		select {
		case m := <-s.in:
			if m.what == ended {
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
	switch m.what {
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
		s.tellProgress()
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
		if d, ok := s.sink.(instrument.DeferredSink); ok {
			if err := d.Armed(last); err != nil {
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
	if m.what == gaveEvent {
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

func (s *session) tellProgress() {
	d, ok := s.sink.(instrument.DeferredSink)
	if !ok {
		return
	}
	var done, total uint64
	for _, m := range s.members {
		done, total = done+m.done, total+m.total
	}
	d.Progress(done, total)
}

// spec is the marker that the samples will hold; its code is marker.None where
// nobody tells.
func (s *session) spec() marker.Spec {
	if k, ok := s.sink.(instrument.MarkedSink); ok {
		return k.Marker()
	}
	return marker.Spec{}
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

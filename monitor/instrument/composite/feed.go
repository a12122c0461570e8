package composite

import (
	"sync/atomic"
	"time"

	"wattmark/measure"
	"wattmark/monitor/instrument"
)

// what a member has to say.
type what uint8

const (
	gaveBlock what = iota
	gaveEvent
	armed    // a deferred member samples
	waiting  // it waits for its trigger
	progress // a deferred member's delivery
	ended    // its Stream returned
)

// message is what a member's goroutine tells the session's.
type message struct {
	member      int
	what        what
	packet      *packet
	event       measure.Event
	at          time.Time
	done, total uint64
	err         error
}

// packet is a member's block, copied, with its time of arrival. Events keep their
// place among the blocks.
type packet struct {
	block measure.Block
	at    time.Time
	event *measure.Event // instead of a block
}

// feed is a member's sink. It runs on the member's goroutine.
type feed struct {
	member  int
	to      chan<- message
	free    chan *packet // packets that were used up
	stopped *atomic.Bool // nobody wants more
	// unwanted is closed once nobody wants what the member holds.
	unwanted <-chan struct{}
}

var (
	_ instrument.DeferredSink  = (*feed)(nil)
	_ instrument.TriggeredSink = (*feed)(nil)
)

// Block copies a block into a packet that is used again and again.
func (f *feed) Block(b *measure.Block) error {
	at := time.Now()
	switch {
	case f.stopped.Load():
		return errStopped
	case b.Scans() == 0:
		return nil
	}
	p := f.packet()
	p.fill(b, at)
	f.to <- message{member: f.member, what: gaveBlock, packet: p}
	return nil
}

// packet is one that was used up, or a new one.
func (f *feed) packet() *packet {
	select {
	case p := <-f.free:
		return p
	default:
		return &packet{}
	}
}

func (p *packet) fill(b *measure.Block, at time.Time) {
	p.at, p.event = at, nil
	p.block.FirstScan, p.block.FirstTick = b.FirstScan, b.FirstTick
	if p.block.Counts == nil {
		p.block.Counts = make([][]measure.Count, len(b.Counts))
	}
	for c := range b.Counts {
		p.block.Counts[c] = append(p.block.Counts[c][:0], b.Counts[c]...)
	}
	if b.Ticks != nil {
		p.block.Ticks = append(p.block.Ticks[:0], b.Ticks...)
	}
}

func (f *feed) Event(e measure.Event) error {
	if f.stopped.Load() {
		return errStopped
	}
	f.to <- message{member: f.member, what: gaveEvent, event: e}
	return nil
}

func (f *feed) Armed(at time.Time) error {
	f.to <- message{member: f.member, what: armed, at: at}
	return nil
}

func (f *feed) Waiting() error {
	f.to <- message{member: f.member, what: waiting}
	return nil
}

func (f *feed) Progress(done, total uint64) {
	f.to <- message{member: f.member, what: progress, done: done, total: total}
}

// Unwanted is closed once nobody wants what the member holds.
func (f *feed) Unwanted() <-chan struct{} { return f.unwanted }

package capture

import (
	"errors"
	"fmt"
	"math"
	"time"

	"wattmark/measure"
)

// errDriver: an instrument broke the contract of instrument.Instrument.
var errDriver = errors.New("instrument driver delivered what it must not")

// stitcher renumbers the blocks of one or more streams of an instrument into
// one capture, and makes sure that every hole between two blocks is an event.
// It is pure: time is handed in.
type stitcher struct {
	tb       measure.Timebase
	channels int

	scanBase uint64 // added to the stream's scan numbers
	tickBase int64  // added to the stream's ticks
	next     uint64 // the scan that is due
	endTick  float64
	lastAt   time.Time // when the last block arrived; zero before the first

	announced []measure.Event // gaps that the driver told of, before their block
	away      bool            // the link was lost; the next block begins a new stream
	awayWhy   string

	ticks []int64
	out   measure.Block
}

// begun tells whether a scan was seen.
func (s *stitcher) begun() bool { return !s.lastAt.IsZero() }

// lost begins a new stream: the next block counts from zero again.
func (s *stitcher) lost(why string) {
	if s.begun() {
		s.away, s.awayWhy = true, why
	}
	s.announced = s.announced[:0]
}

// event renumbers an event of the stream. A gap is kept back until the block
// behind it shows how many scans were really lost; ok is false then.
func (s *stitcher) event(e measure.Event) (out measure.Event, ok bool) {
	e.FirstScan += s.scanBase
	if e.Kind == measure.EventGap {
		s.announced = append(s.announced, e)
		return e, false
	}
	return e, true
}

// block renumbers a block that arrived at the given instant and returns it with
// the events that precede it. The block returned is valid until the next call.
func (s *stitcher) block(b *measure.Block, at time.Time) (*measure.Block, []measure.Event, error) {
	if err := b.Validate(s.tb, s.channels); err != nil {
		return nil, nil, fmt.Errorf("%w: %w", errDriver, err)
	}
	if b.Scans() == 0 {
		return nil, nil, nil
	}
	var events []measure.Event
	if s.away {
		events = s.rejoin(b, at)
	}
	first := s.scanBase + b.FirstScan
	if first < s.next {
		return nil, nil, fmt.Errorf("%w: scan %d after scan %d", errDriver, first, s.next)
	}
	events = append(events, s.gaps(first)...)
	s.out = measure.Block{FirstScan: first, FirstTick: s.tickBase + b.FirstTick, Counts: b.Counts}
	if b.Ticks != nil {
		s.ticks = append(s.ticks[:0], b.Ticks...)
		for i := range s.ticks {
			s.ticks[i] += s.tickBase
		}
		s.out.Ticks, s.out.FirstTick = s.ticks, s.ticks[0]
	}
	n := b.Scans()
	s.next = first + uint64(n)
	s.endTick = s.out.TickAt(s.tb, n-1) + s.tb.TicksPerScan
	s.lastAt = at
	return &s.out, events, nil
}

// gaps returns the events for the scans lost before scan first: the driver's
// own where they add up, else one that tells what the numbers say.
func (s *stitcher) gaps(first uint64) []measure.Event {
	hole := first - s.next
	var sum uint64
	for _, e := range s.announced {
		sum += e.Scans
	}
	told := s.announced
	s.announced = nil
	if sum == hole || (hole == 0 && len(told) > 0) {
		return told
	}
	e := measure.Event{Kind: measure.EventGap, FirstScan: s.next, Scans: hole, Exact: len(told) == 0, Channel: -1}
	e.Detail = fmt.Sprintf("scans %d to %d did not arrive", s.next, first-1)
	if len(told) > 0 {
		e.Detail = fmt.Sprintf("%s (the instrument spoke of %d: %s)", e.Detail, sum, told[0].Detail)
	}
	return []measure.Event{e}
}

// rejoin sets the bases for a stream that began anew, from how long it was
// away on the monitor's monotonic clock, and returns the events that say so.
func (s *stitcher) rejoin(b *measure.Block, at time.Time) []measure.Event {
	rate := float64(s.tb.SampleRate())
	away := at.Sub(s.lastAt)
	// The block's own scans were taken before it arrived.
	lost := math.Round(away.Seconds()*rate) - float64(b.Scans()) - float64(b.FirstScan)
	n := uint64(max(1, lost))
	gap := measure.Event{
		Kind: measure.EventGap, FirstScan: s.next, Scans: n, Channel: -1,
		Detail: fmt.Sprintf("away for %v: about %d scans, from the clock and the rate", away.Round(time.Millisecond), n),
	}
	reopen := gap
	reopen.Kind = measure.EventReopen
	reopen.Detail = fmt.Sprintf("%s; opened again after %v", s.awayWhy, away.Round(time.Millisecond))
	s.scanBase = s.next + n
	s.tickBase = int64(math.Round(s.endTick + float64(n)*s.tb.TicksPerScan))
	s.next = s.scanBase
	s.away = false
	return []measure.Event{reopen, gap}
}

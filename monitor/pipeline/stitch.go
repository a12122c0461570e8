package pipeline

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/wattmark/wattmark/measure"
)

// ErrDriver: an instrument broke the contract of instrument.Instrument.
var ErrDriver = errors.New("instrument driver delivered what it must not")

// stitcher renumbers the blocks of one or more streams of an instrument into one
// capture, and makes every hole between two blocks an event. It is pure: arrival times
// are handed in.
type stitcher struct {
	tb       measure.Timebase
	channels int

	scanBase uint64    // added to the stream's scan numbers
	tickBase int64     // added to the stream's ticks
	next     uint64    // the scan that is due
	endTick  float64   // end of the last scan
	lastAt   time.Time // arrival of the last block; zero before the first

	announced []measure.Event // gaps that the driver announced, before their block
	away      bool            // the link was lost; the next block begins a new stream
	awayWhy   string

	ticks []int64 // of out, kept for the next block
	out   measure.Block
}

// lost begins a new stream: the next block counts from zero again.
func (s *stitcher) lost(why string) {
	if !s.lastAt.IsZero() {
		s.away, s.awayWhy = true, why
	}
	s.announced = s.announced[:0]
}

// event renumbers an event of the stream. A gap is kept back until the block behind it
// shows the true number of lost scans; ok is false then.
func (s *stitcher) event(e measure.Event) (out measure.Event, ok bool) {
	e.FirstScan += s.scanBase
	if e.Kind == measure.EventGap {
		s.announced = append(s.announced, e)
		return e, false
	}
	return e, true
}

// block renumbers a block that arrived at the given instant and returns it with the
// events that precede it; nil for a block without scans. The block is valid until the
// next call. Errors wrap ErrDriver.
func (s *stitcher) block(b *measure.Block, at time.Time) (*measure.Block, []measure.Event, error) {
	if err := b.Validate(s.tb, s.channels); err != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrDriver, err)
	}
	n := b.Scans()
	if n == 0 {
		return nil, nil, nil
	}
	var events []measure.Event
	if s.away {
		events = s.rejoin(b, at)
	}
	first := s.scanBase + b.FirstScan
	if first < s.next {
		return nil, nil, fmt.Errorf("%w: scan %d after scan %d", ErrDriver, first, s.next)
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
	s.next = first + uint64(n)
	s.endTick = s.out.TickAt(s.tb, n-1) + s.tb.TicksPerScan
	s.lastAt = at
	return &s.out, events, nil
}

// gaps returns the events for the scans lost before scan first: the driver's own where
// they add up, else one that follows from the numbers.
func (s *stitcher) gaps(first uint64) []measure.Event {
	hole := first - s.next
	announced := s.announced
	s.announced = nil
	var sum uint64
	for _, e := range announced {
		sum += e.Scans
	}
	if sum == hole || (hole == 0 && len(announced) > 0) {
		return announced
	}
	e := measure.Event{Kind: measure.EventGap, FirstScan: s.next, Scans: hole, Exact: len(announced) == 0, Channel: -1}
	e.Detail = fmt.Sprintf("scans %d to %d did not arrive", s.next, first-1)
	if len(announced) > 0 {
		e.Detail = fmt.Sprintf("%s (the instrument spoke of %d: %s)", e.Detail, sum, announced[0].Detail)
	}
	return []measure.Event{e}
}

// rejoin sets the bases for a stream that began anew and returns its two events. The
// number of lost scans follows from the time away on the monitor's monotonic clock:
//
//	lost = round(away · rate) − scans of the block − scans before it in its stream
func (s *stitcher) rejoin(b *measure.Block, at time.Time) []measure.Event {
	away := at.Sub(s.lastAt)
	rate := float64(s.tb.SampleRate())
	lost := math.Round(away.Seconds()*rate) - float64(b.Scans()) - float64(b.FirstScan)
	n := uint64(max(1, lost))
	gap := measure.Event{
		Kind: measure.EventGap, FirstScan: s.next, Scans: n, Channel: -1,
		Detail: fmt.Sprintf("away for %v: about %s, from the clock and the rate",
			away.Round(time.Millisecond), measure.Plural(n, "scan")),
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

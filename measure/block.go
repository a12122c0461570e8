package measure

import (
	"errors"
	"fmt"
	"sort"

	"github.com/wattmark/wattmark/internal/lists"
)

// Timebase relates a device's tick counter to seconds and to scans.
// Device time zero is the first scan of the capture (tick 0).
type Timebase struct {
	// TickHz is the rate of the device's tick counter; 1e9 where the device has
	// none and its time is counted in nanoseconds.
	TickHz Hertz
	// UTickHz is the relative standard uncertainty of TickHz (1e-4 = 100 ppm).
	UTickHz float64
	// TicksPerScan is the nominal distance of two scans, in ticks.
	TicksPerScan float64
	// Stamped is set where every scan carries its own tick; otherwise scan i of a
	// block lies at FirstTick + i·TicksPerScan.
	Stamped bool
}

// SampleRate returns the nominal scans per second.
func (t Timebase) SampleRate() Hertz { return Hertz(float64(t.TickHz) / t.TicksPerScan) }

// Seconds converts device ticks to seconds of device time.
func (t Timebase) Seconds(tick float64) Seconds { return Seconds(tick / float64(t.TickHz)) }

// Ticks converts seconds of device time to (fractional) device ticks.
func (t Timebase) Ticks(s Seconds) float64 { return float64(s) * float64(t.TickHz) }

// Validate reports a timebase that cannot be used.
func (t Timebase) Validate() error {
	switch {
	case !(t.TickHz > 0 && Known(t.TickHz)):
		return fmt.Errorf("timebase: tick rate %v: must be positive and finite", float64(t.TickHz))
	case !(t.TicksPerScan > 0 && Known(t.TicksPerScan)):
		return fmt.Errorf("timebase: %v ticks a scan: must be positive and finite", t.TicksPerScan)
	case !(t.UTickHz >= 0 && Known(t.UTickHz)):
		return fmt.Errorf("timebase: relative uncertainty %v: must be zero or positive and finite", t.UTickHz)
	}
	return nil
}

// Block is a run of consecutive scans without a gap, planar: Counts[c][i] is
// channel c at scan FirstScan+i.
type Block struct {
	// FirstScan is the index of the block's first scan since the capture began.
	// It jumps over scans that were lost.
	FirstScan uint64
	// FirstTick is the device time of the first scan, in ticks since the first
	// scan of the capture.
	FirstTick int64
	// Ticks holds the device time of every scan when the timebase is stamped,
	// in ticks since the first scan of the capture; nil otherwise.
	Ticks []int64
	// Counts holds one slice a channel, all of the same length.
	Counts  [][]Count
	thinned *Thinned // the sums of scans that were deleted; there are no counts then
}

// Thinned returns the sums of the block's scans where they were deleted, in place of counts; nil for others.
func (b *Block) Thinned() *Thinned { return b.thinned }

// Reset begins a block of counts, whose memory is used again.
func (b *Block) Reset(firstScan uint64, firstTick int64) {
	b.FirstScan, b.FirstTick, b.thinned = firstScan, firstTick, nil
}

// Scans returns the number of scans in the block.
func (b *Block) Scans() int {
	if b.thinned != nil {
		return int(b.thinned.scans)
	}
	if len(b.Counts) == 0 {
		return 0
	}
	return len(b.Counts[0])
}

// TickAt returns the device time of scan i of the block, in ticks.
func (b *Block) TickAt(tb Timebase, i int) float64 {
	if b.thinned != nil {
		if t := b.thinned.g; i > 0 {
			return t.lastTick - float64(b.Scans()-1-i)*tb.TicksPerScan
		} else {
			return t.firstTick
		}
	}
	if b.Ticks != nil {
		return float64(b.Ticks[i])
	}
	return float64(b.FirstTick) + float64(i)*tb.TicksPerScan
}

// Slice returns scans [from, to) of the block without copying the counts. An
// empty slice at the block's end begins where the next scan is due.
func (b *Block) Slice(tb Timebase, from, to int) Block {
	out := Block{FirstScan: b.FirstScan + uint64(from), FirstTick: b.FirstTick}
	out.Counts = lists.Map(b.Counts, func(col []Count) []Count { return col[from:to] })
	switch n := len(b.Ticks); {
	case from == 0:
	case b.Ticks != nil && from == n:
		out.FirstTick = b.Ticks[n-1] + int64(tb.TicksPerScan)
	default:
		out.FirstTick = int64(b.TickAt(tb, from))
	}
	if b.Ticks != nil {
		out.Ticks = b.Ticks[from:to]
	}
	return out
}

// ErrShape is wrapped by errors about blocks whose parts do not fit together.
var ErrShape = errors.New("block of the wrong shape")

// Validate checks that the block has the stated number of channels, all of one
// length, and ticks where the timebase is stamped.
func (b *Block) Validate(tb Timebase, channels int) error {
	if b.thinned != nil {
		return fmt.Errorf("scans %d to %d: %w", b.FirstScan, b.FirstScan+b.thinned.scans-1, ErrThinned)
	}
	if len(b.Counts) != channels {
		return fmt.Errorf("%w: %d channels, want %d", ErrShape, len(b.Counts), channels)
	}
	n := b.Scans()
	for c, col := range b.Counts {
		if len(col) != n {
			return fmt.Errorf("%w: channel %d has %d scans, channel 0 has %d", ErrShape, c, len(col), n)
		}
	}
	if tb.Stamped != (b.Ticks != nil) || (tb.Stamped && len(b.Ticks) != n) {
		return fmt.Errorf("%w: %d tick stamps for %d scans (stamped: %v)", ErrShape, len(b.Ticks), n, tb.Stamped)
	}
	return nil
}

// EventKind names an incident in a stretch of a capture.
type EventKind uint8

// The kinds of event. Their numbers are stored and travel: never renumber.
const (
	EventGap EventKind = 1 // Scans scans were lost
	// Scans counts of a chunk's stood at an end of the converter's range, the first at FirstScan
	EventOverRange EventKind = 2
	EventOverflow  EventKind = 3  // the device reported an overflow of its own buffer
	EventResync    EventKind = 4  // bytes were skipped to find the next frame, or lines could not be read
	EventReopen    EventKind = 5  // the link was lost and opened again
	EventNote      EventKind = 6  // anything else worth keeping with the data
	EventClock     EventKind = 7  // the host's clock was set, and times were taken by it
	EventOthers    EventKind = 8  // other processes used the GPU while it was measured
	EventThinned   EventKind = 9  // Scans scans were deleted while the capture ran; their sums are stored
	EventSupply    EventKind = 10 // a rail has not the voltage of its supply
)

var eventNames = map[EventKind]string{
	EventGap: "gap", EventOverRange: "over-range", EventOverflow: "overflow",
	EventResync: "resync", EventReopen: "reopen", EventNote: "note", EventClock: "clock", EventOthers: "others",
	EventThinned: "thinned", EventSupply: "supply",
}

func (k EventKind) String() string { return NameOf(eventNames, k, "event") }

// Event is something that a reader of the samples must know. It travels and is
// stored beside the samples.
type Event struct {
	Kind EventKind
	// FirstScan is the first scan concerned; for a gap, the first one lost.
	FirstScan uint64
	// Scans is the number of scans concerned, or lost. An estimate where Exact is false.
	Scans uint64
	Exact bool
	// Channel is the index of the channel concerned, −1 for all.
	Channel int
	// Detail is one sentence for the operator.
	Detail string
}

// Window is a span of device time.
type Window struct{ From, To Seconds }

// reading is an input of a rail's power: a count as the converter gave it,
// or one that was brought to another instant.
type reading interface{ Count | float64 }

// stretch is a run of scans with their times.
type stretch[T reading] struct {
	cols  [][]T
	ticks []int64 // stamped timebases
	start float64 // else
	step  float64
	n     int
	first uint64 // index of the first scan
}

// at returns the tick of scan i.
func (s *stretch[T]) at(i int) float64 {
	if s.ticks != nil {
		return float64(s.ticks[i])
	}
	return s.start + float64(i)*s.step
}

// find returns the first scan for which past is true of its tick.
func (s *stretch[T]) find(past func(tick float64) bool) int {
	return sort.Search(s.n, func(i int) bool { return past(s.at(i)) })
}

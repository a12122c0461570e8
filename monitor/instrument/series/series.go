// Package series turns scans whose number is known into blocks, and reports the scans lost
// between them. It serves devices that count their scans or their losses, or stamp them with a
// clock that does not wrap in practice; package assemble works out the scans of those whose short
// stamps leave whole turns open.
//
//	Builder  scans, gaps and events → blocks of a Sink
//	Rate     a count of scans against the host's clock: the expected count, the true rate
//	Behind   losses of a device that neither numbers nor stamps its scans
//	Grid     calls at a steady pace, for devices that are asked
//	Step     scans between two whose numbers wrap
package series

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"time"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/monitor/instrument"
)

// Builder builds blocks. It is used by one goroutine.
type Builder struct {
	tb    measure.Timebase
	size  int // scans that make a block
	sink  instrument.Sink
	block measure.Block
	next  uint64 // index of the next scan
	zero  int64  // the first scan's tick

	bytes, lines, repaired, repeated, restamped uint64 // since the last report
	at                                          uint64 // scan before which it began
}

// New makes a builder of a device's blocks of so many scans, or of one, that delivers to sink. Stamped scans
// bring their own ticks; others lie on the timebase's grid.
func New(in instrument.Inputs, size int, sink instrument.Sink) *Builder {
	b := &Builder{tb: in.Timebase, size: max(1, size), sink: sink}
	for range in.Channels {
		b.block.Counts = append(b.block.Counts, make([]measure.Count, 0, b.size))
	}
	if b.tb.Stamped {
		b.block.Ticks = make([]int64, 0, b.size)
	}
	return b
}

// Next is the index that the next scan will have if nothing is lost before it.
func (b *Builder) Next() uint64 { return b.next }

// Begun reports whether a scan has come.
func (b *Builder) Begun() bool { return b.next > 0 }

// Scan takes the next scan; its counts are copied. The tick is the device's,
// from any zero; it matters where the timebase is stamped.
func (b *Builder) Scan(tick int64, counts []measure.Count) error {
	if b.Hold(tick, counts); b.block.Scans() >= b.size {
		return b.Flush()
	}
	return nil
}

// Hold is Scan of one that is delivered by the next Flush, not by itself.
func (b *Builder) Hold(tick int64, counts []measure.Count) {
	if !b.Begun() {
		b.zero = tick
	}
	if b.block.Scans() == 0 {
		b.block.FirstScan = b.next
		b.block.FirstTick = int64(float64(b.next) * b.tb.TicksPerScan)
		if b.tb.Stamped {
			b.block.FirstTick = tick - b.zero
		}
	}
	for c, v := range counts {
		b.block.Counts[c] = append(b.block.Counts[c], v)
	}
	if b.tb.Stamped {
		b.block.Ticks = append(b.block.Ticks, tick-b.zero)
	}
	b.next++
}

// Held is the number of scans that are not delivered yet, and the ticks from the first to the last of them.
func (b *Builder) Held() (scans int, ticks int64) {
	if scans = b.block.Scans(); scans > 0 && b.tb.Stamped {
		ticks = b.block.Ticks[scans-1] - b.block.FirstTick
	}
	return scans, ticks
}

// Repeats reports whether counts equal those of the last scan, as far as that is not delivered yet.
func (b *Builder) Repeats(counts []measure.Count) bool {
	n := b.block.Scans()
	for c, v := range counts {
		if n > 0 && b.block.Counts[c][n-1] != v {
			return false
		}
	}
	return true
}

// Late moves the scans that are held to later ticks, and reports that some were lost before them.
func (b *Builder) Late(ticks int64, scans uint64, exact bool, detail string) error {
	for i := range b.block.Ticks {
		b.block.Ticks[i] += ticks
	}
	b.block.FirstTick += ticks
	if scans == 0 {
		return nil
	}
	first := b.block.FirstScan
	b.block.FirstScan, b.next = first+scans, b.next+scans
	return b.gap(first, scans, exact, detail)
}

// gap reports that scans from a first one on are missing.
func (b *Builder) gap(first, scans uint64, exact bool, detail string) error {
	return b.sink.Event(measure.Event{
		Kind: measure.EventGap, FirstScan: first, Scans: scans, Exact: exact, Channel: -1, Detail: detail,
	})
}

// Add takes the next scan of a device without stamps.
func (b *Builder) Add(counts []measure.Count) error { return b.Scan(0, counts) }

// Gap reports that scans were lost before the next one. What was lost before the
// first scan of a stream is no loss.
func (b *Builder) Gap(scans uint64, exact bool, format string, a ...any) error {
	if scans == 0 || !b.Begun() {
		return nil
	}
	if err := b.Flush(); err != nil {
		return err
	}
	b.next += scans
	return b.gap(b.next-scans, scans, exact, fmt.Sprintf(format, a...))
}

// Skipped reports that n bytes belonged to no scan.
func (b *Builder) Skipped(n uint64) { b.tally(&b.bytes, n) }

// Malformed reports that n lines of text could not be read.
func (b *Builder) Malformed(n uint64) { b.tally(&b.lines, n) }

// Repaired reports that the numbers of n scans were wrong and have been put right.
func (b *Builder) Repaired(n uint64) { b.tally(&b.repaired, n) }

// Repeated reports that a scan came again and was dropped.
func (b *Builder) Repeated() { b.tally(&b.repeated, 1) }

// Restamped reports that a scan with a wrong stamp has been put right, or one that came again was dropped.
func (b *Builder) Restamped() { b.tally(&b.restamped, 1) }

// tally adds to a count of faults, and remembers the scan before which the first of them came.
func (b *Builder) tally(to *uint64, n uint64) {
	if n == 0 || !b.Begun() {
		return
	}
	if b.bytes+b.lines+b.repaired+b.repeated+b.restamped == 0 {
		b.at = b.next
	}
	*to += n
}

// Event passes an event on, in its place among the scans.
func (b *Builder) Event(e measure.Event) error {
	if err := b.Flush(); err != nil {
		return err
	}
	return b.sink.Event(e)
}

// Overflow reports that the device's memory was full, before the gap that it caused.
func (b *Builder) Overflow(detail string) error {
	return b.Event(measure.Event{
		Kind: measure.EventOverflow, FirstScan: b.next, Exact: true, Channel: -1, Detail: detail,
	})
}

// Note reports a remark on the next scan.
func (b *Builder) Note(format string, a ...any) error {
	return b.Event(measure.Event{
		Kind: measure.EventNote, FirstScan: b.next, Exact: true, Channel: -1, Detail: fmt.Sprintf(format, a...),
	})
}

// End delivers the scans that are left of a stream that ends with err, and returns that or, where it is nil, the
// sink's error.
func (b *Builder) End(err error) error { return cmp.Or(err, b.Flush()) }

// Fail is End of a stream that err breaks off; an error of the sink goes before.
func (b *Builder) Fail(err error) error { return cmp.Or(b.Flush(), err) }

// Flush delivers the scans of a block that is not full yet.
func (b *Builder) Flush() error {
	// Bytes skipped and scans repaired are summed up once a block, so that a bad line cannot flood the
	// stream with events.
	for _, r := range []struct {
		n           *uint64
		kind        measure.EventKind
		noun, fault string
	}{
		{&b.bytes, measure.EventResync, "byte", "skipped to find the next scan"},
		{&b.lines, measure.EventResync, "line", "could not be read"},
		{&b.repaired, measure.EventNote, "scan", "with a corrupted number, put right"},
		{&b.repeated, measure.EventNote, "scan", "came twice or out of order"},
		{&b.restamped, measure.EventNote, "scan", "repeated or with a corrupted time stamp, put right"},
	} {
		if *r.n == 0 {
			continue
		}
		detail := measure.Plural(*r.n, r.noun) + " " + r.fault
		e := measure.Event{Kind: r.kind, FirstScan: b.at, Exact: true, Channel: -1, Detail: detail}
		*r.n = 0
		if err := b.sink.Event(e); err != nil {
			return err
		}
	}
	if b.block.Scans() == 0 {
		return nil
	}
	err := b.sink.Block(&b.block)
	for c := range b.block.Counts {
		b.block.Counts[c] = b.block.Counts[c][:0]
	}
	if b.block.Ticks != nil {
		b.block.Ticks = b.block.Ticks[:0]
	}
	return err
}

// Rate follows a device's count of scans with the host's clock: the expected count
// at an instant, and the true rate. Buffers only ever delay,
// so the least delayed scan of a window is close to the truth.
type Rate struct {
	// Nominal scans a second; the host's clock is compared with them.
	Nominal float64
	// Window is how long the least delay is looked for, in seconds: 1 when zero. It is remembered for as long again.
	Window float64

	epoch         time.Time
	best          float64 // greatest lead of the current window, in scans
	bestAt, since float64
	known         bool
	lead, leadAt  float64 // of the last whole window
	first, firstT float64 // of the first whole window
	windows       int
}

// Seen reports that scan n arrived. Its lead is how far the count runs ahead of
// the nominal rate: the greater, the less the scan was delayed.
func (r *Rate) Seen(at time.Time, n int64) {
	if r.epoch.IsZero() {
		r.epoch, r.best = at, math.Inf(-1)
	}
	t := at.Sub(r.epoch).Seconds()
	lead := float64(n) - t*r.Nominal
	if lead > r.best {
		r.best, r.bestAt = lead, t
	}
	if !r.known {
		r.known, r.lead, r.leadAt = true, lead, t
	}
	if t-r.since < cmp.Or(r.Window, 1) {
		return
	}
	r.lead, r.leadAt = r.best, r.bestAt
	if r.windows == 0 {
		r.first, r.firstT = r.best, r.bestAt
	}
	r.windows++
	r.best, r.since = math.Inf(-1), t
}

// At is the count that the host's clock expects at an instant; ok is false
// before the first scan.
func (r *Rate) At(at time.Time) (n float64, ok bool) {
	if !r.known {
		return 0, false
	}
	lead := r.lead
	if !math.IsInf(r.best, -1) {
		lead = max(lead, r.best)
	}
	return at.Sub(r.epoch).Seconds()*r.Nominal + lead, true
}

// Measured is the rate by the host's clock in scans a second over the windows
// seen so far, and the seconds that they span; the span is 0 before there are two.
func (r *Rate) Measured() (rate, span float64) {
	if r.windows < 2 {
		return 0, 0
	}
	span = r.leadAt - r.firstT
	return r.Nominal + (r.lead-r.first)/span, span
}

// Forget begins anew, after the count itself began anew.
func (r *Rate) Forget() { *r = Rate{Nominal: r.Nominal} }

// Behind reports when a count of scans has fallen behind the host's clock for good:
// the losses of a device that neither numbers nor stamps its scans. Buffers only delay, and delayed
// scans come: so a count that stays behind at its least
// delayed scan, window after window, misses scans.
type Behind struct {
	// Nominal scans a second.
	Nominal float64

	epoch       time.Time
	since       float64 // of the window, in seconds
	best        float64 // greatest lead of the window, in scans
	heard, have bool
	ref         float64 // lead of the last window that was not behind
	low         int
}

const (
	behindWindow  = 0.5  // seconds
	behindWindows = 3    // in a row
	behindTime    = 0.05 // seconds: less is lost in the host's own delays
	behindScans   = 4
)

// Seen reports that n scans had come at an instant; full reports that more were
// waiting, so that the instant means little. It returns how many are missing,
// once, and expects them to be counted from then on.
func (b *Behind) Seen(at time.Time, n int64, full bool) (missing int64) {
	if b.epoch.IsZero() {
		b.epoch, b.best = at, math.Inf(-1)
	}
	t := at.Sub(b.epoch).Seconds()
	if !full {
		b.best, b.heard = max(b.best, float64(n)-t*b.Nominal), true
	}
	if t-b.since < behindWindow || !b.heard {
		return 0
	}
	best := b.best
	b.since, b.best, b.heard = t, math.Inf(-1), false
	switch {
	case !b.have || b.ref-best < max(behindTime*b.Nominal, behindScans):
		b.have, b.ref, b.low = true, best, 0
		return 0
	case b.low+1 < behindWindows:
		b.low++
		return 0
	}
	b.low = 0
	return int64(math.Round(b.ref - best)) // which brings the lead back to ref
}

// Step is how many scans lie between two whose numbers, which wrap at turn, lie d apart, where a clock has due of them;
// zero or less for one that came before. The number gives it but for whole turns. The next number is the next scan
// however late it comes: a line may have held it.
func Step(d, turn int64, due float64) (n int64, exact bool) {
	if d == 1 {
		return 1, true
	}
	turns := int64(math.Round((due - float64(d)) / float64(turn)))
	n = d + turns*turn
	if turns < 0 {
		return min(0, n), true
	}
	return n, turns == 0 || math.Abs(due-float64(n)) < float64(turn)/4
}

// Grid calls ask at once and then every period, until ctx ends (it returns nil)
// or ask fails. It keeps to the grid: a call that was late does not shift those
// after it, and one that is overdue altogether is left out.
func Grid(ctx context.Context, period time.Duration, ask func() error) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	due := time.Now()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		if err := ask(); err != nil {
			return err
		}
		due = due.Add(period)
		if late := time.Since(due); late > 0 {
			due = due.Add(late.Truncate(period) + period)
		}
		timer.Reset(time.Until(due))
	}
}

package series

import (
	"fmt"

	"wattmark/measure"
	"wattmark/monitor/instrument"
)

// Config describes what is built.
type Config struct {
	Channels int
	// Timebase of the device. Stamped scans bring their own ticks; others lie on
	// its grid.
	Timebase measure.Timebase
	// Flush is how many scans make a block.
	Flush int
}

// Builder builds blocks. It is used by one goroutine.
type Builder struct {
	cfg   Config
	sink  instrument.Sink
	block measure.Block
	next  uint64 // index of the next scan
	zero  int64  // the first scan's tick
	begun bool

	bytes, lines, repaired, repeated uint64 // since the last report
	at                               uint64 // scan before which it began
}

// New makes a builder that delivers to sink.
func New(cfg Config, sink instrument.Sink) *Builder {
	b := &Builder{cfg: cfg, sink: sink}
	b.block.Counts = make([][]measure.Count, cfg.Channels)
	for c := range b.block.Counts {
		b.block.Counts[c] = make([]measure.Count, 0, cfg.Flush)
	}
	if cfg.Timebase.Stamped {
		b.block.Ticks = make([]int64, 0, cfg.Flush)
	}
	return b
}

// Next is the index that the next scan will have if nothing is lost before it.
func (b *Builder) Next() uint64 { return b.next }

// Begun tells whether a scan has come.
func (b *Builder) Begun() bool { return b.begun }

// Scan takes the next scan; its counts are copied. The tick is the device's,
// from any zero; it matters where the timebase is stamped.
func (b *Builder) Scan(tick int64, counts []measure.Count) error {
	if !b.begun {
		b.begun, b.zero = true, tick
	}
	if b.block.Scans() == 0 {
		b.block.FirstScan = b.next
		b.block.FirstTick = int64(float64(b.next) * b.cfg.Timebase.TicksPerScan)
		if b.cfg.Timebase.Stamped {
			b.block.FirstTick = tick - b.zero
		}
	}
	for c, v := range counts {
		b.block.Counts[c] = append(b.block.Counts[c], v)
	}
	if b.cfg.Timebase.Stamped {
		b.block.Ticks = append(b.block.Ticks, tick-b.zero)
	}
	b.next++
	if b.block.Scans() >= b.cfg.Flush {
		return b.Flush()
	}
	return nil
}

// Gap says that scans were lost before the next one. What was lost before the
// first scan of a stream is no loss.
func (b *Builder) Gap(scans uint64, exact bool, detail string) error {
	if scans == 0 || !b.begun {
		return nil
	}
	if err := b.Flush(); err != nil {
		return err
	}
	e := measure.Event{Kind: measure.EventGap, FirstScan: b.next, Scans: scans, Exact: exact, Channel: -1, Detail: detail}
	b.next += scans
	return b.sink.Event(e)
}

// Skipped tells that n bytes belonged to no scan.
func (b *Builder) Skipped(n uint64) { b.tally(&b.bytes, n) }

// Malformed tells that n lines or frames could not be read.
func (b *Builder) Malformed(n uint64) { b.tally(&b.lines, n) }

// Repaired tells that a scan's number was wrong and has been put right.
func (b *Builder) Repaired() { b.tally(&b.repaired, 1) }

// Repeated tells that a scan came again and was dropped.
func (b *Builder) Repeated() { b.tally(&b.repeated, 1) }

func (b *Builder) tally(to *uint64, n uint64) {
	if n == 0 || !b.begun {
		return
	}
	if b.bytes+b.lines+b.repaired+b.repeated == 0 {
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

// Flush delivers what there is.
func (b *Builder) Flush() error {
	if err := b.report(); err != nil {
		return err
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

// report tells once a block what was skipped and put right, so that a bad line
// cannot flood the stream with events.
func (b *Builder) report() error {
	for _, r := range []struct {
		n      *uint64
		kind   measure.EventKind
		detail string
	}{
		{&b.bytes, measure.EventResync, "%d bytes skipped to find the next scan"},
		{&b.lines, measure.EventResync, "%d lines or frames could not be read"},
		{&b.repaired, measure.EventNote, "%d scans with a corrupted number, put right"},
		{&b.repeated, measure.EventNote, "%d scans came twice"},
	} {
		if *r.n == 0 {
			continue
		}
		e := measure.Event{Kind: r.kind, FirstScan: b.at, Exact: true, Channel: -1, Detail: fmt.Sprintf(r.detail, *r.n)}
		*r.n = 0
		if err := b.sink.Event(e); err != nil {
			return err
		}
	}
	return nil
}

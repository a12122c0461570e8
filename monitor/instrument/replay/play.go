package replay

import (
	"context"
	"fmt"
	"time"

	"wattmark/measure"
	"wattmark/monitor/instrument"
)

// maxScans bounds a block.
const maxScans = 4096

// player is one Stream call.
type player struct {
	d      *Device
	sink   instrument.Sink
	block  measure.Block
	row    row
	events []measure.Event
	start  time.Time
	origin int64 // tick of the first scan
	first  uint64
	begun  bool
	ticks  []int64
}

func newPlayer(d *Device, sink instrument.Sink) *player {
	n := len(d.inputs.Channels)
	p := &player{d: d, sink: sink, events: d.events, start: time.Now()}
	p.row.counts = make([]measure.Count, n)
	p.block.Counts = make([][]measure.Count, n)
	return p
}

// play delivers scan after scan, each block when the time of its last scan has
// come. It returns io.EOF at the end.
func (p *player) play(ctx context.Context, r *rows) error {
	for {
		if err := r.next(&p.row); err != nil {
			return err
		}
		if !p.begun { // the recording may itself begin in the middle of something
			p.begun, p.origin, p.first = true, p.row.tick, p.row.scan
		}
		scan, tick := p.row.scan-p.first, p.row.tick-p.origin
		if n := p.block.Scans(); n > 0 && (scan != p.block.FirstScan+uint64(n) || p.due(tick)) {
			if err := p.wait(ctx); err != nil {
				return err
			}
			expected := p.block.FirstScan + uint64(n)
			if err := p.flush(); err != nil {
				return err
			}
			if err := p.jump(expected, scan); err != nil {
				return err
			}
		}
		p.add(scan, tick)
	}
}

// jump makes a gap of scans that the recording lacks, unless its events have one.
func (p *player) jump(expected, scan uint64) error {
	if scan < expected {
		return fmt.Errorf("%w: scan %d comes after scan %d", ErrFormat, scan+p.first, expected+p.first-1)
	}
	if scan == expected {
		return nil
	}
	for _, e := range p.events {
		if e.Kind == measure.EventGap && e.FirstScan == expected+p.first {
			return nil
		}
	}
	return p.sink.Event(measure.Event{Kind: measure.EventGap, FirstScan: expected, Scans: scan - expected, Exact: true, Channel: -1, Detail: "missing in the recording"})
}

// due tells whether the block is long enough without the scan at tick.
func (p *player) due(tick int64) bool {
	tb := p.d.inputs.Timebase
	return p.block.Scans() >= maxScans || tb.Seconds(float64(tick-p.block.FirstTick)) >= measure.SecondsOf(playTime)
}

func (p *player) add(scan uint64, tick int64) {
	if p.block.Scans() == 0 {
		p.block.FirstScan, p.block.FirstTick = scan, tick
		p.ticks = p.ticks[:0]
	}
	p.ticks = append(p.ticks, tick)
	if p.d.inputs.Timebase.Stamped {
		p.block.Ticks = p.ticks
	}
	for c, v := range p.row.counts {
		p.block.Counts[c] = append(p.block.Counts[c], v)
	}
}

// wait holds the block back until the time of its last scan.
func (p *player) wait(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if p.d.opts.Speed == 0 {
		return nil
	}
	at := p.d.inputs.Timebase.Seconds(float64(p.ticks[len(p.ticks)-1]))
	t := time.NewTimer(time.Until(p.start.Add((at / measure.Seconds(p.d.opts.Speed)).Duration())))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// flush delivers the events up to the block, and the block.
func (p *player) flush() error {
	n := p.block.Scans()
	if n == 0 {
		return nil
	}
	if err := p.tell(p.block.FirstScan + uint64(n)); err != nil {
		return err
	}
	err := p.sink.Block(&p.block)
	for c := range p.block.Counts {
		p.block.Counts[c] = p.block.Counts[c][:0]
	}
	return err
}

// tell delivers the events that begin before a scan; but for clipped readings, which are
// in the counts: who takes the samples counts them, by chunks of its own.
func (p *player) tell(before uint64) error {
	for len(p.events) > 0 && p.events[0].FirstScan-min(p.events[0].FirstScan, p.first) < before {
		e := p.events[0]
		e.FirstScan -= min(e.FirstScan, p.first)
		p.events = p.events[1:]
		if e.Kind == measure.EventOverRange {
			continue
		}
		if err := p.sink.Event(e); err != nil {
			return err
		}
	}
	return nil
}

// finish delivers what is left.
func (p *player) finish() error {
	if err := p.flush(); err != nil {
		return err
	}
	return p.tell(^uint64(0))
}

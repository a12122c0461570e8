package nvml

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"wattmark/measure"
	"wattmark/monitor/instrument"
	"wattmark/monitor/instrument/poll"
)

// poller is one Stream call.
type poller struct {
	d     *Device
	sink  instrument.Sink
	block measure.Block

	begun    bool
	first    time.Time
	next     uint64 // number of the next scan
	failed   uint64 // polls that failed since the last good one
	deaf     time.Time
	lastFail error
}

// Stream polls until ctx ends. It owns an OS thread meanwhile, so that a busy Go
// program delays it less; what still comes late keeps its true time.
func (d *Device) Stream(ctx context.Context, sink instrument.Sink) error {
	if d.sensor == nil {
		return fmt.Errorf("%s: stream: not open", Kind)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	p := &poller{d: d, sink: sink, block: measure.Block{
		Ticks: make([]int64, 0, blockPolls), Counts: [][]measure.Count{make([]measure.Count, 0, blockPolls)},
	}}
	if err := p.run(ctx); err != nil {
		return fmt.Errorf("%s: stream: %w", Kind, err)
	}
	return nil
}

func (p *poller) run(ctx context.Context) error {
	if err := poll.Grid(ctx, p.d.opts.Period, p.poll); err != nil {
		return err
	}
	return p.flush()
}

// poll reads once. The reading's time is the middle of the call.
func (p *poller) poll() error {
	begin := time.Now()
	r, err := p.d.sensor.Read()
	took := time.Since(begin)
	mw := p.d.field.of(r)
	if err == nil && mw == NoReading {
		err = fmt.Errorf("the %s reading is gone", p.d.field)
	}
	if err != nil {
		return p.miss(begin, err)
	}
	at := begin.Add(took / 2)
	if !p.begun {
		p.begun, p.first, p.failed = true, at, 0
	}
	if p.failed > 0 {
		if err := p.gap(); err != nil {
			return err
		}
	}
	tick := at.Sub(p.first).Nanoseconds()
	if len(p.block.Ticks) == 0 {
		p.block.FirstScan, p.block.FirstTick = p.next, tick
	}
	p.block.Ticks = append(p.block.Ticks, tick)
	p.block.Counts[0] = append(p.block.Counts[0], mw)
	p.next++
	if len(p.block.Ticks) == blockPolls {
		return p.flush()
	}
	return nil
}

// miss notes a poll that failed and gives up when none has worked for long.
func (p *poller) miss(at time.Time, err error) error {
	if p.failed == 0 {
		p.deaf = at
	}
	p.failed++
	p.lastFail = err
	if at.Sub(p.deaf) < deafTime {
		return nil
	}
	if ferr := p.flush(); ferr != nil {
		return ferr
	}
	return fmt.Errorf("%w: no reading for %v (was the driver reloaded, or the GPU lost?): %w", instrument.ErrDisconnected, deafTime, err)
}

// gap tells of the polls that failed before a good one.
func (p *poller) gap() error {
	if err := p.flush(); err != nil {
		return err
	}
	e := measure.Event{
		Kind: measure.EventGap, FirstScan: p.next, Scans: p.failed, Exact: true, Channel: -1,
		Detail: fmt.Sprintf("%d polls failed: %v", p.failed, p.lastFail),
	}
	p.next += p.failed
	p.failed = 0
	return p.sink.Event(e)
}

func (p *poller) flush() error {
	if len(p.block.Ticks) == 0 {
		return nil
	}
	err := p.sink.Block(&p.block)
	p.block.Ticks, p.block.Counts[0] = p.block.Ticks[:0], p.block.Counts[0][:0]
	return err
}

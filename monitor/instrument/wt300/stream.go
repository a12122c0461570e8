package wt300

import (
	"context"
	"errors"
	"fmt"
	"time"

	"wattmark/measure"
	"wattmark/monitor/instrument"
	"wattmark/monitor/instrument/series"
)

// failures in a row without a reading between them are a lost meter.
const failures = 3

// stopTime is how long the update that is under way may take beside its time.
const stopTime = 2 * time.Second

// next waits for the next update, clears its mark and reads it. As one message it
// is carried out in one go, so that no update falls between the last two.
const next = ":COMM:WAIT 1;:STAT:EESR?;:NUM:NORM:VAL?"

// stream is one Stream call.
type stream struct {
	d      *Device
	out    *series.Builder
	counts []measure.Count
	data   []byte
	zero   time.Time // of the ticks
	grid   grid
	fails  int
}

// Stream reads every update until ctx ends, and then the one that is under way.
func (d *Device) Stream(ctx context.Context, sink instrument.Sink) error {
	if !d.open {
		return fmt.Errorf("%s: stream: not open", Kind)
	}
	s := &stream{d: d, counts: make([]measure.Count, len(d.inputs.Channels)), zero: d.now(), grid: newGrid(d.opts.Rate)}
	// One reading a block: at this pace nobody shall wait for a second one.
	s.out = series.New(series.Config{Channels: len(s.counts), Timebase: d.inputs.Timebase, Flush: 1}, sink)
	// A message that is broken off would leave the meter waiting, and its reply to
	// the next user: each ends by itself, or by its time-out.
	own, cancel := instrument.Outlast(ctx, d.opts.Rate+stopTime)
	defer cancel()
	_, err := d.client.QueryNumber(own, ":STAT:EESR?") // what was marked before is of the past
	for err == nil && ctx.Err() == nil {
		err = s.step(own)
	}
	if err := errors.Join(err, s.out.Flush()); err != nil {
		return fmt.Errorf("%s: stream from %s: %w", Kind, d.address, err)
	}
	return nil
}

// step reads one update.
func (s *stream) step(ctx context.Context) (err error) {
	asked := s.d.now()
	s.data, err = s.d.client.QueryBlock(ctx, next, bytesItem*len(s.counts), s.data[:0])
	var there bool
	if err == nil {
		there, err = Readings(s.data, s.d.inputs.Channels, s.counts)
	}
	if err != nil {
		return s.failed(err)
	}
	at, missed := s.grid.seen(asked, s.d.now(), s.fails > 0)
	s.fails = 0
	if err := s.out.Gap(missed, false, fmt.Sprintf("%d updates went by unread, by this machine's clock", missed)); err != nil {
		return err
	}
	if !there {
		return s.out.Gap(1, true, "the meter showed no data (----)")
	}
	return s.out.Scan(at.Sub(s.zero).Nanoseconds(), s.counts)
}

// failed judges an exchange that failed: the client brings the link in step
// before the next, unless the meter is gone or fails again and again.
func (s *stream) failed(err error) error {
	s.fails++
	switch {
	case errors.Is(err, instrument.ErrDisconnected):
		return err
	case s.fails > failures:
		return fmt.Errorf("%w: %d times in a row: %w (is its HOLD on?)", instrument.ErrDisconnected, s.fails, err)
	}
	return nil
}

package nidaqmx

import (
	"context"
	"fmt"
	"math"
	"time"

	"wattmark/measure"
	"wattmark/monitor/instrument/nidaqmx/nipb"
)

// readFrom sets where reads begin, and remembers whether they are moved.
func (d *Device) readFrom(ctx context.Context, point nipb.ReadInt32Value, offset int32) error {
	if err := d.setRead(ctx, nipb.ReadInt32Attribute_READ_INT32_ATTRIBUTE_RELATIVE_TO, int32(point)); err != nil {
		return err
	}
	d.moved = true
	if err := d.setRead(ctx, nipb.ReadInt32Attribute_READ_INT32_ATTRIBUTE_OFFSET, offset); err != nil {
		return err
	}
	d.moved = point != nipb.ReadInt32Value_READ_INT32_VALUE_CURR_READ_POS || offset != 0
	return nil
}

// readOn lets each read begin where the last one ended.
func (d *Device) readOn(ctx context.Context) error {
	if err := d.readFrom(ctx, nipb.ReadInt32Value_READ_INT32_VALUE_CURR_READ_POS, 0); err != nil {
		return fmt.Errorf("read on where the last read ended: %w", err)
	}
	return nil
}

// overwritten goes on after the buffer has run over. The driver refuses to read
// where the samples are gone, again and again; so one read is moved to the middle
// of what the buffer still holds, and the position at which it ended tells to the
// sample what was lost. Where the driver does not let itself be moved, the task
// is started again.
func (s *stream) overwritten(ctx context.Context) error {
	if err := s.overflow("the buffer on NI's machine ran over: it is not read fast enough"); err != nil {
		return err
	}
	if s.blind {
		return s.restart(ctx)
	}
	b, first, err := s.jump(ctx)
	switch {
	case driverCode(err) != 0:
		return s.restart(ctx)
	case err != nil:
		return err
	case s.blind || len(b) == 0:
		return s.restart(ctx)
	}
	return s.take(b, first)
}

// jump reads once from the middle of the buffer; reads after it follow on.
func (s *stream) jump(ctx context.Context) (b []byte, first int64, err error) {
	d := s.d
	back := int32(math.Ceil(d.opts.Buffer.Seconds() * d.opts.Rate / 2))
	if err := d.readFrom(ctx, nipb.ReadInt32Value_READ_INT32_VALUE_MOST_RECENT_SAMP, -back); err != nil {
		return nil, 0, err
	}
	if b, first, err = s.next(ctx); err != nil {
		return nil, 0, err
	}
	return b, first, d.readOn(ctx)
}

// stopped goes on after the device itself has stopped sampling.
func (s *stream) stopped(ctx context.Context, why error) error {
	if err := s.overflow(why.Error()); err != nil {
		return err
	}
	return s.restart(ctx)
}

// restart stops and starts the task. Nobody counts meanwhile: the host's clock
// tells about how many scans are missing.
func (s *stream) restart(ctx context.Context) error {
	// A StopTask that repeats the error that stopped the task has stopped it.
	if err := s.d.stop(ctx); err != nil && driverCode(err) == 0 {
		return err
	}
	before := time.Now()
	if err := s.d.start(ctx); err != nil {
		return err
	}
	began := before.Add(time.Since(before) / 2)
	lost := uint64(1)
	if n, ok := s.rate.At(began); ok && n > float64(s.out.Next())+1 {
		lost = uint64(math.Round(n)) - s.out.Next()
	}
	if err := s.out.Gap(lost, false, fmt.Sprintf("the task was started again; about %d scans are missing by the host's clock", lost)); err != nil {
		return err
	}
	s.zero = int64(s.out.Next())
	return nil
}

// overflow tells that the buffer ran over, before the gap tells what that cost.
func (s *stream) overflow(why string) error {
	return s.out.Event(measure.Event{Kind: measure.EventOverflow, FirstScan: s.out.Next(), Exact: true, Channel: -1, Detail: why})
}

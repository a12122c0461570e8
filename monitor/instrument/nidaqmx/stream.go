package nidaqmx

import (
	"context"
	"errors"
	"fmt"
	"time"

	"wattmark/measure"
	"wattmark/monitor/instrument"
	"wattmark/monitor/instrument/nidaqmx/nipb"
	"wattmark/monitor/instrument/series"
)

// maxBlock is the most scans of a block.
const maxBlock = 8192

// stream is one Stream call.
type stream struct {
	d      *Device
	out    *series.Builder
	counts []measure.Count
	asked  int   // scans of a read
	zero   int64 // index of the scan that is the device's sample 0
	rate   series.Rate
	silent time.Duration // since the last sample
	warned int32
	blind  bool // the driver does not tell positions
}

// errTaken: the session's name leads to a task that is not ours any more.
var errTaken = fmt.Errorf("%w: another program has taken the session over", instrument.ErrDisconnected)

// Stream samples until ctx ends; then it takes what the read in progress brings,
// and stops the device.
func (d *Device) Stream(ctx context.Context, sink instrument.Sink) error {
	if d.task == nil {
		return fmt.Errorf("%s: stream: not open", Kind)
	}
	err := d.stream(ctx, sink)
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s: stream from %s: %w", Kind, d.address, err)
	}
	return nil
}

func (d *Device) stream(ctx context.Context, sink instrument.Sink) error {
	n, tb := len(d.opts.Inputs), d.inputs.Timebase
	s := &stream{
		d: d, counts: make([]measure.Count, n), asked: d.opts.perRead(),
		rate: series.Rate{Nominal: float64(tb.TickHz)},
	}
	s.out = series.New(series.Config{Channels: n, Timebase: tb, Flush: min(s.asked, maxBlock)}, sink)
	if err := d.start(ctx); err != nil {
		return err
	}
	err := s.run(ctx)
	if errors.Is(err, errTaken) || driverCode(err) == invalidTask {
		d.task, d.left = nil, false // or the other's task would be stopped and cleared
	} else {
		// What ends the stream, the device is told.
		own, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastTime)
		defer cancel()
		_ = d.stop(own)
	}
	if ferr := s.out.Flush(); err == nil {
		err = ferr
	}
	return err
}

func (d *Device) start(ctx context.Context) error {
	if d.moved {
		if err := d.readOn(ctx); err != nil {
			return err
		}
	}
	if _, err := call(ctx, callTime, d.api.StartTask, &nipb.StartTaskRequest{Task: d.task}); err != nil {
		return fmt.Errorf("start: %w", err)
	}
	return nil
}

func (d *Device) stop(ctx context.Context) error {
	_, err := call(ctx, callTime, d.api.StopTask, &nipb.StopTaskRequest{Task: d.task})
	return err
}

// run reads until ctx ends. The read in progress is let end, as it holds samples
// from before.
func (s *stream) run(ctx context.Context) error {
	reading, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(s.d.opts.Interval+lastTime, cancel) })
	defer stop()
	for {
		err := s.read(reading)
		switch driverCode(err) {
		case noLongerAvailable:
			err = s.overwritten(reading)
		case stoppedToProtect, fifoOverflow, fifoOverflowOld, busTooSlow:
			err = s.stopped(reading, err)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			return err
		}
	}
}

// read asks for the next samples and takes what comes.
func (s *stream) read(ctx context.Context) error {
	b, first, err := s.next(ctx)
	if err != nil {
		return err
	}
	if len(b) > 0 {
		s.silent = 0
		return s.take(b, first)
	}
	if s.silent += s.wait(); s.silent >= s.d.opts.Silence {
		return fmt.Errorf("%w: the device has not sampled for %v (%w)", instrument.ErrDisconnected, s.silent, instrument.ErrSilent)
	}
	return nil
}

// wait is how long the driver waits for the samples of a read.
func (s *stream) wait() time.Duration { return 2*s.d.opts.Interval + 100*time.Millisecond }

// next reads up to a read's scans. It returns them, and the device's number of
// the first: sessions are known by name alone, so that another program may have
// read in between, or made a new task of that name.
func (s *stream) next(ctx context.Context) (b []byte, first int64, err error) {
	if b, err = s.raw(ctx, s.asked); err != nil {
		return nil, 0, err
	}
	if s.blind {
		return b, s.due(), nil
	}
	end, err := s.d.position(ctx)
	first = int64(end) - int64(len(b)/(bytesCode*len(s.counts)))
	switch {
	case err == nil && first >= 0:
		return b, first, nil
	case err == nil:
		err = fmt.Errorf("it tells %d", end)
	case driverCode(err) == 0 || driverCode(err) == invalidTask:
		return nil, 0, err
	}
	s.blind = true
	return b, s.due(), s.note(fmt.Sprintf("the driver does not tell positions (%v): what a full buffer loses will be estimated", err))
}

// due is the device's number of the next sample, if nothing is lost.
func (s *stream) due() int64 { return int64(s.out.Next()) - s.zero }

// take puts scans into blocks; what is missing before them is a gap.
func (s *stream) take(b []byte, first int64) error {
	lost := first - s.due()
	if lost < 0 {
		return errTaken
	}
	if lost > 0 {
		if err := s.out.Gap(uint64(lost), true, fmt.Sprintf("%d scans were overwritten, or read by another program", lost)); err != nil {
			return err
		}
	}
	s.zero = int64(s.out.Next()) - first
	err := scans(b, s.counts, func(c []measure.Count) error { return s.out.Scan(int64(s.out.Next()), c) })
	if err != nil {
		return err
	}
	s.rate.Seen(time.Now(), int64(s.out.Next()))
	return s.out.Flush()
}

// raw reads up to n scans.
func (s *stream) raw(ctx context.Context, n int) ([]byte, error) {
	inputs := len(s.counts)
	r, err := call(ctx, s.wait()+s.d.opts.Silence, s.d.api.ReadRaw, &nipb.ReadRawRequest{
		Task: s.d.task, NumSampsPerChan: int32(n), Timeout: s.wait().Seconds(), ArraySizeInBytes: uint32(n * inputs * bytesCode),
	})
	if err != nil {
		return nil, err
	}
	if w := r.GetStatus(); w > 0 && w != s.warned {
		s.warned = w
		if err := s.note(fmt.Sprintf("NI-DAQmx warning %d", w)); err != nil {
			return nil, err
		}
	}
	return samples(r, n, inputs)
}

// note tells something worth keeping with the data.
func (s *stream) note(detail string) error {
	return s.out.Event(measure.Event{Kind: measure.EventNote, FirstScan: s.out.Next(), Exact: true, Channel: -1, Detail: detail})
}

package u2300

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"wattmark/measure"
	"wattmark/monitor/instrument"
	"wattmark/monitor/instrument/series"
	"wattmark/monitor/scpi"
)

const (
	stopTime = 2 * time.Second // for the last block and STOP
	// failures in a row without a block between them are a lost device.
	failures = 3
)

// stream is one Stream call.
type stream struct {
	d      *Device
	out    *series.Builder
	rate   series.Rate
	counts []measure.Count
	block  []byte
	failed int // exchanges since the last block
	heard  time.Time
}

// Stream runs the device until ctx ends; then it takes what is still due and
// stops it.
func (d *Device) Stream(ctx context.Context, sink instrument.Sink) error {
	if !d.open {
		return fmt.Errorf("%s: stream: not open", Kind)
	}
	n := d.opts.points()
	s := &stream{d: d, counts: make([]measure.Count, len(d.opts.Inputs)), rate: series.Rate{Nominal: d.opts.ScanRate}, heard: d.now()}
	s.out = series.New(series.Config{Channels: len(s.counts), Timebase: d.inputs.Timebase, Flush: n}, sink)
	own := context.WithoutCancel(ctx) // see run
	err := s.run(ctx, own)
	switch {
	case err == nil:
		err = s.finish(own)
	case !errors.Is(err, instrument.ErrDisconnected):
		s.stop(own)
	}
	if ferr := s.out.Flush(); err == nil {
		err = ferr
	}
	if err != nil {
		return fmt.Errorf("%s: stream from %s: %w", Kind, d.address, err)
	}
	return nil
}

// run reads blocks until ctx ends or the device is lost. Exchanges have a context
// of their own, bounded by their time-outs: one that is broken off in the middle
// would lose a block.
func (s *stream) run(ctx, own context.Context) error {
	if _, err := s.start(own); err != nil {
		return err
	}
	tick := time.NewTimer(0)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		wait, err := s.step(own)
		if err != nil {
			return err
		}
		tick.Reset(wait)
	}
}

// start begins an acquisition and returns its host time.
func (s *stream) start(ctx context.Context) (time.Time, error) {
	sent := s.d.now()
	if err := s.d.client.Command(ctx, "RUN"); err != nil {
		return sent, err
	}
	_, err := s.state(ctx) // its reply says that RUN was taken
	return sent.Add(s.d.now().Sub(sent) / 2), err
}

func (s *stream) state(ctx context.Context) (status, error) {
	return scpi.Ask(ctx, s.d.client, "WAV:STAT?", parseStatus)
}

// step asks once, takes a block if there is one, and tells how long to wait.
func (s *stream) step(ctx context.Context) (wait time.Duration, err error) {
	now, err := s.state(ctx)
	if err != nil {
		return 0, s.anew(ctx, err, "the link failed")
	}
	switch now {
	case statusOver:
		e := measure.Event{
			Kind: measure.EventOverflow, FirstScan: s.out.Next(), Exact: true, Channel: -1,
			Detail: "the device's memory is full (OVER): it is not read fast enough: lower scan_rate",
		}
		if err := s.out.Event(e); err != nil {
			return 0, err
		}
		return 0, s.anew(ctx, nil, "the device's memory was full")
	case statusData:
		err := s.take(ctx)
		if err != nil && !errors.Is(err, errSink) {
			return 0, s.anew(ctx, err, "a block did not arrive")
		}
		return 0, err
	}
	if silent := s.d.now().Sub(s.heard); silent > s.d.opts.Silence {
		return 0, fmt.Errorf("%w: %w: no block for %v (%s): is its trigger source NONE?", instrument.ErrDisconnected, instrument.ErrSilent, silent.Round(time.Millisecond), now)
	}
	return min(max(s.d.opts.Block/8, time.Millisecond), 20*time.Millisecond), nil
}

// errSink marks what the sink refused: no trouble of the device.
var errSink = errors.New("not taken")

// take reads one block and delivers it.
func (s *stream) take(ctx context.Context) (err error) {
	most := bytesSample * len(s.counts) * s.d.opts.points()
	s.block, err = s.d.client.QueryBlock(ctx, "WAV:DATA?", most, s.block[:0])
	if err != nil {
		return err
	}
	if len(s.block) != most {
		return fmt.Errorf("%w: a block of %d bytes, %d are due", scpi.ErrReply, len(s.block), most)
	}
	now := s.d.now()
	err = scans(s.block, s.counts, func(c []measure.Count) error { return s.out.Scan(int64(s.out.Next()), c) })
	if err != nil {
		return fmt.Errorf("%w: %w", errSink, err)
	}
	s.rate.Seen(now, int64(s.out.Next()))
	s.heard, s.failed = now, 0
	return nil
}

// anew begins the acquisition again, after OVER or an exchange that failed: what
// the device still holds can no longer be placed. The host's clock says how many
// scans are missing. A device that is gone, or fails again and again, is lost.
func (s *stream) anew(ctx context.Context, cause error, what string) error {
	s.failed++
	if errors.Is(cause, instrument.ErrDisconnected) {
		return cause
	}
	if s.failed > failures {
		return fmt.Errorf("%w: %d times in a row: %s: %w", instrument.ErrDisconnected, s.failed, what, errors.Join(cause, errGivenUp))
	}
	again := s.d.setUp // it may have been switched off and on meanwhile
	if cause == nil {
		again = func(ctx context.Context) error { return s.d.client.Command(ctx, "STOP") }
	}
	if err := again(ctx); err != nil {
		return err
	}
	at, err := s.start(ctx)
	if err != nil {
		return err
	}
	due, ok := s.rate.At(at)
	if !ok {
		return nil // nothing came yet: nothing is lost
	}
	lost := uint64(max(1, math.Round(due)-float64(s.out.Next())))
	if err := s.out.Gap(lost, false, fmt.Sprintf("%s: begun anew; some %d scans are missing by this machine's clock", what, lost)); err != nil {
		return fmt.Errorf("%w: %w", errSink, err)
	}
	return nil
}

var errGivenUp = errors.New("given up")

// finish takes the blocks that hold scans from before the end, and stops the
// device.
func (s *stream) finish(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, stopTime)
	defer cancel()
	defer s.stop(ctx)
	end := s.d.now()
	for caught := false; s.d.now().Sub(end) < stopTime/2; {
		st, err := s.state(ctx)
		if err != nil || st == statusOver {
			return nil // the end is as far as it came
		}
		if st != statusData {
			caught = true // what comes next was completed after the end
			wait(ctx, s.d.opts.Block/8)
			continue
		}
		if err := s.take(ctx); errors.Is(err, errSink) {
			return err
		} else if err != nil || caught {
			return nil
		}
	}
	return nil
}

func wait(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// stop ends the acquisition, if the device still listens.
func (s *stream) stop(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, stopTime)
	defer cancel()
	_ = s.d.client.Command(ctx, "STOP")
}

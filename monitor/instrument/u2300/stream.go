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
	own, cancel := instrument.Outlast(ctx, 2*stopTime) // see run
	defer cancel()
	err := s.run(ctx, own)
	if err == nil {
		err = s.finish(own)
	}
	if !errors.Is(err, instrument.ErrDisconnected) {
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
		return 0, s.again(err, "its state is not known") // to ask takes nothing out of the device
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
		return 0, s.anew(ctx, nil, "its memory was full")
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
	if len(s.block) == 0 {
		return fmt.Errorf("%w: an empty block where the device has data", scpi.ErrReply)
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

// again counts an exchange that failed. A device that is gone, or fails again and
// again, is lost.
func (s *stream) again(cause error, what string) error {
	s.failed++
	if errors.Is(cause, instrument.ErrDisconnected) {
		return cause
	}
	if s.failed > failures {
		return fmt.Errorf("%w: %d times in a row: %s: %w", instrument.ErrDisconnected, s.failed, what, errors.Join(cause, errGivenUp))
	}
	return nil
}

var errGivenUp = errors.New("given up")

// anew begins the acquisition again, after OVER or a block that did not arrive:
// what the device still holds can no longer be placed. The host's clock says how
// many scans are missing.
func (s *stream) anew(ctx context.Context, cause error, what string) error {
	if err := s.again(cause, what); err != nil {
		return err
	}
	prepare := s.d.setUp // it may have been switched off and on meanwhile
	if cause == nil {
		prepare = func(ctx context.Context) error { return s.d.client.Command(ctx, "STOP") }
	}
	if err := prepare(ctx); err != nil {
		return err
	}
	at, err := s.start(ctx)
	if err != nil {
		return err
	}
	s.heard = s.d.now()
	return s.gap(at, what+": begun anew", 1)
}

// gap tells that the scans up to a host's instant are missing, at least so many.
// Before the first block nothing is.
func (s *stream) gap(until time.Time, what string, least float64) error {
	due, ok := s.rate.At(until)
	if lost := max(least, math.Round(due)-float64(s.out.Next())); ok && lost >= 1 {
		if err := s.out.Gap(uint64(lost), false, fmt.Sprintf("%s; some %.0f scans are missing by this machine's clock", what, lost)); err != nil {
			return fmt.Errorf("%w: %w", errSink, err)
		}
	}
	return nil
}

// finish takes the blocks that hold scans from before the end. Where they do not
// come, they are missing.
func (s *stream) finish(ctx context.Context) error {
	end := s.d.now()
	for caught := false; s.d.now().Sub(end) < stopTime; {
		st, err := s.state(ctx)
		if err == nil && st == statusData {
			err = s.take(ctx)
			if err == nil && caught {
				return nil
			}
		} else if err == nil && st != statusOver {
			caught = true // what comes next was completed after the end
			wait(ctx, s.d.opts.Block/8)
		}
		if errors.Is(err, errSink) {
			return err
		}
		if err != nil || st == statusOver {
			break
		}
	}
	return s.gap(end, "the last blocks did not arrive", 0)
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

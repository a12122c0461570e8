package u2300

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/wattmark/wattmark/internal/backoff"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/monitor/instrument"
	"github.com/wattmark/wattmark/monitor/instrument/analog"
	"github.com/wattmark/wattmark/monitor/instrument/series"
	"github.com/wattmark/wattmark/monitor/scpi"
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

// stream reads blocks until ctx ends, then those still due, and stops the device.
func (d *Device) stream(ctx context.Context, sink instrument.Sink) error {
	s := &stream{
		d: d, counts: make([]measure.Count, len(d.opts.Inputs)), rate: series.Rate{Nominal: d.opts.ScanRate},
		heard: d.Now(),
	}
	s.out = series.New(d.In, d.opts.points(), sink)
	// Exchanges have a context of their own, bounded by their time-outs: one that is broken off in the
	// middle would lose a block.
	own, cancel := instrument.Outlast(ctx, 2*stopTime)
	defer cancel()
	_, err := s.start(own)
	for wait := time.Duration(0); err == nil && backoff.Sleep(ctx, wait) == nil; {
		wait, err = s.step(own)
	}
	if err == nil {
		err = s.finish(own)
	}
	if !errors.Is(err, instrument.ErrDisconnected) { // it still listens
		short, cancel := context.WithTimeout(own, stopTime)
		defer cancel()
		_ = d.client.Command(short, "STOP")
	}
	return s.out.End(err)
}

// start begins an acquisition and returns its host time.
func (s *stream) start(ctx context.Context) (time.Time, error) {
	sent := s.d.Now()
	if err := s.d.client.Command(ctx, "RUN"); err != nil {
		return sent, err
	}
	_, err := s.state(ctx) // its reply reports that RUN was taken
	return sent.Add(s.d.Now().Sub(sent) / 2), err
}

// state asks for the state of the device's memory.
func (s *stream) state(ctx context.Context) (status, error) {
	return scpi.Ask(ctx, s.d.client, "WAV:STAT?", parseStatus)
}

// step asks once, takes a block if there is one, and reports how long to wait.
func (s *stream) step(ctx context.Context) (wait time.Duration, err error) {
	now, err := s.state(ctx)
	if err != nil {
		return 0, s.again(err, "its state is not known") // to ask takes nothing out of the device
	}
	switch now {
	case statusOver:
		if err := s.out.Overflow("the device's memory is full (OVER): it is not read fast enough: lower scan_rate"); err != nil {
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
	if silent := s.d.Now().Sub(s.heard); silent > s.d.opts.Silence {
		return 0, fmt.Errorf("%w: %w: no block for %v (%s): is its trigger source NONE?", instrument.ErrDisconnected,
			instrument.ErrSilent, silent.Round(time.Millisecond), now)
	}
	return min(max(s.d.opts.Block/8, time.Millisecond), 20*time.Millisecond), nil
}

// errSink marks an error of the sink: no trouble of the device.
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
	now := s.d.Now()
	if err = scans(s.block, s.counts, s.out.Add); err != nil {
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
		return fmt.Errorf("%w: %d times in a row: %s: %w", instrument.ErrDisconnected, s.failed, what,
			errors.Join(cause, errGivenUp))
	}
	return nil
}

// errGivenUp: the device failed too often in a row.
var errGivenUp = errors.New("given up")

// anew begins the acquisition again, after OVER or a block that did not arrive:
// the blocks that the device still holds can no longer be placed. The host's clock
// shows how many scans are missing.
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
	s.heard = s.d.Now()
	return s.gap(at, what+": begun anew", 1)
}

// gap reports that the scans up to a host's instant are missing, at least so many.
// Before the first block nothing is.
func (s *stream) gap(until time.Time, what string, least float64) error {
	due, ok := s.rate.At(until)
	if lost := max(least, math.Round(due)-float64(s.out.Next())); ok && lost >= 1 {
		if err := s.out.Gap(uint64(lost), false, "%s; some %.0f scans are missing by this machine's clock", what,
			lost); err != nil {
			return fmt.Errorf("%w: %w", errSink, err)
		}
	}
	return nil
}

// finish takes the blocks that hold scans from before the end. Where they do not
// come, they are missing.
func (s *stream) finish(ctx context.Context) error {
	end := s.d.Now()
	for caught := false; s.d.Now().Sub(end) < stopTime; {
		st, err := s.state(ctx)
		if err == nil && st == statusData {
			err = s.take(ctx)
			if err == nil && caught {
				return nil
			}
		} else if err == nil && st != statusOver {
			caught = true                            // the next was completed after the end
			_ = backoff.Sleep(ctx, s.d.opts.Block/8) // the loop has its own bound
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

// status is the answer to WAV:STAT?.
type status string

// What the device states about its memory.
const (
	statusEmpty    status = "EPTY" // nothing yet
	statusFragment status = "FRAG" // less than a block
	statusData     status = "DATA" // at least one block
	statusOver     status = "OVER" // memory was full: the acquisition has ended
)

// parseStatus reads the answer to WAV:STAT?.
func parseStatus(s string) (status, error) {
	v := status(strings.ToUpper(strings.TrimSpace(s)))
	if !slices.Contains([]status{statusEmpty, statusFragment, statusData, statusOver}, v) {
		return "", fmt.Errorf("%w: WAV:STAT? gives %.40q", scpi.ErrReply, s)
	}
	return v, nil
}

// parseChannels reads a channel list, (@101,103:105).
func parseChannels(s string) (out []int, err error) {
	bad := fmt.Errorf("%w: %.40q is no channel list", scpi.ErrReply, s)
	list := strings.TrimSpace(s)
	if !strings.HasPrefix(list, "(@") || !strings.HasSuffix(list, ")") {
		return nil, bad
	}
	for _, part := range strings.Split(list[2:len(list)-1], ",") {
		from, to, span := strings.Cut(strings.TrimSpace(part), ":")
		first, err := strconv.Atoi(from)
		last := first
		if err == nil && span {
			last, err = strconv.Atoi(to)
		}
		if err != nil || last < first || last-first > models[len(models)-1].channels ||
			len(out) > models[len(models)-1].channels {
			return nil, bad
		}
		for n := first; n <= last; n++ {
			out = append(out, n)
		}
	}
	return out, nil
}

const bytesSample = analog.BytesCode

// scans calls take for every scan of a block of little-endian codes, interleaved
// in the order of the scan list. A block that does not hold whole scans is refused.
func scans(data []byte, counts []measure.Count, take func([]measure.Count) error) error {
	if len(data)%(bytesSample*len(counts)) != 0 {
		return fmt.Errorf("%w: a block of %d bytes does not hold whole scans of %d inputs", scpi.ErrReply, len(data),
			len(counts))
	}
	return analog.Scans(data, counts, take)
}

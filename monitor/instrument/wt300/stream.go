package wt300

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/monitor/instrument"
	"github.com/wattmark/wattmark/monitor/instrument/series"
	"github.com/wattmark/wattmark/monitor/scpi"
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
	return d.Streaming(func() error { return d.stream(ctx, sink) })
}

// stream reads update after update; one message asks for waiting, condition and values at once.
func (d *Device) stream(ctx context.Context, sink instrument.Sink) error {
	s := &stream{d: d, counts: make([]measure.Count, len(d.In.Channels)), zero: d.Now(), grid: newGrid(d.opts.Rate)}
	// One reading a block: at this pace no block waits for a second one.
	s.out = series.New(series.Config{Channels: len(s.counts), Timebase: d.In.Timebase, Flush: 1}, sink)
	// A message that is broken off would leave the meter waiting, and its reply to
	// the next user: each ends by itself, or by its time-out.
	own, cancel := instrument.Outlast(ctx, d.opts.Rate+stopTime)
	defer cancel()
	_, err := d.client.QueryNumber(own, ":STAT:EESR?") // marks from before are of the past
	for err == nil && ctx.Err() == nil {
		err = s.step(own)
	}
	return errors.Join(err, s.out.Flush())
}

// step reads one update.
func (s *stream) step(ctx context.Context) (err error) {
	asked := s.d.Now()
	s.data, err = s.d.client.QueryBlock(ctx, next, bytesItem*len(s.counts), s.data[:0])
	var there bool
	if err == nil {
		there, err = Readings(s.data, s.d.In.Channels, s.counts)
	}
	if err != nil { // the client brings the link in step before the next exchange
		s.fails++
		switch {
		case errors.Is(err, instrument.ErrDisconnected):
			return err
		case s.fails > failures:
			return fmt.Errorf("%w: %d times in a row: %w (is its HOLD on?)", instrument.ErrDisconnected, s.fails, err)
		}
		return nil
	}
	at, missed := s.grid.seen(asked, s.d.Now(), s.fails > 0)
	s.fails = 0
	if err := s.out.Gap(missed, false, fmt.Sprintf("%d updates went by unread, by this machine's clock",
		missed)); err != nil {
		return err
	}
	if !there {
		return s.out.Gap(1, true, "the meter showed no data (----)")
	}
	return s.out.Scan(at.Sub(s.zero).Nanoseconds(), s.counts)
}

// grid follows the meter's updates with the host's clock: they come evenly, and
// delays only ever make a reply late.
type grid struct {
	period time.Duration
	rate   series.Rate
	n      int64 // the update that the last reading showed; the first is 0
	begun  bool
}

// newGrid expects updates at the meter's period.
func newGrid(period time.Duration) grid {
	return grid{period: period, rate: series.Rate{Nominal: 1 / period.Seconds()}}
}

// slack is the part of an update by which a reply may be early or late and still
// be believed to come with its update.
const slack = 0.25

// seen reports which update a reading shows, and how many went by unread since the
// one before. The meter replies at once where updates were complete when it was
// asked, with the last of them; else with the next. A reply that comes late, or an
// update that does, is no loss by itself. After an exchange that failed it
// is unknown which commands the meter carried out; the time of the reply then decides.
func (g *grid) seen(asked, came time.Time, failed bool) (at time.Time, missed uint64) {
	if !g.begun {
		g.begun = true
		g.rate.Seen(came, 0)
		return came, 0
	}
	complete, _ := g.rate.At(asked)
	n := max(g.n+1, int64(math.Floor(complete)))
	if failed {
		complete, _ = g.rate.At(came)
		n = max(g.n+1, int64(math.Floor(complete+slack)))
	}
	missed = uint64(n - g.n - 1)
	g.n = n
	g.rate.Seen(came, n)
	due, _ := g.rate.At(came) // how far the updates are by now
	if late := due - float64(n); late > slack {
		return came.Add(-time.Duration(late * float64(g.period))), missed
	}
	return came, missed
}

// What FLOAT sends where there is no value.
var (
	nothing  = math.Float32bits(9.91e37) // no data
	infinite = math.Float32bits(9.9e37)  // over range, overflow, error
)

// bytesItem is the size of an IEEE float in a block.
const bytesItem = 4

// Readings turns a block of big-endian floats into counts of the channels' steps.
// Over-range, and a value that no meter of these ranges shows, stands at ±limitCount; ok
// is false where an item has no data.
func Readings(data []byte, channels []measure.Channel, counts []measure.Count) (ok bool, err error) {
	if len(data) != bytesItem*len(channels) {
		return false, fmt.Errorf("%w: %d bytes of values, %d are due", scpi.ErrReply, len(data), bytesItem*len(channels))
	}
	ok = true
	for i, c := range channels {
		bits := binary.BigEndian.Uint32(data[bytesItem*i:])
		v := float64(math.Float32frombits(bits))
		switch {
		case bits == nothing || math.IsNaN(v):
			ok = false
		case bits&^(1<<31) == infinite:
			v = math.Copysign(math.Inf(1), v)
		}
		if ok {
			counts[i] = count(v / c.Gain)
		}
	}
	return ok, nil
}

// count rounds to a whole number of steps.
func count(n float64) measure.Count {
	return measure.Count(min(max(math.RoundToEven(n), -limitCount), limitCount))
}

package scope

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/monitor/instrument"
	"github.com/wattmark/wattmark/monitor/scpi"
)

// recording is one acquisition, by the host's clock.
type recording struct {
	sent, back time.Time // around the trigger
	sampling   time.Time // when it was last known to sample
	full       time.Time // when it was first seen to stand by itself
	before     int       // points in memory from before the trigger
}

// state asks for the trigger's state, again where the link broke.
func (d *Device) state(ctx context.Context) (State, error) {
	return again(ctx, func() (State, error) { return d.dialect.State(ctx, d.client) })
}

// Stream takes one acquisition. It delivers once ctx has ended; see the
// package's comment.
func (d *Device) Stream(ctx context.Context, sink instrument.Sink) error {
	return d.Streaming(func() error { return d.stream(ctx, sink) })
}

// stream arms the scope, samples until ctx ends, and then fetches its memory.
func (d *Device) stream(ctx context.Context, sink instrument.Sink) error {
	r, err := d.arm(ctx, sink)
	if err == nil && sink.Armed != nil {
		err = sink.Armed(r.sent.Add(r.back.Sub(r.sent) / 2))
	}
	if err == nil {
		err = d.sample(ctx, &r)
	}
	if ctx.Err() != nil && (err == nil || errors.Is(err, ctx.Err()) || errors.Is(err, context.DeadlineExceeded)) {
		// Also where an exchange ran out of its own time as ctx ended.
		if r.sent.IsZero() {
			return nil // it was not armed yet
		}
		err = d.fetch(ctx, r, sink)
	}
	return err
}

// fetch is collect behind the end of ctx, until the samples are not wanted any more.
func (d *Device) fetch(ctx context.Context, r recording, sink instrument.Sink) error {
	own, cancel := context.WithTimeout(context.WithoutCancel(ctx), d.patience())
	defer cancel()
	go func() {
		select {
		case <-sink.Unwanted:
			cancel()
		case <-own.Done():
		}
	}()
	return d.collect(own, r, sink)
}

// armTime bounds the wait for a scope to be ready for its trigger.
const armTime = 5 * time.Second

// arm starts a single acquisition and triggers it, or waits for its trigger.
func (d *Device) arm(ctx context.Context, sink instrument.Sink) (r recording, err error) {
	if err := d.dialect.Arm(ctx, d.client); err != nil {
		return r, err
	}
	own, cancel := context.WithTimeout(ctx, armTime)
	defer cancel()
	for s := State(0); s != Waiting; {
		if s, err = d.state(own); err != nil {
			return r, d.neverArmed(ctx, err)
		}
		if s == Sampling {
			return r, d.tooEarly()
		}
	}
	if d.plan.Trigger.external() {
		return d.await(ctx, sink)
	}
	sent := d.Now()
	if err := d.dialect.Force(ctx, d.client); err != nil {
		return r, err
	}
	if _, err := d.state(ctx); err != nil { // its reply reports that the trigger was taken
		return r, err
	}
	r.sent, r.back = sent, d.Now()
	r.sampling = r.back
	return r, nil
}

// neverArmed reports so where the wait for it ran out.
func (d *Device) neverArmed(ctx context.Context, err error) error {
	if ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%w: it did not arm within %v: %w", scpi.ErrInstrument, armTime, err)
	}
	return err
}

// sample waits until ctx ends and watches the scope meanwhile. A link that is
// lost is tried again by the client: the scope samples on.
func (d *Device) sample(ctx context.Context, r *recording) error {
	tick := time.NewTicker(d.cfg.Poll)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if !r.full.IsZero() {
			continue
		}
		asked := d.Now()
		s, err := d.state(ctx)
		if err != nil {
			return err
		}
		switch s {
		case Stopped:
			r.full = d.Now()
		case Sampling:
			r.sampling = asked
		default:
			return fmt.Errorf("%w: it is %v in the middle of a recording: was it switched off, or its front panel "+
				"used?", scpi.ErrInstrument, s)
		}
	}
}

// blockScans is the size of the blocks delivered.
const blockScans = 1 << 14

// download reads memory behind its first points, in pieces, each from
// all channels, and delivers it.
func (d *Device) download(ctx context.Context, before, held int, sink instrument.Sink) error {
	codes := make([][]byte, len(d.plan.Used))
	b := measure.Block{Counts: make([][]measure.Count, len(d.plan.Used))}
	for i := range b.Counts {
		b.Counts[i] = make([]measure.Count, blockScans)
	}
	for first := 0; first < held; first += d.mem.Piece {
		n := min(d.mem.Piece, held-first)
		for i, channel := range d.plan.Used {
			var err error
			codes[i], err = again(ctx, func() ([]byte, error) {
				return d.read(ctx, channel, before+first, n, codes[i][:0])
			})
			if err != nil {
				return fmt.Errorf("read points %d to %d of channel %d: %w", first+1, first+n, channel, err)
			}
		}
		for from := 0; from < n; from += blockScans {
			if err := d.deliver(&b, codes, first, from, min(from+blockScans, n), sink); err != nil {
				return err
			}
		}
		if sink.Progress != nil {
			sink.Progress(uint64(first+n), uint64(held))
		}
	}
	return nil
}

// read asks for n points of a channel behind the first, all of them.
func (d *Device) read(ctx context.Context, channel, first, n int, dst []byte) ([]byte, error) {
	out, err := d.dialect.Read(ctx, d.client, channel, first, n, dst)
	if want := n * d.mem.Codes.Bytes; err == nil && len(out) != want {
		err = fmt.Errorf("%w: %d of %d bytes", ErrFewer, len(out), want)
	}
	return out, err
}

// deliver makes a block of points [from, to) of a piece.
func (d *Device) deliver(b *measure.Block, codes [][]byte, first, from, to int, sink instrument.Sink) error {
	for i := range codes {
		b.Counts[i] = b.Counts[i][:to-from]
		d.mem.Codes.Decode(b.Counts[i], codes[i][from*d.mem.Codes.Bytes:])
	}
	b.FirstScan = uint64(first + from)
	b.FirstTick = int64(math.Round(float64(first+from) * d.In.Timebase.TicksPerScan))
	return sink.Block(b)
}

// NaturalRails pairs a current on chN with the voltage on the channel after it;
// a scope reports nothing of its probes, so that this is a guess for a first look.
func NaturalRails(in instrument.Inputs) (rails []measure.Rail, missing []string) {
	for i := 0; i+1 < len(in.Channels); i++ {
		x, y := in.Channels[i], in.Channels[i+1]
		if x.Unit == measure.UnitAmpere && y.Unit == measure.UnitVolt {
			rails = append(rails, measure.Rail{
				Name: x.Name, Role: instrument.RoleOf(x.Name), Wiring: measure.WiringClamp, X: i, Y: i + 1,
			})
		}
	}
	return rails, nil
}

// whole waits until memory is full, and returns how many points all channels
// hold; s is the scope's last state. A scope that stands earlier was stopped at its
// front panel, and the contents of its memory are unknown.
func (d *Device) whole(ctx context.Context, r *recording, s State) (held int, err error) {
	own, cancel := context.WithTimeout(ctx, d.span()+armTime)
	defer cancel()
	for s != Stopped {
		if err = Pause(own, min(d.cfg.Poll, 50*time.Millisecond)); err == nil {
			s, err = d.state(own)
		}
		if err != nil {
			return 0, fmt.Errorf("wait until memory is full: %w", err)
		}
		if s == Free {
			return 0, fmt.Errorf("%w: it is %v in the middle of a recording: was its front panel used?", scpi.ErrInstrument, s)
		}
		if s == Stopped {
			r.full = d.Now()
		}
	}
	if held, err = d.held(ctx, r); err != nil {
		return 0, err
	}
	const part = 100 // of the window, that its begin may be rounded by
	span := time.Duration(float64(d.room(r)) * d.mem.Step * float64(time.Second))
	if took := r.full.Sub(r.sent); took < span-span/part {
		return 0, fmt.Errorf("%w: it stood after %v of the %v that its memory spans: was it stopped at its front panel?",
			scpi.ErrInstrument, took.Round(time.Millisecond), span)
	}
	return held, nil
}

// span is the time that memory spans.
func (d *Device) span() time.Duration {
	return time.Duration(float64(d.mem.Points) * d.mem.Step * float64(time.Second))
}

// Codes describes how a converter's codes stand in a block.
type Codes struct {
	Bytes     int // a code: 1 or 2
	Signed    bool
	BigEndian bool
}

// Decode writes as many codes as dst has room for, or raw holds, and returns
// their number. A trailing half of a code is none.
func (c Codes) Decode(dst []measure.Count, raw []byte) int {
	n := min(len(dst), len(raw)/max(1, c.Bytes))
	dst = dst[:n]
	switch {
	case c.Bytes != 2 && c.Signed:
		for i := range dst {
			dst[i] = measure.Count(int8(raw[i]))
		}
	case c.Bytes != 2:
		for i := range dst {
			dst[i] = measure.Count(raw[i])
		}
	case c.BigEndian:
		for i := range dst {
			dst[i] = c.word(binary.BigEndian.Uint16(raw[2*i:]))
		}
	default:
		for i := range dst {
			dst[i] = c.word(binary.LittleEndian.Uint16(raw[2*i:]))
		}
	}
	return n
}

// word is the count of a 16-bit code.
func (c Codes) word(v uint16) measure.Count {
	if c.Signed {
		return measure.Count(int16(v))
	}
	return measure.Count(v)
}

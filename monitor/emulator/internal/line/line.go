// Package line is the wire's end of an emulated device:
//
//	Wire    the driver's bytes on a channel, so that a device can wait for a command and for its clock at once
//	Device  the loop that every serial device runs: power up, commands, samples when they are due
//	Frames  a device that sends a frame for each reading of the board
//	Beat    the count of samples that are sent at a fixed distance
//	Accept  the clients of a device on the net
package line

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"sync/atomic"
	"time"

	"github.com/wattmark/wattmark/internal/backoff"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/monitor/emulator/board"
	"github.com/wattmark/wattmark/monitor/emulator/pace"
)

// Device is a serial device in software, which a face embeds. Run calls its functions from one
// goroutine, for one line at a time.
type Device struct {
	// Pace of the board's time.
	Pace pace.Pace
	// Start powers the device up on a new line.
	Start func() error
	// Command takes one byte of the driver.
	Command func(b byte) error
	// Overdue, which may be nil, is called where the driver does not send the bytes that its command owes.
	Overdue func()
	// Next returns the board's time of the next sample; on is false while nothing streams.
	// A device that sends nothing by itself leaves it nil.
	Next func() (at time.Duration, on bool)
	// Batch sends the samples up to an instant of the board.
	Batch func(until time.Duration) error
	// Line is the one that Run serves.
	Line *Wire
}

// Run powers a device up and serves a driver on a line until ctx ends, the line is closed, or
// writing fails. It returns nil for the first two and closes the line.
func (d *Device) Run(ctx context.Context, rw io.ReadWriteCloser) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w := &Wire{rw: rw, in: make(chan byte, 4096), ctx: ctx}
	w.stop = context.AfterFunc(ctx, func() { _ = rw.Close() }) // which also ends a blocked write
	go w.read()
	d.Line = w
	err := d.Start()
	if err == nil {
		err = d.loop(ctx)
	}
	if ctx.Err() != nil || errors.Is(err, io.EOF) || errors.Is(err, os.ErrClosed) || errors.Is(err, io.ErrClosedPipe) {
		err = nil
	}
	cancel()
	w.Detach()
	return err
}

// loop waits for the driver's bytes and for the device's clock at once; a device that does not
// stream has no clock to wait for.
func (d *Device) loop(ctx context.Context) error {
	for {
		var tick <-chan time.Time
		at, on := time.Duration(0), false
		if d.Next != nil {
			at, on = d.Next()
		}
		if on {
			tick = d.Pace.Wait(at)
		}
		var err error
		select {
		case <-ctx.Done():
			return ctx.Err()
		case b, ok := <-d.Line.in:
			if !ok {
				return d.Line.Ended()
			}
			if err = d.Command(b); errors.Is(err, ErrTimeout) {
				if err = nil; d.Overdue != nil {
					d.Overdue()
				}
			}
		case <-tick:
			err = d.Batch(d.Pace.Due(at))
		}
		if err != nil {
			return err
		}
	}
}

// Frames is a device that sends a frame for each reading of the board, which a face embeds.
type Frames struct {
	Device
	Board     *board.Board
	Beat      Beat // counts the frames, in true time
	Streaming bool

	frame   func(dst []byte, p measure.Watt) []byte
	power   []measure.Watt
	out     []byte
	skipped atomic.Uint64
}

// Init makes the device read b, and send so many frames a write at most. frame adds the next one to dst; p is the
// board's power at its time.
func (f *Frames) Init(b *board.Board, beat Beat, most int, frame func(dst []byte, p measure.Watt) []byte) {
	f.Board, f.Beat, f.frame, f.power = b, beat, frame, make([]measure.Watt, most)
	f.Pace = beat.Pace
	f.Next = func() (time.Duration, bool) { return f.Beat.Now(), f.Streaming }
	f.Batch = func(until time.Duration) error { return f.Beat.Send(until, int64(most), &f.skipped, f.Send) }
}

// Skipped is the number of frames lost because the driver did not read.
func (f *Frames) Skipped() uint64 { return f.skipped.Load() }

// BoardTime is the board's time of a frame, by its count.
func (f *Frames) BoardTime(frame uint64) time.Duration { return f.Beat.At(frame) }

// Send reads and writes n frames.
func (f *Frames) Send(n int) error {
	f.Board.Trace(f.power[:n], f.Beat.Now(), f.Beat.Step)
	f.out = f.out[:0]
	for _, p := range f.power[:n] {
		f.out = f.frame(f.out, p)
		f.Beat.Next++
	}
	return f.Line.Write(f.out)
}

// Beat counts the samples of a device that sends them at a fixed distance. One goroutine owns it.
type Beat struct {
	Pace pace.Pace
	// Start is the board's time of sample 0, Step the nanoseconds from one to the next.
	Start time.Duration
	Step  float64
	// Next is the count of the next sample.
	Next uint64
}

// At returns the board's time of a sample.
func (b *Beat) At(n uint64) time.Duration {
	return b.Start + time.Duration(math.Round(float64(n)*b.Step))
}

// Now returns the board's time of the next sample.
func (b *Beat) Now() time.Duration { return b.At(b.Next) }

// Due returns the number of whole samples up to a board instant.
func (b *Beat) Due(t time.Duration) int64 {
	return int64(math.Floor(float64(t-b.Now())/b.Step)) + 1
}

// CatchUp moves the count to the clock: the device converts also while nothing is sent.
func (b *Beat) CatchUp() {
	if n := b.Due(b.Pace.Now(b.Now() - 1)); n > 0 {
		b.Next += uint64(n)
	}
}

// Late reports whether the next sample is too old for the device's buffer at an instant.
func (b *Beat) Late(until time.Duration) bool { return until-b.Now() > b.Pace.MaxBacklog() }

// Send calls send for the samples up to an instant, n at most: the rest is due again at once, and
// a command in between is obeyed. send moves Next on. Samples too old for the device's buffer are
// left out and counted in lost.
func (b *Beat) Send(until time.Duration, n int64, lost *atomic.Uint64, send func(n int) error) error {
	if b.Late(until) {
		if k := b.Due(until - b.Pace.Step()); k > 0 {
			b.Next += uint64(k)
			if lost != nil {
				lost.Add(uint64(k))
			}
		}
	}
	if due := min(b.Due(until), n); due > 0 {
		return send(int(due))
	}
	return nil
}

// Accept hands over the connections of a device's listener until ctx ends, and closes it.
func Accept(ctx context.Context, name string, l net.Listener, take func(net.Conn)) error {
	defer context.AfterFunc(ctx, func() { _ = l.Close() })()
	for {
		c, err := l.Accept()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("emulated %s: %w", name, err)
		}
		take(c)
	}
}

// CRC16 is CRC-16/CCITT-FALSE: polynomial 1021 hex, start FFFF hex, a nibble at a time.
func CRC16(b []byte) uint16 {
	c := uint16(0xFFFF)
	for _, v := range b {
		for _, nibble := range [2]byte{v >> 4, v & 15} {
			k := byte(c>>12) ^ nibble
			c = c<<4 ^ uint16(k)*0x1021
		}
	}
	return c
}

// ErrTimeout is wrapped when the driver does not send the bytes it owes.
var ErrTimeout = errors.New("the driver is silent")

// Wire is a line that a face serves. One goroutine owns it.
type Wire struct {
	rw   io.ReadWriteCloser
	in   chan byte
	err  error // why reading ended; set before in is closed
	ctx  context.Context
	stop func() bool
}

// read passes the driver's bytes on until the line ends. The channel's room lets a driver write
// ahead of a device that is busy sending.
func (w *Wire) read() {
	defer close(w.in)
	buf := make([]byte, 1024)
	for {
		n, err := w.rw.Read(buf)
		for _, b := range buf[:n] {
			select {
			case w.in <- b:
			case <-w.ctx.Done():
				return
			}
		}
		if err != nil {
			w.err = err
			return
		}
	}
}

// Detach closes the line and waits for the reader to end.
func (w *Wire) Detach() {
	w.stop()
	_ = w.rw.Close()
	for range w.in { // the reader may be waiting to hand over a byte
	}
}

// Write sends to the driver.
func (w *Wire) Write(p []byte) error {
	if _, err := w.rw.Write(p); err != nil {
		return fmt.Errorf("emulated device: write: %w", err)
	}
	return nil
}

// Recv fills p with the driver's next bytes, waiting at most for d.
func (w *Wire) Recv(p []byte, d time.Duration) error {
	late := time.After(d)
	for i := range p {
		select {
		case b, ok := <-w.in:
			if !ok {
				return w.Ended()
			}
			p[i] = b
		case <-late:
			return fmt.Errorf("emulated device: %d of %d bytes came: %w", i, len(p), ErrTimeout)
		case <-w.ctx.Done():
			return w.ctx.Err()
		}
	}
	return nil
}

// Sleep waits for d, or until ctx ends.
func (w *Wire) Sleep(d time.Duration) error { return backoff.Sleep(w.ctx, d) }

// Ended returns why the line ended; valid once in is closed.
func (w *Wire) Ended() error { return cmp.Or(w.err, io.EOF) }

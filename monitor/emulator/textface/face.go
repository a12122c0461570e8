// Package textface is a home-made board in software: a microcontroller with a
// few current and voltage converters that prints lines of numbers, or sends small
// binary frames, fed by the emulated board.
package textface

import (
	"context"
	"fmt"
	"io"
	"slices"
	"sync/atomic"
	"time"

	"wattmark/measure"
	"wattmark/monitor/emulator/board"
	"wattmark/monitor/emulator/internal/beat"
	"wattmark/monitor/emulator/internal/wire"
	"wattmark/monitor/emulator/pace"
)

// Config describes the board's sketch.
type Config struct {
	// Rails that it measures, by name; nil for aux_12v_1.
	Rails []string
	// Rate of the lines a second; default 500.
	Rate measure.Hertz
	// Seq prints a number before each line, NoStamp leaves the time in µs out, Sum
	// ends it with * and the XOR of all bytes before the two digits.
	Seq, NoStamp, Sum bool
	// Binary sends frames instead: AA 55, u16 number, u32 µs, i16 mA and u16 mV a
	// rail, all little-endian, and with Sum their CRC-16/CCITT-FALSE.
	Binary bool
	// First is the number, and the time in µs over the rate, that the board begins at.
	First uint32
	// Numbered makes the first current carry the count of the line in place of it.
	Numbered bool
	// Start is the board's time of line 0.
	Start time.Duration
}

// Face is one board. Run serves one line at a time. It sends as soon as it has
// power and takes no commands.
type Face struct {
	board *board.Board
	cfg   Config
	rails []int

	w     *wire.Wire
	beat  beat.Beat // counts the lines
	power []measure.Watt
	out   []byte

	lines, skipped atomic.Uint64
}

const maxLines = 32 // of one write

// New makes a board that measures another.
func New(b *board.Board, p pace.Pace, cfg Config) (*Face, error) {
	if cfg.Rate == 0 {
		cfg.Rate = 500
	}
	if !(cfg.Rate > 0) {
		return nil, fmt.Errorf("emulated board: rate %v: must be positive", cfg.Rate)
	}
	if cfg.Rails == nil {
		cfg.Rails = []string{"aux_12v_1"}
	}
	f := &Face{board: b, cfg: cfg, power: make([]measure.Watt, maxLines)}
	f.beat = beat.Beat{Pace: p, Start: cfg.Start, Step: 1e9 / float64(cfg.Rate)}
	for _, name := range cfg.Rails {
		i := slices.IndexFunc(b.Rails(), func(r board.RailConfig) bool { return r.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("emulated board: the card has no rail %q", name)
		}
		f.rails = append(f.rails, i)
	}
	return f, nil
}

// Lines is the number of lines sent, Skipped of those lost because nobody read.
func (f *Face) Lines() uint64   { return f.lines.Load() }
func (f *Face) Skipped() uint64 { return f.skipped.Load() }

// BoardTime is the card's time of a line, by its count.
func (f *Face) BoardTime(line uint64) time.Duration {
	return f.beat.At(line)
}

// Run powers the board up and sends until ctx ends, the line is closed, or
// writing fails. It returns nil for the first two and closes the line.
func (f *Face) Run(ctx context.Context, rw io.ReadWriteCloser) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	f.w = wire.Attach(ctx, rw)
	var err error
	if !f.cfg.Binary {
		err = f.w.Write([]byte("# board ready\r\n"))
	}
	if err == nil {
		err = f.loop(ctx)
	}
	result := f.w.Result(err)
	cancel()
	f.w.Detach()
	return result
}

func (f *Face) loop(ctx context.Context) error {
	timer := f.beat.Pace.NewTimer()
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case _, ok := <-f.w.In():
			if !ok {
				return f.w.Ended()
			}
		case <-timer.C(f.beat.Now()):
			if err := f.batch(f.beat.Pace.Due(f.beat.Now())); err != nil {
				return err
			}
		}
	}
}

// batch sends the lines up to an instant of the card.
func (f *Face) batch(until time.Duration) error {
	f.skipped.Add(f.beat.Skip(until))
	for n := f.beat.Due(until); n > 0; {
		k := min(n, maxLines)
		f.board.Trace(f.power[:k], f.beat.Now(), f.beat.Step)
		f.out = f.out[:0]
		for _, p := range f.power[:k] {
			f.out = f.append(f.out, p)
			f.beat.Next++
		}
		f.lines.Add(uint64(k))
		if err := f.w.Write(f.out); err != nil {
			return err
		}
		n -= k
	}
	return nil
}

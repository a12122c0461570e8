// Package poweneticsface is a Powenetics v2 in software: its start command and
// its frames of 69 bytes at 1 kHz, fed by the emulated board.
package poweneticsface

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"wattmark/measure"
	"wattmark/monitor/emulator/board"
	"wattmark/monitor/emulator/internal/beat"
	"wattmark/monitor/emulator/internal/wire"
	"wattmark/monitor/emulator/meter"
	"wattmark/monitor/emulator/pace"
)

// The device's numbers.
const (
	Connectors = 13
	FrameBytes = 4 + 5*Connectors
	greeting   = "PMD is ready!\r\n"
	maxFrames  = 64 // of one write
)

// Config describes the device.
type Config struct {
	Seed uint64
	// Rate of the frames a second by the device's own clock; default 1000.
	Rate measure.Hertz
	// First is the number of the first frame after the start; the device's is 1.
	First uint16
	// Numbered makes the current of the first connector (ATX 3.3 V) carry the count
	// of the frame modulo 2^24, so that a test knows each one.
	Numbered bool
	// NoiseV and NoiseI are the noise of a reading; defaults 1 mV and 3 mA, negative
	// for none.
	NoiseV measure.Volt
	NoiseI measure.Ampere
	// Spread and Draw: see meter.Spread. Without Draw the device is true. A zero
	// Spread stands for a device without a calibration: 1 % and 0.5 % in gain of
	// current and voltage, 20 mA and 10 mV in zero, 100 ppm.
	Spread meter.Spread
	Draw   bool
	// Start is the board's time of frame 0.
	Start time.Duration
}

// Face is one device. Run serves one line at a time. As the real one, it cannot
// be stopped: once started it sends until it loses its power.
type Face struct {
	board      *board.Board
	cfg        Config
	connectors [Connectors]connector
	rng        *rand.Rand
	beat       beat.Beat // counts the frames, in true time

	w         *wire.Wire
	streaming bool
	begun     uint64 // count of the frame at the start
	last      [4]byte
	power     []measure.Watt
	out       []byte

	frames, skipped, cleared atomic.Uint64
}

// New makes a device that reads a board.
func New(b *board.Board, p pace.Pace, cfg Config) (*Face, error) {
	if cfg.Rate == 0 {
		cfg.Rate = 1000
	}
	if !(cfg.Rate > 0) {
		return nil, fmt.Errorf("emulated Powenetics: rate %v: must be positive", cfg.Rate)
	}
	def := func(v *float64, d float64) {
		if *v == 0 {
			*v = d
		}
		*v = max(0, *v)
	}
	def((*float64)(&cfg.NoiseV), 0.001)
	def((*float64)(&cfg.NoiseI), 0.003)
	if cfg.First == 0 {
		cfg.First = 1
	}
	if cfg.Draw && cfg.Spread == (meter.Spread{}) {
		cfg.Spread = meter.Spread{UGainI: 0.01, UGainV: 0.005, UOffsetI: 0.02, UOffsetV: 0.01, UClock: 1e-4}
	}
	f := &Face{board: b, cfg: cfg, rng: rand.New(rand.NewPCG(cfg.Seed, 0x6e6f697365))}
	rng := rand.New(rand.NewPCG(cfg.Seed, 0x706f77656e))
	f.connectors = connect(b.Rails(), cfg, rng)
	clock := 0.0
	if cfg.Draw {
		clock = rng.NormFloat64() * cfg.Spread.UClock
	}
	f.beat = beat.Beat{Pace: p, Start: cfg.Start, Step: 1e9 / float64(cfg.Rate) / (1 + clock)}
	f.power = make([]measure.Watt, maxFrames)
	return f, nil
}

// Frames is the number of frames sent, Skipped of those lost because the driver
// did not read; their numbers are missing in what follows.
func (f *Face) Frames() uint64  { return f.frames.Load() }
func (f *Face) Skipped() uint64 { return f.skipped.Load() }

// Cleared is how often a driver has erased the device's calibration.
func (f *Face) Cleared() uint64 { return f.cleared.Load() }

// BoardTime is the board's time of a frame, by its count.
func (f *Face) BoardTime(frame uint64) time.Duration {
	return f.beat.At(frame)
}

// Run powers the device up and serves a driver on a line until ctx ends, the
// line is closed, or writing fails. It returns nil for the first two and closes
// the line.
func (f *Face) Run(ctx context.Context, rw io.ReadWriteCloser) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	f.w = wire.Attach(ctx, rw)
	f.streaming, f.last = false, [4]byte{}
	err := f.w.Write([]byte(greeting))
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
		var tick <-chan time.Time
		if f.streaming {
			tick = timer.C(f.beat.Now())
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case b, ok := <-f.w.In():
			if !ok {
				return f.w.Ended()
			}
			f.command(b)
		case <-tick:
			if err := f.batch(f.beat.Pace.Due(f.beat.Now())); err != nil {
				return err
			}
		}
	}
}

// command looks for a command at the end of what came.
func (f *Face) command(b byte) {
	copy(f.last[:], f.last[1:])
	f.last[3] = b
	if f.last[0] != 0xCA || f.last[1] != 0xAC || f.last[2] != 0xBD {
		return
	}
	switch b {
	case 0x90:
		if f.streaming {
			return
		}
		f.beat.CatchUp()
		f.streaming, f.begun = true, f.beat.Next
	case 0x00:
		f.cleared.Add(1)
	}
}

// batch sends the frames up to a board instant.
func (f *Face) batch(until time.Duration) error {
	f.skipped.Add(f.beat.Skip(until))
	for n := f.beat.Due(until); n > 0; {
		k := min(n, maxFrames)
		if err := f.send(int(k)); err != nil {
			return err
		}
		n -= k
	}
	return nil
}

// send reads and writes n frames.
func (f *Face) send(n int) error {
	f.board.Trace(f.power[:n], f.beat.Now(), f.beat.Step)
	f.out = f.out[:0]
	for _, p := range f.power[:n] {
		f.out = f.append(f.out, p)
		f.beat.Next++
	}
	f.frames.Add(uint64(n))
	return f.w.Write(f.out)
}

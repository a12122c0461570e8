// Package pmdface is an ElmorLabs PMD-USB in software: its commands and its
// continuous mode at the rate and with the jitter seen in real captures, fed by
// the emulated board or by recorded serial bytes.
package pmdface

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"wattmark/measure"
	"wattmark/monitor/emulator/board"
	"wattmark/monitor/emulator/internal/wire"
	"wattmark/monitor/emulator/meter"
	"wattmark/monitor/emulator/pace"
)

// The device's numbers.
const (
	Channels   = 8
	VoltCount  = 0.007568 // volts a count
	AmpCount   = 0.0488   // amperes a count
	TickHz     = 2.9345e6 // of the time stamps in the public captures (nominal 3 MHz)
	MeanTicks  = 613.7    // mean distance of samples there: 4.78 kS/s
	ConfigSize = 26
	pairs      = 4
)

// Config describes the device.
type Config struct {
	Seed uint64
	// Rails on PCIE1, PCIE2, EPS1 and EPS2 by name, empty for none. All empty:
	// the slot's 12 V on EPS1 as in the public captures, the board's other 12 V
	// rails in order on PCIE1, PCIE2, EPS2.
	Rails [4]string
	// Firmware is the version byte of command 01 (default 6).
	Firmware byte
	// TickHz of the time stamps (default that of the public captures).
	TickHz measure.Hertz
	// NoiseV and NoiseI are the noise of a reading in counts; default 1.1 and 1
	// as in the captures, negative for none.
	NoiseV, NoiseI float64
	// Offsets are added by the host to the counts (command 04 tells them).
	Offsets [Channels]int8
	// Spread and Draw: see meter.Spread. Without Draw the nominal scale is true. A
	// zero Spread stands for a device without a calibration: 1 % and 0.5 % in gain
	// of current and voltage, a count in zero, 100 ppm.
	Spread meter.Spread
	Draw   bool
	// LimitToBaud slows the samples down to what the baud rate set by command 08
	// (115200 at power-on) can carry.
	LimitToBaud bool
	// Start is the board's time when the device's counter stood at zero.
	Start time.Duration
	// Play opens a recording of continuous mode, 2-byte time stamps and eight
	// channels, that takes the place of the board. It is opened anew whenever
	// continuous mode is switched on.
	Play func() (io.ReadCloser, error)
}

// Face is one device. Run serves one line at a time.
type Face struct {
	board  *board.Board
	pace   pace.Pace
	cfg    Config
	inputs [pairs]input
	rng    *rand.Rand
	clock  float64
	tickNs float64 // true nanoseconds a tick

	config [ConfigSize]byte
	mode   mode
	baud   uint32
	tick   uint64 // device time of the next sample
	w      *wire.Wire
	out    []byte
	play   *player

	samples, skipped atomic.Uint64
	began            atomic.Uint64 // tick of the newest stream's first sample
	played           chan struct{}
}

// mode is what command 07 sets.
type mode struct {
	on    bool
	stamp int // bytes of the time stamp: 0, 1, 2 or 4
	mask  byte
}

// size is the bytes of a sample.
func (m mode) size() int {
	n := m.stamp
	for c := range Channels {
		n += 2 * int(m.mask>>c&1)
	}
	return n
}

// New makes a device that reads a board; b may be nil where a recording plays.
func New(b *board.Board, p pace.Pace, cfg Config) (*Face, error) {
	if b == nil && cfg.Play == nil {
		return nil, fmt.Errorf("emulated PMD-USB: neither a board nor a recording")
	}
	def := func(v *float64, d float64) {
		if *v == 0 {
			*v = d
		}
		*v = max(0, *v)
	}
	def(&cfg.NoiseV, 1.1)
	def(&cfg.NoiseI, 1)
	def((*float64)(&cfg.TickHz), TickHz)
	if cfg.Draw && cfg.Spread == (meter.Spread{}) {
		cfg.Spread = meter.Spread{UGainI: 0.01, UGainV: 0.005, UOffsetI: AmpCount, UOffsetV: VoltCount, UClock: 1e-4}
	}
	if cfg.Firmware == 0 {
		cfg.Firmware = 6
	}
	f := &Face{board: b, pace: p, cfg: cfg, rng: rand.New(rand.NewPCG(cfg.Seed, 0x6e6f697365)), played: make(chan struct{}, 1)}
	rng := rand.New(rand.NewPCG(cfg.Seed, 0x706d64))
	if cfg.Draw {
		f.clock = rng.NormFloat64() * cfg.Spread.UClock
	}
	f.tickNs = 1e9 / float64(cfg.TickHz) / (1 + f.clock)
	f.config = defaultConfig(cfg.Offsets)
	if b == nil {
		return f, nil
	}
	return f, f.connect(rng)
}

// Samples is the number of samples sent, Skipped of those lost because the
// driver did not read.
func (f *Face) Samples() uint64 { return f.samples.Load() }
func (f *Face) Skipped() uint64 { return f.skipped.Load() }

// ClockError is how fast the device's clock runs, relative.
func (f *Face) ClockError() float64 { return f.clock }

// StreamStart is the board's time at the first sample of the newest stream: the
// driver's device time zero. Valid once a sample came.
func (f *Face) StreamStart() time.Duration { return f.boardTime(f.began.Load()) }

// Played delivers once each time that a recording has been sent to its end. The
// last bytes may still lie in the line (pty.Port.Unread).
func (f *Face) Played() <-chan struct{} { return f.played }

// Run serves a driver on a line until ctx ends, the line is closed, or writing
// fails. It returns nil for the first two and closes the line.
func (f *Face) Run(ctx context.Context, rw io.ReadWriteCloser) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	f.w = wire.Attach(ctx, rw)
	f.reset()
	err := f.loop(ctx)
	result := f.w.Result(err)
	cancel()
	f.w.Detach()
	f.play.close()
	f.play = nil
	return result
}

// reset is what the device does at power-on.
func (f *Face) reset() {
	f.mode, f.baud = mode{}, 115200
	f.play.close()
	f.play = nil
}

func (f *Face) loop(ctx context.Context) error {
	timer := f.pace.NewTimer()
	defer timer.Stop()
	for {
		var tick <-chan time.Time
		switch {
		case f.play != nil:
			tick = f.play.timer.C(f.play.done)
		case f.mode.on && f.cfg.Play == nil:
			tick = timer.C(f.now())
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case b, ok := <-f.w.In():
			if !ok {
				return f.w.Ended()
			}
			if err := f.command(b); err != nil && !errors.Is(err, wire.ErrTimeout) {
				return err
			}
		case <-tick:
			if err := f.batch(); err != nil {
				return err
			}
		}
	}
}

// now is the board's time of the next sample.
func (f *Face) now() time.Duration { return f.boardTime(f.tick) }

func (f *Face) boardTime(tick uint64) time.Duration {
	return f.cfg.Start + time.Duration(math.Round(float64(tick)*f.tickNs))
}

// catchUp moves the tick counter to the clock.
func (f *Face) catchUp() {
	if ahead := float64(f.pace.Now(f.now())-f.now()) / f.tickNs; ahead > 0 {
		f.tick += uint64(ahead)
	}
}

// batch sends what is due.
func (f *Face) batch() error {
	if f.play != nil {
		return f.playBatch()
	}
	until := f.pace.Due(f.now())
	if behind := until - f.now(); behind > f.pace.MaxBacklog() {
		f.skipped.Add(uint64(float64(behind) / f.tickNs / MeanTicks))
		f.catchUp()
	}
	f.out = f.out[:0]
	n := uint64(0)
	for ; f.now() <= until && n < maxSamples; n++ {
		f.out = f.sample(f.out)
		f.tick += f.nextStep()
	}
	f.samples.Add(n)
	return f.w.Write(f.out)
}

// maxSamples bounds the samples of one write.
const maxSamples = 256

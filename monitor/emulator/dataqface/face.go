// Package dataqface is a DATAQ DI-1100, DI-2108 or DI-2108-P in software: its
// text commands and its stream of words over USB CDC, fed by the emulated board.
package dataqface

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
	"wattmark/monitor/emulator/internal/wired"
	"wattmark/monitor/emulator/meter"
	"wattmark/monitor/emulator/pace"
)

// The wiring of the analog inputs: rail k of Config.Rails is on input 2k
// (voltage, through a divider) and 2k+1 (current, A a volt).
const (
	Divider = wired.Divider
	PerVolt = wired.PerVolt
)

// model is what the devices differ in.
type model struct {
	number  string // what info 1 tells
	inputs  int
	divider bool // it has a dec command
	bits    int  // of its converter
	digital byte // its digital inputs, when nothing is connected
	ranges  []float64
	// least is the smallest srate for so many items in the scan list.
	least func(items int) uint32
	// items says that srate counts items of the scan list, not whole scans.
	items bool
}

var models = map[string]model{
	"DI-1100": {
		number: "1100", inputs: 4, bits: 12, digital: 0b11, ranges: []float64{10},
		least: func(n int) uint32 { return 1000 + 500*uint32(n) },
	},
	"DI-2108": {
		number: "2108", inputs: 8, divider: true, bits: 16, digital: 0x7F, ranges: []float64{10}, items: true,
		least: func(int) uint32 { return 375 },
	},
	"DI-2108-P": {
		number: "2109", inputs: 8, divider: true, bits: 16, digital: 0x7F, ranges: []float64{10, 5, 2.5}, items: true,
		least: func(int) uint32 { return 375 },
	},
}

// Config describes the device.
type Config struct {
	// Model is DI-1100 (the default), DI-2108 or DI-2108-P.
	Model string
	Seed  uint64
	// Rails by name; nil for aux_12v_1 and as many others as there are inputs for.
	Rails []string
	// Noise of a conversion in steps of the converter; default 0.5, negative for
	// none.
	Noise float64
	// Digital is the state of the digital inputs; nil for open ones, which read 1.
	Digital *byte
	// Numbered makes the first analog item carry the count of its scan, as many
	// bits of it as there are.
	Numbered bool
	// Spread and Draw: see meter.Spread; offsets are those at the input, in volts.
	// Without Draw the device is true.
	Spread meter.Spread
	Draw   bool
	// Dividend is the clock that srate divides; default 60 MHz.
	Dividend uint32
	// Start is the board's time of the first scan of the first stream.
	Start time.Duration
}

// Face is one device. Run serves one line at a time.
type Face struct {
	board  *board.Board
	cfg    Config
	model  model
	inputs *wired.Inputs
	clock  float64 // relative error of its clock
	rng    *rand.Rand

	w        *wire.Wire
	line     []byte // of the command being received
	scanList []uint16
	srate    uint32
	dec      uint32
	packet   int // bytes
	scanning bool
	beat     beat.Beat
	power    [][]measure.Watt // by item
	out      []byte           // of the packet being filled

	digital   atomic.Uint32
	started   atomic.Int64
	scans     atomic.Uint64
	overflows atomic.Uint64
}

// New makes a device that reads a board.
func New(b *board.Board, p pace.Pace, cfg Config) (*Face, error) {
	if cfg.Model == "" {
		cfg.Model = "DI-1100"
	}
	m, ok := models[cfg.Model]
	if !ok {
		return nil, fmt.Errorf("emulated DATAQ: model %q: want DI-1100, DI-2108 or DI-2108-P", cfg.Model)
	}
	if cfg.Noise == 0 {
		cfg.Noise = 0.5
	}
	cfg.Noise = max(0, cfg.Noise)
	if cfg.Dividend == 0 {
		cfg.Dividend = 60e6
	}
	if cfg.Draw && cfg.Spread == (meter.Spread{}) {
		cfg.Spread = meter.Spread{UGainI: 0.005, UGainV: 0.005, UOffsetI: 0.02, UOffsetV: 0.02, UClock: 1e-4}
	}
	f := &Face{board: b, cfg: cfg, model: m, rng: rand.New(rand.NewPCG(cfg.Seed, 0x6e6f697365))}
	f.digital.Store(uint32(m.digital))
	if cfg.Digital != nil {
		f.digital.Store(uint32(*cfg.Digital & m.digital))
	}
	rng := rand.New(rand.NewPCG(cfg.Seed, 0x6461746171))
	var err error
	if f.inputs, err = wired.Connect(b, cfg.Rails, m.inputs, cfg.Spread, cfg.Draw, rng); err != nil {
		return nil, fmt.Errorf("emulated DATAQ: %w", err)
	}
	if cfg.Draw {
		f.clock = rng.NormFloat64() * cfg.Spread.UClock
	}
	f.beat = beat.Beat{Pace: p, Start: cfg.Start}
	return f, nil
}

// Scans is the number of scans sent; Overflows is how often the device has
// stopped because nobody read.
func (f *Face) Scans() uint64     { return f.scans.Load() }
func (f *Face) Overflows() uint64 { return f.overflows.Load() }

// StreamStart is the board's time of the newest stream's first scan.
func (f *Face) StreamStart() time.Duration { return time.Duration(f.started.Load()) }

// SetDigital changes the state of the digital inputs.
func (f *Face) SetDigital(state byte) { f.digital.Store(uint32(state & f.model.digital)) }

// Run powers the device up and serves a driver on a line until ctx ends, the
// line is closed, or writing fails. It returns nil for the first two and closes
// the line.
func (f *Face) Run(ctx context.Context, rw io.ReadWriteCloser) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	f.w = wire.Attach(ctx, rw)
	f.powerUp()
	result := f.w.Result(f.loop(ctx))
	cancel()
	f.w.Detach()
	return result
}

func (f *Face) powerUp() {
	f.scanning, f.line = false, nil
	f.scanList, f.srate, f.dec, f.packet = []uint16{0}, 6000, 1, 16
}

func (f *Face) loop(ctx context.Context) error {
	timer := f.beat.Pace.NewTimer()
	defer timer.Stop()
	for {
		var tick <-chan time.Time
		if f.scanning {
			tick = timer.C(f.beat.Now())
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case b, ok := <-f.w.In():
			if !ok {
				return f.w.Ended()
			}
			if err := f.received(b); err != nil {
				return err
			}
		case <-tick:
			if err := f.batch(f.beat.Pace.Due(f.beat.Now())); err != nil {
				return err
			}
		}
	}
}

// Package labjackface is a LabJack T7 or T8 in software: its registers over Modbus
// TCP and its stream over a second connection, fed by the emulated board.
package labjackface

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"wattmark/monitor/emulator/board"
	"wattmark/monitor/emulator/internal/wired"
	"wattmark/monitor/emulator/meter"
	"wattmark/monitor/emulator/pace"
)

// Config describes the device and its wiring: rail k of Rails is on AIN 2k
// (voltage, through a divider by two) and AIN 2k+1 (current, a clamp of 0.1 V/A).
type Config struct {
	Seed uint64
	// Rails by name; nil for aux_12v_1 and the others behind it.
	Rails []string
	// Noise of a conversion in codes of the range of ±10 V; default 1.5, negative
	// for none.
	Noise float64
	// Conversion is the time from one input's conversion to the next; default 10 µs
	// on a T7, none on a T8.
	Conversion time.Duration
	// Draw draws the converters' slopes and centers, of which the flash holds what
	// the maker's calibration found, and what it left: see Spread. Without Draw the
	// nominal scale is true.
	Draw bool
	// Spread is what the inputs are off beside their constants; offsets are those at
	// the input, in volts. Default: 300 ppm and 3 mV.
	Spread meter.Spread
	// Calibration is what the flash holds.
	Calibration Calibration
	// Codes16 makes a T8 keep its constants for 16-bit codes instead of 24-bit ones.
	Codes16 bool
	// Product that the device calls itself: 7, the default, for a T7, 8 for a T8; any
	// other is a T7 under another name.
	Product float32
	// Wrap is put around the stream's connection, for faults; may be nil.
	Wrap func(io.ReadWriteCloser) io.ReadWriteCloser
}

// The wiring.
const (
	Divider = wired.Divider
	PerVolt = wired.PerVolt // A/V
)

// Face is one device.
type Face struct {
	board *board.Board
	pace  pace.Pace
	cfg   Config
	model *model

	inputs     *wired.Inputs
	converters [][]converter     // by input and range
	flash      map[uint32]uint32 // by address

	mu        sync.Mutex
	registers map[uint16]uint16
	target    *sink // the stream's connection, nil for none
	arrived   chan struct{}
	cancel    context.CancelFunc
	stopped   chan struct{} // closed when the stream has ended

	injected       atomic.Uint32 // a status for the next packet
	lose           atomic.Int64  // scans to lose before the packet at loseAt or later
	loseAt         atomic.Uint64
	scans, skipped atomic.Uint64
	first          atomic.Int64 // board time of the newest stream's first scan
}

// New makes a device that reads a board.
func New(b *board.Board, p pace.Pace, cfg Config) (*Face, error) {
	if cfg.Noise == 0 {
		cfg.Noise = 1.5
	}
	if cfg.Product == 0 {
		cfg.Product = 7
	}
	m := *models[7]
	if cfg.Product == 8 {
		m = *models[8]
	} else if cfg.Conversion == 0 {
		cfg.Conversion = 10 * time.Microsecond
	}
	if cfg.Codes16 {
		m.scale = 1
	}
	if cfg.Draw && cfg.Spread == (meter.Spread{}) {
		cfg.Spread = meter.Spread{UGainI: 3e-4, UGainV: 3e-4, UOffsetI: 0.003, UOffsetV: 0.003}
	}
	f := &Face{board: b, pace: p, cfg: cfg, model: &m, arrived: make(chan struct{}, 1)}
	rng := rand.New(rand.NewPCG(cfg.Seed, 0x6c61626a))
	var err error
	if f.inputs, err = wired.Connect(b, cfg.Rails, m.inputs, cfg.Spread, cfg.Draw, rng); err != nil {
		return nil, fmt.Errorf("emulated %s: %w", m.name, err)
	}
	f.manufacture(rng)
	f.powerUp()
	return f, nil
}

// Scans is the number of scans sent, Skipped of those lost; the stream says so.
func (f *Face) Scans() uint64   { return f.scans.Load() }
func (f *Face) Skipped() uint64 { return f.skipped.Load() }

// StreamStart is the board's time of the newest stream's first scan.
func (f *Face) StreamStart() time.Duration { return time.Duration(f.first.Load()) }

// Lose makes the device lose so many scans of a stream, once, after scan at.
func (f *Face) Lose(at uint64, scans int) {
	f.loseAt.Store(at)
	f.lose.Store(int64(scans))
}

// Stop makes the device end the stream with a status.
func (f *Face) Stop(status uint16) { f.injected.Store(uint32(status)) }

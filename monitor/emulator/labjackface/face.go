// Package labjackface is a LabJack T7 in software: its registers over Modbus TCP
// and its stream over a second connection, fed by the emulated board.
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
	// Conversion is the time from one input's conversion to the next; default 10 µs.
	Conversion time.Duration
	// Spread and Draw: see meter.Spread; offsets are those at the input, in volts.
	// Without Draw the nominal scale is true.
	Spread meter.Spread
	Draw   bool
	// Product that the device calls itself; default 7.
	Product float32
	// Wrap is put around the stream's connection, for faults; may be nil.
	Wrap func(io.ReadWriteCloser) io.ReadWriteCloser
}

// The wiring.
const (
	Divider = 2.0
	PerVolt = 10.0 // A/V
)

// input is an analog input with what is really true of it.
type input struct {
	rail         int // −1 where nothing is connected
	current      bool
	gain, offset float64
}

const inputs = 14

// Face is one device.
type Face struct {
	board *board.Board
	pace  pace.Pace
	cfg   Config
	ain   [inputs]input

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
	if cfg.Rails == nil {
		cfg.Rails = []string{"aux_12v_1"}
		for _, r := range b.Rails() {
			if r.Name != "aux_12v_1" {
				cfg.Rails = append(cfg.Rails, r.Name)
			}
		}
	}
	if len(cfg.Rails) > inputs/2 {
		return nil, fmt.Errorf("emulated T7: %d rails: it has inputs for %d", len(cfg.Rails), inputs/2)
	}
	if cfg.Noise == 0 {
		cfg.Noise = 1.5
	}
	if cfg.Conversion == 0 {
		cfg.Conversion = 10 * time.Microsecond
	}
	if cfg.Product == 0 {
		cfg.Product = 7
	}
	if cfg.Draw && cfg.Spread == (meter.Spread{}) {
		cfg.Spread = meter.Spread{UGainI: 0.003, UGainV: 0.003, UOffsetI: 0.01, UOffsetV: 0.01}
	}
	f := &Face{board: b, pace: p, cfg: cfg, arrived: make(chan struct{}, 1)}
	return f, f.connect()
}

func (f *Face) connect() error {
	rng := rand.New(rand.NewPCG(f.cfg.Seed, 0x6c61626a))
	draw := func(u float64) float64 {
		n := rng.NormFloat64()
		if !f.cfg.Draw {
			return 0
		}
		return n * u
	}
	sp := f.cfg.Spread
	for i := range f.ain {
		in := &f.ain[i]
		*in = input{rail: -1, current: i%2 == 1, gain: 1 + draw(sp.UGainV), offset: draw(float64(sp.UOffsetV))}
		if in.current {
			in.gain, in.offset = 1+draw(sp.UGainI), draw(float64(sp.UOffsetI))
		}
		if i/2 >= len(f.cfg.Rails) {
			continue
		}
		for k, r := range f.board.Rails() {
			if r.Name == f.cfg.Rails[i/2] {
				in.rail = k
			}
		}
		if in.rail < 0 {
			return fmt.Errorf("emulated T7: the board has no rail %q", f.cfg.Rails[i/2])
		}
	}
	f.powerUp()
	return nil
}

// volts is what an input sees at an instant.
func (f *Face) volts(ain int, at time.Duration) float64 {
	in := &f.ain[ain]
	if in.rail < 0 {
		return in.offset
	}
	r := f.board.Rail(in.rail, f.board.MeanPower(at, at))
	v := float64(r.V) / Divider
	if in.current {
		v = float64(r.I) / PerVolt
	}
	return v*in.gain + in.offset
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

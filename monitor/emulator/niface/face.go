// Package niface is NI's gRPC Device Server with a USB-6259 behind it, in
// software: sessions, tasks and the driver's errors over real TCP, fed by the
// emulated board through a multiplexed converter.
package niface

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"wattmark/measure"
	"wattmark/monitor/emulator/board"
	"wattmark/monitor/emulator/meter"
	"wattmark/monitor/emulator/pace"
	"wattmark/monitor/instrument/nidaqmx/nipb"
)

// Config describes the device and its wiring: rail k of Rails is on ai 2k
// (voltage, through a divider by two) and ai 2k+1 (current, a clamp of 0.1 V/A).
type Config struct {
	Seed uint64
	// Device is its name on the server (default Dev1), Product its model (default
	// USB-6259), Serial its number (default 0x1A2B3C0 and the seed).
	Device, Product string
	Serial          uint32
	// Rails by name; nil for aux_12v_1 and the others behind it.
	Rails []string
	// Noise of a conversion in codes; default 0.9, negative for none.
	Noise float64
	// MaxRate is the conversions a second over several inputs (default 1 MS/s),
	// MaxSingle with one input (default 1.25 MS/s).
	MaxRate, MaxSingle measure.Hertz
	// Simultaneous makes a device with a converter for each input.
	Simultaneous bool
	// Fixed makes a driver that does not let reads be moved, nor unread samples be
	// overwritten: a full buffer stops the device.
	Fixed bool
	// Spread and Draw: see meter.Spread; offsets are those at the input, in volts.
	// Without Draw the device's own scale and clock are true.
	Spread meter.Spread
	Draw   bool
	// Wander is by how much at most the clock's rate comes and goes, as with a room's
	// warmth, and Period how long that takes; with Draw 3·10⁻⁶ in twenty minutes.
	Wander float64
	Period time.Duration
	// Width is what Read_RawDataWidth tells; zero for the bytes of a scan.
	Width uint32
	// Codes replaces the converter where it is not nil: what input ai gives at a
	// sample's number since the start.
	Codes func(ai int, sample uint64) int16
}

// The wiring.
const (
	Divider = 2.0
	PerVolt = 10.0 // A/V
)

// inputs of a USB-6259, single-ended.
const inputs = 32

// input is an analog input with what is really true of it.
type input struct {
	rail         int // −1 where nothing is connected
	current      bool
	gain, offset float64
}

// Face is one server with one device.
type Face struct {
	nipb.UnimplementedNiDAQmxServer

	board *board.Board
	pace  pace.Pace
	cfg   Config
	ai    [inputs]input
	poly  map[float64][]float64 // scaling by range
	clock oscillator

	mu        sync.Mutex
	sessions  map[string]*task
	made      int           // sessions that the server has named itself
	virtual   time.Duration // board time where the pace is free
	unplugged bool
	faults    faults
	first     time.Duration // board time of the newest start
	lost      uint64        // of the newest start
	conns     map[*conn]struct{}
}

// New makes a server whose device reads a board.
func New(b *board.Board, p pace.Pace, cfg Config) (*Face, error) {
	orDefault := func(v *string, d string) {
		if *v == "" {
			*v = d
		}
	}
	orDefault(&cfg.Device, "Dev1")
	orDefault(&cfg.Product, "USB-6259")
	if cfg.Serial == 0 {
		cfg.Serial = 0x1A2B3C0 + uint32(cfg.Seed)
	}
	if cfg.Noise == 0 {
		cfg.Noise = 0.9
	}
	if cfg.MaxRate == 0 {
		cfg.MaxRate = 1e6
	}
	if cfg.MaxSingle == 0 {
		cfg.MaxSingle = 1.25e6
	}
	if cfg.Draw && cfg.Spread == (meter.Spread{}) {
		cfg.Spread = meter.Spread{UGainI: 1e-4, UGainV: 1e-4, UOffsetI: 5e-4, UOffsetV: 1e-3, UClock: 2.9e-5}
	}
	if cfg.Draw && cfg.Period == 0 {
		cfg.Wander, cfg.Period = 3e-6, 20*time.Minute
	}
	if cfg.Rails == nil {
		cfg.Rails = []string{"aux_12v_1"}
		for _, r := range b.Rails() {
			if r.Name != "aux_12v_1" {
				cfg.Rails = append(cfg.Rails, r.Name)
			}
		}
	}
	if len(cfg.Rails) > inputs/2 {
		return nil, fmt.Errorf("emulated %s: %d rails: it has inputs for %d", cfg.Product, len(cfg.Rails), inputs/2)
	}
	f := &Face{board: b, pace: p, cfg: cfg, poly: map[float64][]float64{}, sessions: map[string]*task{}, conns: map[*conn]struct{}{}}
	return f, f.connect()
}

// connect wires the inputs and draws what is wrong with them.
func (f *Face) connect() error {
	rng := rand.New(rand.NewPCG(f.cfg.Seed, 0x6e69))
	for _, r := range ranges {
		f.poly[r] = drawScale(rng, r)
	}
	draw := func(u float64) float64 {
		n := rng.NormFloat64()
		if !f.cfg.Draw {
			return 0
		}
		return n * u
	}
	sp := f.cfg.Spread
	f.clock = oscillator{wander: f.cfg.Wander, period: float64(f.cfg.Period)}
	defer func() { f.clock.rate = draw(sp.UClock) }() // last, so that a seed's inputs stay what they were
	for i := range f.ai {
		in := &f.ai[i]
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
			return fmt.Errorf("emulated %s: the board has no rail %q", f.cfg.Product, f.cfg.Rails[i/2])
		}
	}
	return nil
}

// now is the board's time; f.mu is held.
func (f *Face) now() time.Duration { return f.pace.Now(f.virtual) }

// StreamStart is the board's time of the first scan since the newest start.
func (f *Face) StreamStart() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.first
}

// Skipped is the scans since the newest start that reads have passed over.
func (f *Face) Skipped() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.lost
}

// Sessions is how many sessions the server holds.
func (f *Face) Sessions() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.sessions)
}

// Package u2300face is a Keysight U2300A data acquisition device in software: its
// SCPI commands, its multiplexed converter and its memory, fed by the emulated
// board.
package u2300face

import (
	"fmt"
	"math/rand/v2"
	"time"

	"wattmark/measure"
	"wattmark/monitor/emulator/board"
	"wattmark/monitor/emulator/meter"
	"wattmark/monitor/emulator/scpiface"
)

// Config describes the device and its wiring: rail k of Rails is on channel
// 101+2k (voltage, through a divider by Divider) and 102+2k (current, a clamp of
// PerVolt).
type Config struct {
	Seed uint64
	// Model and Serial as *IDN? tells them; defaults U2356A, MY00000001.
	Model, Serial string
	// Now is the board's time.
	Now func() time.Duration
	// Rails by name; nil for aux_12v_1 and the others behind it.
	Rails []string
	// Memory is how many samples wait to be read before the device stops with
	// OVER; default 1 Mi, a number of ours, as the maker states none.
	Memory int
	// Noise of a conversion in codes; default 1.5, negative for none.
	Noise float64
	// Clock is how fast the device's clock runs, relative.
	Clock float64
	// Spread and Draw: see meter.Spread; offsets are those at the input, in volts.
	Spread meter.Spread
	Draw   bool
}

// The wiring.
const (
	Divider = 2.0
	PerVolt = 10.0 // A/V
)

// variant is what a model has.
type variant struct {
	channels int // single-ended; half as many differential
	fastest  int // conversions a second in all
}

// variants by model, as the maker lists them.
var variants = map[string]variant{
	"U2351A": {16, 250_000}, "U2352A": {16, 250_000}, "U2353A": {16, 500_000}, "U2354A": {16, 500_000},
	"U2355A": {64, 250_000}, "U2356A": {64, 500_000},
}

const firstChannel = 101

// channel is one input: what it is set to, and what is true of it.
type channel struct {
	rng, polarity, kind string

	rail         int // −1 where nothing is connected
	current      bool
	gain, offset float64
}

// Face is one device. Its clients come and go through the embedded Instrument.
type Face struct {
	*scpiface.Instrument
	board *board.Board
	cfg   Config
	variant
	inputs []channel
	noise  *rand.Rand

	scan                []int // channel numbers in the order of the scan
	rate, points, depth int
	burst               bool
	acq                 acquisition
	runs                []Run
	power               []measure.Watt
	out                 []byte
}

// New makes a device whose inputs sit on a board.
func New(b *board.Board, cfg Config) (*Face, error) {
	if cfg.Now == nil {
		return nil, fmt.Errorf("emulated U2300A: nothing tells the time")
	}
	if cfg.Model == "" {
		cfg.Model = "U2356A"
	}
	if cfg.Serial == "" {
		cfg.Serial = "MY00000001"
	}
	v, ok := variants[cfg.Model]
	if !ok {
		return nil, fmt.Errorf("emulated U2300A: no model %q", cfg.Model)
	}
	if cfg.Rails == nil {
		cfg.Rails = []string{"aux_12v_1"}
		for _, r := range b.Rails() {
			if r.Name != cfg.Rails[0] {
				cfg.Rails = append(cfg.Rails, r.Name)
			}
		}
	}
	if cfg.Memory == 0 {
		cfg.Memory = 1 << 20
	}
	if cfg.Noise == 0 {
		cfg.Noise = 1.5
	}
	cfg.Noise = max(0, cfg.Noise)
	if cfg.Draw && cfg.Spread == (meter.Spread{}) {
		cfg.Spread = meter.Spread{UGainI: 2e-3, UGainV: 2e-3, UOffsetI: 1e-3, UOffsetV: 1e-3, UClock: 5e-5}
	}
	f := &Face{board: b, cfg: cfg, variant: v, noise: rand.New(rand.NewPCG(cfg.Seed, 0x6e6f697365))}
	if err := f.wire(); err != nil {
		return nil, err
	}
	f.reset()
	id := fmt.Sprintf("Keysight Technologies,%s,%s,A-01-2026", cfg.Model, cfg.Serial)
	f.Instrument = scpiface.New(id, f.reset, f.commands())
	f.Signed = true
	return f, nil
}

// wire connects the rails and draws what is wrong with each input.
func (f *Face) wire() error {
	rng := rand.New(rand.NewPCG(f.cfg.Seed, 0x7532333030))
	draw := func(u float64) float64 {
		n := rng.NormFloat64()
		if !f.cfg.Draw {
			return 0
		}
		return n * u
	}
	if 2*len(f.cfg.Rails) > f.channels {
		return fmt.Errorf("emulated U2300A: %d rails: a %s has inputs for %d", len(f.cfg.Rails), f.cfg.Model, f.channels/2)
	}
	f.cfg.Clock += draw(f.cfg.Spread.UClock)
	f.inputs = make([]channel, f.channels)
	for i := range f.inputs {
		c := &f.inputs[i]
		*c = channel{rail: -1, current: i%2 == 1, gain: 1 + draw(f.cfg.Spread.UGainV), offset: draw(float64(f.cfg.Spread.UOffsetV))}
		if c.current {
			c.gain, c.offset = 1+draw(f.cfg.Spread.UGainI), draw(float64(f.cfg.Spread.UOffsetI))
		}
		if i/2 >= len(f.cfg.Rails) {
			continue
		}
		r, err := f.board.Find(f.cfg.Rails[i/2])
		if err != nil {
			return fmt.Errorf("emulated U2300A: %w", err)
		}
		c.rail = r
	}
	return nil
}

// reset is *RST.
func (f *Face) reset() {
	for i := range f.inputs {
		c := &f.inputs[i]
		c.rng, c.polarity, c.kind = "10", "BIP", "SING"
	}
	f.scan, f.rate, f.points, f.depth, f.burst = []int{firstChannel}, 1000, 500, 500, false
	f.acq = acquisition{}
}

// volts is what an input sees when the board draws p.
func (c *channel) volts(b *board.Board, p measure.Watt) float64 {
	v := 0.0
	if c.rail >= 0 {
		r := b.Rail(c.rail, p)
		if v = float64(r.V) / Divider; c.current {
			v = float64(r.I) / PerVolt
		}
	}
	return v*c.gain + c.offset
}

// Package rigolface is a Rigol DS1000Z oscilloscope in software: its SCPI
// commands, its trigger and acquisition states, and its deep memory, whose four
// channels see the emulated board's rails.
package rigolface

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"wattmark/measure"
	"wattmark/monitor/emulator/board"
	"wattmark/monitor/emulator/scpiface"
)

// The scope's numbers, from its programming manual.
const (
	Channels    = 4
	Divisions   = 12 // across the screen; memory spans it
	CodesPerDiv = 25
	Reference   = 127     // code of the screen's middle
	MaxRead     = 250_000 // points a read in BYTE
	MaxMemory   = 12_000_000
	screenSize  = 1200
)

// Quantity is what a probe is put on.
type Quantity uint8

// The quantities.
const (
	Nothing   Quantity = iota // open input: 0 V and noise
	Load                      // the rail's voltage on the card's side of a shunt
	Source                    // … on the supply's side of a shunt of Probe.Ohm
	Clamp                     // the output of a current clamp of Probe.VoltPerAmpere
	TriggerIn                 // the trigger output of another scope, Probe.Line
)

// Probe is what one channel sees.
type Probe struct {
	Quantity      Quantity
	Rail          string
	Ohm           measure.Ohm
	VoltPerAmpere float64
	Line          *TriggerLine
}

// Config describes the scope and its wiring.
type Config struct {
	Seed uint64
	// Model and Serial as *IDN? tells them; defaults DS1054Z, DS1ZA000000001.
	Model, Serial string
	// Now is the board's time.
	Now func() time.Duration
	// Probes of the four channels. All empty: the load side and a clamp of 10 mV/A
	// on each of the board's last two rails.
	Probes [Channels]Probe
	// NoiseCodes is the noise of a reading in codes; default 0.6, negative for none.
	NoiseCodes float64
	// Gain (relative), Zero (in divisions) and Clock (relative) are the scope's
	// true errors.
	Gain, Zero [Channels]float64
	Clock      float64
	// TriggerOut carries a pulse for each of its triggers; nil where nothing is
	// connected to that socket.
	TriggerOut *TriggerLine
}

// channel is what one channel is set to.
type channel struct {
	probe                Probe
	rail                 int
	shown                bool
	scale, offset, ratio float64
	coupling             string
	invert, limit        string
	units                string
}

// Face is one scope. Its clients come and go through the embedded Instrument.
type Face struct {
	*scpiface.Instrument
	board *board.Board
	cfg   Config
	rng   *rand.Rand

	channels             [Channels]channel
	timeScale, timeShift float64 // s a division; s
	depth                int     // points a channel as set; 0 for AUTO
	average              int
	acqType              string
	trig                 trigger
	acq                  acquisition
	wav                  waveform
	power                []measure.Watt
}

// New makes a scope whose probes sit on a board.
func New(b *board.Board, cfg Config) (*Face, error) {
	if cfg.Now == nil {
		return nil, fmt.Errorf("emulated DS1000Z: nothing tells the time")
	}
	if cfg.Model == "" {
		cfg.Model = "DS1054Z"
	}
	if cfg.Serial == "" {
		cfg.Serial = "DS1ZA000000001"
	}
	if cfg.NoiseCodes == 0 {
		cfg.NoiseCodes = 0.6
	}
	cfg.NoiseCodes = max(0, cfg.NoiseCodes)
	rails := b.Rails()
	if cfg.Probes == ([Channels]Probe{}) {
		for i := range Channels {
			p := Probe{Quantity: Load, Rail: rails[max(0, len(rails)-2+i/2)].Name}
			if i%2 == 0 {
				p.Quantity, p.VoltPerAmpere = Clamp, 0.01
			}
			cfg.Probes[i] = p
		}
	}
	f := &Face{board: b, cfg: cfg, rng: rand.New(rand.NewPCG(cfg.Seed, 0x7269676f6c))}
	for i, p := range cfg.Probes {
		f.channels[i].probe, f.channels[i].rail = p, -1
		for r := range rails {
			if rails[r].Name == p.Rail {
				f.channels[i].rail = r
			}
		}
		if p.Quantity == TriggerIn && p.Line == nil {
			return nil, fmt.Errorf("emulated DS1000Z: channel %d: no trigger line", i+1)
		}
		if p.Quantity != Nothing && p.Quantity != TriggerIn && f.channels[i].rail < 0 {
			return nil, fmt.Errorf("emulated DS1000Z: channel %d: the board has no rail %q", i+1, p.Rail)
		}
	}
	f.reset()
	id := fmt.Sprintf("RIGOL TECHNOLOGIES,%s,%s,00.04.04.SP3", cfg.Model, cfg.Serial)
	f.Instrument = scpiface.New(id, f.reset, f.commands())
	return f, nil
}

// Begin is the board's time of the first point in memory, valid after a trigger.
func (f *Face) Begin() (at time.Duration) {
	f.Do(func() { at = f.acq.begin })
	return at
}

// reset is *RST.
func (f *Face) reset() {
	for i := range f.channels {
		c := &f.channels[i]
		c.shown, c.scale, c.offset, c.ratio = i == 0, 1, 0, 10
		c.coupling, c.invert, c.limit, c.units = "DC", "0", "OFF", "VOLT"
	}
	f.timeScale, f.timeShift, f.depth, f.average, f.acqType = 1e-6, 0, 0, 2, "NORM"
	f.trig = trigger{mode: "EDGE", sweep: "AUTO", source: 0, slope: "POS", coupling: "DC", holdoff: 16e-9}
	f.acq = acquisition{running: true, armed: f.cfg.Now()}
	f.wav = waveform{mode: "NORM", format: "BYTE", start: 1, stop: screenSize}
}

// shown is the number of channels that share the memory.
func (f *Face) shown() (n int) {
	for i := range f.channels {
		if f.channels[i].shown {
			n++
		}
	}
	return n
}

// share is the number of channels among which memory and rate are divided: with
// three or four the converters are all in use.
func (f *Face) share() int {
	switch n := f.shown(); {
	case n <= 1:
		return 1
	case n == 2:
		return 2
	}
	return 4
}

// window is the time that memory spans, in seconds.
func (f *Face) window() float64 { return Divisions * f.timeScale }

// points is the memory's depth of one channel.
func (f *Face) points() int {
	if f.depth > 0 {
		return f.depth
	}
	// AUTO takes what the fastest rate needs, in the steps of the manual.
	want, most := f.window()*f.maxRate(), MaxMemory/f.share()
	for _, n := range f.depths() {
		if float64(n) >= want {
			return n
		}
	}
	return most
}

func (f *Face) maxRate() float64 { return 1e9 / float64(f.share()) }

// rate is the nominal rate of a channel, in samples a second.
func (f *Face) rate() float64 { return min(f.maxRate(), float64(f.points())/f.window()) }

// depths are the memory depths that can be set, ascending.
func (f *Face) depths() (out []int) {
	for d := MaxMemory / f.share() / 1000; d <= MaxMemory/f.share(); d *= 10 {
		out = append(out, d)
	}
	return out
}

// step125 rounds a scale to the scope's 1-2-5 steps.
func step125(v, least, most float64) (float64, error) {
	if !(v >= least*0.999) || v > most*1.001 {
		return 0, scpiface.ErrRange
	}
	decade := math.Pow(10, math.Floor(math.Log10(v)+1e-9))
	for _, m := range []float64{1, 2, 5, 10} {
		if v <= m*decade*1.001 {
			return m * decade, nil
		}
	}
	return 10 * decade, nil
}

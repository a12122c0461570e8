// Package scope is shared by all emulated oscilloscopes: probes on the
// emulated board's rails, a trigger, single and free-running acquisition into
// memory, and the converter. A family's face adds its command set on top and
// describes how memory and rate follow from its settings.
//
//	board ─▶ Scope.Volts ─▶ trigger, acquisition ─▶ Scope.Codes ─▶ a face's blocks
package scope

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/monitor/emulator/board"
	"github.com/wattmark/wattmark/monitor/emulator/meter"
	"github.com/wattmark/wattmark/monitor/emulator/scpi"
)

// MaxChannels is the most that a scope has.
const MaxChannels = 4

// Quantity is the quantity at a probe.
type Quantity uint8

// The quantities.
const (
	Nothing   Quantity = iota // open input: 0 V and noise
	Load                      // the rail's voltage on the card's side of a shunt
	Source                    // … on the supply's side of a shunt of Probe.Ohm
	Clamp                     // the output of a current clamp of Probe.VoltPerAmpere
	TriggerIn                 // the trigger output of another scope, Probe.Line
)

// Probe is the input of one channel.
type Probe struct {
	Quantity      Quantity
	Rail          string
	Ohm           measure.Ohm
	VoltPerAmpere float64
	Line          *TriggerLine
}

// Config describes a scope and its wiring.
type Config struct {
	Seed uint64
	// Model and Serial as in *IDN?; default those of Traits.
	Model, Serial string
	// Now is the board's time.
	Now func() time.Duration
	// Probes of the channels. All empty: a clamp of 10 mV/A and the load side on
	// each of the board's last two rails (its last but one, on two channels).
	Probes [MaxChannels]Probe
	// NoiseCodes is the noise of a reading in steps of the converter; default 0.6, negative for none.
	NoiseCodes float64
	// Gain (relative), Zero (in divisions) and Clock (relative) are the scope's true errors.
	Gain, Zero [MaxChannels]float64
	Clock      float64
	// Draw draws these errors within the limits that the maker states.
	Draw bool
	// TriggerOut carries a pulse for each of its triggers; nil where nothing is connected to that socket.
	TriggerOut *TriggerLine
}

// Traits are the constants of a family of scopes.
type Traits struct {
	Name        string // for errors
	ID          string // answer to *IDN?: maker, model, serial number, firmware
	Channels    int
	PerDiv      float64              // codes a division
	Middle      float64              // code of the screen's middle
	Least, Most int                  // codes at the ends of the range
	Quantum     int                  // codes between two steps of the converter; 0 and 1 for all of them
	WholeShift  bool                 // a channel's shift comes in whole codes
	Form        func(float64) string // of numbers; nil for scpi.Exponent
	// The maker's limits: relative, in divisions, relative.
	GainLimit, ZeroLimit, ClockLimit float64
}

// Signed are the traits of a scope of four channels whose converter has so many bits, at the top of signed codes of 16.
func Signed(name, id string, bits int, perDiv, gain, clock float64, form func(float64) string) Traits {
	quantum := 1 << (16 - bits)
	return Traits{
		Name: name, ID: id, Channels: 4, PerDiv: perDiv, Least: math.MinInt16, Most: math.MaxInt16 + 1 - quantum,
		Quantum: quantum, GainLimit: gain, ZeroLimit: 0.1, ClockLimit: clock, Form: form,
	}
}

// Geometry is how a face's settings make memory: the window in seconds and the
// time of its begin behind the trigger, the depth of one channel in points, and
// the nominal rate in samples a second.
type Geometry interface {
	Window() float64
	Delay() float64
	Points() int
	Rate() float64
}

// Channel holds the settings of one channel.
type Channel struct {
	Shown        bool
	Scale, Ratio float64 // V a division; the probe's ratio
	Shift        float64 // volts added before the converter
	// Offset in volts and Position in divisions make the shift where it is Placed.
	Offset, Position float64
	Placed           bool
	Coupling         string
	Invert           string
	Limit            string // bandwidth
	Units            string
	Label            string

	No    int // counted from 0
	probe Probe
	rail  int
}

// Scope is one scope, which a face embeds. Its clients come and go through the embedded
// Instrument. Fields and methods are for the face's handlers, and for Do.
type Scope struct {
	*scpi.Instrument
	Traits
	Channel []Channel
	Trig    Trigger

	board    *board.Board
	cfg      Config
	geometry Geometry
	acq      acquisition
	power    []measure.Watt
	volts    []float64
	codes    []int32
}

// Init puts the probes of a face's scope on a board, resets the face, and makes the Instrument of its commands.
func (s *Scope) Init(b *board.Board, cfg Config, t Traits, g Geometry, reset func(), commands func() []scpi.Command,
) error {
	if cfg.Now == nil {
		return fmt.Errorf("emulated %s: nothing tells the time", t.Name)
	}
	meter.Default(&cfg.NoiseCodes, 0.6)
	rails := b.Rails()
	if cfg.Probes == ([MaxChannels]Probe{}) {
		for i := range t.Channels { // clamps on the odd channels and voltage probes on the even ones
			p := Probe{Quantity: Load, Rail: rails[max(0, len(rails)-2+i/2)].Name}
			if i%2 == 0 {
				p.Quantity, p.VoltPerAmpere = Clamp, 0.01
			}
			cfg.Probes[i] = p
		}
	}
	if cfg.Draw { // evenly within the maker's limits
		rng := rand.New(rand.NewPCG(cfg.Seed, 0x73636f7065))
		within := func(limit float64) float64 { return limit * (2*rng.Float64() - 1) }
		for i := range cfg.Gain {
			cfg.Gain[i], cfg.Zero[i] = within(t.GainLimit), within(t.ZeroLimit)
		}
		cfg.Clock = within(t.ClockLimit)
	}
	if t.Form == nil {
		t.Form = scpi.Exponent
	}
	s.Traits, s.board, s.cfg, s.geometry, s.Channel = t, b, cfg, g, make([]Channel, t.Channels)
	for i, p := range cfg.Probes[:t.Channels] {
		s.Channel[i].No, s.Channel[i].probe = i, p
		s.Channel[i].rail = slices.IndexFunc(rails, func(r board.RailConfig) bool { return r.Name == p.Rail })
		if p.Quantity == TriggerIn && p.Line == nil {
			return fmt.Errorf("emulated %s: channel %d: no trigger line", t.Name, i+1)
		}
		if p.Quantity != Nothing && p.Quantity != TriggerIn && s.Channel[i].rail < 0 {
			return fmt.Errorf("emulated %s: channel %d: the board has no rail %q", t.Name, i+1, p.Rail)
		}
	}
	reset()
	id := strings.Split(t.ID, ",")
	id[1], id[2] = cmp.Or(cfg.Model, id[1]), cmp.Or(cfg.Serial, id[2])
	s.Instrument = scpi.New(strings.Join(id, ","), reset, commands())
	return nil
}

// Begin is the board's time of the first point in memory, valid after a trigger.
func (s *Scope) Begin() (at time.Duration) {
	s.Do(func() { at = s.acq.begin })
	return at
}

// Share is the number of channels among which memory and rate are divided: with
// three or four the converters are all in use.
func (s *Scope) Share() int {
	shown := 0
	for i := range s.Channel {
		if s.Channel[i].Shown {
			shown++
		}
	}
	if shown > 2 {
		return 4
	}
	return max(1, shown)
}

// Pairs is 2 where both channels of a pair share a converter, else 1.
func (s *Scope) Pairs() int {
	for i := 0; i+1 < len(s.Channel); i += 2 {
		if s.Channel[i].Shown && s.Channel[i+1].Shown {
			return 2
		}
	}
	return 1
}

// TriggerLine is a cable from one scope's trigger output to inputs of others. It is safe for concurrent use.
type TriggerLine struct {
	mu     sync.Mutex
	pulses []time.Duration // board times, ascending
}

// The pulse of a trigger output.
const (
	pulseVolts = 3.3
	pulseWidth = time.Millisecond
	keepPulses = 64
)

// after is the first pulse that begins between two instants.
func (l *TriggerLine) after(from, to time.Duration) (at time.Duration, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range l.pulses {
		if p >= from && p <= to {
			return p, true
		}
	}
	return 0, false
}

// volts is the line's voltage at an instant.
func (l *TriggerLine) volts(at time.Duration) float64 {
	if _, ok := l.after(at-pulseWidth, at); ok {
		return pulseVolts
	}
	return 0
}

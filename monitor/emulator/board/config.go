package board

import (
	"fmt"
	"math"
	"time"

	"wattmark/measure"
)

// Load names what the GPU does.
type Load uint8

// The loads of the state machine. LoadLevel stands for a level set in watts.
const (
	Idle       Load = iota // no context, low clocks
	ActiveIdle             // a context, clocks up, nothing resident
	Sleep                  // one resident sleeping kernel: a marker's low chip
	Half                   // half arithmetic, half memory
	Compute                // arithmetic alone
	Memory                 // streams memory
	Full                   // memory and SMs together: a marker's high chip
	LoadLevel
)

var loadNames = [...]string{"idle", "active_idle", "sleep", "half", "compute", "memory", "full", "level"}

func (l Load) String() string {
	if int(l) < len(loadNames) {
		return loadNames[l]
	}
	return fmt.Sprintf("load(%d)", uint8(l))
}

// Levels is the power that each load settles at when the card is at its idle
// temperature.
type Levels struct {
	Idle, ActiveIdle, Sleep, Half, Compute, Memory, Full measure.Watt
}

// RailConfig is one supply of the card. Its power is
// Base + Share·(total − sum of all bases), so that the rails always add up.
type RailConfig struct {
	Name string
	Role measure.Role
	// Open is the voltage without a load, Source the resistance that makes it
	// droop with current.
	Open   measure.Volt
	Source measure.Ohm
	// Base is drawn whatever the load; Share is the rail's part of the rest, in [0, 1].
	Base  measure.Watt
	Share float64
}

// Ripple is band-limited supply noise: a sum of sines of random phase between
// Low and High. It is real power and is part of the injected energy.
type Ripple struct {
	RMS       measure.Watt // of the total; zero for none
	Low, High measure.Hertz
	Lines     int // number of sines; zero for 24
}

// Config describes a board. The zero value of every field means its default,
// except where a negative value says "none".
type Config struct {
	Name string
	Seed uint64
	// Levels of the loads; a zero level takes its default (a 300 W card).
	Levels Levels
	// Rails in order; nil for the four of DefaultRails.
	Rails []RailConfig
	// TauUp and TauDown are the first-order time constants of the slew, 50 µs to
	// 1 ms; defaults 120 µs and 300 µs.
	TauUp, TauDown time.Duration
	// Drift is the leakage power added per watt of load once the card is warm
	// (default 0.02, negative for none); TauThermal is the time it takes
	// (default 4 s, at least 10 × the slew).
	Drift      float64
	TauThermal time.Duration
	Ripple     Ripple
	// Keep is how much of the past stays known behind the newest reading
	// (default 10 min). Energy before that is forgotten.
	Keep time.Duration
}

// DefaultLevels are those of a 300 W card.
func DefaultLevels() Levels {
	return Levels{Idle: 22, ActiveIdle: 58, Sleep: 61, Half: 190, Compute: 225, Memory: 255, Full: 280}
}

// DefaultRails are the slot's two rails and two auxiliary connectors.
func DefaultRails() []RailConfig {
	return []RailConfig{
		{Name: "pcie_3v3", Role: measure.RolePCIe3V3, Open: 3.32, Source: 0.012, Base: 1.2, Share: 0.004},
		{Name: "pcie_12v", Role: measure.RolePCIe12V, Open: 12.12, Source: 0.009, Base: 3, Share: 0.156},
		{Name: "aux_12v_1", Role: measure.RolePSU, Open: 12.15, Source: 0.005, Share: 0.44},
		{Name: "aux_12v_2", Role: measure.RolePSU, Open: 12.14, Source: 0.005, Share: 0.40},
	}
}

// orDefault returns d where v is zero.
func orDefault[T comparable](v, d T) T {
	var zero T
	if v == zero {
		return d
	}
	return v
}

func (c Config) withDefaults() Config {
	d := DefaultLevels()
	l := &c.Levels
	l.Idle, l.ActiveIdle = orDefault(l.Idle, d.Idle), orDefault(l.ActiveIdle, d.ActiveIdle)
	l.Sleep, l.Half = orDefault(l.Sleep, d.Sleep), orDefault(l.Half, d.Half)
	l.Compute, l.Memory = orDefault(l.Compute, d.Compute), orDefault(l.Memory, d.Memory)
	l.Full = orDefault(l.Full, d.Full)
	if c.Rails == nil {
		c.Rails = DefaultRails()
	}
	c.Name = orDefault(c.Name, "emulated 300 W card")
	c.TauUp = orDefault(c.TauUp, 120*time.Microsecond)
	c.TauDown = orDefault(c.TauDown, 300*time.Microsecond)
	c.TauThermal = orDefault(c.TauThermal, 4*time.Second)
	c.Drift = max(0, orDefault(c.Drift, 0.02))
	c.Keep = orDefault(c.Keep, 10*time.Minute)
	c.Ripple.Lines = orDefault(c.Ripple.Lines, 24)
	return c
}

// validate checks a configuration whose defaults are filled in.
func (c Config) validate() error {
	for _, tau := range []time.Duration{c.TauUp, c.TauDown} {
		if tau < 50*time.Microsecond || tau > time.Millisecond {
			return fmt.Errorf("board: slew of %v: must lie in 50 µs to 1 ms", tau)
		}
	}
	if c.TauThermal < 10*max(c.TauUp, c.TauDown) {
		return fmt.Errorf("board: thermal time constant %v: must be at least ten times the slew", c.TauThermal)
	}
	if r := c.Ripple; r.RMS < 0 || (r.RMS > 0 && !(r.Low > 0 && r.High > r.Low)) {
		return fmt.Errorf("board: ripple of %v between %v and %v: want 0 < low < high", r.RMS, r.Low, r.High)
	}
	if len(c.Rails) == 0 {
		return fmt.Errorf("board: no rails")
	}
	sum, names := 0.0, map[string]bool{}
	for _, r := range c.Rails {
		if r.Name == "" || names[r.Name] {
			return fmt.Errorf("board: rail name %q: must be unique and not empty", r.Name)
		}
		names[r.Name] = true
		if !(r.Open > 0) || r.Source < 0 || r.Base < 0 || r.Share < 0 {
			return fmt.Errorf("board: rail %s: open voltage must be positive, resistance, base and share not negative", r.Name)
		}
		sum += r.Share
	}
	if math.Abs(sum-1) > 1e-9 {
		return fmt.Errorf("board: the rails' shares add up to %v: must be 1", sum)
	}
	return nil
}

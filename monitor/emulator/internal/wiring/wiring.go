// Package wiring connects the board's rails to the analog inputs of emulated devices, each
// with an error of its own:
//
//	Inputs  of a data acquisition box: a rail on each pair of inputs, its voltage through a divider by two on the even
//	        one, its current through a clamp of 0.1 V/A on the odd one
//	Pair    a connector of a meter that measures voltage and current itself
package wiring

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/monitor/emulator/board"
	"github.com/wattmark/wattmark/monitor/emulator/meter"
)

// Input is an analog input with its true errors.
type Input struct {
	// Gain and Offset (V) are the input's own error.
	Gain, Offset float64

	rail    int // −1 where nothing is connected
	current bool
}

// Inputs are the inputs of one box.
type Inputs struct {
	AIN   []Input
	board *board.Board
}

// Rails are the indices of rails by name; nil stands for aux_12v_1 and the others behind it, as
// many as there is room for.
func Rails(b *board.Board, names []string, most int) (on []int, err error) {
	if names == nil {
		names = []string{"aux_12v_1"}
		for _, r := range b.Rails() {
			if r.Name != names[0] && len(names) < most {
				names = append(names, r.Name)
			}
		}
	}
	if len(names) > most {
		return nil, fmt.Errorf("%d rails: it has inputs for %d", len(names), most)
	}
	for _, name := range names {
		i, err := b.Find(name)
		if err != nil {
			return nil, err
		}
		on = append(on, i)
	}
	return on, nil
}

// Connect puts rails on n inputs, by name as Rails takes them, and draws each input's error.
func Connect(b *board.Board, rails []string, n int, sp meter.Spread, draw bool, rng *rand.Rand) (*Inputs, error) {
	on, err := Rails(b, rails, n/2)
	if err != nil {
		return nil, err
	}
	normal := meter.Drawing(rng, draw)
	w := &Inputs{AIN: make([]Input, n), board: b}
	for i := range w.AIN {
		in := &w.AIN[i]
		*in = Input{rail: -1, current: i%2 == 1, Gain: 1 + normal(sp.UGainV), Offset: normal(float64(sp.UOffsetV))}
		if in.current {
			in.Gain, in.Offset = 1+normal(sp.UGainI), normal(float64(sp.UOffsetI))
		}
		if i/2 < len(on) {
			in.rail = on[i/2]
		}
	}
	return w, nil
}

// Volts is the voltage at an input's converter when the board draws p.
func (w *Inputs) Volts(ain int, p measure.Watt) float64 {
	in := &w.AIN[ain]
	if in.rail < 0 {
		return in.Offset
	}
	r := w.board.Rail(in.rail, p)
	if in.current {
		return float64(r.I)/meter.PerVolt*in.Gain + in.Offset
	}
	return float64(r.V)/meter.Divider*in.Gain + in.Offset
}

// VoltsAt is the voltage at an input's converter at an instant.
func (w *Inputs) VoltsAt(ain int, at time.Duration) float64 {
	return w.Volts(ain, w.board.MeanPower(at, at))
}

// Pair is a voltage and a current sensor on one connector, with their true errors.
type Pair struct {
	// Share is the part of the rail's current that it carries.
	Share            float64
	rail             int           // −1 where no rail of the board is connected
	fixed            board.Reading // which it shows then
	gainV, gainI     float64
	offsetV, offsetI float64
}

// Pairs puts the named rails on connectors, "" for none, and draws the errors of each.
// A connector without a rail shows the steady reading of rest.
func Pairs(on []board.RailConfig, rails []string, rest []board.Reading, sp meter.Spread, draw bool,
	rng *rand.Rand,
) []Pair {
	normal := meter.Drawing(rng, draw)
	out := make([]Pair, len(rails))
	for c := range out {
		out[c] = Pair{
			Share: 1, rail: -1, fixed: rest[c], gainV: 1 + normal(sp.UGainV), gainI: 1 + normal(sp.UGainI),
			offsetV: normal(float64(sp.UOffsetV)), offsetI: normal(float64(sp.UOffsetI)),
		}
		if rails[c] != "" {
			out[c].rail = slices.IndexFunc(on, func(r board.RailConfig) bool { return r.Name == rails[c] })
		}
	}
	return out
}

// Read returns the pair's reading in V and A, with noise, when the board draws p; zeros for
// an open connector.
func (k *Pair) Read(b *board.Board, p measure.Watt, noiseV measure.Volt, noiseI measure.Ampere, rng *rand.Rand) (v,
	i float64,
) {
	r := k.fixed
	if k.rail >= 0 {
		r = b.Rail(k.rail, p)
	}
	if r.V == 0 {
		return 0, 0
	}
	v = float64(r.V)*k.gainV + k.offsetV + float64(noiseV)*rng.NormFloat64()
	i = float64(r.I)*k.Share*k.gainI + k.offsetI + float64(noiseI)*rng.NormFloat64()
	return v, i
}

// Package wired is the wiring of the emulated data acquisition boxes: a rail on
// each pair of analog inputs, its voltage through a divider by two on the even
// one, its current through a clamp of 0.1 V/A on the odd one.
package wired

import (
	"fmt"
	"math/rand/v2"
	"time"

	"wattmark/measure"
	"wattmark/monitor/emulator/board"
	"wattmark/monitor/emulator/meter"
)

// The wiring.
const (
	Divider = 2.0
	PerVolt = 10.0 // A/V
)

// Input is an analog input with what is really true of it.
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

// Connect puts rails on n inputs, by name, and draws each input's error; nil
// stands for aux_12v_1 and the others behind it, as many as there is room for.
func Connect(b *board.Board, rails []string, n int, sp meter.Spread, draw bool, rng *rand.Rand) (*Inputs, error) {
	if rails == nil {
		rails = []string{"aux_12v_1"}
		for _, r := range b.Rails() {
			if r.Name != rails[0] && len(rails) < n/2 {
				rails = append(rails, r.Name)
			}
		}
	}
	if len(rails) > n/2 {
		return nil, fmt.Errorf("%d rails: it has inputs for %d", len(rails), n/2)
	}
	normal := func(u float64) float64 {
		x := rng.NormFloat64()
		if !draw {
			return 0
		}
		return x * u
	}
	w := &Inputs{AIN: make([]Input, n), board: b}
	for i := range w.AIN {
		in := &w.AIN[i]
		*in = Input{rail: -1, current: i%2 == 1, Gain: 1 + normal(sp.UGainV), Offset: normal(float64(sp.UOffsetV))}
		if in.current {
			in.Gain, in.Offset = 1+normal(sp.UGainI), normal(float64(sp.UOffsetI))
		}
		if i/2 >= len(rails) {
			continue
		}
		for k, r := range b.Rails() {
			if r.Name == rails[i/2] {
				in.rail = k
			}
		}
		if in.rail < 0 {
			return nil, fmt.Errorf("the board has no rail %q", rails[i/2])
		}
	}
	return w, nil
}

// Volts is what an input's converter sees when the board draws p.
func (w *Inputs) Volts(ain int, p measure.Watt) float64 {
	in := &w.AIN[ain]
	if in.rail < 0 {
		return in.Offset
	}
	r := w.board.Rail(in.rail, p)
	if in.current {
		return float64(r.I)/PerVolt*in.Gain + in.Offset
	}
	return float64(r.V)/Divider*in.Gain + in.Offset
}

// VoltsAt is what an input's converter sees at an instant.
func (w *Inputs) VoltsAt(ain int, at time.Duration) float64 {
	return w.Volts(ain, w.board.MeanPower(at, at))
}

package predict

import (
	"fmt"
	"math"

	"wattmark/measure"
)

// Round is what the GPU does in one round: all its multiprocessors work on as many
// blocks as they hold.
type Round struct {
	Blocks uint64          `json:"blocks"`   // nbSM times the resident blocks
	Time   measure.Seconds `json:"time_s"`   // T_r
	Energy measure.Joule   `json:"energy_j"` // E_r
	Power  measure.Watt    `json:"power_w"`  // P_r = E_r/T_r
	Idle   measure.Watt    `json:"idle_w"`   // P_s
}

// Rounds is ⌈blocks/(sms·resident)⌉.
func Rounds(blocks, sms, resident uint64) uint64 {
	wide := sms * resident
	return blocks/wide + min(blocks%wide, 1)
}

// Round returns T_r, E_r and P_r (Eqs. 5 and 7) on a GPU.
func (m *Model) Round(t Target) (Round, error) {
	t, err := m.target(t)
	if err != nil {
		return Round{}, err
	}
	r := Round{Blocks: t.SMs * t.Resident, Idle: m.o.Idle}
	r.Time = measure.Seconds(m.time.slope * float64(m.o.SMs*t.Resident))
	r.Energy = measure.Joule(float64(m.perBlock)*float64(r.Blocks) + float64(m.o.Idle)*float64(r.Time))
	r.Power = measure.Watt(float64(r.Energy) / float64(r.Time))
	return r, nil
}

// RoundOf is the round of a GPU that does flops in it at a speed (flop/s), and
// draws busy meanwhile: what a calibrated platform file says.
func RoundOf(flops, speed float64, busy, idle measure.Watt, blocks uint64) (Round, error) {
	t := flops / speed
	switch {
	case !(flops > 0) || !(speed > 0) || !(t > 0) || math.IsInf(t, 0):
		return Round{}, fmt.Errorf("%w: %v flop a round at %v flop/s: both must be positive and finite", ErrInput, flops, speed)
	case blocks == 0 || blocks > mostSMs*mostResident:
		return Round{}, fmt.Errorf("%w: %d blocks a round: want 1 to %d", ErrInput, blocks, mostSMs*mostResident)
	case !(busy >= 0) || math.IsInf(float64(busy), 0) || !(idle >= 0) || math.IsInf(float64(idle), 0):
		return Round{}, fmt.Errorf("%w: %v W busy and %v W idle: they must be finite and not negative", ErrInput, float64(busy), float64(idle))
	}
	return Round{Blocks: blocks, Time: measure.Seconds(t), Energy: measure.Joule(float64(busy) * t), Power: busy, Idle: idle}, nil
}

// Rounds is how many rounds a number of blocks takes.
func (r Round) Rounds(blocks uint64) uint64 { return Rounds(blocks, r.Blocks, 1) }

// At is Eqs. 4 and 6: time and energy of a number of blocks, and of resting for
// some time after it.
func (r Round) At(blocks uint64, rest measure.Seconds) (measure.Seconds, measure.Joule) {
	n := float64(r.Rounds(blocks))
	return measure.Seconds(n)*r.Time + rest, measure.Joule(n*float64(r.Energy) + float64(r.Idle)*float64(rest))
}

// Speed is what a platform file calls a host's speed: flops of a round over T_r.
func (r Round) Speed(flopsPerBlock float64) float64 {
	return flopsPerBlock * float64(r.Blocks) / float64(r.Time)
}

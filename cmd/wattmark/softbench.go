package main

import (
	"context"
	"errors"
	"time"

	"wattmark/hostagent"
	"wattmark/hostagent/sim"
	"wattmark/measure"
	"wattmark/monitor/emulator/board"
	"wattmark/monitor/emulator/pace"
	"wattmark/monitor/emulator/ps3face"
	"wattmark/monitor/emulator/pty"
)

// softBench is a bench in software: a board, a PowerSensor3 that reads it on a
// real pseudo-terminal, and a simulated GPU that loads it.
type softBench struct {
	live *board.Live
	face *ps3face.Face
	port *pty.Port
}

// newSoftBench builds the bench on the wall clock. An imperfect meter's gains,
// offsets and clock are off by amounts drawn from the uncertainties that its
// driver states; otherwise its stored configuration is true, and what remains
// is noise and quantisation.
func newSoftBench(seed uint64, imperfect bool) (*softBench, error) {
	b, err := board.New(board.Config{Seed: seed})
	if err != nil {
		return nil, err
	}
	epoch := time.Now()
	face, err := ps3face.New(b, pace.Real(epoch), ps3face.Config{Seed: seed, Draw: imperfect})
	if err != nil {
		return nil, err
	}
	port, err := pty.OpenPort()
	if err != nil {
		return nil, err
	}
	return &softBench{live: board.NewLive(b, epoch), face: face, port: port}, nil
}

// Run is the meter's firmware.
func (s *softBench) Run(ctx context.Context) error { return s.face.Run(ctx, s.port) }

// plant lets the simulated GPU load the board.
type plant struct{ *board.Live }

// The simulated GPU and the board name the same loads with the same numbers.
func (p plant) SetLoad(at time.Time, l sim.Load) (time.Time, error) {
	return p.Live.SetLoad(at, board.Load(l))
}

func (p plant) SetSteps(at time.Time, steps []sim.Step) (time.Time, error) {
	return p.Live.SetSteps(at, boardSteps(steps))
}

func boardSteps(steps []sim.Step) []board.Step {
	out := make([]board.Step, len(steps))
	for i, s := range steps {
		out[i] = board.Step{Load: board.Load(s.Load), Level: s.Level, For: s.For}
	}
	return out
}

// gpu opens the simulated GPU with its own, misleading, sensor.
func (s *softBench) gpu() (hostagent.Device, hostagent.PowerSensor, error) {
	p := plant{s.live}
	dev, err := sim.Open(sim.Config{Plant: p, Clock: sim.Wall{}})
	if err != nil {
		return nil, nil, err
	}
	return dev, sim.NewSensor(p, sim.Wall{}, sim.Response{}), nil
}

// truth is the energy that the board really drew.
func (s *softBench) truth(from, to time.Time) (measure.Joule, error) {
	e, err := s.live.Energy(from, to)
	if err != nil {
		return 0, errors.Join(errors.New("the board no longer knows that far back"), err)
	}
	return e.Total, nil
}

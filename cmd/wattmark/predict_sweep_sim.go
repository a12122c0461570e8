package main

import (
	"context"
	"fmt"
	"time"

	"wattmark/hostagent"
	"wattmark/hostagent/sim"
	"wattmark/hostagent/sweep"
	"wattmark/measure"
)

// simBlocks is a simulated GPU that runs blocks as the paper's model says: in
// rounds, drawing simBusy where all multiprocessors work, and the part of it that
// works above simRest else. It computes nothing.
type simBlocks struct{ simDevice }

// What it is, and what it draws: simRest is what the emulated board draws in
// active idleness.
const (
	simSMs, simResident = 14, 2
	simTurn             = time.Microsecond
	simBusy, simRest    = measure.Watt(280), measure.Watt(58)
)

// Load needs no time: there is nothing to compile.
func (s simBlocks) Load(context.Context, sweep.Kernel, uint64) (sweep.Loaded, error) { return s, nil }

func (simBlocks) Shape() (sms, resident uint64) { return simSMs, simResident }

// Run lays all rounds down and waits for their end.
func (s simBlocks) Run(ctx context.Context, blocks, loops uint64) (hostagent.Span, error) {
	const wide = simSMs * simResident
	var steps []sim.Step
	length := time.Duration(loops) * simTurn
	for left := blocks; left > 0; left -= min(left, wide) {
		share := float64(min(left, wide)) / wide
		steps = append(steps, sim.Step{Level: simRest + measure.Watt(share*float64(simBusy-simRest)), For: length})
	}
	begin, err := s.plant.SetSteps(time.Now().Add(simLaunch), append(steps, sim.Step{Load: sim.ActiveIdle}))
	if err != nil {
		return hostagent.Span{}, fmt.Errorf("simulated GPU: %w", err)
	}
	end := begin.Add(time.Duration(len(steps)) * length)
	if err := pauseUntil(ctx, end); err != nil {
		s.plant.Cancel(time.Now())
		return hostagent.Span{}, err
	}
	return hostagent.Span{Start: begin, End: end}, nil
}

// Check finds nothing wrong: nothing was computed.
func (simBlocks) Check(uint64) error { return nil }

// Close leaves the device open: it is the caller's.
func (simBlocks) Close() error { return nil }

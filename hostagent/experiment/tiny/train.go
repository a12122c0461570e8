// Package tiny plans and plays the measurement of kernels far shorter than a meter can
// bracket, and computes their energy from the samples. It has three methods: repeat and
// contrast (Cheng et al., section 4.4), and fold.
//
//	Probe ─ length of a launch ─┐
//	MeterOf ─ noise, scale ─────┴▶ PlanRepeat, PlanContrast, PlanFold ─▶ Plan
//	Plan.Train ─ gpu.TrainRunner ─▶ gpu.Ran ─┐
//	stored samples, clock fit ───────────────┴▶ Analyse ─▶ Outcome
package tiny

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/wattmark/wattmark/hostagent/gpu"
	"github.com/wattmark/wattmark/measure"
)

// kinds of the phases of a plan's train, in their order.
type kind uint8

const (
	lead   kind = iota // carrier that brings the card to its temperature, not counted
	plain              // carrier alone
	mixed              // carrier with the kernel between its slices
	repeat             // the kernel alone, back to back
)

// kinds returns the phases that the plan's train has.
func (p Plan) kinds() []kind {
	switch p.Method {
	case Repeat:
		return []kind{repeat}
	case Fold:
		return []kind{lead, plain, mixed, lead}
	}
	out := []kind{lead}
	for range p.Blocks {
		out = append(out, plain, mixed, mixed, plain)
	}
	return append(out, lead)
}

// Train returns the train to be played.
func (p Plan) Train(carrier gpu.Benchmark, insert gpu.Insert, seed uint64) gpu.Train {
	t := gpu.Train{
		Carrier: carrier, Slice: p.Slice, Dither: p.Dither, Seed: seed, Insert: insert, Starts: p.Method == Fold,
	}
	for _, k := range p.kinds() {
		var ph gpu.TrainPhase
		switch k {
		case repeat:
			ph.Bare = p.Launches
		case lead:
			ph.Slices = max(1, int(p.Lead/(p.Slice+p.Dither/2)))
		default:
			ph.Slices, ph.Kernel = p.Slices, k == mixed
			if p.Method == Fold {
				ph.Slices = p.Launches
				if k == plain {
					ph.Slices = max(2, p.Launches/20)
				}
			}
		}
		t.Phases = append(t.Phases, ph)
	}
	return t
}

// Takes is how long the plan's train runs, for a kernel of a length.
func (p Plan) Takes(length measure.Seconds) time.Duration {
	t := p.Train("", gpu.Insert{}, 0)
	var d time.Duration
	for _, ph := range t.Phases {
		n := ph.Bare
		if ph.Kernel {
			n = ph.Slices
		}
		d += time.Duration(ph.Slices)*(p.Slice+p.Dither/2) + time.Duration(n)*length.Duration()
	}
	return d
}

// Timing is the timing of one launch on the GPU's clock.
type Timing struct {
	// Length is the time that a launch adds between two slices.
	Length measure.Seconds
	// Gap is the time between two slices with nothing between them.
	Gap measure.Seconds
}

// timing compares the phases with and without the kernel.
func timing(phases []gpu.RanPhase, kinds []kind, slices func(i int) int) Timing {
	var gap, with measure.Seconds
	var n, m float64
	for i, p := range phases {
		between := measure.SecondsOf(p.Span.End.Sub(p.Span.Start) - p.Carrier)
		switch kinds[i] {
		case plain:
			gap, n = gap+between, n+float64(slices(i))
		case mixed:
			with, m = with+between, m+float64(p.Inserted)
		case repeat:
			return Timing{Length: between / measure.Seconds(p.Inserted)}
		}
	}
	t := Timing{Gap: gap / measure.Seconds(n)}
	t.Length = with/measure.Seconds(m) - t.Gap
	return t
}

// probeSlices is how many slices a probe has with the kernel, and without.
const probeSlices = 200

// Probe launches the kernel some hundred times between short slices and returns
// how long one launch takes.
func Probe(ctx context.Context, r gpu.TrainRunner, carrier gpu.Benchmark, insert gpu.Insert) (Timing, error) {
	t := gpu.Train{Carrier: carrier, Slice: leastSlice, Insert: insert, Phases: []gpu.TrainPhase{
		{Slices: probeSlices}, {Slices: probeSlices, Kernel: true}, {Slices: 1},
	}}
	ran, err := r.RunTrain(ctx, t)
	if err != nil {
		return Timing{}, fmt.Errorf("probe the kernel: %w", err)
	}
	out := timing(ran.Phases[:2], []kind{plain, mixed}, func(int) int { return probeSlices })
	if !(out.Length > 0) || math.IsInf(float64(out.Length), 0) {
		return out, fmt.Errorf("probe the kernel: it adds %v to the %v between two slices: too short for this GPU's "+
			"clock; state its length", out.Length, out.Gap)
	}
	return out, nil
}

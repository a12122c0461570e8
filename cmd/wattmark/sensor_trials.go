package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"wattmark/analysis/sensor"
	"wattmark/hostagent"
	"wattmark/hostagent/measurement"
	"wattmark/measure"
)

// tryOut times one repetition, the second of two: the first loads what it needs.
func tryOut(ctx context.Context, once measurement.Work) (length time.Duration, err error) {
	for range 2 {
		k, err := once(ctx)
		if err != nil {
			return 0, err
		}
		if len(k) == 0 {
			return 0, errors.New("no kernel ran: there is nothing to measure")
		}
		if length = k[len(k)-1].Span.End.Sub(k[0].Span.Start); length > time.Second {
			break // what it loads no longer matters
		}
	}
	if length <= 0 {
		return 0, errors.New("a repetition takes no time that can be told: say how long with --kernel")
	}
	return length, nil
}

// planned is the plan, with what the user sets by hand.
func (f *sensorRunFlags) planned(p *sensor.Profile) (*sensor.Plan, error) {
	x, err := sensor.NewPlan(p, f.plan.wanted())
	if err != nil && (f.trials == 0 || x == nil) {
		return nil, err
	}
	if f.segment > 0 {
		x.Segments = f.segment
	}
	if f.repetitions > 0 {
		x.PerSegment = f.repetitions
	}
	if f.trials > 0 {
		x.Trials = f.trials
	}
	if f.segment > 0 || f.repetitions > 0 || f.trials > 0 {
		x.Recount(p, f.plan.wanted())
	}
	return x, nil
}

// sensorTrials does the work of a plan, and remembers when.
type sensorTrials struct {
	plan   *sensor.Plan
	once   measurement.Work
	seed   uint64
	trials [][]hostagent.Span
}

// work is all trials.
func (s *sensorTrials) work(ctx context.Context) ([]hostagent.Kernel, error) {
	rng := rand.New(rand.NewPCG(s.seed, 0x7a))
	if s.seed == 0 {
		rng = rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))
	}
	var kernels []hostagent.Kernel
	s.trials = nil
	for range s.plan.Trials {
		delay := measure.Seconds(rng.Float64()) * s.plan.MostDelay
		if err := pauseUntil(ctx, time.Now().Add((delay + s.plan.Discard).Duration())); err != nil {
			return nil, err
		}
		var segments []hostagent.Span
		for range s.plan.Segments {
			span, err := s.segment(ctx)
			if err != nil {
				return nil, err
			}
			segments = append(segments, span)
			kernels = append(kernels, hostagent.Kernel{Name: "segment", Span: span})
			if err := pauseUntil(ctx, time.Now().Add(s.plan.Shift.Duration())); err != nil {
				return nil, err
			}
		}
		s.trials = append(s.trials, segments)
	}
	return kernels, nil
}

// segment is repetitions without a pause.
func (s *sensorTrials) segment(ctx context.Context) (span hostagent.Span, err error) {
	for i := range s.plan.PerSegment {
		k, err := s.once(ctx)
		if err == nil && len(k) == 0 {
			err = errors.New("no kernel ran")
		}
		if err != nil {
			return span, err
		}
		if i == 0 {
			span.Start = k[0].Span.Start
		}
		span.End = k[len(k)-1].Span.End
	}
	return span, nil
}

// on places the trials on the clock of some polls.
func (s *sensorTrials) on(polls []sensor.Poll, place func(time.Time) measure.Seconds) []sensor.Trial {
	var out []sensor.Trial
	for _, segments := range s.trials {
		t := sensor.Trial{Polls: polls}
		for _, x := range segments {
			t.Segments = append(t.Segments, sensor.Segment{From: place(x.Start), To: place(x.End), Repetitions: s.plan.PerSegment})
		}
		out = append(out, t)
	}
	return out
}

package measurement

import (
	"context"
	"errors"
	"fmt"
	"time"

	"wattmark/hostagent"
	"wattmark/hostagent/sampler"
	"wattmark/measure"
	"wattmark/measure/marker"
	"wattmark/store"
)

// playError is a failure of the GPU or of the markers, not of the work.
type playError struct {
	what string
	err  error
}

func (e *playError) Error() string { return e.what + ": " + e.err.Error() }
func (e *playError) Unwrap() error { return e.err }

// play runs the work between its markers, with the sensor sampled beside it.
func (s *session) play(ctx context.Context, work Work) error {
	if s.cfg.WarmUp > 0 {
		s.enter(PhaseWarmUp)
		if err := s.cfg.Device.WarmUp(ctx, s.cfg.WarmUp); err != nil {
			return &playError{"warm up", err}
		}
	}
	s.enter(PhaseMarker)
	stopSampler, stopMethods := s.sample(ctx), s.watch(ctx)
	err := s.bracket(ctx, work)
	if e := stopSampler(); e != nil {
		err = errors.Join(err, &playError{"read the GPU's sensor", e})
	}
	if e := stopMethods(); e != nil {
		err = errors.Join(err, &playError{"store what the software methods said", e})
	}
	return err
}

func (s *session) bracket(ctx context.Context, work Work) error {
	if err := pause(ctx, s.cfg.Lead); err != nil {
		return err
	}
	if err := s.mark(ctx, marker.Start); err != nil {
		return err
	}
	s.enter(PhaseWork)
	err := s.work(ctx, work)
	if innerErr := s.putInner(ctx); innerErr != nil {
		return errors.Join(err, innerErr)
	}
	if ctx.Err() != nil {
		return errors.Join(context.Cause(ctx), err)
	}
	s.enter(PhaseMarker)
	if markErr := s.mark(ctx, marker.Stop); markErr != nil {
		return errors.Join(err, markErr)
	}
	return errors.Join(err, pause(ctx, s.cfg.Lead))
}

func (s *session) mark(ctx context.Context, kind marker.Kind) (err error) {
	ctx, done := step(ctx, "marker")
	defer func() { done(err) }()
	played, err := s.cfg.Device.PlayMarker(ctx, s.spec, kind)
	if err != nil {
		return &playError{fmt.Sprintf("the %v marker could not be played", kind), err}
	}
	return s.putPlayed(ctx, 0, played)
}

func (s *session) putPlayed(ctx context.Context, number int, p hostagent.Played) error {
	edges := make([]store.Played, len(p.Edges))
	for i, e := range p.Edges {
		edges[i] = store.Played{Kind: p.Kind, Number: number, Chip: e.Chip, At: s.line.at(e.At)}
	}
	if err := s.watchClock(ctx); err != nil {
		return err
	}
	if err := s.cfg.DB.PutPlayed(context.WithoutCancel(ctx), s.id, edges); err != nil {
		return &playError{"store the marker", err}
	}
	return nil
}

// putInner stores the markers that the work played itself, in the order of their
// times; they are numbered from 1 within their kind.
func (s *session) putInner(ctx context.Context) error {
	if s.cfg.Played == nil {
		return nil
	}
	list, err := s.cfg.Played()
	if err != nil {
		return &playError{"read the markers around single kernels", err}
	}
	n := map[marker.Kind]int{}
	for _, p := range list {
		n[p.Kind]++
		if err := s.putPlayed(ctx, n[p.Kind], p); err != nil {
			return err
		}
	}
	return nil
}

// work runs what is measured and stores when it ran, and how it failed: that error is
// kept in s.failed, not returned.
func (s *session) work(ctx context.Context, work Work) (err error) {
	ctx, done := step(ctx, "work")
	defer func() { done(errors.Join(s.failed, err)) }()
	if err := s.condition(ctx); err != nil {
		return err
	}
	strangers := s.watchOthers(ctx)
	begin := s.line.now()
	kernels, failed := s.watched(ctx, work)
	end := s.line.now()
	s.failed = failed
	conditionErr := s.condition(ctx) // at once, while the clocks are still those of the work
	if len(kernels) == 0 {
		kernels = []hostagent.Kernel{{Name: "work", Span: hostagent.Span{Start: begin, End: end}}}
	}
	seen := strangers()
	rows := s.kernels(kernels)
	if err := errors.Join(s.watchClock(ctx), s.putFailure(ctx)); err != nil {
		return errors.Join(conditionErr, err)
	}
	if err := s.cfg.DB.PutKernels(context.WithoutCancel(ctx), s.id, rows); err != nil {
		return errors.Join(conditionErr, &playError{"store the kernels", err})
	}
	return errors.Join(conditionErr, s.putOthers(ctx, seen))
}

// putOthers stores what other processes did on the GPU.
func (s *session) putOthers(ctx context.Context, events []measure.Event) error {
	if len(events) == 0 {
		return nil
	}
	if err := s.cfg.DB.PutEvents(context.WithoutCancel(ctx), s.id, events); err != nil {
		return &playError{"store what other processes did", err}
	}
	return nil
}

// putFailure stores how the work failed. Work that was cancelled has not failed.
func (s *session) putFailure(ctx context.Context) error {
	if s.failed == nil || ctx.Err() != nil {
		return nil
	}
	f := store.Failure{Reason: s.failed.Error()}
	var program *ProgramError
	if errors.As(s.failed, &program) {
		f.ExitCode = &program.Code
	}
	if err := s.cfg.DB.PutFailure(context.WithoutCancel(ctx), s.id, f); err != nil {
		return &playError{"store that the work failed", err}
	}
	return nil
}

// kernels are rows of the kernels that ran, on the line.
func (s *session) kernels(ran []hostagent.Kernel) []store.Kernel {
	rows := make([]store.Kernel, len(ran))
	for i, k := range ran {
		on := s.line.span(k.Span)
		rows[i] = store.Kernel{Name: k.Name, Start: on.Start, End: on.End}
	}
	if from, to, ok := span(rows); ok {
		s.worked = hostagent.Span{Start: from, End: to}
	}
	return rows
}

// condition stores the GPU's clocks, temperature and throttling, where its
// sensor tells them.
func (s *session) condition(ctx context.Context) error {
	r, ok := s.cfg.Sensor.(hostagent.ConditionReader)
	if !ok {
		return nil
	}
	rows := s.line.readings(sampler.ConditionReadings(r.Condition(), s.line.now()))
	if err := s.cfg.DB.PutReadings(context.WithoutCancel(ctx), s.id, rows); err != nil {
		return &playError{"store the GPU's condition", err}
	}
	return nil
}

// sample reads the GPU's sensor until the returned function is called.
func (s *session) sample(ctx context.Context) (stop func() error) {
	if s.cfg.Sensor == nil {
		return func() error { return nil }
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() {
		stats, err := sampler.Run(ctx, s.cfg.Sensor, sampler.Options{Every: s.cfg.SampleEvery},
			func(ctx context.Context, r []store.Reading) error {
				return s.cfg.DB.PutReadings(ctx, s.id, s.line.readings(r))
			})
		done <- errors.Join(err, stats.Err())
	}()
	return func() error {
		cancel()
		return <-done
	}
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}

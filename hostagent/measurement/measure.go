package measurement

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"wattmark/hostagent"
	"wattmark/hostagent/methods"
	"wattmark/hostagent/monitorclient"
	"wattmark/measure"
	"wattmark/measure/marker"
	"wattmark/store"
)

// ErrBench: the monitor cannot use its instrument.
var ErrBench = errors.New("the bench cannot measure now")

const (
	// farewell is how long a measurement that was cancelled still takes to stop
	// the capture, to store what is on its way, and to say so.
	farewell = 10 * time.Second
	// courtesy is how long a monitor that is asked to start still has to answer a
	// host that gives up.
	courtesy = 2 * time.Second
	// leastLead shows the detector the level before the first chip.
	leastLead = 50 * time.Millisecond
	// defaultLease ends the capture of a host that vanished.
	defaultLease = 30 * time.Second
)

// Measure makes one measurement and returns its task. Once the capture has
// started the task exists, and it ends with a state and a reason also when an
// error is returned. An error of the work itself is returned after the
// measurement has been brought to its end.
//
// Where ctx belongs to a trace of OpenTelemetry, the measurement's steps are spans of
// it, and the task's provenance names it.
func Measure(ctx context.Context, cfg Config, work Work) (id store.TaskID, err error) {
	ctx, done := step(ctx, "task")
	defer func() { done(err) }()
	s, err := begin(ctx, cfg)
	if err != nil {
		return 0, fmt.Errorf("measure: %w", err)
	}
	defer measuring.Delete(s.capture)
	annotate(ctx, attribute.Int64("wattmark.task_id", int64(s.id)), attribute.String("wattmark.name", cfg.Name),
		attribute.String("wattmark.user", cfg.User), attribute.String("wattmark.capture", s.capture))
	if err := s.run(ctx, work); err != nil {
		return s.id, fmt.Errorf("measure: task %d: %w", s.id, err)
	}
	return s.id, nil
}

// session is one Measure.
type session struct {
	cfg     Config
	id      store.TaskID
	bench   monitorclient.Bench
	spec    marker.Spec
	capture string
	phase   atomic.Value // Phase
	n       Counters
	line    *timeline
	watcher *methods.Watcher // nil without
	failed  error            // of the work
	worked  hostagent.Span   // from the first kernel's begin to the last one's end
}

func (c *Config) validate() error {
	switch {
	case c.DB == nil || c.Monitor == nil || c.Device == nil:
		return errors.New("a measurement needs a database, a monitor and a GPU")
	case c.Name == "":
		return errors.New("a measurement needs a name")
	}
	return errors.Join(measure.CheckText("name", c.Name), measure.CheckText("user", c.User), measure.CheckText("holder", c.Holder))
}

func (s *session) enter(p Phase) {
	s.phase.Store(p)
	s.tell()
}

func (s *session) tell() {
	if s.cfg.Progress != nil {
		s.cfg.Progress(Progress{s.id, s.phase.Load().(Phase), s.n.Chunks.Load(), s.n.Scans.Load(), s.n.Bytes.Load()})
	}
}

// tellWhile tells of the transfer's progress until the context ends.
func (s *session) tellWhile(ctx context.Context) {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			s.tell()
		}
	}
}

// run plays, measures, fetches and concludes. What runs beside it outlives the
// caller's context by the farewell at most.
func (s *session) run(ctx context.Context, work Work) error {
	side, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	go s.tellWhile(side)
	transfer := s.transfer(side)
	lease := s.keepLease(side)
	playErr := s.play(ctx, work)
	cancelled := ctx.Err() != nil
	failed := s.phase.Load() // where play gave up
	if cancelled {
		timer := time.AfterFunc(farewell, func() { cancel(context.Cause(ctx)) })
		defer timer.Stop()
	}
	s.enter(PhaseStop)
	stopErr := s.stop(side)
	leaseErr := lease()
	s.enter(PhaseTransfer)
	got := s.await(ctx, transfer, cancel)
	v := verdict{owner: s.cfg.Owner}
	if s.bench.Bridged != "" {
		v.note("%s", s.bench.Bridged)
	}
	if note := s.line.clockNote(); note != "" {
		v.note("%s", note)
	}
	var broken *playError
	switch {
	case cancelled:
		v.incomplete("cancelled during %s%s", failed, because(ctx))
	case errors.As(playErr, &broken):
		v.incomplete("%v", playErr)
	}
	// A recovery may have released the capture; whether all of it is here, the transfer says.
	if errors.Is(stopErr, monitorclient.ErrGone) {
		stopErr = nil
	}
	if errors.Is(leaseErr, monitorclient.ErrGone) {
		leaseErr = nil
	}
	if stopErr != nil {
		v.note(notStopped+"%v", stopErr)
	}
	err := s.finish(context.WithoutCancel(ctx), got, v)
	return errors.Join(s.failed, playErr, leaseErr, stopErr, err)
}

func (s *session) stop(ctx context.Context) (err error) {
	ctx, done := step(ctx, "stop capture")
	defer func() { done(err) }()
	_, err = s.cfg.Monitor.Stop(ctx, s.capture)
	return err
}

// because says why a context was cancelled, where somebody said so.
func because(ctx context.Context) string {
	if cause := context.Cause(ctx); cause != nil && cause.Error() != ctx.Err().Error() {
		return ": " + measure.Printable(cause.Error())
	}
	return ""
}

// arrival is what a transfer came to.
type arrival struct {
	trailer monitorclient.Trailer
	err     error
}

// transfer stores the samples while the capture runs.
func (s *session) transfer(ctx context.Context) <-chan arrival {
	out := make(chan arrival, 1)
	go func() {
		t, err := Transfer(ctx, s.cfg.DB, s.cfg.Monitor, s.id, monitorclient.ReadOptions{CaptureID: s.capture, Follow: true}, &s.n)
		if ctx.Err() == nil {
			s.warn(arrival{t, err})
		}
		out <- arrival{t, err}
	}()
	return out
}

// warn tells of a transfer that ended though the work goes on.
func (s *session) warn(a arrival) {
	switch s.phase.Load().(Phase) {
	case PhaseWarmUp, PhaseMarker, PhaseWork:
	default:
		return
	}
	switch {
	case s.cfg.Warn == nil:
	case a.err != nil:
		s.cfg.Warn(fmt.Sprintf("task %d: its samples are no longer stored, and the work goes on: %v", s.id, a.err))
	default:
		s.cfg.Warn(fmt.Sprintf("task %d: the capture has ended, and the work goes on without being measured: %s", s.id, a.trailer.Summary.Reason))
	}
}

// keepLease renews the lease until the returned function is called.
func (s *session) keepLease(ctx context.Context) (stop func() error) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- s.cfg.Monitor.KeepLease(ctx, s.capture, s.cfg.Lease) }()
	return func() error {
		cancel()
		return <-done
	}
}

// await waits for the transfer. A caller who gives up meanwhile leaves it the
// farewell's time.
func (s *session) await(ctx context.Context, transfer <-chan arrival, cancel context.CancelCauseFunc) arrival {
	select {
	case a := <-transfer:
		return a
	case <-ctx.Done():
		timer := time.AfterFunc(farewell, func() { cancel(context.Cause(ctx)) })
		defer timer.Stop()
		return <-transfer
	}
}

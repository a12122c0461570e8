package bracket

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"wattmark/hostagent"
	"wattmark/hostagent/measurement"
	"wattmark/measure/marker"
	"wattmark/store"
)

// Errors, wrapped with what was asked for.
var (
	// ErrOrder: a step that does not follow from the last one.
	ErrOrder = errors.New("not now")
	// ErrCancelled: the measurement was given up by the program.
	ErrCancelled = errors.New("the program gave the measurement up")
)

// Timer is a Device that knows when queued work is done: *cuda.Device is one.
// With another Device the host's clock counts at each call.
type Timer interface {
	// Mark queues a reading of the clock in a stream, 0 for the device's own.
	Mark(stream uintptr) (int, error)
	// Settle waits for all queued work and returns when it was done.
	Settle() (time.Time, error)
	// Times returns when each mark was reached.
	Times() ([]time.Time, error)
}

// step is how far a measurement has come.
type step uint8

const (
	capturing step = iota
	working
	ended
)

var stepNames = [...]string{"no marker has been played yet", "the start marker has been played", "the stop marker has been played"}

// Measurement is one measurement in steps. Its methods may be called from any
// goroutine; they take turns.
type Measurement struct {
	cfg    measurement.Config
	cancel context.CancelCauseFunc

	mu    sync.Mutex // held by the step in progress
	step  step
	begun time.Time
	marks []mark

	ready   chan struct{} // the start marker may be played
	play    chan struct{} // play it
	work    chan struct{} // it has been played
	kernels chan []hostagent.Kernel
	played  chan struct{} // the stop marker has been played
	stopped chan struct{} // the capture has been stopped
	done    chan struct{} // all is over; id and err are set
	id      store.TaskID
	err     error
}

// Measure makes a measurement of a piece of work: measurement.Measure, or another
// that does the same elsewhere.
type Measure func(ctx context.Context, cfg measurement.Config, work measurement.Work) (store.TaskID, error)

// Start takes the bench and starts the capture. It returns when the start
// marker may be played. ctx bounds the whole measurement.
func Start(ctx context.Context, cfg measurement.Config) (*Measurement, error) {
	return StartBy(ctx, cfg, measurement.Measure)
}

// StartBy is Start with what measures.
func StartBy(ctx context.Context, cfg measurement.Config, measure Measure) (*Measurement, error) {
	m := &Measurement{
		cfg: cfg, ready: make(chan struct{}), play: make(chan struct{}), work: make(chan struct{}),
		kernels: make(chan []hostagent.Kernel, 1), played: make(chan struct{}), stopped: make(chan struct{}), done: make(chan struct{}),
	}
	ctx, m.cancel = context.WithCancelCause(ctx)
	inner := cfg
	if cfg.Device != nil {
		inner.Device = gate{cfg.Device, m}
	}
	stop := sync.OnceFunc(func() { close(m.stopped) })
	inner.Progress = func(p measurement.Progress) {
		if p.Phase == measurement.PhaseTransfer {
			stop()
		}
		if cfg.Progress != nil {
			cfg.Progress(p)
		}
	}
	go func() {
		defer close(m.done)
		defer m.cancel(nil)
		m.id, m.err = measure(ctx, inner, m.wait)
	}()
	if err := m.await(m.ready); err != nil {
		return nil, err
	}
	return m, nil
}

// await waits for a step of the measurement; that it is over instead is an error.
func (m *Measurement) await(c <-chan struct{}) error {
	select {
	case <-c:
		return nil
	case <-m.done:
	}
	select {
	case <-c: // both: the step was reached before the end
		return nil
	default:
	}
	return m.alive()
}

// alive returns why a measurement is over already.
func (m *Measurement) alive() error {
	select {
	case <-m.done:
	default:
		return nil
	}
	if m.err != nil {
		return m.err
	}
	return fmt.Errorf("%w: the measurement is over", ErrOrder)
}

// gate is a Device whose start marker waits until it is asked for.
type gate struct {
	hostagent.Device
	m *Measurement
}

func (g gate) PlayMarker(ctx context.Context, spec marker.Spec, kind marker.Kind) (hostagent.Played, error) {
	if kind == marker.Start {
		close(g.m.ready)
		select {
		case <-g.m.play:
		case <-ctx.Done():
			return hostagent.Played{}, context.Cause(ctx)
		}
	}
	p, err := g.Device.PlayMarker(ctx, spec, kind)
	if kind == marker.Stop && err == nil {
		close(g.m.played)
	}
	return p, err
}

// wait is the work as Measure sees it.
func (m *Measurement) wait(ctx context.Context) ([]hostagent.Kernel, error) {
	m.begun = time.Now()
	close(m.work)
	select {
	case k := <-m.kernels:
		return k, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// enter takes the turn for a step that follows from another.
func (m *Measurement) enter(what string, from step) error {
	m.mu.Lock()
	if m.step == from {
		return nil
	}
	now := stepNames[m.step]
	m.mu.Unlock()
	return fmt.Errorf("%s: %w: %s", what, ErrOrder, now)
}

// Begin plays the start marker and returns when it has been played: what
// follows is measured.
func (m *Measurement) Begin() error {
	if err := m.enter("begin", capturing); err != nil {
		return err
	}
	defer m.mu.Unlock()
	m.step = working
	close(m.play)
	return m.await(m.work)
}

// End waits until all queued work is done, and plays the stop marker. It
// returns when that has been played. An error of the GPU gives the measurement
// up: its task then says why.
func (m *Measurement) End() error {
	if err := m.enter("end", working); err != nil {
		return err
	}
	defer m.mu.Unlock()
	m.step = ended
	k, err := m.parts()
	if err != nil {
		m.cancel(err)
		<-m.done
		return fmt.Errorf("end: %w", errors.Join(err, m.err))
	}
	m.kernels <- k
	return m.await(m.played)
}

// Stopped waits until the capture has been stopped on the monitor.
func (m *Measurement) Stopped() error {
	if err := m.enter("stop", ended); err != nil {
		return err
	}
	defer m.mu.Unlock()
	return m.await(m.stopped)
}

// Wait waits for the task's result and returns the task; with an error too,
// where there is one.
func (m *Measurement) Wait() (store.TaskID, error) {
	<-m.done
	return m.id, m.err
}

// Cancel gives the measurement up and waits until the bench is free and the
// task, 0 for none, has its state. After the result it changes nothing.
func (m *Measurement) Cancel() (store.TaskID, error) {
	m.cancel(ErrCancelled)
	<-m.done
	if errors.Is(m.err, ErrCancelled) {
		return m.id, nil
	}
	return m.id, m.err
}

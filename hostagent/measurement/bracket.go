package measurement

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/wattmark/wattmark/hostagent/gpu"
	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/marker"
	"github.com/wattmark/wattmark/store"
)

// Sentinel errors, wrapped with the step.
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

// bracketStep is how far a measurement has come.
type bracketStep string

const (
	capturing bracketStep = "no marker has been played yet"
	working   bracketStep = "the start marker has been played"
	ended     bracketStep = "the stop marker has been played"
	stopped   bracketStep = "the capture has been stopped"
)

// Bracket is one measurement in steps. Its methods may be called from any
// goroutine; they take turns.
type Bracket struct {
	cfg    Config
	cancel context.CancelCauseFunc

	mu    sync.Mutex // held by the step in progress
	step  bracketStep
	begun time.Time
	marks []mark

	reached chan bracketStep  // has room for each step of the measurement; closed when all is over
	play    chan struct{}     // closed: the start marker is to be played
	kernels chan []gpu.Kernel // of the work, which has ended
	done    chan struct{}     // all is over; id and err are set
	id      store.TaskID
	err     error
}

// MeasureFunc makes a measurement of a piece of work: measurement.Measure, or another
// that does the same elsewhere.
type MeasureFunc func(ctx context.Context, cfg Config, work Work) (store.TaskID, error)

// StartBracket takes the bench and starts the capture, by Measure or what does the same elsewhere. It returns
// when the start marker may be played. ctx bounds the whole measurement.
func StartBracket(ctx context.Context, cfg Config, measure MeasureFunc) (*Bracket, error) {
	m := &Bracket{
		cfg: cfg, step: capturing, reached: make(chan bracketStep, 4), play: make(chan struct{}),
		kernels: make(chan []gpu.Kernel, 1), done: make(chan struct{}),
	}
	ctx, m.cancel = context.WithCancelCause(ctx)
	inner := cfg
	if cfg.Device != nil {
		inner.Device = gate{cfg.Device, m}
	}
	stop := sync.OnceFunc(func() { m.reached <- stopped })
	inner.Progress = func(p Progress) {
		if p.Phase == PhaseTransfer {
			stop()
		}
		if cfg.Progress != nil {
			cfg.Progress(p)
		}
	}
	// Measure runs here from begin to end. gate and work hold it at the start marker and at
	// the work until the caller's steps let it go on.
	work := func(ctx context.Context) ([]gpu.Kernel, error) {
		m.begun = time.Now()
		m.reached <- working
		select {
		case k := <-m.kernels:
			return k, nil
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	go func() {
		defer close(m.reached)
		defer close(m.done)
		defer m.cancel(nil)
		m.id, m.err = measure(ctx, inner, work)
	}()
	if err := m.await(capturing); err != nil {
		return nil, err
	}
	return m, nil
}

// await blocks until the measurement reaches a step. It is called once for each step, in their order, and fails where
// the measurement ends before.
func (m *Bracket) await(step bracketStep) error {
	for now := range m.reached {
		if now == step {
			return nil
		}
	}
	return m.alive()
}

// alive returns why a measurement is over already.
func (m *Bracket) alive() error {
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

// gate is a Device that delays its start marker until Begin.
type gate struct {
	gpu.Device
	m *Bracket
}

// PlayMarker holds the start marker back until Begin, and reports the stop marker to End.
func (g gate) PlayMarker(ctx context.Context, spec marker.Spec, kind marker.Kind) (gpu.Played, error) {
	if kind == marker.Start {
		g.m.reached <- capturing
		select {
		case <-g.m.play:
		case <-ctx.Done():
			return gpu.Played{}, context.Cause(ctx)
		}
	}
	p, err := g.Device.PlayMarker(ctx, spec, kind)
	if kind == marker.Stop && err == nil {
		g.m.reached <- ended
	}
	return p, err
}

// turn takes a step that follows from another.
func (m *Bracket) turn(what string, from bracketStep, step func() error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.step != from {
		return fmt.Errorf("%s: %w: %s", what, ErrOrder, m.step)
	}
	return step()
}

// Begin plays the start marker and returns when it has been played: the work that follows
// is measured.
func (m *Bracket) Begin() error {
	return m.turn("begin", capturing, func() error {
		m.step = working
		close(m.play)
		return m.await(working)
	})
}

// End waits until all queued work is done, plays the stop marker, and returns when that has
// been played. An error of the GPU gives the measurement up; it is the reason of the task.
func (m *Bracket) End() error {
	return m.turn("end", working, func() error {
		m.step = ended
		k, err := m.parts()
		if err != nil {
			m.cancel(err)
			<-m.done
			return fmt.Errorf("end: %w", errors.Join(err, m.err))
		}
		m.kernels <- k
		return m.await(ended)
	})
}

// Stopped waits until the capture has been stopped on the monitor. It is called once.
func (m *Bracket) Stopped() error {
	return m.turn("stop", ended, func() error { return m.await(stopped) })
}

// Wait waits for the task's result and returns the task; with an error too,
// where there is one.
func (m *Bracket) Wait() (store.TaskID, error) {
	<-m.done
	return m.id, m.err
}

// Cancel gives the measurement up and waits until the bench is free and the
// task, 0 for none, has its state. After the result it changes nothing.
func (m *Bracket) Cancel() (store.TaskID, error) {
	m.cancel(ErrCancelled)
	<-m.done
	if errors.Is(m.err, ErrCancelled) {
		return m.id, nil
	}
	return m.id, m.err
}

// mark is a boundary between two parts of the work.
type mark struct {
	label string
	index int       // of the Timer's marks
	at    time.Time // without a Timer
}

// Mark begins a part of the work, called label, at this point of a stream, 0 for the
// device's own. It does not wait for the stream. On a measurement that has failed meanwhile
// it returns that error.
func (m *Bracket) Mark(label string, stream uintptr) error {
	if label == "" {
		return fmt.Errorf("mark: %w: a mark needs a label", measure.ErrText)
	}
	if err := measure.CheckText("label", label); err != nil {
		return fmt.Errorf("mark: %w", err)
	}
	return m.turn("mark", working, func() error {
		x, err := mark{label: label, at: time.Now()}, m.alive()
		if t, ok := m.cfg.Device.(Timer); ok && err == nil {
			x.index, err = t.Mark(stream)
		}
		if err != nil {
			return fmt.Errorf("mark %s: %w", label, err)
		}
		m.marks = append(m.marks, x)
		return nil
	})
}

// parts are the parts of the work between begin, marks and end, in the order of their times.
// Times on the GPU's clock may lie outside of the span by that clock's uncertainty: they are
// clamped to it.
func (m *Bracket) parts() (out []gpu.Kernel, err error) {
	end := time.Now()
	if t, ok := m.cfg.Device.(Timer); ok {
		if end, err = t.Settle(); err != nil {
			return nil, err
		}
		times, err := t.Times()
		if err != nil {
			return nil, err
		}
		for i := range m.marks {
			m.marks[i].at = times[m.marks[i].index]
		}
	}
	slices.SortStableFunc(m.marks, func(a, b mark) int { return a.at.Compare(b.at) })
	at, name := m.begun, m.cfg.Name
	for _, x := range append(m.marks, mark{at: end}) {
		to := lists.Earliest(lists.Latest(x.at, at), end)
		out = append(out, gpu.Kernel{Name: name, Span: gpu.Span{Start: at, End: to}})
		at, name = to, x.label
	}
	return out, nil
}

// Package sensor reads a GPU's own power sensor beside a measurement.
//
//	Sample   reads all registers at a steady beat and hands on store.Readings
//	Watcher  reads the sensor in the ways that software commonly uses, all at once
//	         and each on a thread of its own, for comparison with the meter
//
// The Watcher's methods give the energy of a span of length T:
//
//	sma           GetPowerUsage every 15 ms, not synchronised to anything: E = ΣP·15 ms
//	mtsm          GetPowerUsage again and again while the work runs: E = T/N·ΣP
//	papi          GetPowerUsage once, when the work has ended: E = P·T
//	counter       the energy counter's slope between its own updates, times T
//	counter-ends  the energy counter after the work less before it
//	average       the average field over its time stamps, by trapezoids
//	instant       the instant field, alike
//
// The first three are those of Arafa et al., "Verified Instruction-Level Energy
// Consumption Measurement for NVIDIA GPUs" (2020); see docs/sensor.md.
package sensor

import (
	"cmp"
	"context"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wattmark/wattmark/hostagent/gpu"
	"github.com/wattmark/wattmark/internal/backoff"
	"github.com/wattmark/wattmark/measure"
	"golang.org/x/sys/unix"
)

// Method names a way to use the sensor. The names are stored.
type Method string

// The methods.
const (
	SMA          Method = "sma"
	MTSM         Method = "mtsm"
	PAPI         Method = "papi"
	Counter      Method = "counter"
	CounterEnds  Method = "counter-ends"
	AverageField Method = "average"
	InstantField Method = "instant"
)

// Methods lists the methods in the order in which they are shown.
func Methods() []Method {
	return []Method{SMA, MTSM, PAPI, AverageField, InstantField, Counter, CounterEnds}
}

// MethodOptions tune the threads. Zero values are good ones.
type MethodOptions struct {
	// SMAEvery is the beat of SMA; 15 ms when zero.
	SMAEvery time.Duration
	// MTSMEvery is the least distance of MTSM's readings; 0.5 ms when zero, the
	// 2 kHz that the paper's loop came to. A call of NVML now takes a thousandth of
	// that: negative reads without pause, and keeps a processor busy.
	MTSMEvery time.Duration
	// FieldsEvery is the distance of the readings of the fields; 10 ms when zero.
	FieldsEvery time.Duration
	// CounterPause is how long the energy counter is left alone between its calls,
	// which take 3 ms; 10 ms when zero. Negative leaves the counter out.
	CounterPause time.Duration
	// Nap waits between MTSM's readings; nil for the system's nanosleep, which is finer than a
	// timer. A clock that is not the system's needs its own.
	Nap func(ctx context.Context, d time.Duration)
	// Line puts the times of readings on the line of the measurement, which a wall clock
	// that is set does not move; nil to take them as they are.
	Line func(time.Time) time.Time
}

// Trace is the readings of a method, on the host's wall clock: watts, joules for the
// counter. A run of equal readings is kept as its first and its last.
type Trace struct {
	Method Method
	Points []Point
}

// Point is one reading.
type Point struct {
	At    time.Time
	Value float64
}

// Watcher reads a sensor by all methods at once. Run reads until its context ends; Begin and
// End bracket the work meanwhile; Results and Traces are valid after Run has returned.
type Watcher struct {
	o MethodOptions
	s gpu.PowerSensor
	// registers reads one register at a time where the GPU's library can, so that a method's
	// calls cost as much as in the software that uses it.
	registers                        gpu.PowerRegisters
	sma, mtsm, papi, fields, counter channel
	instant, average                 trace // from the one call for both fields

	up     chan struct{} // wakes MTSM
	flag   atomic.Bool
	calls  atomic.Uint64 // begins and ends of the counter's calls: odd within one
	missed uint64        // beats of SMA
}

// NewWatcher makes a watcher of a sensor. It reads nothing before Run.
func NewWatcher(s gpu.PowerSensor, o MethodOptions) *Watcher {
	o.SMAEvery = cmp.Or(o.SMAEvery, 15*time.Millisecond)
	o.MTSMEvery = cmp.Or(o.MTSMEvery, 500*time.Microsecond)
	o.FieldsEvery = cmp.Or(o.FieldsEvery, 10*time.Millisecond)
	o.CounterPause = cmp.Or(o.CounterPause, 10*time.Millisecond)
	if o.Nap == nil {
		o.Nap = nap
	}
	if o.Line == nil {
		o.Line = func(t time.Time) time.Time { return t }
	}
	registers, ok := s.(gpu.PowerRegisters)
	if !ok {
		registers = whole{s}
	}
	w := &Watcher{o: o, s: s, registers: registers, up: make(chan struct{}, 1)}
	w.counter.steps = true
	return w
}

// whole reads all registers for each of them.
type whole struct{ gpu.PowerSensor }

func (s whole) ReadUsage() (measure.Watt, error) {
	r, err := s.Read()
	return r.Usage, err
}

func (s whole) ReadFields() (instant, average measure.Watt, err error) {
	r, err := s.Read()
	return r.Instant, r.Average, err
}

// Run reads until ctx ends, and returns when every thread has ended. Errors of the sensor
// are counted and appear in the results' notes: a method that fails must not spoil the
// others.
func (w *Watcher) Run(ctx context.Context) {
	// SMA keeps its beat, whatever the work does.
	sma := func(ctx context.Context) {
		w.missed = beat(ctx, byChance(w.o.SMAEvery), w.o.SMAEvery, func() { w.readUsage(&w.sma) })
	}
	var threads sync.WaitGroup
	for _, f := range []func(context.Context){sma, w.runMTSM, w.runFields, w.runCounter} {
		threads.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			f(ctx)
		})
	}
	threads.Wait()
}

// Start runs the watcher beside the caller until stop is called, which returns when all
// threads have ended.
func (w *Watcher) Start(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() { defer close(done); w.Run(ctx) }()
	return func() { cancel(); <-done }
}

// Begin marks the launch of work: MTSM reads from here on. Begin and End are called in
// turn, from one goroutine.
func (w *Watcher) Begin() {
	w.flag.Store(true)
	backoff.Nudge(w.up)
}

// End marks that the work has ended and the GPU is synchronised: PAPI reads once, and MTSM
// no more. It blocks for PAPI's one call of the sensor, some microseconds.
func (w *Watcher) End() {
	w.readUsage(&w.papi)
	w.flag.Store(false)
}

// runMTSM reads while the flag is up.
func (w *Watcher) runMTSM(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.up:
		}
		w.mtsm.last = time.Time{} // the time between two works is no interval
		for w.flag.Load() && ctx.Err() == nil {
			ok := w.readUsage(&w.mtsm)
			switch {
			case w.o.MTSMEvery > 0:
				w.o.Nap(ctx, w.o.MTSMEvery)
			case !ok: // a GPU that is lost need not be asked without pause
				_ = Pause(ctx, time.Millisecond)
			}
		}
	}
}

// runFields reads the instant and the average field in one call, alone where that is possible,
// at a beat of its own.
func (w *Watcher) runFields(ctx context.Context) {
	beat(ctx, byChance(w.o.FieldsEvery), w.o.FieldsEvery, func() {
		var instant, average measure.Watt
		at, ok := w.ask(&w.fields, func() (err error) {
			instant, average, err = w.registers.ReadFields()
			return err
		})
		if ok {
			w.instant.add(at, float64(instant))
			w.average.add(at, float64(average))
		}
	})
}

// runCounter polls the energy counter, once more when all is over.
func (w *Watcher) runCounter(ctx context.Context) {
	if w.o.CounterPause < 0 {
		return
	}
	for {
		over := ctx.Err() != nil
		var e measure.Joule
		w.calls.Add(1)
		at, ok := w.ask(&w.counter, func() (err error) {
			e, err = w.s.ReadEnergy()
			return err
		})
		w.calls.Add(1)
		if ok {
			w.counter.add(at, float64(e))
		}
		if over || ok && len(w.counter.runs) == 0 { // the GPU has none
			return
		}
		_ = Pause(ctx, w.o.CounterPause)
	}
}

// readUsage reads the usage register into a channel, nvmlDeviceGetPowerUsage alone where that is
// possible; ok is false after a failed call.
func (w *Watcher) readUsage(c *channel) (ok bool) {
	var p measure.Watt
	at, ok := w.ask(c, func() (err error) {
		p, err = w.registers.ReadUsage()
		return err
	})
	if ok {
		c.add(at, float64(p))
	}
	return ok
}

// channel is the readings of one thread, and the time that they took.
type channel struct {
	trace
	call          histogram
	alone, beside histogram // intervals without and with a call of the counter
	last          time.Time // end of the newest call that came to something
	calls         uint64    // of the counter, at last
	failed        uint64
	err           error // the newest failure
}

// ask times one call of the sensor for a channel: at is its middle, on the line of the measurement.
func (w *Watcher) ask(c *channel, f func() error) (at time.Time, ok bool) {
	begin := time.Now()
	err := f()
	end := time.Now()
	c.call.add(end.Sub(begin))
	if err != nil {
		c.failed, c.err = c.failed+1, err
		return at, false
	}
	var calls uint64
	if c != &w.counter {
		calls = w.calls.Load()
	}
	switch {
	case c.last.IsZero():
	case calls != c.calls || calls%2 == 1:
		c.beside.add(end.Sub(c.last))
	default:
		c.alone.add(end.Sub(c.last))
	}
	c.last, c.calls = end, calls
	return w.o.Line(begin.Add(end.Sub(begin) / 2)), true
}

// beat calls f at a steady distance from an instant on until ctx ends. It returns how
// many beats passed while the machine was busy: a late call skips them, so that beats
// keep their phase.
func beat(ctx context.Context, from time.Time, every time.Duration, f func()) (missed uint64) {
	next := from
	timer := time.NewTimer(time.Until(next))
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return missed
		case <-timer.C:
		}
		f()
		next = next.Add(every)
		if late := time.Since(next); late > 0 {
			n := late/every + 1
			missed += uint64(n)
			next = next.Add(n * every)
		}
		timer.Reset(time.Until(next))
	}
}

// byChance returns an instant within the next beat: the beat is in step with nothing.
func byChance(every time.Duration) time.Time { return time.Now().Add(rand.N(every)) }

// Pause waits for d. It returns early with ctx's cause when ctx ends.
func Pause(ctx context.Context, d time.Duration) error {
	if backoff.Sleep(ctx, d) != nil {
		return context.Cause(ctx)
	}
	return nil
}

// nap waits for less than the millisecond to which the runtime's timers round on Linux. It ignores the
// context, for the wait is short, and may return early on a signal.
func nap(_ context.Context, d time.Duration) {
	_ = unix.Nanosleep(new(unix.NsecToTimespec(int64(d))), nil) // a signal may cut it short
}

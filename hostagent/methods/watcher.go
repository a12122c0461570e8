package methods

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"wattmark/hostagent"
	"wattmark/measure"
)

// Watcher reads a sensor by all methods. Run is its task; Begin and End say when
// work runs; Results and Traces are for after Run has returned.
type Watcher struct {
	o Options
	s sensor

	sma, mtsm, papi, fields, counter channel
	instant, average                 trace // what the fields' one call reads

	up     chan struct{} // wakes MTSM
	flag   atomic.Bool
	calls  atomic.Uint64 // begins and ends of the counter's calls: odd within one
	missed uint64        // beats of SMA
	nap    func(ctx context.Context, d time.Duration)
}

// New makes a watcher of a sensor. It reads nothing before Run.
func New(s hostagent.PowerSensor, o Options) *Watcher {
	w := &Watcher{o: o.defaults(), s: newSensor(s), up: make(chan struct{}, 1), nap: nap}
	w.counter.steps = true
	for _, t := range []*trace{&w.sma.trace, &w.mtsm.trace, &w.papi.trace, &w.fields.trace, &w.counter.trace, &w.instant, &w.average} {
		t.line = o.Line
	}
	return w
}

// Run reads until ctx ends, and returns when every thread has ended. Errors of
// the sensor are counted, and told with the results: a method that fails must
// not spoil the others.
func (w *Watcher) Run(ctx context.Context) {
	var threads sync.WaitGroup
	for _, f := range []func(context.Context){w.runSMA, w.runMTSM, w.runFields, w.runCounter} {
		threads.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			f(ctx)
		})
	}
	threads.Wait()
}

// Begin says that work is being launched: MTSM reads from here on. Begin and End
// are called in turn, from one goroutine.
func (w *Watcher) Begin() {
	w.flag.Store(true)
	select {
	case w.up <- struct{}{}:
	default:
	}
}

// End says that the work has ended and the GPU is synchronised: PAPI reads once,
// and MTSM no more.
func (w *Watcher) End() {
	w.readUsage(&w.papi)
	w.flag.Store(false)
}

// runSMA keeps its beat, whatever the work does.
func (w *Watcher) runSMA(ctx context.Context) {
	w.missed = beat(ctx, w.o.SMAEvery, func() { w.readUsage(&w.sma) })
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
				w.nap(ctx, w.o.MTSMEvery)
			case !ok: // a GPU that is lost need not be asked without pause
				rest(ctx, time.Millisecond)
			}
		}
	}
}

func (w *Watcher) runFields(ctx context.Context) {
	beat(ctx, w.o.FieldsEvery, func() {
		var instant, average measure.Watt
		at, ok := w.fields.ask(&w.calls, func() (err error) {
			instant, average, err = w.s.fields()
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
		at, ok := w.counter.ask(nil, func() (err error) {
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
		rest(ctx, w.o.CounterPause)
	}
}

func (w *Watcher) readUsage(c *channel) (ok bool) {
	var p measure.Watt
	at, ok := c.ask(&w.calls, func() (err error) {
		p, err = w.s.usage()
		return err
	})
	if ok {
		c.add(at, float64(p))
	}
	return ok
}

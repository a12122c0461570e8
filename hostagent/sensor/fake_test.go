package sensor

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/wattmark/wattmark/hostagent/gpu"
	"github.com/wattmark/wattmark/hostagent/gpu/sim"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/load"
	"github.com/wattmark/wattmark/store"
)

// known is a plant whose energy since any origin is a known function of time.
type known func(t time.Time) float64

func (l known) SetLoad(at time.Time, _ load.State) (time.Time, error)   { return at, nil }
func (l known) SetSteps(at time.Time, _ []load.Step) (time.Time, error) { return at, nil }
func (l known) Cancel(time.Time)                                        {}
func (l known) MeanPower(from, to time.Time) measure.Watt {
	return measure.Watt((l(to) - l(from)) / to.Sub(from).Seconds())
}

// step draws low until a moment, and high after it.
func step(at time.Time, low, high float64) known {
	return func(t time.Time) float64 {
		s := t.Sub(at).Seconds()
		return low*min(s, 0) + high*max(s, 0)
	}
}

// ramp draws low until a moment and rises by slope watts a second from there.
func ramp(at time.Time, low, slope float64) known {
	return func(t time.Time) float64 {
		s := t.Sub(at).Seconds()
		return low*s + slope*max(s, 0)*max(s, 0)/2
	}
}

// square is on in the first half of every period since a moment.
func square(at time.Time, period time.Duration, on, off float64) known {
	return func(t time.Time) float64 {
		d := t.Sub(at)
		whole := math.Floor(float64(d) / float64(period))
		rest := d - time.Duration(whole)*period
		return whole*(on+off)/2*period.Seconds() + on*min(rest, period/2).Seconds() + off*max(rest-period/2,
			0).Seconds()
	}
}

// hopper is the sensor of an H100 or H200, quick one that hides little.
var (
	hopper = sim.Response{}
	quick  = sim.Response{Update: time.Millisecond, Instant: time.Millisecond, Average: time.Millisecond}
)

// watch lets the methods see work that begins after a second and lasts as long
// as said, and returns what they say. It is called in a bubble of synctest.
func watch(t *testing.T, s gpu.PowerSensor, o MethodOptions, length time.Duration) map[Method]store.MethodResult {
	t.Helper()
	w := NewWatcher(s, o)
	w.o.Nap = napVirtual // on the bubble's clock
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.Run(ctx)
	}()
	time.Sleep(time.Second)
	of := gpu.Span{Start: time.Now()}
	w.Begin()
	time.Sleep(length)
	of.End = time.Now()
	w.End()
	time.Sleep(50 * time.Millisecond)
	cancel()
	<-done
	return byMethod(t, w.Results(of))
}

func byMethod(t *testing.T, results []store.MethodResult) map[Method]store.MethodResult {
	t.Helper()
	out := map[Method]store.MethodResult{}
	for i, r := range results {
		if Method(r.Method) != Methods()[i] {
			t.Errorf("result %d is %s's", i, r.Method)
		}
		out[Method(r.Method)] = r
	}
	return out
}

// near fails when a method's mean power is not what it must be, within a share.
func near(t *testing.T, got map[Method]store.MethodResult, m Method, want, within float64) {
	t.Helper()
	p := float64(got[m].Mean)
	if !(math.Abs(p/want-1) <= within) {
		t.Errorf("%s: %v, want %v W within %v %% (%s)", m, got[m].Mean, want, 100*within, got[m].Note)
	}
}

// bare is a sensor with chosen faults; it reads through to another.
type bare struct {
	gpu.PowerSensor
	noFields, noCounter bool
	fails               func() bool
	takes               time.Duration // a reading of the registers
	countTakes          time.Duration // a reading of the counter
	lock                chan struct{} // the driver's, which both want; nil for none
}

var errLost = errors.New("GPU is lost")

// hold takes the driver's lock for a time.
func (b bare) hold(d time.Duration) {
	if b.lock != nil {
		b.lock <- struct{}{}
		defer func() { <-b.lock }()
	}
	time.Sleep(d)
}

func (b bare) Read() (gpu.PowerReading, error) {
	b.hold(b.takes)
	if b.fails != nil && b.fails() {
		return gpu.PowerReading{}, errLost
	}
	r, err := b.PowerSensor.Read()
	if b.noFields {
		r.Instant, r.Average = measure.Watt(math.NaN()), measure.Watt(math.NaN())
	}
	return r, err
}

func (b bare) ReadEnergy() (measure.Joule, error) {
	b.hold(b.countTakes)
	if b.noCounter {
		return measure.Joule(math.NaN()), nil
	}
	return b.PowerSensor.ReadEnergy()
}

// twice watches two pieces of work of half a second, 1 s and 2.5 s from now.
func twice(t *testing.T, w *Watcher) (out []map[Method]store.MethodResult) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.Run(ctx)
	}()
	var spans []gpu.Span
	time.Sleep(time.Second)
	for range 2 {
		of := gpu.Span{Start: time.Now()}
		w.Begin()
		time.Sleep(500 * time.Millisecond)
		of.End = time.Now()
		w.End()
		spans = append(spans, of)
		time.Sleep(time.Second)
	}
	cancel()
	<-done
	for _, s := range spans {
		out = append(out, byMethod(t, w.Results(s)))
	}
	return out
}

// napVirtual waits on the bubble's clock.
func napVirtual(ctx context.Context, d time.Duration) { _ = Pause(ctx, d) }

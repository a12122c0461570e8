package instructions

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"sync"
	"time"

	"github.com/wattmark/wattmark/hostagent/gpu"
	"github.com/wattmark/wattmark/measure"
)

// Method is a way to compute power from a GPU's own sensor.
type Method string

// The methods. The first three are those of Arafa et al.
const (
	// SMA reads nvmlDeviceGetPowerUsage every 15 ms, not synchronised to anything.
	SMA Method = "sma"
	// MTSM reads it without pause, exactly from launch to synchronisation.
	MTSM Method = "mtsm"
	// PAPI takes one reading at the end for the whole time.
	PAPI Method = "papi"
	// Counter divides the energy counter's growth by the time between its changes.
	Counter Method = "counter"
	// Instant is the mean of the instantaneous field.
	Instant Method = "instant"
	// Meter is no method of the GPU's: the mean by an external meter.
	Meter Method = "meter"
)

// Methods lists those of the GPU's own sensor.
func Methods() []Method { return []Method{SMA, MTSM, PAPI, Counter, Instant} }

// smaEvery is SMA's period (Arafa et al., 66.7 Hz).
const smaEvery = 15 * time.Millisecond

// reading is one reading of the power registers.
type reading struct {
	at             time.Time
	usage, instant measure.Watt
}

// count is one reading of the energy counter.
type count struct {
	at     time.Time
	energy measure.Joule
}

// watcher reads the sensors from two threads: the counter's call takes
// milliseconds, and must not hold up the others.
type watcher struct {
	stop context.CancelFunc
	done sync.WaitGroup

	readings []reading
	counts   []count
	errs     [2]error
}

// watch starts to read; end stops it.
func watch(ctx context.Context, s gpu.PowerSensor) *watcher {
	ctx, stop := context.WithCancel(ctx)
	w := &watcher{stop: stop}
	w.done.Go(func() { w.errs[0] = w.power(ctx, s) })
	w.done.Go(func() { w.errs[1] = w.energy(ctx, s) })
	return w
}

// power reads the power registers without pause, on a thread of its own.
func (w *watcher) power(ctx context.Context, s gpu.PowerSensor) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for ctx.Err() == nil {
		r, err := s.Read()
		if err != nil {
			return fmt.Errorf("instructions: %w", err)
		}
		w.readings = append(w.readings, reading{r.At, r.Usage, r.Instant})
	}
	return nil
}

// energy reads the counter, with 5 ms between two calls, on a thread of its own.
func (w *watcher) energy(ctx context.Context, s gpu.PowerSensor) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for ctx.Err() == nil {
		begin := time.Now()
		e, err := s.ReadEnergy()
		if err != nil {
			return fmt.Errorf("instructions: %w", err)
		}
		if math.IsNaN(float64(e)) {
			return nil // it has none
		}
		w.counts = append(w.counts, count{begin.Add(time.Since(begin) / 2), e})
		// Let others have the driver's lock.
		select {
		case <-ctx.Done():
		case <-time.After(5 * time.Millisecond):
		}
	}
	return nil
}

// end stops the watch; the readings may be used after it.
func (w *watcher) end() error {
	w.stop()
	w.done.Wait()
	for _, err := range w.errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// means returns each method's mean power over a span; methods without a reading there are
// left out.
func (w *watcher) means(s gpu.Span) map[Method]measure.Watt {
	out := map[Method]measure.Watt{}
	var usage, instant, every mean
	last, due := measure.Watt(math.NaN()), time.Time{}
	for _, r := range w.readings {
		sma := !r.at.Before(due)
		if sma {
			due = r.at.Add(smaEvery)
		}
		if r.at.Before(s.Start) || r.at.After(s.End) {
			continue
		}
		usage.add(r.usage)
		instant.add(r.instant)
		if sma {
			every.add(r.usage)
		}
		last = r.usage
	}
	out[MTSM], out[Instant], out[SMA], out[PAPI] = usage.value(), instant.value(), every.value(), last
	out[Counter] = slope(w.counts, s)
	for m, p := range out {
		if math.IsNaN(float64(p)) {
			delete(out, m)
		}
	}
	return out
}

// rate is how many readings a second the power was read at.
func (w *watcher) rate() measure.Hertz {
	if len(w.readings) < 2 {
		return 0
	}
	return measure.Hertz(float64(len(w.readings)-1) / w.readings[len(w.readings)-1].at.Sub(w.readings[0].at).Seconds())
}

// slope is the counter's growth between its first and last change in a span.
func slope(counts []count, s gpu.Span) measure.Watt {
	var first, last *count
	for i := 1; i < len(counts); i++ {
		c := &counts[i]
		if c.energy == counts[i-1].energy || c.at.Before(s.Start) || c.at.After(s.End) {
			continue
		}
		if first == nil {
			first = c
		}
		last = c
	}
	if first == nil || last == first {
		return measure.Watt(math.NaN())
	}
	return measure.Watt(float64(last.energy-first.energy) / last.at.Sub(first.at).Seconds())
}

// mean is the mean of the values that are numbers; NaN for none.
type mean struct{ sum, n float64 }

// add takes a value; NaN is skipped.
func (m *mean) add(w measure.Watt) {
	if !math.IsNaN(float64(w)) {
		m.sum += float64(w)
		m.n++
	}
}

// value is NaN for no values.
func (m *mean) value() measure.Watt { return measure.Watt(m.sum / m.n) }

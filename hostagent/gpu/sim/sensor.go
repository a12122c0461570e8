// Package sim is a GPU in software: it plays markers and benchmarks on a Plant
// (the emulated board, wired to it by cmd) and reads a power sensor that has
// the update period and the averaging window of a real one.
package sim

import (
	"cmp"
	"context"
	"math"
	"sync"
	"time"

	"github.com/wattmark/wattmark/hostagent/gpu"
	"github.com/wattmark/wattmark/internal/backoff"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/load"
)

// Response is how the simulated sensor follows the power: every Update a new
// value, the mean over the Instant or the Average before it. The zero value is
// that of a Hopper: 100 ms, 25 ms and 1 s (arXiv 2312.02741).
type Response struct {
	Update, Instant, Average time.Duration
	// Phase shifts the updates against the clock's whole periods.
	Phase time.Duration
	// Gain and Offset are the sensor's own static error; a gain of zero is one.
	Gain   float64
	Offset measure.Watt
}

// Sensor is the simulated GPU's own power sensor. It is safe for concurrent use.
type Sensor struct {
	plant Plant
	clock Clock
	r     Response

	mu     sync.Mutex
	update int64 // number of the update that the fields below belong to
	began  bool
	last   gpu.PowerReading
	energy measure.Joule
}

var _ gpu.PowerSensor = (*Sensor)(nil)

// NewSensor makes a sensor that watches a plant. Its energy counter begins at
// zero with the first reading.
func NewSensor(plant Plant, clock Clock, r Response) *Sensor {
	if r.Update == 0 {
		r.Update, r.Instant, r.Average = 100*time.Millisecond, 25*time.Millisecond, time.Second
	}
	r.Gain = cmp.Or(r.Gain, 1)
	clock = cmp.Or[Clock](clock, Wall{})
	return &Sensor{plant: plant, clock: clock, r: r}
}

// Read returns the sensor's registers as they are now. Until its next update a
// real sensor repeats itself, and so does this one.
func (s *Sensor) Read() (gpu.PowerReading, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock.Now()
	s.refresh(now)
	out := s.last
	out.At, out.Energy = now, measure.Joule(math.NaN())
	return out, nil
}

// ReadEnergy returns the energy counter, which moves with the updates.
func (s *Sensor) ReadEnergy() (measure.Joule, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refresh(s.clock.Now())
	return s.energy, nil
}

// refresh brings the registers up to the newest update before now.
func (s *Sensor) refresh(now time.Time) {
	n := floorDiv(now.UnixNano()-int64(s.r.Phase), int64(s.r.Update))
	if s.began && n == s.update {
		return
	}
	at := s.updateTime(n)
	if s.began {
		from := s.updateTime(s.update)
		// The counter integrates over the whole gap between two readings, however long.
		s.energy += measure.Joule(float64(s.reading(from, at)) * at.Sub(from).Seconds())
	}
	// Each register is a mean over a time of its own, up to the update; usage is the average, as on a Hopper.
	average := s.reading(at.Add(-s.r.Average), at)
	s.last = gpu.PowerReading{Instant: s.reading(at.Add(-s.r.Instant), at), Average: average, Usage: average}
	s.update, s.began = n, true
}

// updateTime returns the instant of update n; they are Update apart, Phase off the epoch.
func (s *Sensor) updateTime(n int64) time.Time {
	return time.Unix(0, n*int64(s.r.Update)+int64(s.r.Phase))
}

// reading is a mean as the sensor reports it: with its static error, in whole milliwatts.
func (s *Sensor) reading(from, to time.Time) measure.Watt {
	w := float64(s.plant.MeanPower(from, to))*s.r.Gain + float64(s.r.Offset)
	return measure.Watt(math.Round(w*1e3) / 1e3)
}

// floorDiv divides and rounds down, for times before the epoch too.
func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

// Plant draws the simulated power. It is safe for concurrent use.
type Plant interface {
	// SetSteps lays steps down one after another from an instant on, which may lie in the
	// future, all at once: a whole marker is laid down before it is played, so that its edges
	// depend neither on when a goroutine wakes up nor on how far a meter has read meanwhile. It
	// returns when the first really begins, which is later than at where a meter had already
	// read on; the load of the last one stays, though it may last no time.
	SetSteps(at time.Time, steps []load.Step) (time.Time, error)
	// Cancel drops every change that was laid down for after an instant.
	Cancel(after time.Time)
	// MeanPower is the true mean power between two instants. It is NaN where
	// the plant no longer remembers them.
	MeanPower(from, to time.Time) measure.Watt
}

// Clock reads and awaits the time of day.
type Clock interface {
	Now() time.Time
	// WaitUntil returns at t, or with the context's error when that ends first.
	WaitUntil(ctx context.Context, t time.Time) error
}

// Wall is the machine's clock.
type Wall struct{}

// Now returns the time of day.
func (Wall) Now() time.Time { return time.Now() }

// WaitUntil sleeps until t.
func (Wall) WaitUntil(ctx context.Context, t time.Time) error {
	if backoff.Sleep(ctx, time.Until(t)) != nil {
		return context.Cause(ctx)
	}
	return nil
}

package sensor

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/wattmark/wattmark/hostagent/gpu"
	"github.com/wattmark/wattmark/internal/backoff"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/store"
)

// The methods that readings are stored under.
const (
	InstantPower  = "nvml.instant" // W
	AveragePower  = "nvml.average" // W
	UsagePower    = "nvml.usage"   // W
	EnergyCounter = "nvml.energy"  // J, a counter
)

// every is the distance of readings.
const every = 10 * time.Millisecond

// Sample reads the sensor at a steady beat until ctx ends, and hands its readings on once a second
// and at the end. The energy counter, a call of some 3 ms, is read once before the first beat and
// once after the last. The sink may keep its readings; it runs on another goroutine than the beat:
// a slow one delays no beat, and gets more at once. The errors are the sink's first, after which it
// is not called again, and the newest of failed reads.
func Sample(
	ctx context.Context, sensor gpu.PowerSensor, sink func(ctx context.Context, r []store.Reading) error,
) error {
	s, ended := &sampler{sensor: sensor}, make(chan struct{})
	go func() {
		defer close(ended)
		// A thread of its own: a beat does not wait for another goroutine's work.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		s.energy()
		beat(ctx, time.Now(), every, s.beat)
		s.energy()
	}()
	var err error
	handOn := func() {
		s.mu.Lock()
		batch := s.batch
		s.batch = nil
		s.mu.Unlock()
		if err == nil && len(batch) > 0 {
			// Readings are stored also while the measurement is being cancelled.
			if err = sink(context.WithoutCancel(ctx), batch); err != nil {
				err = fmt.Errorf("sampler: %w", err)
			}
		}
	}
	for range backoff.Every(ended, time.Second) {
		handOn()
	}
	handOn()
	if s.last != nil {
		s.last = fmt.Errorf("%s of the GPU's sensor failed: %w", measure.Plural(s.failed, "reading"), s.last)
	}
	return errors.Join(err, s.last)
}

// sampler is one Sample. failed counts failed reads; last is the newest of them.
type sampler struct {
	sensor gpu.PowerSensor
	failed int
	last   error

	mu    sync.Mutex
	batch []store.Reading // not handed on yet
}

// beat reads the three power registers.
func (s *sampler) beat() {
	r, err := s.sensor.Read()
	if err != nil {
		s.failed, s.last = s.failed+1, err
		return
	}
	s.add(InstantPower, r.At, float64(r.Instant))
	s.add(AveragePower, r.At, float64(r.Average))
	s.add(UsagePower, r.At, float64(r.Usage))
}

// energy reads the counter; its time is the middle of the call.
func (s *sampler) energy() {
	begin := time.Now()
	e, err := s.sensor.ReadEnergy()
	if err != nil {
		s.failed, s.last = s.failed+1, err
		return
	}
	s.add(EnergyCounter, begin.Add(time.Since(begin)/2), float64(e))
}

// add keeps a reading that the GPU has.
func (s *sampler) add(method string, at time.Time, v float64) {
	if math.IsNaN(v) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.batch = append(s.batch, store.Reading{Method: method, At: at, Value: v})
}

// The methods that a GPU's condition is stored under.
const (
	SMClock      = "gpu.sm_clock_hz"
	MemoryClock  = "gpu.memory_clock_hz"
	Temperature  = "gpu.temperature_c"
	ThrottleBits = "gpu.throttle_bits" // nvmlClocksEventReasons
)

// ConditionReadings returns a condition as stored readings, without the values that are
// NaN; nil for a GPU without clocks and temperature.
func ConditionReadings(c gpu.Condition, at time.Time) []store.Reading {
	all := []store.Reading{
		{Method: SMClock, Value: float64(c.SM)},
		{Method: MemoryClock, Value: float64(c.Memory)},
		{Method: Temperature, Value: c.Temperature},
		{Method: ThrottleBits, Value: float64(c.Throttle)},
	}
	out := slices.DeleteFunc(all, func(r store.Reading) bool { return math.IsNaN(r.Value) })
	for i := range out {
		out[i].At = at
	}
	if len(out) == 1 { // no clock and no temperature: then throttling is unknown too
		return nil
	}
	return out
}

// ConditionAt is a condition with its time.
type ConditionAt struct {
	At time.Time
	gpu.Condition
}

// Conditions finds the conditions among a task's readings, by time.
func Conditions(readings []store.Reading) []ConditionAt {
	at := map[int64]*gpu.Condition{}
	for _, r := range readings {
		c := at[r.At.UnixNano()]
		if c == nil {
			c = &gpu.Condition{
				SM: measure.Hertz(math.NaN()), Memory: measure.Hertz(math.NaN()), Temperature: math.NaN(),
			}
		}
		switch r.Method {
		case SMClock:
			c.SM = measure.Hertz(r.Value)
		case MemoryClock:
			c.Memory = measure.Hertz(r.Value)
		case Temperature:
			c.Temperature = r.Value
		case ThrottleBits:
			c.Throttle = uint64(max(r.Value, 0))
		default:
			continue
		}
		at[r.At.UnixNano()] = c
	}
	out := make([]ConditionAt, 0, len(at))
	for ns, c := range at {
		out = append(out, ConditionAt{time.Unix(0, ns).UTC(), *c})
	}
	slices.SortFunc(out, func(a, b ConditionAt) int { return a.At.Compare(b.At) })
	return out
}

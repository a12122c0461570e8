package sensor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"time"

	"github.com/wattmark/wattmark/hostagent/gpu"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/store"
	"golang.org/x/sync/errgroup"
)

// The methods that readings are stored under.
const (
	InstantPower  = "nvml.instant" // W
	AveragePower  = "nvml.average" // W
	UsagePower    = "nvml.usage"   // W
	EnergyCounter = "nvml.energy"  // J, a counter
)

// SampleOptions tune a sampler. Zero values are good ones.
type SampleOptions struct {
	// Every is the distance of readings; 10 ms when zero.
	Every time.Duration
	// Batch is the number of readings handed on at once; 256 when zero.
	Batch int
	// Backlog is the number of batches that may wait for the consumer; 64 when
	// zero. Readings beyond are dropped, and counted.
	Backlog int
}

// SampleStats counts the readings of a sampler, and those that it lost.
type SampleStats struct {
	Readings uint64
	// Missed beats passed while the machine was busy.
	Missed uint64
	// Dropped readings found no room: the consumer was too slow.
	Dropped uint64
	// Errors counts failed reads; Last is the newest of them.
	Errors uint64
	Last   error
}

// Sample reads the sensor at a steady beat until ctx ends; then it hands on its last batch
// and returns. The energy counter, a call of some 3 ms, is read once before the first beat
// and once after the last. The sink may keep its batches; it runs on another goroutine: a slow
// one loses batches, which are counted, and delays no beat. The error is the sink's first, if
// any.
func Sample(
	ctx context.Context, sensor gpu.PowerSensor, o SampleOptions,
	sink func(ctx context.Context, r []store.Reading) error,
) (SampleStats, error) {
	o.Every = cmp.Or(max(o.Every, 0), 10*time.Millisecond)
	o.Batch, o.Backlog = cmp.Or(max(o.Batch, 0), 256), cmp.Or(max(o.Backlog, 0), 64)
	s := &sampler{o: o, sensor: sensor, out: make(chan []store.Reading, o.Backlog)}
	// Readings are stored also while the measurement is being cancelled.
	keep := context.WithoutCancel(ctx)
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		defer close(s.out)
		// A thread of its own: a beat does not wait for another goroutine's work.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		s.energy()
		s.stats.Missed = beat(ctx, time.Now(), s.o.Every, s.beat)
		s.energy()
		if len(s.batch) > 0 {
			s.out <- s.batch // no beat waits any more
		}
		return nil
	})
	g.Go(func() error {
		// It goes on draining after an error: the sampler must not wait for ever.
		var first error
		for batch := range s.out {
			if first == nil {
				first = sink(keep, batch)
			}
		}
		if first != nil {
			return fmt.Errorf("sampler: %w", first)
		}
		return nil
	})
	err := g.Wait()
	return s.stats, err
}

// sampler is one Sample. batch is filled by the beat, and handed on when it is full.
type sampler struct {
	o      SampleOptions
	sensor gpu.PowerSensor
	out    chan []store.Reading
	batch  []store.Reading
	stats  SampleStats
}

// beat reads the three power registers.
func (s *sampler) beat() {
	r, err := s.sensor.Read()
	if err != nil {
		s.failed(err)
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
		s.failed(err)
		return
	}
	s.add(EnergyCounter, begin.Add(time.Since(begin)/2), float64(e))
}

// failed counts a failed read.
func (s *sampler) failed(err error) {
	s.stats.Errors++
	s.stats.Last = err
}

// add keeps a reading that the GPU has. A full batch is handed on without waiting: a beat that
// is late is worse than a batch that is lost and counted.
func (s *sampler) add(method string, at time.Time, v float64) {
	if math.IsNaN(v) {
		return
	}
	if s.batch == nil {
		s.batch = make([]store.Reading, 0, s.o.Batch)
	}
	s.batch = append(s.batch, store.Reading{Method: method, At: at, Value: v})
	s.stats.Readings++
	if len(s.batch) < s.o.Batch {
		return
	}
	select {
	case s.out <- s.batch:
	default:
		s.stats.Dropped += uint64(len(s.batch))
	}
	s.batch = nil
}

// Err describes lost readings for the task's reader; nil when there are none.
func (s SampleStats) Err() error {
	var errs []error
	if s.Dropped > 0 {
		errs = append(errs, fmt.Errorf("%s of the GPU's sensor were dropped: the database was too slow",
			measure.Plural(s.Dropped, "reading")))
	}
	if s.Errors > 0 {
		errs = append(errs, fmt.Errorf("%s of the GPU's sensor failed: %w", measure.Plural(s.Errors, "reading"), s.Last))
	}
	return errors.Join(errs...)
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

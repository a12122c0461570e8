// Package sampler reads a GPU's own power sensor beside a measurement, on a
// thread of its own, with bounded memory.
package sampler

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"time"

	"golang.org/x/sync/errgroup"

	"wattmark/hostagent"
	"wattmark/store"
)

// The methods that readings are stored under.
const (
	Instant = "nvml.instant" // W
	Average = "nvml.average" // W
	Usage   = "nvml.usage"   // W
	Energy  = "nvml.energy"  // J, a counter
)

// Options tune a sampler. Zero values are good ones.
type Options struct {
	// Every is the distance of readings; 10 ms when zero.
	Every time.Duration
	// Batch is the number of readings handed on at once; 256 when zero.
	Batch int
	// Backlog is the number of batches that may wait for the consumer; 64 when
	// zero. Readings beyond are dropped, and counted.
	Backlog int
}

// Stats is what a sampler did.
type Stats struct {
	Readings uint64
	// Missed beats passed while the machine was busy.
	Missed uint64
	// Dropped readings found no room: the consumer was too slow.
	Dropped uint64
	// Errors counts failed reads; Last is the newest of them.
	Errors uint64
	Last   error
}

// Sink takes a batch of readings, which it may keep.
type Sink func(ctx context.Context, r []store.Reading) error

// Run samples until ctx ends; then it hands on what it has, and returns nil.
// The energy counter, whose call takes milliseconds, is read once before the
// first beat and once after the last. It returns the sink's error, if any.
func Run(ctx context.Context, sensor hostagent.PowerSensor, o Options, sink Sink) (Stats, error) {
	if o.Every <= 0 {
		o.Every = 10 * time.Millisecond
	}
	if o.Batch <= 0 {
		o.Batch = 256
	}
	if o.Backlog <= 0 {
		o.Backlog = 64
	}
	s := &sampler{o: o, sensor: sensor, out: make(chan []store.Reading, o.Backlog)}
	// What was read is stored also when the measurement is being cancelled.
	keep := context.WithoutCancel(ctx)
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		defer close(s.out)
		s.run(ctx)
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

type sampler struct {
	o      Options
	sensor hostagent.PowerSensor
	out    chan []store.Reading
	batch  []store.Reading
	stats  Stats
}

func (s *sampler) run(ctx context.Context) {
	// A thread of its own: a beat does not wait for another goroutine's work.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	s.energy()
	next := time.Now()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			s.energy()
			if len(s.batch) > 0 {
				s.out <- s.batch // no beat waits any more
			}
			return
		case <-timer.C:
		}
		s.beat()
		next = next.Add(s.o.Every)
		if late := time.Since(next); late > 0 {
			n := late/s.o.Every + 1
			s.stats.Missed += uint64(n)
			next = next.Add(n * s.o.Every)
		}
		timer.Reset(time.Until(next))
	}
}

func (s *sampler) beat() {
	r, err := s.sensor.Read()
	if err != nil {
		s.failed(err)
		return
	}
	s.add(Instant, r.At, float64(r.Instant))
	s.add(Average, r.At, float64(r.Average))
	s.add(Usage, r.At, float64(r.Usage))
}

func (s *sampler) energy() {
	begin := time.Now()
	e, err := s.sensor.ReadEnergy()
	if err != nil {
		s.failed(err)
		return
	}
	s.add(Energy, begin.Add(time.Since(begin)/2), float64(e))
}

func (s *sampler) failed(err error) {
	s.stats.Errors++
	s.stats.Last = err
}

// add keeps a reading that the GPU has.
func (s *sampler) add(method string, at time.Time, v float64) {
	if math.IsNaN(v) {
		return
	}
	if s.batch == nil {
		s.batch = make([]store.Reading, 0, s.o.Batch)
	}
	s.batch = append(s.batch, store.Reading{Method: method, At: at, Value: v})
	s.stats.Readings++
	if len(s.batch) == s.o.Batch {
		s.flush()
	}
}

// flush hands the batch on without waiting: a beat that is late is worse than
// a batch that is lost and counted.
func (s *sampler) flush() {
	if len(s.batch) == 0 {
		return
	}
	select {
	case s.out <- s.batch:
	default:
		s.stats.Dropped += uint64(len(s.batch))
	}
	s.batch = nil
}

// Err describes what a task's reader should know; nil when all went well.
func (s Stats) Err() error {
	var errs []error
	if s.Dropped > 0 {
		errs = append(errs, fmt.Errorf("%d readings of the GPU's sensor were dropped: the database was too slow", s.Dropped))
	}
	if s.Errors > 0 {
		errs = append(errs, fmt.Errorf("%d readings of the GPU's sensor failed: %w", s.Errors, s.Last))
	}
	return errors.Join(errs...)
}

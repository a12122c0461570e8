package sensor

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wattmark/wattmark/hostagent/gpu"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/store"
)

// sensor reads its own count of calls, in watts.
type sensor struct {
	calls    int
	takes    time.Duration // a power reading
	energies []time.Time
	fail     func(call int) error
	bare     bool // has neither instant nor average power, nor a counter
}

func (s *sensor) Read() (gpu.PowerReading, error) {
	s.calls++
	time.Sleep(s.takes)
	if s.fail != nil {
		if err := s.fail(s.calls); err != nil {
			return gpu.PowerReading{}, err
		}
	}
	w := measure.Watt(s.calls)
	r := gpu.PowerReading{At: time.Now(), Instant: w, Average: w / 2, Usage: w / 4}
	if s.bare {
		r.Instant, r.Average = measure.Watt(math.NaN()), measure.Watt(math.NaN())
	}
	return r, nil
}

func (s *sensor) ReadEnergy() (measure.Joule, error) {
	s.energies = append(s.energies, time.Now())
	time.Sleep(3300 * time.Microsecond) // as long as NVML takes
	if s.bare {
		return measure.Joule(math.NaN()), nil
	}
	return measure.Joule(100 * len(s.energies)), nil
}

// sampleFor runs a sampler for a time and returns what it handed on.
func sampleFor(
	t *testing.T, d time.Duration, s *sensor, sink func(context.Context, []store.Reading) error,
) ([]store.Reading, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	var got []store.Reading
	if sink == nil {
		sink = func(ctx context.Context, r []store.Reading) error {
			if ctx.Err() != nil {
				t.Error("the sink's context is dead")
			}
			got = append(got, r...)
			return nil
		}
	}
	err := Sample(ctx, s, sink)
	return got, err
}

func TestReadingsKeepTheirBeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &sensor{}
		begin := time.Now()
		got, err := sampleFor(t, time.Second, s, nil)
		if err != nil {
			t.Fatal(err)
		}
		byMethod := map[string][]store.Reading{}
		for _, r := range got {
			byMethod[r.Method] = append(byMethod[r.Method], r)
		}
		instant := byMethod[InstantPower]
		if len(instant) != s.calls || len(byMethod[AveragePower]) != s.calls || len(byMethod[UsagePower]) != s.calls {
			t.Fatalf("%d calls gave %d, %d and %d readings", s.calls, len(instant), len(byMethod[AveragePower]),
				len(byMethod[UsagePower]))
		}
		if s.calls < 99 || s.calls > 101 {
			t.Errorf("%d readings in a second at 10 ms", s.calls)
		}
		for i, r := range instant {
			if r.Value != float64(i+1) {
				t.Fatalf("reading %d has value %v", i, r.Value)
			}
			if i > 0 && r.At.Sub(instant[i-1].At) != 10*time.Millisecond {
				t.Errorf("reading %d came %v after the one before", i, r.At.Sub(instant[i-1].At))
			}
		}
		// The counter is read before the first beat and after the last, and its
		// time is the middle of its slow call.
		e := byMethod[EnergyCounter]
		if len(e) != 2 || e[0].Value != 100 || e[1].Value != 200 {
			t.Fatalf("energy: got %+v", e)
		}
		if e[0].At.Sub(begin) != 1650*time.Microsecond || !instant[0].At.After(e[0].At) ||
			!e[1].At.After(instant[len(instant)-1].At) {
			t.Errorf("energy read at %v and %v", e[0].At.Sub(begin), e[1].At.Sub(begin))
		}
	})
}

func TestSlowSensorMissesBeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &sensor{takes: 25 * time.Millisecond}
		if _, err := sampleFor(t, time.Second, s, nil); err != nil || s.calls < 30 || s.calls > 35 {
			t.Errorf("%d calls of 25 ms in a second, %v", s.calls, err)
		}
	})
}

func TestSamplerLeavesOutMissingReadings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		got, err := sampleFor(t, 100*time.Millisecond, &sensor{bare: true}, nil)
		if err != nil || len(got) == 0 {
			t.Fatal(err, len(got))
		}
		for _, r := range got {
			if r.Method != UsagePower || math.IsNaN(r.Value) {
				t.Errorf("got %+v", r)
			}
		}
	})
}

func TestFailedReadingsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lost := errors.New("GPU is lost")
		s := &sensor{fail: func(call int) error {
			if call%10 == 0 {
				return lost
			}
			return nil
		}}
		got, err := sampleFor(t, time.Second, s, nil)
		if !errors.Is(err, lost) || err.Error() != fmt.Sprintf("%d readings of the GPU's sensor failed: GPU is lost", s.calls/10) {
			t.Errorf("in %d calls: %v", s.calls, err)
		}
		if len(got) != 3*(s.calls-s.calls/10)+2 {
			t.Errorf("%d readings of %d calls", len(got), s.calls)
		}
	})
}

// A consumer that hangs costs neither readings nor the beat.
func TestSlowConsumerGetsAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kept := 0
		s := &sensor{}
		_, err := sampleFor(t, 10*time.Second, s, func(_ context.Context, r []store.Reading) error {
			time.Sleep(3 * time.Second)
			kept += len(r)
			return nil
		})
		if err != nil || s.calls < 990 || kept != 3*s.calls+2 {
			t.Errorf("%d kept of %d calls in 10 s, %v", kept, s.calls, err)
		}
	})
}

func TestSinkErrorIsReturned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		full := errors.New("disk full")
		calls := 0
		_, err := sampleFor(t, 10*time.Second, &sensor{}, func(context.Context, []store.Reading) error {
			calls++
			return full
		})
		if !errors.Is(err, full) || calls != 1 {
			t.Errorf("got %v after %d calls", err, calls)
		}
	})
}

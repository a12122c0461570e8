package sim

import (
	"context"
	"errors"
	"math"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/wattmark/wattmark/hostagent/gpu"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/load"
	"github.com/wattmark/wattmark/measure/marker"
)

// step is one change of load.
type step struct {
	at time.Time
	l  load.State
}

// plant draws 100 W more for each step of Load, and remembers.
type plant struct {
	steps []step
	// moved is how far a change is put off where a meter has read on.
	moved time.Duration
}

func (p *plant) SetLoad(at time.Time, l load.State) (time.Time, error) {
	if l > load.Full {
		return at, errors.New("no such load")
	}
	at = at.Add(p.moved)
	i := len(p.steps)
	for i > 0 && p.steps[i-1].at.After(at) {
		i--
	}
	p.steps = append(p.steps[:i], append([]step{{at, l}}, p.steps[i:]...)...)
	return at, nil
}

func (p *plant) SetSteps(at time.Time, steps []load.Step) (time.Time, error) {
	begin := at.Add(p.moved)
	for _, s := range steps {
		if _, err := p.SetLoad(at, s.Load); err != nil {
			return begin, err
		}
		at = at.Add(s.For)
	}
	return begin, nil
}

func (p *plant) Cancel(after time.Time) {
	for len(p.steps) > 0 && p.steps[len(p.steps)-1].at.After(after) {
		p.steps = p.steps[:len(p.steps)-1]
	}
}

func (p *plant) load(at time.Time) load.State {
	l := load.Idle
	for _, s := range p.steps {
		if !s.at.After(at) {
			l = s.l
		}
	}
	return l
}

func (p *plant) MeanPower(from, to time.Time) measure.Watt {
	sum, at, l := 0.0, from, p.load(from)
	for _, s := range p.steps {
		if s.at.After(from) && s.at.Before(to) {
			sum += float64(l) * 100 * s.at.Sub(at).Seconds()
			at, l = s.at, s.l
		}
	}
	sum += float64(l) * 100 * to.Sub(at).Seconds()
	return measure.Watt(sum / to.Sub(from).Seconds())
}

func openSim(t *testing.T, p *plant) *Device {
	t.Helper()
	d, err := Open(Config{Plant: p, Seed: 7})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// A train that a busy machine lays down late begins later, as a whole.
func TestTrainThatBeginsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &plant{moved: 10 * time.Millisecond}
		d := openSim(t, p)
		begin := time.Now()
		ran, err := d.RunTrain(t.Context(), gpu.Train{
			Carrier: gpu.BenchHalf, Insert: gpu.Insert{Name: "k", Benchmark: gpu.BenchCompute, Length: time.Millisecond},
			Phases: []gpu.TrainPhase{{Bare: 20}},
		})
		if err != nil {
			t.Fatal(err)
		}
		if late := ran.Phases[0].Span.Start.Sub(begin); late < 10*time.Millisecond {
			t.Errorf("the train began after %v, the plant moved it by %v", late, p.moved)
		}
	})
}

func TestMarkerIsLaidDownExactly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &plant{}
		d := openSim(t, p)
		spec := marker.Spec{Code: marker.Barker13, Chip: 1e-3, Guard: 3, TagBits: 2, Tag: 1}
		begin := time.Now()
		got, err := d.PlayMarker(t.Context(), spec, marker.Stop)
		if err != nil {
			t.Fatal(err)
		}
		chips := spec.Chips(marker.Stop)
		if len(got.Edges) != len(chips)+1 || got.Edges[0].Chip != -3 {
			t.Fatalf("got %d edges from chip %d", len(got.Edges), got.Edges[0].Chip)
		}
		for i, high := range chips {
			want := map[bool]load.State{true: load.Full, false: load.Sleep}[high]
			if l := p.load(got.Edges[i].At.Add(time.Microsecond)); l != want {
				t.Errorf("chip %d: %v, want %v", i, l, want)
			}
			if at := got.Edges[i].At.Sub(got.Edges[0].At); at != time.Duration(i)*time.Millisecond {
				t.Errorf("chip %d begins %v after the first", i, at)
			}
		}
		if l := p.load(got.Span.End); l != load.ActiveIdle {
			t.Errorf("after the marker: %v", l)
		}
		if late := got.Span.Start.Sub(begin); late < 50*time.Microsecond || late > 70*time.Microsecond {
			t.Errorf("the launch took %v", late)
		}
		if !time.Now().Equal(got.Span.End) {
			t.Errorf("it returned at %v, the marker ended at %v", time.Now(), got.Span.End)
		}
		if _, err := d.PlayMarker(t.Context(), marker.Spec{}, marker.Start); !errors.Is(err, marker.ErrSpec) {
			t.Errorf("an empty marker: %v", err)
		}
	})
}

// What was really drawn is reported, not what was asked for.
func TestChangesThatComeTooLateAreReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &plant{}
		d := openSim(t, p)
		p.moved = 5 * time.Millisecond
		before := time.Now()
		k, err := d.RunBenchmark(t.Context(), gpu.BenchMemory, 10*time.Millisecond)
		if err != nil {
			t.Fatal(err)
		}
		if k[0].Span.Start.Before(before.Add(5*time.Millisecond)) || k[0].Span.End != p.steps[len(p.steps)-1].at {
			t.Errorf("got %+v, the plant changed at %v", k, p.steps)
		}
	})
}

func TestBenchmarksDrawTheirLoads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &plant{}
		d := openSim(t, p)
		if p.load(time.Now()) != load.ActiveIdle {
			t.Error("a context draws nothing")
		}
		for b, want := range map[gpu.Benchmark]load.State{
			gpu.BenchHalf: load.Half, gpu.BenchCompute: load.Compute, gpu.BenchMemory: load.Memory,
		} {
			k, err := d.RunBenchmark(t.Context(), b, time.Second)
			if err != nil {
				t.Fatal(err)
			}
			s := k[0].Span
			if k[0].Name != string(b) || s.End.Sub(s.Start) != time.Second || p.load(s.Start) != want ||
				p.load(s.End) != load.ActiveIdle {
				t.Errorf("%s: got %+v", b, k)
			}
		}
		if err := d.WarmUp(t.Context(), time.Second); err != nil || p.load(time.Now().Add(-time.Millisecond)) != load.Full {
			t.Errorf("warm-up: %v", err)
		}
		if _, err := d.RunBenchmark(t.Context(), "gemm", time.Second); err == nil ||
			!strings.Contains(err.Error(), "want half, compute or memory") {
			t.Errorf("an unknown benchmark: %v", err)
		}
		if _, err := d.RunBenchmark(t.Context(), gpu.BenchHalf, 0); err == nil {
			t.Error("a benchmark of no time was run")
		}
		if err := errors.Join(d.Close(), d.Close()); err != nil || p.load(time.Now()) != load.Idle {
			t.Errorf("closed: %v, %v", err, p.load(time.Now()))
		}
	})
}

func TestCancellationTakesTheLoadOff(t *testing.T) {
	for name, play := range map[string]func(context.Context, *Device) error{
		"marker": func(ctx context.Context, d *Device) error {
			_, err := d.PlayMarker(ctx, marker.Spec{Code: marker.M31, Chip: 1, Guard: 4}, marker.Start)
			return err
		},
		"benchmark": func(ctx context.Context, d *Device) error {
			_, err := d.RunBenchmark(ctx, gpu.BenchHalf, time.Hour)
			return err
		},
		"warm-up": func(ctx context.Context, d *Device) error { return d.WarmUp(ctx, time.Hour) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &plant{}
				d := openSim(t, p)
				ctx, cancel := context.WithTimeout(t.Context(), 5500*time.Millisecond)
				defer cancel()
				if err := play(ctx, d); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("got %v", err)
				}
				if l := p.load(time.Now().Add(time.Hour)); l != load.ActiveIdle {
					t.Errorf("the plant goes on with %v", l)
				}
			})
		})
	}
}

func TestOpenNeedsAPlant(t *testing.T) {
	if _, err := Open(Config{}); err == nil {
		t.Error("opened without a plant")
	}
}

// The trap that the product exists for: 50 ms on, 50 ms off, and a sensor that
// looks at 25 ms of every 100.
func TestSensorMisreadsAShortPulse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &plant{}
		now := time.Now()
		for i := range 40 {
			at := now.Add(time.Duration(i) * 100 * time.Millisecond)
			p.SetLoad(at, load.Full)
			p.SetLoad(at.Add(50*time.Millisecond), load.Idle)
		}
		var got []float64
		for _, phase := range []time.Duration{0, 20 * time.Millisecond, 50 * time.Millisecond} {
			s := NewSensor(p, nil, Response{
				Update: 100 * time.Millisecond, Instant: 25 * time.Millisecond, Average: time.Second,
				Phase: time.Duration(now.UnixNano())%(100*time.Millisecond) + phase,
			})
			time.Sleep(time.Until(now.Add(3 * time.Second)))
			r, err := s.Read()
			if err != nil {
				t.Fatal(err)
			}
			if r.Average != 300 || r.Usage != 300 {
				t.Errorf("the average of a second: got %v", r.Average)
			}
			if !math.IsNaN(float64(r.Energy)) || !r.At.Equal(time.Now()) {
				t.Errorf("got %+v", r)
			}
			got = append(got, float64(r.Instant))
		}
		// Before the pulse, 5 ms of idle and 20 ms of pulse, and within the pulse.
		if d := cmp.Diff([]float64{0, 480, 600}, got); d != "" {
			t.Error(d)
		}
	})
}

func TestSensorHoldsBetweenUpdatesAndCountsEnergy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &plant{}
		s := NewSensor(p, nil, Response{})
		if e, err := s.ReadEnergy(); e != 0 || err != nil {
			t.Fatalf("at the begin: %v, %v", e, err)
		}
		p.SetLoad(time.Now(), load.Sleep) // 200 W
		values := map[measure.Watt]int{}
		for range 1000 {
			time.Sleep(time.Millisecond)
			r, err := s.Read()
			if err != nil {
				t.Fatal(err)
			}
			values[r.Average]++
		}
		if len(values) < 10 || len(values) > 11 {
			t.Errorf("a second has %d different averages, want one each 100 ms", len(values))
		}
		// Nobody looks for ten seconds: the counter goes on.
		time.Sleep(10 * time.Second)
		e, err := s.ReadEnergy()
		if err != nil || math.Abs(float64(e)-2200) > 20 {
			t.Errorf("11 s at 200 W: got %v, %v", e, err)
		}
	})
}

func TestSensorHasItsStaticError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &plant{}
		p.SetLoad(time.Now().Add(-time.Hour), load.ActiveIdle)
		s := NewSensor(p, nil, Response{
			Update: 10 * time.Millisecond, Instant: time.Millisecond,
			Average: time.Millisecond, Gain: 0.954, Offset: -1.2,
		})
		if r, _ := s.Read(); r.Instant != 94.2 {
			t.Errorf("100 W: got %v", r.Instant)
		}
	})
}

func TestFloorDiv(t *testing.T) {
	for _, c := range [][3]int64{{7, 2, 3}, {-7, 2, -4}, {-8, 2, -4}, {0, 5, 0}} {
		if got := floorDiv(c[0], c[1]); got != c[2] {
			t.Errorf("%d / %d: got %d", c[0], c[1], got)
		}
	}
}

// An emulator that starts after a program that asks for its GPU is waited for; a missing one is an error.
func TestDialWaitsForAnEmulator(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		socket := filepath.Join(t.TempDir(), "gpu")
		if _, err := Dial(socket); err == nil || !strings.Contains(err.Error(), "is wattmark emulate --gpu sim:"+socket) {
			t.Errorf("no emulator: %v", err)
		}
		dialled := make(chan error, 1)
		go func() {
			c, err := Dial(socket)
			if err == nil {
				err = c.Close()
			}
			dialled <- err
		}()
		synctest.Wait()
		l, err := net.Listen("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		if err := <-dialled; err != nil {
			t.Error(err)
		}
	})
}

package sweep

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/wattmark/wattmark/hostagent/gpu"
	"github.com/wattmark/wattmark/hostagent/sensor"
	"github.com/wattmark/wattmark/measure"
)

// fakeMachine has 14 multiprocessors with 2 blocks each; a turn takes 1 µs. Its
// clock goes on by what runs, without anybody waiting.
type fakeMachine struct {
	loaded, closed int
	ran            []uint64
	wrong          uint64 // number of blocks whose result is wrong
	idle           bool   // a loop that does nothing
	after          func(n int)
}

func (m *fakeMachine) Info() gpu.Info { return gpu.Info{Name: "fake"} }

func (m *fakeMachine) Load(context.Context, Kernel, uint64) (Loaded, error) {
	m.loaded++
	return fakeLoaded{m}, nil
}

type fakeLoaded struct{ m *fakeMachine }

func (l fakeLoaded) Shape() (sms, resident uint64) { return 14, 2 }

func (l fakeLoaded) Run(ctx context.Context, blocks, loops uint64) (s gpu.Span, err error) {
	if ctx.Err() != nil {
		return s, context.Cause(ctx)
	}
	l.m.ran = append(l.m.ran, blocks)
	if l.m.after != nil {
		l.m.after(len(l.m.ran))
	}
	s.Start = time.Now()
	s.End = s.Start.Add(time.Duration((blocks+27)/28*loops) * time.Microsecond)
	if l.m.idle {
		s.End = s.Start
	}
	return s, nil
}

func (l fakeLoaded) Check(blocks uint64) error {
	if blocks == l.m.wrong {
		return ErrResult
	}
	return nil
}

func (l fakeLoaded) Close() error { l.m.closed++; return nil }

// steady draws 200 W.
type steady struct{ began time.Time }

func (s steady) Read() (gpu.PowerReading, error) {
	return gpu.PowerReading{
		At: time.Now(), Instant: 200, Average: 200, Usage: 200,
		Energy: measure.Joule(math.NaN()),
	}, nil
}

func (s steady) ReadEnergy() (measure.Joule, error) {
	return measure.Joule(200 * time.Since(s.began).Seconds()), nil
}

func (s steady) Condition() gpu.Condition { return gpu.Condition{Throttle: 4} }

func quick() Plan {
	return Plan{Kernel: VectorAdd, Round: 100 * time.Millisecond, Idle: 40 * time.Millisecond, Repeat: 2, Seed: 1}
}

func TestMeasure(t *testing.T) {
	m, seen := &fakeMachine{}, 0
	o, err := Measure(t.Context(), m, steady{time.Now()}, quick(), func(done, all int) {
		if done != seen+1 || all != 22 {
			t.Errorf("%d of %d after %d", done, all, seen)
		}
		seen = done
	})
	if err != nil {
		t.Fatal(err)
	}
	want := Sizes(14, 2)
	if len(want) != 10 || o.SMs != 14 || o.Resident != 2 || o.GPU.Name != "fake" || seen != 22 {
		t.Fatalf("got %+v", o)
	}
	if turn := float64(o.Loops) * 1e-6; math.Abs(turn-0.1) > 0.001 {
		t.Errorf("a round of %v s", turn)
	}
	var orders [2][]uint64
	for i, l := range o.Launches {
		if rest := i == 0 || i == len(o.Launches)-1; rest != (l.Blocks == 0) {
			t.Errorf("launch %d of %d blocks", i, l.Blocks)
		} else if !rest {
			orders[l.Pass] = append(orders[l.Pass], l.Blocks)
			if len(l.Throttled) != 1 || !strings.Contains(l.Throttled[0], "power cap") {
				t.Errorf("throttled by %q", l.Throttled)
			}
		} else if e, read := l.Energy[sensor.InstantField]; read && math.Abs(float64(e)/float64(l.Time())-200) > 0.01 {
			t.Errorf("%v in %v at rest", e, l.Time()) // of a loaded machine there may be no reading
		}
	}
	if slices.Equal(orders[0], orders[1]) {
		t.Error("both passes have the same order")
	}
	for _, o := range orders {
		slices.Sort(o)
		if !slices.Equal(o, want) {
			t.Errorf("got %v, want %v", o, want)
		}
	}
	if m.loaded != m.closed || m.loaded != 2 {
		t.Errorf("%d loaded, %d closed", m.loaded, m.closed)
	}
}

func TestMeasureFails(t *testing.T) {
	m := &fakeMachine{wrong: 112}
	if o, err := Measure(t.Context(), m, steady{}, quick(), nil); !errors.Is(err, ErrResult) || o == nil ||
		m.loaded != m.closed {
		t.Errorf("%+v, %v", o, err)
	}
	if _, err := Measure(t.Context(), &fakeMachine{idle: true}, steady{}, quick(), nil); err == nil ||
		!strings.Contains(err.Error(), "does no work") {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	m = &fakeMachine{}
	m.after = func(n int) {
		if n == 15 {
			cancel()
		}
	}
	o, err := Measure(ctx, m, steady{}, quick(), nil)
	if !errors.Is(err, context.Canceled) || o == nil || len(o.Launches) < 2 || m.loaded != m.closed {
		t.Errorf("%+v, %v", o, err)
	}
	for name, spoil := range map[string]func(*Plan){
		"kernel": func(p *Plan) { p.Kernel = "x" }, "blocks": func(p *Plan) { p.Blocks = []uint64{0} },
		"many blocks": func(p *Plan) { p.Blocks = []uint64{mostBlocks + 1} }, "round": func(p *Plan) { p.Round = 0 },
		"idle": func(p *Plan) { p.Idle = 0 }, "rest": func(p *Plan) { p.Rest = -1 },
		"repeat": func(p *Plan) { p.Repeat = 0 },
		"settle": func(p *Plan) { p.Settle = -1 },
		"long":   func(p *Plan) { p.Blocks, p.Round = []uint64{mostBlocks}, time.Second },
	} {
		p := quick()
		spoil(&p)
		if _, err := Measure(t.Context(), &fakeMachine{}, steady{}, p, nil); !errors.Is(err, ErrPlan) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

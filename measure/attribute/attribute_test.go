package attribute

import (
	"errors"
	"fmt"
	"iter"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/clock"
)

// scene is a window with scans and kernels, made at random.
type scene struct {
	cfg     Config
	t, p    []float64
	kernels []Kernel
}

func randomScene(rng *rand.Rand) scene {
	s := scene{cfg: Config{
		Window: measure.Window{From: measure.Seconds(0.1 + rng.Float64()), To: measure.Seconds(5 + 4*rng.Float64())},
		Clock:  clock.Fit{A: measure.Seconds(rng.NormFloat64()), B: 1 + 1e-4*rng.NormFloat64(), VarA: 1e-8, VarB: 1e-12, CovAB: -1e-11},
		Delay:  measure.Seconds(1e-3 * rng.NormFloat64() * float64(rng.IntN(2))), Resolution: 0.01, Spill: 0.01 / 6,
	}}
	for t := 0.0; t < 10; t += 0.05 * rng.Float64() {
		s.t, s.p = append(s.t, t), append(s.p, 50+200*rng.Float64()-20*float64(rng.IntN(2)))
	}
	for range rng.IntN(200) {
		start := measure.Seconds(12*rng.Float64() - 1)
		if rng.IntN(4) == 0 && len(s.kernels) > 0 { // back to back, or at once
			start = s.kernels[rng.IntN(len(s.kernels))].End
		}
		s.kernels = append(s.kernels, Kernel{
			Name: rng.IntN(5), Start: start, End: start + measure.Seconds(rng.ExpFloat64()*0.1*float64(rng.IntN(3))),
		})
	}
	slices.SortFunc(s.kernels, func(a, b Kernel) int { return int(math.Copysign(1, float64(a.Start-b.Start))) })
	return s
}

func each(ks []Kernel) iter.Seq2[Kernel, error] {
	return func(yield func(Kernel, error) bool) {
		for _, k := range ks {
			if !yield(k, nil) {
				return
			}
		}
	}
}

func (s *scene) run(t testing.TB) Result {
	t.Helper()
	e, err := New(s.cfg, each(s.kernels))
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	for i := range s.t {
		if err := e.Add(s.t[i], s.p[i]); err != nil {
			t.Fatal(err)
		}
	}
	r, err := e.Result()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// meter is a kernel on the scans' clock, cut to the window.
func (s *scene) meter(k Kernel) (a, b float64) {
	from, to := float64(s.cfg.Window.From-s.cfg.Delay), float64(s.cfg.Window.To-s.cfg.Delay)
	at := func(h measure.Seconds) float64 {
		return float64(s.cfg.Clock.A-s.cfg.Delay) + s.cfg.Clock.B*float64(h)
	}
	return min(max(at(k.Start), from), to), max(min(at(k.End), to), from)
}

// brute cuts time at every scan and every edge and looks at all kernels in each
// piece.
func (s *scene) brute() (names map[int]float64, share map[int]float64, active, idle, total float64) {
	from, to := float64(s.cfg.Window.From-s.cfg.Delay), float64(s.cfg.Window.To-s.cfg.Delay)
	cuts := []float64{from, to}
	first, last := math.Inf(1), math.Inf(-1)
	var spans [][3]float64
	for _, t := range s.t {
		if t > from && t < to {
			cuts = append(cuts, t)
		}
	}
	for _, k := range s.kernels {
		a, b := s.meter(k)
		raw := float64(s.cfg.Clock.A-s.cfg.Delay) + s.cfg.Clock.B*float64(k.Start)
		end := float64(s.cfg.Clock.A-s.cfg.Delay) + s.cfg.Clock.B*float64(k.End)
		if end < from || raw > to {
			continue
		}
		cuts, spans = append(cuts, a, b), append(spans, [3]float64{a, b, float64(k.Name)})
		first, last = min(first, a), max(last, b)
	}
	slices.Sort(cuts)
	line := trace{t: s.t, p: s.p}
	names, share = map[int]float64{}, map[int]float64{}
	for i := 1; i < len(cuts); i++ {
		a, b := cuts[i-1], cuts[i]
		if a == b {
			continue
		}
		mid, e := (a+b)/2, (b-a)*line.at((a+b)/2)
		total += e
		var run []int
		for _, x := range spans {
			if x[0] <= mid && mid < x[1] {
				run = append(run, int(x[2]))
			}
		}
		for _, n := range run {
			names[n] += e / float64(len(run))
			share[n] += (b - a) / float64(len(run))
		}
		switch {
		case len(run) > 0:
		case mid > first && mid < last:
			active += e
		default:
			idle += e
		}
	}
	return names, share, active, idle, total
}

func TestSharesAsTheBruteForce(t *testing.T) {
	for seed := range uint64(300) {
		s := randomScene(rand.New(rand.NewPCG(seed, 1)))
		r := s.run(t)
		names, share, active, idle, total := s.brute()
		near := func(what string, got, want float64) {
			if math.Abs(got-want) > 1e-9*total {
				t.Fatalf("seed %d, %s: got %v, want %v", seed, what, got, want)
			}
		}
		for n, u := range r.Kernels {
			near(fmt.Sprintf("name %d", n), float64(u.Energy), names[n])
			near(fmt.Sprintf("share of name %d", n), float64(u.Share), share[n])
		}
		near("active idle", float64(r.ActiveIdle.Energy), active)
		near("idle", float64(r.Idle.Energy), idle)
		near("total", float64(r.Total), total)
	}
}

// The parts come to the whole, to the last digits.
func TestNothingIsLeftOver(t *testing.T) {
	for seed := range uint64(300) {
		s := randomScene(rand.New(rand.NewPCG(seed, 2)))
		r := s.run(t)
		parts, time := float64(r.ActiveIdle.Energy+r.Idle.Energy), float64(r.ActiveIdle.Share+r.Idle.Share)
		var launches uint64
		for _, u := range r.Kernels {
			parts, time, launches = parts+float64(u.Energy), time+float64(u.Share), launches+u.Launches
		}
		if d := math.Abs(parts/float64(r.Total) - 1); d > 1e-12 {
			t.Errorf("seed %d: the parts are off by %g", seed, d)
		}
		if d := math.Abs(time/float64(s.cfg.Window.To-s.cfg.Window.From) - 1); d > 1e-12 {
			t.Errorf("seed %d: the shares of time are off by %g", seed, d)
		}
		if launches != uint64(len(s.kernels)) {
			t.Errorf("seed %d: %d launches of %d", seed, launches, len(s.kernels))
		}
	}
}

// A shift of the clock by a little changes each energy by what UEdges says, and
// both ends of a kernel move together.
func TestEdgesMoveTogether(t *testing.T) {
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 3))
		s := scene{cfg: Config{
			Window: measure.Window{From: 0.5, To: 9.5}, Clock: clock.Fit{B: 1, VarA: 1e-12}, Resolution: 1e-6, Spill: 0,
		}}
		for i := range 101 { // smooth: the power has no steps
			x := float64(i) / 10
			s.t, s.p = append(s.t, x), append(s.p, 100+30*x+20*math.Sin(x))
		}
		for i := range 20 {
			a := measure.Seconds(0.6 + 0.4*float64(i) + 0.1*rng.Float64())
			s.kernels = append(s.kernels, Kernel{Name: rng.IntN(3), Start: a, End: a + measure.Seconds(0.5*rng.Float64())})
		}
		slices.SortFunc(s.kernels, func(a, b Kernel) int { return int(math.Copysign(1, float64(a.Start-b.Start))) })
		at := s.run(t)
		moved := s
		const by = 1e-6 // one standard uncertainty of A
		moved.cfg.Clock.A = by
		to := moved.run(t)
		for n := range at.Kernels {
			d := math.Abs(float64(to.Kernels[n].Energy - at.Kernels[n].Energy))
			if u := float64(at.Kernels[n].UEdges); math.Abs(d-u) > 1e-3*u+1e-8 {
				t.Errorf("seed %d, name %d: a shift makes %g J, UEdges is %g J", seed, n, d, u)
			}
		}
	}
}

// A hot and a cold kernel in turn, sampled: the truth lies within 2 u of what
// the rule and the trapezoid make of it.
func TestSamplingIsWithinU(t *testing.T) {
	inside, of := 0, 0
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 4))
		const dt, length = 1e-3, 0.0137
		offset := rng.Float64() * dt
		hot := func(x float64) bool { return x > 0 && int(x/length)%2 == 0 }
		s := scene{cfg: Config{
			Window: measure.Window{From: 0, To: 100 * length}, Clock: clock.Fit{B: 1}, Resolution: dt, Spill: dt / 6,
		}}
		for x := -10*dt + offset; x < 100*length+10*dt; x += dt {
			p := 100.0
			if hot(x) {
				p = 400
			}
			s.t, s.p = append(s.t, x), append(s.p, p)
		}
		for i := range 100 {
			s.kernels = append(s.kernels, Kernel{Name: i % 2, Start: measure.Seconds(float64(i) * length), End: measure.Seconds(float64(i+1) * length)})
		}
		r := s.run(t)
		for n, truth := range []float64{50 * length * 400, 50 * length * 100} {
			of++
			if u := r.Kernels[n]; math.Abs(float64(u.Energy)-truth) <= 2*math.Hypot(float64(u.USampling), float64(u.UEdges)) {
				inside++
			}
		}
	}
	if inside < of*94/100 {
		t.Errorf("the truth lies within U in %d of %d", inside, of)
	}
}

func TestShortKernelsAreCounted(t *testing.T) {
	s := scene{cfg: Config{Window: measure.Window{From: 0, To: 1}, Clock: clock.Fit{B: 1}, Resolution: 0.01}}
	s.t, s.p = []float64{0, 1}, []float64{100, 100}
	s.kernels = []Kernel{{0, -1, -0.5}, {0, -0.1, 0.1}, {0, 0.2, 0.205}, {1, 0.3, 0.5}, {1, 0.5, 0.5}, {0, 0.9, 2}, {0, 3, 4}}
	r := s.run(t)
	if r.Kernels[0].Short != 1 || r.Kernels[1].Short != 1 || r.Kernels[0].Launches != 5 {
		t.Errorf("%+v", r)
	}
	if e := r.Kernels[0].Energy; math.Abs(float64(e)-20.5) > 1e-9 {
		t.Errorf("%v, want 20.5 J", e)
	}
}

func TestRefusals(t *testing.T) {
	w := measure.Window{From: 0, To: 1}
	good := Config{Window: w, Clock: clock.Fit{B: 1}, Resolution: 0.1}
	if _, err := New(Config{Window: measure.Window{From: 1, To: 1}, Clock: clock.Fit{B: 1}}, each(nil)); !errors.Is(err, ErrWindow) {
		t.Errorf("an empty window: %v", err)
	}
	if _, err := New(Config{Window: w}, each(nil)); !errors.Is(err, ErrWindow) {
		t.Errorf("a clock that stands still: %v", err)
	}
	if _, err := New(good, each([]Kernel{{0, 1, 0.5}})); !errors.Is(err, ErrKernel) {
		t.Errorf("an end before its begin: %v", err)
	}
	broken := errors.New("broken")
	if _, err := New(good, func(yield func(Kernel, error) bool) { yield(Kernel{}, broken) }); !errors.Is(err, broken) {
		t.Errorf("a source that fails: %v", err)
	}
	for name, c := range map[string]struct {
		kernels []Kernel
		scans   []float64
		want    error
	}{
		"kernels out of order": {[]Kernel{{0, 0.5, 0.6}, {0, 0.4, 0.6}}, []float64{0, 1, 2}, ErrOrder},
		"scans out of order":   {nil, []float64{0, -1}, ErrOrder},
		"no data":              {nil, nil, ErrNoData},
		"data too short":       {nil, []float64{0, 0.5}, ErrNoData},
	} {
		e, err := New(good, each(c.kernels))
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range c.scans {
			if err = e.Add(x, 1); err != nil {
				break
			}
		}
		if err == nil {
			_, err = e.Result()
		}
		if !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
		e.Close()
	}
}

// Memory does not grow with kernels or scans.
func BenchmarkAttribute(b *testing.B) {
	cfg := Config{Window: measure.Window{From: 0, To: measure.Seconds(b.N+1) * 1e-5}, Clock: clock.Fit{B: 1, VarA: 1e-10}, Resolution: 5e-5, Spill: 1e-5}
	e, err := New(cfg, func(yield func(Kernel, error) bool) {
		for i := range b.N {
			a := measure.Seconds(float64(i) * 1e-5)
			if !yield(Kernel{Name: i % 7, Start: a, End: a + 0.8e-5}, nil) {
				return
			}
		}
	})
	if err != nil {
		b.Fatal(err)
	}
	defer e.Close()
	b.ReportAllocs()
	b.ResetTimer()
	for t := -1e-4; t < float64(cfg.Window.To)+1e-3; t += 5e-5 {
		if err := e.Add(t, 100); err != nil {
			b.Fatal(err)
		}
	}
	if _, err := e.Result(); err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "kernels/s")
}

// What a sum leaves goes to those that are least known: a name's 4 J ± 0.1 J do not take on a tenth of the remainder of
// 1 J that pauses of 6 J ± 1 J leave.
func TestRemainderIsAdjustedByVariance(t *testing.T) {
	e := []Entry{{Energy: 4, U: 0.1}, {Energy: 6, U: 1}, {Energy: -0.1, U: 0.01}}
	if !Distribute(e, 11, 100) {
		t.Fatal("nothing to distribute by")
	}
	if a, b, c := e[0].Shared, e[1].Shared, e[2].Shared; math.Abs(float64(a-4)) > 0.1 || math.Abs(float64(b-7)) > 0.15 || c != 0 ||
		math.Abs(float64(a+b+c-11)) > 1e-9 {
		t.Errorf("%v, %v, %v", a, b, c)
	}
	if e[0].UShared > 0.12 || e[1].UShared < 1 {
		t.Errorf("U %v, %v", e[0].UShared, e[1].UShared)
	}
	// Without a U they are in proportion.
	if e = []Entry{{Energy: 1}, {Energy: 3}}; !Distribute(e, 8, 8) || e[0].Shared != 2 || e[1].Shared != 6 {
		t.Errorf("%+v", e)
	}
}

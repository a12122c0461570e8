package attribute

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/wattmark/wattmark/internal/coverage"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/clock"
	"gonum.org/v1/gonum/mat"
)

// tiny is a window full of short kernels of known power behind a first-order response of 0.1 ms.
type tiny struct {
	length         float64 // s
	period, window float64 // of the meter, s; no window: an instant
	noise          float64 // W
	uClock         float64 // s
	// The response: poles of these time constants, s, and how much of a step is behind each.
	taus, parts   []float64
	memory, brief float64    // of the model, s
	step, jitter  float64    // of the stamps, s; zero: exact
	vary          float64    // of a launch's length, relative
	instant       bool       // the average is a part of the response, of which the model knows nothing
	gap           [2]float64 // the least and most, s
	power, spans  []float64
	order         func(rng *rand.Rand, i int) int
}

const tau = 1e-4

// play simulates one window. It returns the solution and the true energies by name.
func (c *tiny) play(t testing.TB, rng *rand.Rand) (Solution, []float64, float64) {
	t.Helper()
	names := len(c.power)
	offset := c.uClock * rng.NormFloat64()
	var ks []Kernel
	truth := make([]float64, names+2)
	columns := make([]int, names)
	for i := range columns {
		columns[i] = i
	}
	lagged := make([]float64, len(c.taus))
	for i := range lagged {
		lagged[i] = 60
	}
	stamp := func(t float64) measure.Seconds {
		t -= offset
		if c.jitter > 0 {
			t += c.jitter * rng.NormFloat64()
		}
		if c.step > 0 {
			t = math.Floor(t/c.step) * c.step
		}
		return measure.Seconds(t)
	}
	at, begin, energy, total := 1e-3, 0.0, 0.0, 0.0
	type point struct{ t, e float64 } // the integral of the lagged power
	next, last, first := rng.Float64()*c.period, 0.0, 0.0
	var readings, opens []point
	advance := func(to, p float64) { // through a stretch of constant power, with the readings in it
		for {
			open := math.Inf(1)
			if c.window > 0 {
				open = first + float64(len(opens))*c.period - c.window
			}
			stop := min(to, next, open)
			energy += p * (stop - begin)
			v := 0.0
			for i, tau := range c.taus {
				change := (p - lagged[i]) * -math.Expm1(-(stop-begin)/tau)
				lagged[i] += change
				energy -= c.parts[i] * tau * change
				v += c.parts[i] * lagged[i]
			}
			total += p * (stop - begin)
			begin = stop
			switch {
			case stop == open && open < math.Inf(1):
				opens = append(opens, point{stop, energy})
			case stop == next && next <= to:
				if c.window > 0 {
					v = (energy - opens[len(readings)].e) / c.window
				}
				readings = append(readings, point{next, v + c.noise*rng.NormFloat64()})
				next += c.period
			}
			if stop >= to {
				return
			}
		}
	}
	if c.window > 0 {
		next += c.window
	}
	first = next
	advance(at, 60)
	for i := 0; at < c.length-2e-3; i++ {
		n := c.order(rng, i)
		long := c.spans[n]
		if c.vary > 0 {
			long *= 1 + c.vary*rng.NormFloat64()
		}
		end := at + long
		advance(end, c.power[n])
		truth[n] += c.power[n] * long
		ks = append(ks, Kernel{Name: n, Start: stamp(at), End: stamp(end)})
		last = c.gap[0] + (c.gap[1]-c.gap[0])*rng.Float64()
		advance(end+last, 80)
		truth[names] += 80 * last
		at = end + last
	}
	truth[names] -= 80 * last // behind the last one it is idle
	truth[names+1] = 60*1e-3 + 80*last + 60*(c.length-at)
	advance(c.length, 60)
	average := measure.Seconds(c.window)
	if c.instant {
		average = 0
	}
	s, err := NewSolver(Model{
		Window: measure.Window{From: 0, To: measure.Seconds(c.length)},
		Clock:  clock.Fit{B: 1, VarA: c.uClock * c.uClock}, Memory: measure.Seconds(c.memory), Average: average, ULate: tau,
		Columns: columns, Brief: measure.Seconds(c.brief),
	}, each(ks))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, r := range readings {
		if err := s.Add(r.t, r.e, 1); err != nil {
			t.Fatal(err)
		}
	}
	x, err := s.Solve(measure.Joule(total))
	if err != nil {
		t.Fatal(err)
	}
	return x, truth, total
}

// ten are kernels of 20 to 200 µs and 80 to 400 W, in random order.
func ten(length, period, window float64) tiny {
	c := tiny{
		length: length, period: period, window: window, noise: 2, uClock: 5e-7,
		taus: []float64{tau}, parts: []float64{1}, memory: 1e-3, gap: [2]float64{1e-6, 5e-6},
	}
	for i := range 10 {
		c.spans = append(c.spans, 20e-6*float64(1+i))
		c.power = append(c.power, 80+320*float64(i*7%10)/9)
	}
	c.order = func(rng *rand.Rand, _ int) int { return rng.IntN(10) }
	return c
}

// checkSum holds the entries against the window: they come to it, and each lies within the bounds.
func checkSum(t *testing.T, x *Solution, total float64) {
	t.Helper()
	var sum float64
	for _, e := range x.Entries {
		sum += float64(e.Shared)
		if e.Shared < 0 || 2*float64(e.UShared) > total*(1+1e-12) {
			t.Errorf("%v ± %v J in a window of %v J", e.Shared, 2*e.UShared, total)
		}
	}
	if math.Abs(sum/total-1) > 1e-12 {
		t.Errorf("the entries come to %v J of %v", sum, total)
	}
}

// The true energies lie within U in 93 to 97 % of the entries, single names or groups.
func TestShortKernelsAreWithinU(t *testing.T) {
	coverage.Long(t)
	for _, c := range []struct {
		name  string
		scene tiny
	}{
		{"4.8 kS/s", ten(1, 1/4.8e3, 0)},
		{"20 kS/s", ten(0.5, 1/20e3, 0)},
		{"25 ms each 100 ms", ten(20, 0.1, 0.025)},
	} {
		t.Run(c.name, func(t *testing.T) {
			runs := 15
			if c.scene.window > 0 {
				runs = 5
			}
			if coverage.Slow {
				runs = 100
			}
			var n tally
			for seed := range uint64(runs) {
				x, truth, total := c.scene.play(t, rand.New(rand.NewPCG(seed, 77)))
				checkSum(t, &x, total)
				n.add(&x, truth)
			}
			t.Log(n)
			scatter := 2 * math.Sqrt(0.95*0.05/float64(n.of)) // of a share of so many
			low, high := 0.93-scatter, 0.97+scatter
			if p := float64(n.inside) / float64(n.of); p < low || p > high {
				t.Error(n)
			}
		})
	}
}

// tally counts entries that hold the truth, as fitted and with the remainder distributed.
type tally struct {
	of, single, inside, shared int
	u                          float64 // sum of U over the truth
}

func (n *tally) add(x *Solution, truth []float64) {
	for _, e := range x.Entries {
		if e.Apart {
			continue
		}
		var want float64
		for _, c := range e.Columns {
			want += truth[c]
		}
		n.of++
		n.u += 2 * float64(e.U) / want
		if len(e.Columns) == 1 {
			n.single++
		}
		if math.Abs(float64(e.Energy)-want) <= 2*float64(e.U) {
			n.inside++
		}
		if math.Abs(float64(e.Shared)-want) <= 2*float64(e.UShared) {
			n.shared++
		}
	}
}

func (n tally) String() string {
	of := float64(n.of) / 100
	return fmt.Sprintf("%.1f %% of %d entries within U (%.1f %% with the remainder), %d single, mean U %.2g %%",
		float64(n.inside)/of, n.of, float64(n.shared)/of, n.single, n.u/of)
}

// At least 93 % of the entries hold the truth where stamps are as coarse as the pauses, and where the response is
// no row of steps, begins at an instant that the clock fit knows to 20 µs, and goes on behind the memory.
func TestShortKernelsOnOtherCards(t *testing.T) {
	coverage.Long(t)
	coarse := func(c *tiny, _ *rand.Rand) { c.step, c.jitter = 1e-6, 0.5e-6 }
	for name, change := range map[string]func(c *tiny, rng *rand.Rand){
		"stamps of 1 µs":   coarse,
		"even pauses":      func(c *tiny, rng *rand.Rand) { coarse(c, rng); c.gap = [2]float64{2e-6, 2e-6} },
		"pauses of 40 µs":  func(c *tiny, _ *rand.Rand) { c.gap = [2]float64{20e-6, 60e-6} },
		"a pole of 30 µs":  func(c *tiny, _ *rand.Rand) { c.gap, c.taus[0] = [2]float64{20e-6, 60e-6}, 30e-6 },
		"a ramp of 0.2 ms": func(c *tiny, _ *rand.Rand) { c.taus[0], c.window, c.instant = 1e-6, 2e-4, true },
		"a tail of 3 to 8 ms": func(c *tiny, rng *rand.Rand) {
			c.taus, c.parts = []float64{80e-6, 3e-3 + 5e-3*rng.Float64()}, []float64{0.85, 0.15}
		},
		"bursts by name": func(c *tiny, rng *rand.Rand) {
			coarse(c, rng)
			left, name := 0, 0
			c.order = func(rng *rand.Rand, _ int) int {
				if left--; left < 0 {
					left, name = 2+rng.IntN(30), rng.IntN(10)
				}
				return name
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			var n tally
			runs := 4
			if coverage.Slow {
				runs = 40
			}
			for seed := range uint64(runs) {
				rng := rand.New(rand.NewPCG(seed, 78))
				c := ten(0.5, 1/20e3, 0)
				c.uClock, c.memory, c.brief, c.vary = 20e-6, 2e-3, 6e-3, 0.03
				c.taus, c.parts = []float64{50e-6 + 250e-6*rng.Float64()}, []float64{1}
				change(&c, rng)
				for i := range c.power {
					c.spans[i], c.power[i] = 20e-6+180e-6*rng.Float64(), 80+320*rng.Float64()
				}
				x, truth, total := c.play(t, rng)
				checkSum(t, &x, total)
				n.add(&x, truth)
			}
			t.Log(n)
			// The entries of a run hang together: as if there were half of them.
			if p, of := float64(n.inside), float64(n.of); p < (0.93-3*math.Sqrt(0.93*0.07/(of/2)))*of ||
				n.single < n.of*4/5 || n.u/of > 0.3 {
				t.Error(n)
			}
		})
	}
}

// Two kernels that always follow each other, beside a third at random, are not told apart by windows
// of 25 ms: their joint energy is reported.
func TestInseparableKernelsAreGrouped(t *testing.T) {
	c := tiny{
		length: 20, period: 0.1, window: 0.025, noise: 2, power: []float64{400, 100, 150}, spans: []float64{6e-5, 1.2e-4, 8e-3},
		taus: []float64{tau}, parts: []float64{1}, memory: 1e-3, gap: [2]float64{1e-6, 5e-6},
	}
	pair := false
	c.order = func(rng *rand.Rand, _ int) int {
		if pair {
			pair = false
			return 1
		}
		if rng.IntN(40) == 0 {
			return 2
		}
		pair = true
		return 0
	}
	for seed := range uint64(5) {
		pair = false
		x, truth, total := c.play(t, rand.New(rand.NewPCG(seed, 5)))
		checkSum(t, &x, total)
		i := slices.IndexFunc(x.Entries, func(e Entry) bool { return slices.Contains(e.Columns, 0) })
		e := x.Entries[i]
		if !slices.Contains(e.Columns, 1) || slices.Contains(e.Columns, 2) || x.Rank >= x.Columns {
			t.Errorf("seed %d: rank %d of %d, %+v", seed, x.Rank, x.Columns, x.Entries)
			continue
		}
		var want float64
		for _, n := range e.Columns {
			want += truth[n]
		}
		if d := math.Abs(float64(e.Energy) - want); d > 3*float64(e.U) || 2*float64(e.U) > 0.1*want {
			t.Errorf("seed %d: %v ± %v J, true %v J", seed, e.Energy, 2*e.U, want)
		}
	}
}

// What rounding leaves of a variance of zero is no U that is not a number.
func TestVarianceOfNothing(t *testing.T) {
	g := grouping{blocked: mat.NewDense(1, 1, []float64{-1e-30}), stamps: []float64{0}}
	if v := g.variance(&Entry{Columns: []int{0}}); v != 0 {
		t.Errorf("%v", v)
	}
}

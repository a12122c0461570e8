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
	power, spans   []float64
	order          func(rng *rand.Rand, i int) int
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
	at, begin, energy, lagged, total := 1e-3, 0.0, 0.0, 60.0, 0.0
	type point struct{ t, e float64 } // the integral of the lagged power
	next := rng.Float64() * c.period
	var readings, opens []point
	advance := func(to, p float64) { // through a stretch of constant power, with the readings in it
		for {
			open := math.Inf(1)
			if c.window > 0 && len(opens) <= len(readings) {
				open = next - c.window
			}
			stop := min(to, next, open)
			gain := -math.Expm1(-(stop - begin) / tau)
			before := lagged
			lagged += (p - lagged) * gain
			energy += p*(stop-begin) - tau*(lagged-before)
			total += p * (stop - begin)
			begin = stop
			switch {
			case stop == open && open < math.Inf(1):
				opens = append(opens, point{stop, energy})
			case stop == next && next <= to:
				v := lagged
				if c.window > 0 {
					v = (energy - opens[len(opens)-1].e) / c.window
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
	advance(at, 60)
	for i := 0; at < c.length-2e-3; i++ {
		n := c.order(rng, i)
		end := at + c.spans[n]
		advance(end, c.power[n])
		truth[n] += c.power[n] * c.spans[n]
		ks = append(ks, Kernel{Name: n, Start: measure.Seconds(at - offset), End: measure.Seconds(end - offset)})
		gap := 1e-6 + 4e-6*rng.Float64()
		advance(end+gap, 80)
		truth[names] += 80 * gap
		at = end + gap
	}
	truth[names] -= 80 * (at - float64(ks[len(ks)-1].End) - offset) // behind the last one it is idle
	truth[names+1] = 60*1e-3 + 80*(at-float64(ks[len(ks)-1].End)-offset) + 60*(c.length-at)
	advance(c.length, 60)
	s, err := NewSolver(Model{
		Window: measure.Window{From: 0, To: measure.Seconds(c.length)},
		Clock:  clock.Fit{B: 1, VarA: c.uClock * c.uClock}, Memory: 1e-3, Average: measure.Seconds(c.window), ULate: tau,
		Columns: columns,
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
	c := tiny{length: length, period: period, window: window, noise: 2, uClock: 5e-7}
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
			inside, shared, of, single, share := 0, 0, 0, 0, 0.0
			for seed := range uint64(runs) {
				x, truth, total := c.scene.play(t, rand.New(rand.NewPCG(seed, 77)))
				checkSum(t, &x, total)
				for _, e := range x.Entries {
					var want float64
					for _, n := range e.Columns {
						want += truth[n]
					}
					of++
					share += 2 * float64(e.U) / want
					if len(e.Columns) == 1 {
						single++
					}
					if math.Abs(float64(e.Energy)-want) <= 2*float64(e.U) {
						inside++
					}
					if math.Abs(float64(e.Shared)-want) <= 2*float64(e.UShared) {
						shared++
					}
				}
			}
			got := fmt.Sprintf("%.1f %% of %d entries within U (%.1f %% with the remainder), %d single, mean U %.2g %%",
				100*float64(inside)/float64(of), of, 100*float64(shared)/float64(of), single, 100*share/float64(of))
			t.Log(got)
			scatter := 2 * math.Sqrt(0.95*0.05/float64(of)) // of a share of so many
			low, high := 0.93-scatter, 0.97+scatter
			if p := float64(inside) / float64(of); p < low || p > high {
				t.Error(got)
			}
		})
	}
}

// Two kernels that always follow each other, beside a third at random, are not told apart by windows
// of 25 ms: their joint energy is reported.
func TestInseparableKernelsAreGrouped(t *testing.T) {
	c := tiny{
		length: 20, period: 0.1, window: 0.025, noise: 2, power: []float64{400, 100, 150}, spans: []float64{6e-5, 1.2e-4, 8e-3},
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
	g := grouping{blocked: mat.NewDense(1, 1, []float64{-1e-30})}
	if v := g.variance(&Entry{Columns: []int{0}}); v != 0 {
		t.Errorf("%v", v)
	}
}

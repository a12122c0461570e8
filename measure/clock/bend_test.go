package clock_test

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/clock"
)

// wanderer are clocks that part by a rate which walks at random, a sine of the temperature and white phase noise of
// each mark.
type wanderer struct {
	walk, warm, period, noise float64
	rng                       *rand.Rand
}

// path is by how much the meter is ahead at each second.
func (w wanderer) path(seconds int) []float64 {
	out, rate := make([]float64, seconds+1), 0.0
	phase := 2 * math.Pi * w.rng.Float64()
	for i := range seconds {
		rate += w.walk * w.rng.NormFloat64()
		warm := 0.0
		if w.period > 0 {
			warm = w.warm * math.Sin(phase+2*math.Pi*float64(i)/w.period)
		}
		out[i+1] = out[i] + rate + warm
	}
	return out
}

// bent fits an hour with marks some so many seconds apart, and returns the errors over U at instants between.
func (w wanderer) bent(t *testing.T, every int, stated float64) (z []float64, u float64) {
	t.Helper()
	const hour = 3600
	path := w.path(hour)
	var marks []clock.Obs
	for at := 0; at <= hour; at += every - every/10 + w.rng.IntN(every/5+1) {
		marks = append(marks, clock.Obs{
			Host: measure.Seconds(at), U: measure.Seconds(stated),
			Meter: measure.Seconds(float64(at) + 5 + path[at] + w.noise*w.rng.NormFloat64()),
		})
	}
	f, left, err := clock.Fit{A: 5, B: 1, VarA: 1e-6, VarB: 1e-12}.Bend(marks, 0, 0)
	if err != nil || left > 0 {
		t.Fatalf("%d of %d marks left out: %v", left, len(marks), err)
	}
	last := int(marks[len(marks)-1].Host)
	for range 200 {
		at := w.rng.IntN(last)
		m, um := f.Meter(measure.Seconds(at))
		if host, _ := f.Host(m); math.Abs(float64(host)-float64(at)) > 1e-9 {
			t.Fatalf("%d s is %v, and that %v", at, m, host)
		}
		z = append(z, (float64(m)-float64(at)-5-path[at])/(2*float64(um)))
		u += float64(um) / 200
	}
	return z, u
}

// Between marks the clocks are within U, whether they walk, are warmed, or the marks scatter more than stated.
func TestBendHoldsWanderingClocks(t *testing.T) {
	for name, c := range map[string]struct {
		w      wanderer
		every  int
		stated float64
		least  float64
		most   float64
	}{
		"a walk of the rate":          {wanderer{walk: 20e-9, noise: 5e-6}, 60, 5e-6, 0.93, 0.985},
		"a slow walk":                 {wanderer{walk: 1e-9, noise: 5e-6}, 60, 5e-6, 0.93, 0.985},
		"quiet":                       {wanderer{noise: 5e-6}, 60, 5e-6, 0.93, 0.985},
		"warmed by 1 ppm":             {wanderer{walk: 2e-9, warm: 1e-6, period: 1800, noise: 5e-6}, 60, 5e-6, 0.93, 0.99},
		"marks worse than stated":     {wanderer{walk: 2e-9, noise: 20e-6}, 60, 5e-6, 0.90, 0.985},
		"a mark in five minutes":      {wanderer{walk: 20e-9, noise: 5e-6}, 300, 5e-6, 0.90, 1},
		"warmed, a mark in 5 minutes": {wanderer{warm: 1e-6, period: 3600, noise: 5e-6}, 300, 5e-6, 0.93, 1},
	} {
		t.Run(name, func(t *testing.T) {
			in, n, u := 0.0, 0.0, 0.0
			for seed := range uint64(40) {
				c.w.rng = rand.New(rand.NewPCG(seed, 77))
				z, um := c.w.bent(t, c.every, c.stated)
				u += um / 40
				for _, z := range z {
					if n++; math.Abs(z) <= 1 {
						in++
					}
				}
			}
			t.Logf("%.1f %% within U, mean u %.2f µs", 100*in/n, 1e6*u)
			if p := in / n; p < c.least || p > c.most {
				t.Errorf("%.3f within U, want %.2f to %.3f", p, c.least, c.most)
			}
		})
	}
}

// A mark that is another's is left out; where many are, or few are left, there is no fit.
func TestBendLeavesOut(t *testing.T) {
	marks := func(n int, wrong ...int) []clock.Obs {
		rng := rand.New(rand.NewPCG(3, 3))
		out := make([]clock.Obs, n)
		for i := range out {
			at := measure.Seconds(60 * i)
			out[i] = clock.Obs{Host: at, Meter: at + measure.Seconds(5e-6*rng.NormFloat64()), U: 5e-6}
		}
		for _, i := range wrong {
			out[i].Meter += 3e-3
		}
		return out
	}
	f, left, err := clock.Fit{B: 1}.Bend(marks(30, 7, 20), 0, 0)
	if err != nil || left != 2 || len(f.Knots) != 28 {
		t.Errorf("%d left out, %d knots, %v", left, len(f.Knots), err)
	}
	if m, u := f.Meter(7 * 60); math.Abs(float64(m)-7*60) > 20e-6 || u > 20e-6 {
		t.Errorf("at the wrong mark: %v ± %v", m, u)
	}
	// Where many are wrong, which ones is not known: U is that of all.
	if f, _, err = (clock.Fit{B: 1}).Bend(marks(9, 2, 4, 5, 7), 0, 0); err != nil {
		t.Error(err)
	} else if m, u := f.Meter(240); float64(m)-240 > 2*float64(u) {
		t.Errorf("at one of four wrong marks of nine: %v ± %v", m, u)
	}
	bad := marks(3)
	bad[1].U = 0
	for name, m := range map[string][]clock.Obs{
		"none": nil, "two": marks(2), "without U": bad,
	} {
		if f, _, err := (clock.Fit{B: 1}).Bend(m, 0, 0); !errors.Is(err, clock.ErrObservations) || f.Knots != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The ends of a short span move together, those of distant ones apart.
func TestBendCovariance(t *testing.T) {
	marks := []clock.Obs{{Host: 0, Meter: 0, U: 1e-5}, {Host: 60, Meter: 60, U: 1e-5}, {Host: 120, Meter: 120, U: 1e-5}}
	f, _, err := clock.Fit{B: 1}.Bend(marks, 0, 1e-7)
	if err != nil {
		t.Fatal(err)
	}
	if e := f.Edges(30, 30.02); e.Correlation < 0.999 {
		t.Errorf("over 20 ms: %+v", e)
	}
	if e := f.Edges(0, 120); math.Abs(e.Correlation) > 1e-9 {
		t.Errorf("from mark to mark: %+v", e)
	}
}

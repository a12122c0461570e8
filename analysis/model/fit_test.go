package model

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/wattmark/wattmark/measure"
	"gonum.org/v1/gonum/mat"
)

func rng(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 2)) }

// plane draws rows around a known plane. The counters have very different sizes,
// as those of a GPU do.
func plane(r *rand.Rand, n int, intercept float64, coefficients []float64, noise float64) *Data {
	d := &Data{}
	for j := range coefficients {
		d.Counters = append(d.Counters, fmt.Sprintf("c%d", j))
	}
	for i := range n {
		row := Row{Name: fmt.Sprintf("k%d", i), Group: fmt.Sprintf("app%d", i/3), X: make([]float64, len(coefficients))}
		p := intercept + noise*r.NormFloat64()
		for j, c := range coefficients {
			row.X[j] = math.Pow(10, float64(3*j)) * r.Float64()
			p += c * row.X[j]
		}
		row.Power = measure.Watt(p)
		d.Rows = append(d.Rows, row)
	}
	return d
}

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func near(t testing.TB, what string, got, want, tolerance float64) {
	t.Helper()
	if !(math.Abs(got-want) <= tolerance*max(1, math.Abs(want))) {
		t.Errorf("%s: %.15g, want %.15g", what, got, want)
	}
}

// Without noise the plane itself is found, whatever the counters' sizes.
func TestFindsTheTrueCoefficients(t *testing.T) {
	truth := []float64{30, -0.012, 4e-5, 3e-8}
	d := plane(rng(1), 30, 70, truth, 0)
	for _, m := range []Method{LeastSquares, Ridge, Lasso} {
		f, err := Train(d, Options{Method: m})
		ok(t, err)
		near(t, "intercept", float64(f.Intercept), 70, 1e-9)
		for j, c := range truth {
			near(t, fmt.Sprint(m, j), f.Coefficients[j]*f.Max[j], c*f.Max[j], 1e-9)
		}
		if f.Sigma > 1e-9 {
			t.Errorf("%s: residuals of %v", m, f.Sigma)
		}
	}
	f, err := Train(d, Options{Method: NonNegative})
	ok(t, err)
	if f.Coefficients[1] != 0 || f.Coefficients[0] <= 0 {
		t.Errorf("not above zero: %v", f.Coefficients)
	}
}

// The conditions of Karush, Kuhn and Tucker hold for what the descent returns,
// also with collinear columns and with more columns than rows.
func TestDescentIsOptimal(t *testing.T) {
	r := rng(4)
	for trial := range 60 {
		n, p := 4+r.IntN(30), 1+r.IntN(14)
		z, y := mat.NewDense(n, p, nil), mat.NewVecDense(n, nil)
		for i := range n {
			y.SetVec(i, 10*r.NormFloat64())
			for j := range p {
				if z.Set(i, j, r.NormFloat64()); j > 0 && j%4 == 0 {
					z.Set(i, j, z.At(i, j-1)+1e-3*z.At(i, j))
				}
			}
		}
		g := mat.NewSymDense(p, nil)
		g.SymOuterK(1, z.T())
		var b mat.VecDense
		b.MulVec(z.T(), y)
		scale := 2 * mat.Norm(&b, math.Inf(1))
		for _, x := range []rule{{l1: scale * 0.03}, {l1: scale * 0.5}, {l1: scale * 1.01}, {l2: 0.5, positive: true}, {l2: 1e-6, positive: true}, {l1: 1, l2: 1}} {
			w, err := descend(g, b.RawVector().Data, x)
			ok(t, err)
			grad := make([]float64, p)
			residual(g, b.RawVector().Data, w, grad)
			if v := x.violation(grad, w); v > kktLimit*scale {
				t.Fatalf("trial %d, %+v: violated by %g", trial, x, v)
			}
			for _, v := range w {
				if x.positive && v < 0 || x.l1 > scale && v != 0 {
					t.Fatalf("trial %d, %+v: weights %v", trial, x, w)
				}
			}
		}
	}
}

// A larger α makes ridge weights smaller, none infinite, and an absurd one leaves
// the mean.
func TestRidgeShrinks(t *testing.T) {
	d := plane(rng(2), 25, 70, []float64{30, 0.02}, 3)
	last := math.Inf(1)
	for _, a := range []float64{0, 0.1, 10, 1e3, 1e12} {
		f, err := Train(d, Options{Method: Ridge, Alpha: a})
		ok(t, err)
		var size float64
		for _, w := range f.Weights {
			size += float64(w * w)
		}
		if size >= last {
			t.Errorf("α = %g: %g, not below %g", a, size, last)
		}
		last = size
	}
	if last > 1e-12 {
		t.Errorf("α = 10¹² leaves %g", last)
	}
}

// A rank that is short does not make a fit fail or explode; fewer rows than
// counters neither.
func TestShortRank(t *testing.T) {
	d := plane(rng(3), 20, 70, []float64{30, 0.02, 0}, 1)
	for i := range d.Rows {
		d.Rows[i].X[2] = 3e6*d.Rows[i].X[0] - 7*d.Rows[i].X[1]
	}
	for _, n := range []int{20, 3} {
		for _, m := range Methods() {
			for _, a := range []float64{0, 1} {
				if n == 3 && a == 0 && (m == Lasso || m == NonNegative) {
					continue
				}
				f, err := Train(d.part([]int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19}[:n]), Options{Method: m, Alpha: a})
				ok(t, err)
				for _, w := range f.Weights {
					if !(math.Abs(float64(w)) < 1e3) {
						t.Errorf("%d rows, %s α=%g: weights %v", n, m, a, f.Weights)
					}
				}
			}
		}
	}
	g, err := Diagnose(d)
	ok(t, err)
	if !math.IsInf(g.Condition, 1) && g.Condition < 1e12 || g.VIF[2] < 1e9 {
		t.Errorf("condition %g, VIF %v", g.Condition, g.VIF)
	}
	if !has(g.Warnings, Collinear, "c2") || !has(g.Warnings, Condition, "") {
		t.Errorf("%+v", g.Warnings)
	}
	// Off the plane of the training rows, the leverage is infinite.
	f, err := Train(d, Options{Method: Ridge, Alpha: 1})
	ok(t, err)
	x := append([]float64{}, d.Rows[0].X...)
	x[2] += 1e6
	e, err := f.Estimate(x)
	ok(t, err)
	if !math.IsInf(e.Leverage, 1) || !has(e.Warnings, FarOff, "") {
		t.Errorf("leverage %v, %v", e.Leverage, e.Warnings)
	}
}

func has(list []Warning, c Code, counter string) bool {
	for _, w := range list {
		if w.Code == c && (counter == "" || w.Counter == counter || w.Row == counter) {
			return true
		}
	}
	return false
}

// VIF is 1/(1 − R²) of a regression on the other counters; the leverages' mean is
// (rank + 1)/n.
func TestDiagnosis(t *testing.T) {
	d := plane(rng(5), 50, 70, []float64{30, 0.02, 1e-6}, 1)
	for i := range d.Rows {
		d.Rows[i].X[2] += 1000 * d.Rows[i].X[1]
	}
	g, err := Diagnose(d)
	ok(t, err)
	other := &Data{Counters: []string{"a", "b"}}
	for _, r := range d.Rows {
		other.Rows = append(other.Rows, Row{Name: r.Name, Power: measure.Watt(r.X[2]), X: r.X[:2]})
	}
	f, err := Train(other, Options{Method: LeastSquares})
	ok(t, err)
	var got, want []measure.Watt
	for _, r := range other.Rows {
		got, want = append(got, f.Power(r.X)), append(want, r.Power)
	}
	near(t, "VIF", g.VIF[2], 1/(1-float64(NewScore(want, got).R2)), 1e-9)

	m, err := Train(d, Options{Method: Ridge, Alpha: 1})
	ok(t, err)
	var sum float64
	for _, r := range d.Rows {
		e, err := m.Estimate(r.X)
		ok(t, err)
		sum += e.Leverage
		if has(e.Warnings, OutOfRange, "") {
			t.Errorf("a training row is out of range: %v", e.Warnings)
		}
	}
	near(t, "mean leverage", sum/50, 4./50, 1e-9)
}

// What the counters and the intercept add makes the estimate.
func TestContributions(t *testing.T) {
	d := plane(rng(6), 30, 70, []float64{30, -0.012, 4e-5}, 5)
	f, err := Train(d, Options{Method: Ridge, Alpha: 1})
	ok(t, err)
	for _, r := range d.Rows {
		e, err := f.Estimate(r.X)
		ok(t, err)
		sum := f.Intercept
		for _, c := range e.Contributions {
			sum += c
		}
		near(t, "sum", float64(sum), float64(e.Power), 1e-12)
	}
}

// A fit that was kept as JSON estimates the same, intervals and warnings too.
func TestFitKeeps(t *testing.T) {
	d := plane(rng(7), 40, 70, []float64{30, 0.02, 4e-5}, 5)
	f, err := Train(d, Options{Method: Ridge, Alpha: Auto})
	ok(t, err)
	ok(t, f.Calibrate(d, false))
	b, err := json.Marshal(f)
	ok(t, err)
	var g Fit
	ok(t, json.Unmarshal(b, &g))
	x := []float64{2, 500, 1e5}
	e1, err := f.Estimate(x)
	ok(t, err)
	e2, err := g.Estimate(x)
	ok(t, err)
	i1, ok1 := f.Jackknife(x, 0.9)
	i2, ok2 := g.Jackknife(x, 0.9)
	a1, _ := f.Analytic(x, 0.9)
	a2, _ := g.Analytic(x, 0.9)
	if e1.Power != e2.Power || e1.Leverage != e2.Leverage || len(e1.Warnings) != len(e2.Warnings) || !ok1 || !ok2 || i1 != i2 || a1 != a2 {
		t.Errorf("%+v %+v %v %v", e1, e2, i1, i2)
	}
	if !has(e1.Warnings, OutOfRange, "c0") {
		t.Errorf("not told: %v", e1.Warnings)
	}
}

func TestRefuses(t *testing.T) {
	good := func() *Data { return plane(rng(8), 12, 70, []float64{30, 0.02}, 5) }
	for _, c := range []struct {
		name   string
		change func(*Data)
		o      Options
		want   error
		words  string
	}{
		{"α", func(*Data) {}, Options{Method: Ridge, Alpha: -1}, ErrOptions, "α = -1"},
		{"method", func(*Data) {}, Options{Method: "magic"}, ErrOptions, "magic"},
		{"rows", func(d *Data) { d.Rows = d.Rows[:2] }, Options{Method: Ridge}, ErrData, "2 rows"},
		{"NaN", func(d *Data) { d.Rows[4].X[1] = math.NaN() }, Options{Method: Ridge}, ErrData, `row 5 (k4): counter "c1"`},
		{"power", func(d *Data) { d.Rows[3].Power = 0 }, Options{Method: Ridge}, ErrData, "row 4 (k3): power 0"},
		{"twice", func(d *Data) { d.Counters[1] = "c0" }, Options{Method: Ridge}, ErrData, `"c0" is there twice`},
		{"short", func(d *Data) { d.Rows[2].X = d.Rows[2].X[:1] }, Options{Method: Ridge}, ErrData, "row 3"},
		{"none", func(d *Data) { d.Counters = nil }, Options{Method: Ridge}, ErrData, "no counter"},
		{"folds", func(*Data) {}, Options{Method: Ridge, AlphaFolds: 1}, ErrOptions, "1 folds"},
	} {
		d := good()
		c.change(d)
		if _, err := Train(d, c.o); !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.words) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	f, err := Train(good(), Options{Method: Ridge, Alpha: 1})
	ok(t, err)
	for _, x := range [][]float64{{1}, {1, math.Inf(1)}, {math.NaN(), 1}, {1e308, 1e308}} {
		if _, err := f.Estimate(x); err == nil && !(x[0] == 1e308 && math.Abs(f.Coefficients[0]) < 1) {
			t.Errorf("%v was estimated", x)
		}
	}
}

func BenchmarkTrain(b *testing.B) {
	d := plane(rng(1), 100, 70, []float64{30, -0.012, 4e-5, 0, 1e-11, -2e-14, 1e-17, 0, 0, 0, 0, 0}, 6)
	for _, m := range Methods() {
		b.Run(string(m), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Train(d, Options{Method: m, Alpha: 1}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

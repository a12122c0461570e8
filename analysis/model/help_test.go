package model

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"wattmark/measure"
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

package figure

import (
	"bytes"
	"math"
	"strings"
	"testing"

	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
)

func TestTicker(t *testing.T) {
	for _, c := range []struct {
		lo, hi float64
		about  int
		want   string
	}{
		{-0.1, 2.05, 6, "0 0.5 1 1.5 2"},
		{0, 253, 5, "0 100 200"},
		{0, 490, 5, "0 100 200 300 400"},
		{0, 0.0031, 5, "0 0.001 0.002 0.003"},
		{5, 5, 5, ""},
	} {
		var got []string
		for _, x := range Ticks(c.about).Ticks(c.lo, c.hi) {
			got = append(got, x.Label)
		}
		if s := strings.Join(got, " "); s != c.want {
			t.Errorf("%v to %v: %s, want %s", c.lo, c.hi, s, c.want)
		}
	}
}

// A plot carries its series, their names and fonts that other machines have.
func TestSave(t *testing.T) {
	p := New("a title", "time / s", "power / W")
	p.Add(Grid())
	xy := plotter.XYs{{X: 0, Y: 1}, {X: 1, Y: 2}}
	for _, err := range []error{
		Box(p, "a band", Band, 0, 0, 1, 1),
		Add(p, "a line", Style{Color: Blue, Width: 1, Dashed: true}, xy),
		Add(p, "some dots", Style{Color: Vermillion, Radius: 1}, xy),
		Add(p, "nothing", Style{Color: Green, Width: 1}, nil),
		Between(p, "no area", Sky, nil, nil),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	var b bytes.Buffer
	if err := Save(&b, p, 8*vg.Centimeter, 6*vg.Centimeter); err != nil {
		t.Fatal(err)
	}
	for _, s := range []string{"a title", "time / s", "a band", "a line", "some dots", Hex(Vermillion), "Liberation Sans,Arial"} {
		if !strings.Contains(b.String(), s) {
			t.Errorf("no %q in the drawing", s)
		}
	}
	for _, s := range []string{"nothing", "no area", "Liberation Sans;"} {
		if strings.Contains(b.String(), s) {
			t.Errorf("%q in the drawing", s)
		}
	}
	if err := Add(p, "bad", Style{Width: 1}, plotter.XYs{{X: 0, Y: math.NaN()}}); err == nil {
		t.Error("a line to nowhere was drawn")
	}
}

func TestColoursDiffer(t *testing.T) {
	seen := map[string]bool{}
	for i := range len(series) {
		if h := Hex(Series(i)); seen[h] {
			t.Errorf("series %d repeats %s", i, h)
		} else {
			seen[h] = true
		}
	}
	if Series(len(series)) != Series(0) {
		t.Error("colours do not repeat")
	}
}

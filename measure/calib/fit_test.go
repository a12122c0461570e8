package calib

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"
)

// truth is a channel whose gain and zero are off by drawn amounts, held against
// a reference that is off by one drawn amount.
type drawn struct{ gain, zero, ref float64 }

// Whatever was drawn, the calibrated channel's true value lies within twice its
// stated uncertainty in about 95 of 100 cases, between zero and the largest point.
func TestACalibratedChannelIsAsGoodAsItSays(t *testing.T) {
	c := ampere()
	c.Offset = 0
	for name, values := range map[string][]float64{
		"one value": {5}, "two values": {2, 10}, "five values": {1, 2, 4, 6, 10}, "both signs": {-10, -5, 5, 10}, "low ones": {0.2, 0.4},
	} {
		rng := rand.New(rand.NewPCG(3, uint64(len(values))))
		const uRef, uReading = 1e-3, 2e-3
		inside, cases := 0, 0
		for range 600 {
			d := drawn{1 + c.UGain*rng.NormFloat64(), c.UOffset * rng.NormFloat64(), rng.NormFloat64()}
			read := func(v float64) float64 { return (v - d.zero) / d.gain }
			var points []Point
			for _, v := range values {
				u := uRef * math.Abs(v)
				points = append(points, Point{Value: v, U: u, Reading: read(v+u*d.ref) + uReading*rng.NormFloat64(), UReading: uReading})
			}
			l, err := Fit(c, points)
			if err != nil {
				t.Fatal(err)
			}
			s := l.Scale(c, nil)
			for _, f := range []float64{0, 0.3, 0.6, 1} {
				v := f * values[len(values)-1]
				got := s.Offset + s.Gain*read(v)/c.Gain
				if u := math.Hypot(s.UOffset, s.UGain*v); math.Abs(got-v) <= 2*u {
					inside++
				}
				cases++
			}
		}
		share := float64(inside) / float64(cases)
		t.Logf("%s: %.1f %% within U", name, 100*share)
		if share < 0.94 {
			t.Errorf("%s: %.1f %% within U, want 95", name, 100*share)
		}
	}
}

// A reference's error is the same at all points: more of them do not help.
func TestTheReferenceDoesNotAverageOut(t *testing.T) {
	c := ampere()
	c.UOffset = 1e-4
	u := func(n int) float64 {
		var points []Point
		for range n {
			points = append(points, Point{Value: 10, U: 0.01, Reading: 10.05, UReading: 1e-5})
		}
		l, err := Fit(c, points)
		if err != nil {
			t.Fatal(err)
		}
		return l.UB / l.B
	}
	if one, many := u(1), u(50); math.Abs(one-1e-3) > 2e-5 || many < 0.99*one {
		t.Errorf("u of the gain %v with one point, %v with fifty, want 0.001 in both", one, many)
	}
}

// A channel that is not straight is not as good as its points' scatter says.
func TestACurveCostsUncertainty(t *testing.T) {
	c := ampere()
	var points []Point
	for v := 1.0; v <= 10; v++ {
		points = append(points, Point{Value: v, U: 1e-4, Reading: v + 0.01*v*(10-v)/25, UReading: 1e-5})
	}
	l, err := Fit(c, points)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range points {
		if off := math.Abs(l.A + l.B*p.Reading - p.Value); off > 2*math.Hypot(l.UA, l.UB*p.Reading) {
			t.Errorf("at %v it is off by %v, beyond U of %v", p.Value, off, 2*math.Hypot(l.UA, l.UB*p.Reading))
		}
	}
}

func TestPointsThatCannotBe(t *testing.T) {
	c := ampere()
	for name, points := range map[string][]Point{
		"none":             {},
		"no uncertainty":   {{Value: 5, Reading: 5}},
		"no reading":       {{Value: 5, U: 0.1, Reading: 0}},
		"the wrong way":    {{Value: 2, U: 0.01, Reading: -2}, {Value: 9, U: 0.01, Reading: -9}},
		"not a number":     {{Value: 5, U: 0.1, Reading: math.NaN()}},
		"a gain of a half": {{Value: 5, U: 0.01, Reading: 10}},
	} {
		if _, err := GainOf(c, c, "", points); !errors.Is(err, ErrFit) {
			t.Errorf("%s: %v", name, err)
		}
	}
	x, err := GainOf(c, c, "", []Point{{Value: 5, U: 0.005, Reading: 4.95, UReading: 1e-3}})
	if err != nil || math.Abs(x.Scale.Gain/c.Gain-5/4.95) > 1e-3 {
		t.Errorf("%+v, %v", x.Scale, err)
	}
}

func FuzzFit(f *testing.F) {
	f.Add(5.0, 0.01, 4.9, 1e-3, 10.0, 9.9, 0.1)
	f.Add(0.0, 1e300, -1e300, 0.0, 1e-300, 1.0, 0.0)
	f.Fuzz(func(t *testing.T, v, u, r, ur, v2, r2, u0 float64) {
		c := ampere()
		c.UOffset = u0
		if c.Validate() != nil {
			return
		}
		x, err := GainOf(c, c, "", []Point{{Value: v, U: u, Reading: r, UReading: ur}, {Value: v2, U: u, Reading: r2, UReading: ur}})
		if err != nil {
			return
		}
		if err := x.Scale.On(c).Validate(); err != nil {
			t.Errorf("an unsound channel: %v", err)
		}
	})
}

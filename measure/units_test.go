package measure

import (
	"encoding/json"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A unit prints as a float64 does, and NaN and the infinities as null.
func TestUnitsInJSON(t *testing.T) {
	for _, v := range []float64{0, math.Copysign(0, -1), 1, -2.5, 0.1, 1e-6, 9.99e-7, 1e-9, 1e20, 1e21, -1e22, 1. / 3, math.MaxFloat64, math.SmallestNonzeroFloat64} {
		want, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		got, err := json.Marshal(struct{ V Joule }{Joule(v)})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(`{"V":`+string(want)+`}`, string(got)); diff != "" {
			t.Errorf("%g (-float64 +Joule):\n%s", v, diff)
		}
		var back struct{ V Joule }
		if err := json.Unmarshal(got, &back); err != nil || float64(back.V) != v {
			t.Errorf("%s was read as %g (%v)", got, float64(back.V), err)
		}
	}
	for _, v := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		got, err := json.Marshal([]any{Volt(v), Ampere(v), Watt(v), Joule(v), Ohm(v), Hertz(v), Seconds(v), Decibel(v), Number(v)})
		if want := "[null,null,null,null,null,null,null,null,null]"; err != nil || string(got) != want {
			t.Errorf("%g is %s (%v), want %s", v, got, err, want)
		}
	}
	s := Seconds(1)
	if err := json.Unmarshal([]byte("null"), &s); err != nil || !math.IsNaN(float64(s)) {
		t.Errorf("null was read as %g (%v)", float64(s), err)
	}
	if err := json.Unmarshal([]byte(`"1"`), &s); err == nil {
		t.Error("a text was read as a number")
	}
}

// The table in the comment of the units.
func TestUnitsLeftOut(t *testing.T) {
	nan := Joule(math.NaN())
	type figures struct {
		Always Joule `json:"always"`
		Empty  Joule `json:"empty,omitempty"`
		Zero   Joule `json:"zero,omitzero"`
		Both   Joule `json:"both,omitempty,omitzero"`
	}
	for _, c := range []struct {
		v    Joule
		want string
	}{
		{0, `{"always":0,"zero":0}`},
		{nan, `{"always":null,"empty":null}`},
		{2, `{"always":2,"empty":2,"zero":2,"both":2}`},
	} {
		got, err := json.Marshal(figures{c.v, c.v, c.v, c.v})
		if err != nil || string(got) != c.want {
			t.Errorf("%g is %s (%v), want %s", float64(c.v), got, err, c.want)
		}
	}
}

func TestFormatQuantities(t *testing.T) {
	nan := math.NaN()
	for _, c := range []struct{ got, want string }{
		{Joule(1234.56).String(), "1.235 kJ"},
		{Joule(999.94).String(), "999.9 J"},
		{Joule(999.96).String(), "1 kJ"},
		{Watt(0).String(), "0 W"},
		{Watt(nan).String(), "NaN W"},
		{Watt(math.Inf(-1)).String(), "-Inf W"},
		{Seconds(-2.5e-6).String(), "-2.5 µs"},
		{Seconds(5.551e-17).String(), "5.551e-08 ns"},
		{FormatSI(3.2e-11, "J"), "32 pJ"},
		{FormatSI(1e-16, "J"), "0.1 fJ"},
		{FormatSI(2e12, "FLOP/s"), "2 TFLOP/s"},
		{FormatU(1234.56, 1.2, "J"), "1.2346 ± 0.0012 kJ"},
		{FormatU(12, 340, "W"), "12 ± 340 W"},
		{FormatU(12, 0, "W"), "12 W"},
		{FormatU(12, nan, "W"), "12 W"},
		{FormatPercent(0.0123), "+0.012 %"},
		{FormatPercent(-1.1e-14), "+0 %"},
		{FormatPercent(-1.234), "-1.23 %"},
	} {
		if c.got != c.want {
			t.Errorf("%q, want %q", c.got, c.want)
		}
	}
}

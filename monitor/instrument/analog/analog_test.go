package analog

import (
	"math"
	"strings"
	"testing"

	"wattmark/measure"
)

func TestCheck(t *testing.T) {
	d := Device{Inputs: 4, Ranges: []float64{10, 1}}
	good := func() []Input { return []Input{{AIN: 1, Unit: "A", PerVolt: 10, Range: 1}, {AIN: 0}} }
	if err := d.Check(good()); err != nil {
		t.Error(err)
	}
	for want, change := range map[string]func([]Input) []Input{
		"1 to 4":         func([]Input) []Input { return nil },
		"each once":      func(i []Input) []Input { i[1].AIN = 1; return i },
		"ain 4":          func(i []Input) []Input { i[1].AIN = 4; return i },
		"already":        func(i []Input) []Input { i[0].Name = "ain0"; return i },
		"V, A or W":      func(i []Input) []Input { i[0].Unit = "Ohm"; return i },
		"must be finite": func(i []Input) []Input { i[0].PerVolt = math.NaN(); return i },
		"want 10, 1":     func(i []Input) []Input { i[0].Range = 5; return i },
	} {
		if err := d.Check(change(good())); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

func TestChannel(t *testing.T) {
	c := Input{AIN: 3, Unit: "A", PerVolt: -10}.Channel(Scale{Gain: 0.001, Zero: 100, UGain: 0.01, UOffset: 0.02, Noise: 2, Max: 1000})
	if err := c.Validate(); err != nil {
		t.Error(err)
	}
	if c.Name != "ain3" || c.Unit != measure.UnitAmpere || math.Abs(c.Value(300)+2) > 1e-12 || c.UOffset != 0.2 || math.Abs(c.Noise-0.02) > 1e-12 {
		t.Errorf("%+v", c)
	}
}

package group

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/calib"
)

func part(energy float64, serial string, budget ...measure.Contribution) Part {
	var v float64
	for _, c := range budget {
		v += float64(c.U) * float64(c.U)
	}
	return Part{
		Instrument: measure.Identity{Kind: "daq", Serial: serial}, Setup: &measure.Setup{},
		Result: &measure.Result{
			Mean: measure.Watt(energy / 2), Budget: budget,
			Total: measure.Estimate{Energy: measure.Joule(energy), U: measure.Joule(2 * math.Sqrt(v))},
		},
	}
}

func sys(source string, u float64) measure.Contribution {
	return measure.Contribution{Source: source, U: measure.Joule(u), Systematic: true}
}

func at(p Part, meter string) Part {
	p.Meter = meter
	return p
}

func noise(u float64) measure.Contribution {
	return measure.Contribution{Source: "noise a", U: measure.Joule(u)}
}

// recorded puts a record on a part's channel a and shunt slot.
func recorded(t *testing.T, p Part, by string) Part {
	t.Helper()
	scale := &calib.Scale{Gain: 1, UGain: 0.01}
	r := calib.Record{
		Done: calib.Gain, At: time.Unix(1e9, 0).UTC(), By: by, Instrument: calib.Instrument{Kind: "daq"},
		Channels: []calib.Channel{{Name: "a", Unit: measure.UnitAmpere, Scale: scale, Nominal: scale, Points: []calib.Point{
			{Value: 1, U: 0.1, Reading: 1}, {Value: 2, U: 0.1, Reading: 2},
		}}},
	}
	if err := r.Seal(); err != nil {
		t.Fatal(err)
	}
	c, err := r.Travel()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := calib.Parse(c); err != nil {
		t.Fatal(err)
	}
	p.Setup = &measure.Setup{Records: []measure.CalibrationRecord{c}}
	return p
}

func near(a measure.Joule, b float64) bool { return math.Abs(float64(a)-b) <= 1e-9*(1+math.Abs(b)) }

func TestSum(t *testing.T) {
	lump := part(10, "")
	lump.Result.Total.U = 5 // of an older task: no budget
	wide := part(10, "", noise(1))
	wide.Result.Total.U = 3 // k = 3: the noise was seen in few readings
	for _, c := range []struct {
		name                        string
		parts                       []Part
		energy, independent, shared float64
		all                         float64
		lines                       int
	}{
		{"nothing", nil, 0, 0, 0, 0, 0},
		{"one", []Part{part(10, "1", sys("gain a", 3), noise(4))}, 10, 10, 0, 10, 0},
		{"two meters of a model", []Part{part(10, "1", sys("gain a", 3), noise(4)), part(20, "2", sys("gain a", 5), noise(0))}, 30, 2 * math.Sqrt(9+16+25), 0, 2 * math.Sqrt(64+16), 0},
		{"two without a serial number", []Part{part(10, "", sys("gain a", 3)), part(20, "", sys("gain a", 4))}, 30, 10, 0, 14, 0},
		{"one meter", []Part{part(10, "1", sys("gain a", 3), noise(4)), part(20, "1", sys("gain a", 5), noise(3))}, 30, 10, 16, math.Sqrt(256 + 100), 1},
		{"its other channel", []Part{part(10, "1", sys("gain a", 3)), part(20, "1", sys("gain b", 4))}, 30, 10, 0, 14, 0},
		{"its clock", []Part{part(10, "1", sys("tick rate", 1)), part(20, "1", sys("tick rate", 2))}, 30, 0, 6, 6, 1},
		{"windows and shunts are each its own", []Part{part(1, "1", sys("window edges", 3), sys("shunt s", 0)), part(1, "1", sys("window edges", 4), sys("shunt s", 0))}, 2, 10, 0, 14, 0},
		{
			"one record for two meters that tell no number",
			[]Part{recorded(t, part(10, "", sys("gain a", 3)), "ann"), recorded(t, part(20, "", sys("gain a", 4)), "ann"), recorded(t, part(5, "", sys("gain a", 2)), "bob")},
			35, 4, 14, 18, 1,
		},
		{"a record binds its channels alone", []Part{recorded(t, part(10, "", sys("gain b", 3)), "ann"), recorded(t, part(20, "", sys("gain b", 4)), "ann")}, 30, 10, 0, 14, 0},
		{"a meter that the caller knows", []Part{at(part(10, "", sys("gain a", 3), sys("assumed voltage s", 1)), "x"), at(part(20, "", sys("gain a", 4), sys("assumed voltage s", 1)), "x")}, 30, 0, math.Sqrt(196 + 16), math.Sqrt(4 * math.Pow(math.Sqrt(10)+math.Sqrt(17), 2)), 2},
		{"two that the caller knows", []Part{at(part(10, "", sys("gain a", 3)), "x"), at(part(20, "", sys("gain a", 4)), "y")}, 30, 10, 0, 14, 0},
		{"its windows", []Part{at(part(10, "", sys("window edges", 3)), "x"), at(part(20, "", sys("window edges", 4)), "x")}, 30, 10, 0, 14, 0},
		{"an older task", []Part{lump, lump}, 20, math.Sqrt(50), 0, 10, 0},
		{"few readings", []Part{wide, wide}, 20, math.Sqrt(18), 0, math.Sqrt(18), 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := Of(c.parts)
			if !near(s.Energy, c.energy) || !near(s.Independent, c.independent) || !near(s.Shared, c.shared) ||
				!near(s.U, math.Hypot(c.independent, c.shared)) || !near(s.AllShared, c.all) || len(s.Lines) != c.lines {
				t.Errorf("got %+v", s)
			}
			if s.AllShared < s.U-1e-9 {
				t.Errorf("U %v above its bound %v", s.U, s.AllShared)
			}
		})
	}
	s := Of([]Part{part(1, "7", sys("gain a", 1), sys("offset a", 2)), part(1, "7", sys("offset a", 2), sys("gain a", 1))})
	if len(s.Lines) != 2 || s.Lines[0].Source != "offset a" || s.Lines[0].By != "instrument daq 7" || !slices.Equal(s.Lines[0].Parts, []int{0, 1}) || s.Mean != 1 {
		t.Errorf("lines %+v", s.Lines)
	}
}

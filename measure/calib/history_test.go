package calib

import (
	"encoding/json"
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/wattmark/wattmark/measure"
)

var monday = time.Date(2026, 11, 16, 9, 0, 0, 0, time.UTC)

// riser is a bench of a clamp and a shunt.
func riser() measure.Setup {
	volt := func(name string) measure.Channel {
		return measure.Channel{Name: name, Unit: measure.UnitVolt, Gain: 0.01, UGain: 0.005, UOffset: 0.02}
	}
	s := setup(ampere(), volt("a.voltage"), volt("s"), volt("g"))
	s.Rails = []measure.Rail{
		{Name: "a", Role: measure.RolePSU, Wiring: measure.WiringClamp, X: 0, Y: 1},
		{Name: "slot", Role: measure.RolePCIe12V, Wiring: measure.WiringShunt, X: 2, Y: 3, Shunt: 0.005, UShunt: 0.01},
	}
	return s
}

var device = measure.Identity{Kind: "pmd", Serial: "7"}

// sealed makes a record days after monday.
func sealed(t *testing.T, days int, r Record) Record {
	t.Helper()
	r.At, r.By, r.Instrument = monday.AddDate(0, 0, days), "ada", Instrument{device.Kind, device.Serial}
	if err := r.Seal(); err != nil {
		t.Fatal(err)
	}
	if err := r.Validate(); err != nil {
		t.Fatal(err)
	}
	return r
}

func scaled(c measure.Channel, gain, offset float64, basis string) Channel {
	was := ScaleOf(c)
	return Channel{Name: c.Name, Unit: c.Unit, Nominal: &was, Basis: basis, Scale: &Scale{Gain: gain, Offset: offset, UGain: 1e-3, UOffset: 1e-3, Noise: 0.05}}
}

func apply(t *testing.T, h History, s measure.Setup, id measure.Identity, now time.Time) (measure.Setup, string) {
	t.Helper()
	out, notes, err := h.Apply(s, id, now)
	if err != nil {
		t.Fatal(err)
	}
	if err := out.Validate(); err != nil {
		t.Fatal(err)
	}
	return out, strings.Join(notes, "\n")
}

func ids(s measure.Setup) (out []string) {
	for _, r := range s.Records {
		out = append(out, r.ID)
	}
	return out
}

func TestTheNewestRecordIsInForce(t *testing.T) {
	s := riser()
	a, v := s.Channels[0], s.Channels[1]
	zero := sealed(t, 0, Record{Done: Zero, Channels: []Channel{scaled(a, 0.05, -26.1, "")}})
	gain := sealed(t, 1, Record{Done: Gain, Channels: []Channel{scaled(a, 0.051, -26.6, zero.ID), scaled(v, 0.0101, 0.002, "")}})
	again := sealed(t, 2, Record{Done: Zero, Channels: []Channel{scaled(a, 0.051, -26.7, gain.ID)}})
	shunt := sealed(t, 3, Record{Done: Shunt, Rails: []Rail{{Name: "slot", Ohm: 0.00502, URel: 1e-3, NominalOhm: 0.005, NominalURel: 0.01}}})
	note := sealed(t, 4, Record{Done: Note, Remark: "clamp turned", Channels: []Channel{{Name: a.Name, Unit: a.Unit}}})
	older := sealed(t, -1, Record{Done: Note, Remark: "clamp as delivered", Channels: []Channel{{Name: a.Name, Unit: a.Unit}}})

	h := NewHistory([]Record{note, shunt, again, gain, zero, gain, older})
	if len(h) != 6 {
		t.Fatalf("%d records of 6", len(h))
	}
	got, notes := apply(t, h, s, device, monday)
	if notes != "" {
		t.Error(notes)
	}
	if c := got.Channels[0]; c.Offset != -26.7 || c.Gain != 0.051 || c.MinCount != a.MinCount {
		t.Errorf("%+v", c)
	}
	if c := got.Channels[1]; c.Gain != 0.0101 || got.Rails[1].Shunt != 0.00502 || got.Rails[1].UShunt != 1e-3 || got.Channels[2] != s.Channels[2] {
		t.Errorf("%+v, %+v", c, got.Rails[1])
	}
	// The second zero keeps the gain of the record before it; the first is history.
	if d := cmp.Diff([]string{gain.ID, again.ID, shunt.ID, note.ID}, ids(got)); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(riser(), s); d != "" {
		t.Errorf("the nominal setup was changed: %s", d)
	}
	back, err := Nominal(got)
	if d := cmp.Diff(s, back); err != nil || d != "" {
		t.Errorf("%v: taking the records off does not give what was there: %s", err, d)
	}
	if got.CalibrationID() == s.CalibrationID() {
		t.Error("another calibration has the same name")
	}
	bare := got
	bare.Records = nil
	if bare.CalibrationID() != got.CalibrationID() {
		t.Error("the name of a calibration is of its numbers, not of who wrote them down")
	}
	// One that rests on the first zero brings it along.
	got, _ = apply(t, NewHistory([]Record{zero, gain}), s, device, monday)
	if d := cmp.Diff([]string{zero.ID, gain.ID}, ids(got)); d != "" {
		t.Error(d)
	}
}

func TestRecordsThatDoNotFitAreTold(t *testing.T) {
	s := riser()
	a := s.Channels[0]
	r := sealed(t, 0, Record{Done: Zero, Channels: []Channel{scaled(a, 0.05, -26.1, "")}, ValidUntil: monday.AddDate(1, 0, 0)})
	shunt := sealed(t, 1, Record{Done: Shunt, Rails: []Rail{{Name: "slot", Ohm: 0.00502, URel: 1e-3, NominalOhm: 0.005, NominalURel: 0.01}}})
	h := NewHistory([]Record{r, shunt})
	changed := riser()
	changed.Channels[0].Gain = 0.0501
	changed.Rails[1].Shunt = 0.01
	unsure := riser() // as a later version of a driver may state them
	unsure.Channels[0].UGain, unsure.Channels[0].UOffset, unsure.Rails[1].UShunt = 0.02, 0.3, 0.02
	other := riser()
	other.Channels[0].Unit, other.Channels[0].Name = measure.UnitAmpere, "b.current"
	for name, c := range map[string]struct {
		setup measure.Setup
		id    measure.Identity
		now   time.Time
		want  []string
		used  int
	}{
		"all fits":            {s, device, monday, nil, 2},
		"another serial":      {s, measure.Identity{Kind: "pmd", Serial: "8"}, monday, []string{"it is of a pmd 7, this is a pmd 8"}, 0},
		"no serial":           {s, measure.Identity{Kind: "pmd"}, monday, []string{"this is a pmd without a serial number"}, 0},
		"another kind":        {s, measure.Identity{Kind: "nvml", Serial: "7"}, monday, []string{"this is a nvml 7"}, 0},
		"the bench file says": {changed, device, monday, []string{"gain 0.0501 and offset -26 of it now, 0.05 and -26", "0.01 Ω now, 0.005 Ω when"}, 0},
		"other uncertainties": {unsure, device, monday, nil, 2},
		"expired":             {s, device, monday.AddDate(2, 0, 0), []string{"has expired on 2027-11-16"}, 2},
		"no such channel":     {other, device, monday, []string{"not applied to a.current: this bench has no such channel"}, 1},
	} {
		got, notes := apply(t, h, c.setup, c.id, c.now)
		if len(got.Records) != c.used {
			t.Errorf("%s: %d records in force, want %d", name, len(got.Records), c.used)
		}
		for _, want := range c.want {
			if !strings.Contains(notes, want) || !strings.Contains(notes, h[0].ID) {
				t.Errorf("%s: told %q, want %q", name, notes, want)
			}
		}
		if c.want == nil && notes != "" {
			t.Errorf("%s: told %q", name, notes)
		}
	}
	// An older record that fits is better than none.
	later := sealed(t, 5, Record{Done: Gain, Channels: []Channel{scaled(changed.Channels[0], 0.052, -27, "")}})
	got, notes := apply(t, append(h, later), s, device, monday)
	if got.Channels[0].Offset != -26.1 || !strings.Contains(notes, later.ID) {
		t.Errorf("%+v\n%s", got.Channels[0], notes)
	}
}

func TestAnotherCalibrationMustBeOfTheSameChannels(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*measure.Setup)
		want   string
	}{
		"the same":       {func(*measure.Setup) {}, ""},
		"numbers":        {func(s *measure.Setup) { s.Channels[0].Gain, s.Rails[1].Shunt, s.Missing = 1, 1, []string{"x"} }, ""},
		"a name":         {func(s *measure.Setup) { s.Channels[0].Name = "b" }, "a.current, a.voltage, s, g; now b"},
		"a channel less": {func(s *measure.Setup) { s.Channels = s.Channels[:3] }, "now a.current, a.voltage, s)"},
		"a range":        {func(s *measure.Setup) { s.Channels[0].MaxCount = 4095 }, "channel a.current (A, counts 0 to 1023"},
		"the rate":       {func(s *measure.Setup) { s.Timebase.TicksPerScan = 100 }, "timebase"},
		"a wiring":       {func(s *measure.Setup) { s.Rails[1].X, s.Rails[1].Y = 3, 2 }, "the rails"},
	} {
		now := riser()
		c.change(&now)
		got, err := Under(riser(), now)
		if c.want == "" {
			if err != nil || got.Missing != nil || got.Channels[0].Gain != now.Channels[0].Gain {
				t.Errorf("%s: %v, %+v", name, err, got)
			}
		} else if !errors.Is(err, ErrMismatch) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// random draws a record, sound or not.
func random(rng *rand.Rand) Record {
	number := func() float64 {
		return []float64{1, 2, 1e-300, math.MaxFloat64, rng.Float64(), 0, -1, math.NaN(), math.Inf(1)}[rng.IntN(5+rng.IntN(5))]
	}
	word := func() string {
		return []string{"b", "a", "ünder", "a.current", "a.voltage", "c", "d", "e", "", "\x1b[31m", "\xff", strings.Repeat("x", 2000)}[rng.IntN(8+rng.IntN(5))]
	}
	r := Record{
		Done: []Act{Zero, Gain, Import, Shunt, Note, "", "x"}[rng.IntN(7)], By: word(), Remark: word(), At: monday.Add(time.Duration(rng.Int64N(1e18))),
		Instrument: Instrument{word(), word()}, Conditions: Conditions{Reference: word()},
	}
	if rng.IntN(2) == 0 {
		r.ValidUntil = monday.Add(time.Duration(rng.Int64N(2e18)) - 5e17)
	}
	for range rng.IntN(3) {
		c := Channel{Name: word(), Unit: []measure.Unit{"A", "V", "W", "x"}[rng.IntN(4)], Basis: word()}
		if rng.IntN(4) > 0 {
			c.Scale, c.Nominal = &Scale{number(), number(), number(), number(), number()}, &Scale{1, 0, 0, 0, 0}
		}
		for range rng.IntN(3) {
			c.Points = append(c.Points, Point{Value: number(), U: number(), Reading: number()})
		}
		r.Channels = append(r.Channels, c)
	}
	for range rng.IntN(2) {
		r.Rails = append(r.Rails, Rail{word(), number(), number(), number(), number(), nil})
	}
	return r
}

// A record that is taken travels and comes back the same, and never makes a
// setup that cannot be used.
func TestRandomRecords(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 5))
	taken := 0
	for range 20_000 {
		r := random(rng)
		if r.Seal() != nil || r.Validate() != nil {
			continue
		}
		taken++
		c, err := r.Travel()
		if err != nil {
			t.Fatal(err)
		}
		back, err := Parse(c)
		if d := cmp.Diff(r, back); err != nil || d != "" {
			t.Fatalf("%v: %s", err, d)
		}
		_, _ = apply(t, History{back}, riser(), measure.Identity{Kind: r.Instrument.Kind, Serial: r.Instrument.Serial}, monday)
	}
	if taken < 50 {
		t.Errorf("only %d of the records were sound: the test sees nothing", taken)
	}
}

func FuzzParse(f *testing.F) {
	was, now := ScaleOf(ampere()), ScaleOf(ampere())
	r := Record{Done: Zero, At: monday, By: "a", Instrument: Instrument{Kind: "pmd"}, Channels: []Channel{{Name: "a.current", Unit: "A", Scale: &now, Nominal: &was}}}
	if err := r.Seal(); err != nil {
		f.Fatal(err)
	}
	text, err := json.Marshal(r)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(r.ID, string(text))
	f.Add("", "{}")
	f.Fuzz(func(t *testing.T, id, text string) {
		r, err := Parse(measure.CalibrationRecord{ID: id, Text: text})
		if err != nil {
			return
		}
		s, _, err := History{r}.Apply(riser(), measure.Identity{Kind: r.Instrument.Kind, Serial: r.Instrument.Serial}, monday)
		if err == nil {
			err = s.Validate()
		}
		if err != nil {
			t.Error(err)
		}
	})
}

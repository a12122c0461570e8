package calib

import (
	"crypto/sha256"
	"encoding/hex"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/wattmark/wattmark/measure"
)

func value(v float64) *float64 { return &v }

// aged is a clamp rail that was calibrated on monday, with the drift stated.
func aged(t *testing.T, d *Drift, valid time.Time, change ...func(*Record)) measure.Setup {
	t.Helper()
	s := riser()
	r := Record{Done: Gain, ValidUntil: valid}
	for _, c := range s.Channels[:2] {
		x := scaled(c, c.Gain, c.Offset, "")
		x.Scale.UGain, x.Drift = 2e-4, d
		r.Channels = append(r.Channels, x)
	}
	for _, f := range change {
		f(&r)
	}
	s.Rails = s.Rails[:1]
	s, _ = apply(t, History{sealed(t, 0, r)}, s, device, monday)
	return s
}

// energyOf integrates readings at 10 A and 12 V over 12.5 ms, which gain and offset errors change.
func energyOf(t *testing.T, s *measure.Setup, gain, offset [2]float64, rng *rand.Rand) measure.Estimate {
	t.Helper()
	const n = 250
	b := measure.Block{Counts: make([][]measure.Count, len(s.Channels))}
	for c, ch := range s.Channels {
		b.Counts[c] = make([]measure.Count, n+2)
		for i := range b.Counts[c] {
			if c < 2 {
				v := [2]float64{10, 12}[c]*(1+gain[c]) + offset[c] + ch.Noise*rng.NormFloat64()
				b.Counts[c][i] = measure.Count(math.Round((v - ch.Offset) / ch.Gain))
			}
		}
	}
	g, err := measure.NewIntegrator(s, 50e-6, 50e-6*(n+1))
	if err == nil {
		err = g.Add(&b)
	}
	if err != nil {
		t.Fatal(err)
	}
	r, err := g.Result(measure.Edges{})
	if err != nil {
		t.Fatal(err)
	}
	return r.Total
}

// A meter drifts within its stated limits in ways that the budget does not assume: by one rate for years,
// which is anything up to the limit, or by a random walk of a step a day. Its temperature is anywhere within 5 K
// of the calibration's.
func TestDriftIsCovered(t *testing.T) {
	const trials = 1000
	limit := Drift{value(5e-3), value(50e-3), value(200e-6), value(2e-3)} // per year and K
	root := math.Sqrt(3)
	u := &Drift{value(*limit.GainPerYear / root), value(*limit.OffsetPerYear / root), value(*limit.GainPerK / root), value(*limit.OffsetPerK / root)}
	walk := func(rng *rand.Rand, days int, yearly float64) (sum float64) {
		for range days {
			sum += yearly / math.Sqrt(365.25) * (2*float64(rng.IntN(2)) - 1)
		}
		return sum
	}
	line := func(rng *rand.Rand, days int, yearly float64) float64 {
		return root * yearly * (2*rng.Float64() - 1) * float64(days) / 365.25
	}
	for name, c := range map[string]struct {
		days  int
		drift func(*rand.Rand, int, float64) float64
		stale float64 // largest share that ± U of the calibration's day covers
		most  float64 // largest share with the drift in U
	}{
		"walk, 20 days":  {20, walk, 0.75, 0.9545},
		"walk, 300 days": {300, walk, 0.35, 0.9545},
		"line, 60 days":  {60, line, 0.75, 1},
		"line, 3 years":  {1096, line, 0.2, 1},
	} {
		rng := rand.New(rand.NewPCG(uint64(c.days), 17))
		day := aged(t, u, monday.AddDate(4, 0, 0))
		later := Aged(day, monday.AddDate(0, 0, c.days))
		in, inDay := 0, 0
		for range trials {
			var gain, offset [2]float64
			warm := 5 * (2*rng.Float64() - 1)
			for k := range gain {
				gain[k] = 2e-4*rng.NormFloat64() + c.drift(rng, c.days, *u.GainPerYear) + warm**limit.GainPerK*(2*rng.Float64()-1)
				offset[k] = 1e-3*rng.NormFloat64() + c.drift(rng, c.days, *u.OffsetPerYear) + warm**limit.OffsetPerK*(2*rng.Float64()-1)
			}
			seed := rng.Uint64()
			off := func(s *measure.Setup) bool {
				e := energyOf(t, s, gain, offset, rand.New(rand.NewPCG(seed, 1)))
				return math.Abs(float64(e.Energy)-10*12*0.0125) <= float64(e.U)
			}
			if off(&later) {
				in++
			}
			if off(&day) {
				inDay++
			}
		}
		got, before := float64(in)/trials, float64(inDay)/trials
		t.Logf("%s: %.1f %% within U, %.1f %% within U of the calibration's day", name, 100*got, 100*before)
		scatter := 2 * math.Sqrt(0.9545*0.0455/trials)
		if got < 0.9545-scatter || got > c.most+scatter {
			t.Errorf("%s: %.1f %% within U, want 95.45 ± %.1f %%, at most %.1f", name, 100*got, 100*scatter, 100*c.most)
		}
		if before > c.stale {
			t.Errorf("%s: %.1f %% within U without drift: this case proves nothing", name, 100*before)
		}
	}
}

func TestDefaultDriftAndExpiry(t *testing.T) {
	year := monday.AddDate(1, 0, 0)
	u := func(s measure.Setup, at time.Time) (age, temperature float64) {
		d := Aged(s, at).Channels[0].Drift
		return d.AgeGain, d.TemperatureGain
	}
	near := func(what string, got, want float64) {
		t.Helper()
		if math.Abs(got-want) > 1e-3*want {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	const nominal = 0.01
	s := aged(t, nil, year)
	age, temperature := u(s, monday)
	near("on the day", age, 0)
	near("temperature", temperature, 0.15*nominal*5/math.Sqrt(3))
	age, _ = u(s, monday.AddDate(0, 3, 0))
	near("a quarter", age, nominal*math.Sqrt(92.0/365))
	before, _ := u(s, monday.AddDate(0, 0, -92)) // recalculated: measured before the calibration
	near("a quarter before", before, age)
	age, temperature = u(s, year)
	near("at the date", age, nominal)
	near("within the nominal uncertainty", temperature, 0)
	// Of a recording whose time is not known the record is neither new nor centuries old.
	age, _ = u(s, time.Time{})
	near("at an unknown time", age, nominal)
	age, _ = u(aged(t, &Drift{GainPerYear: value(1e-3)}, year), time.Time{})
	near("at an unknown time, stated", age, 1e-3)
	// Stated to be steady: until it expires.
	s = aged(t, &Drift{value(0), value(0), value(0), value(0)}, year)
	age, temperature = u(s, year.Add(-time.Hour))
	near("steady", age+temperature, 0)
	age, _ = u(s, year.Add(time.Hour))
	near("steady, expired", age, nominal)
	if got := StaleAt(&s, year.Add(-time.Hour)); len(got) > 0 {
		t.Errorf("stale before its date: %+v", got)
	}
	if got := StaleAt(&s, year.Add(time.Hour)); len(got) != 1 || got[0].Unbounded {
		t.Errorf("an expired record: %+v", got)
	}
	s = aged(t, nil, year, func(r *Record) {
		r.Channels = r.Channels[:1]
		r.Channels[0].Nominal.UGain, r.Channels[0].Nominal.UOffset = 0, 0
		r.Conditions.WithinK = value(1)
	})
	if got := StaleAt(&s, year.Add(time.Hour)); len(got) != 1 || !got[0].Unbounded {
		t.Errorf("an expired record without a nominal uncertainty: %+v", got)
	}
	if old := Aged(s, year); old.CalibrationID() != s.CalibrationID() {
		t.Error("a calibration has another name every day")
	}
	back, err := Nominal(Aged(aged(t, nil, year), year))
	if err != nil || back.Channels[0] != riser().Channels[0] {
		t.Errorf("%+v, %v", back.Channels[0], err)
	}
}

// A zero of today does not make the gain of last year any younger, and a shunt ages as a gain does.
func TestDriftOfEachQuantity(t *testing.T) {
	s := riser()
	a := s.Channels[0]
	gain := sealed(t, 0, Record{Done: Gain, Channels: []Channel{scaled(a, 0.051, -26.6, "")}})
	zero := sealed(t, 200, Record{Done: Zero, Channels: []Channel{scaled(a, 0.051, -26.7, gain.ID)}})
	alone := sealed(t, 200, Record{Done: Zero, Channels: []Channel{scaled(a, 0.05, -26.1, "")}})
	shunt := sealed(t, 0, Record{Done: Shunt, Rails: []Rail{{
		Name: "slot", Ohm: 0.00502, URel: 1e-3, NominalOhm: 0.005, NominalURel: 0.01, Drift: &Drift{GainPerYear: value(2e-3)},
	}}})
	now := monday.AddDate(0, 0, 200)
	got, _ := apply(t, NewHistory([]Record{gain, zero, shunt}), s, device, now)
	got = Aged(got, now)
	want := math.Sqrt(200 / 365.25)
	if d := got.Channels[0].Drift; math.Abs(d.AgeGain-0.01*want) > 1e-6 || d.AgeOffset != 0 {
		t.Errorf("%+v", d)
	}
	if d := got.Rails[1].Drift; math.Abs(d.AgeGain-2e-3*want) > 1e-6 || d.TemperatureGain == 0 {
		t.Errorf("%+v", d)
	}
	if got.Channels[1].Drift != (measure.Drift{}) || got.Rails[0].Drift != (measure.Drift{}) {
		t.Error("what no record is of drifts")
	}
	got, _ = apply(t, NewHistory([]Record{alone}), s, device, now)
	if d := Aged(got, now.AddDate(0, 1, 0)).Channels[0].Drift; d.AgeGain != 0 || d.AgeOffset == 0 {
		t.Errorf("a zero alone: %+v", d)
	}
	h := NewHistory([]Record{gain, zero, shunt})
	if d := h.DriftAt(Instrument{device.Kind, device.Serial}, a.Name, now); math.Abs(d.AgeGain-0.01*want) > 1e-6 {
		t.Errorf("%+v", d)
	}
	// A gain that leans on an old zero has no better zero than that is now.
	c := a
	c.UOffset = 1e-3
	point := []Point{{Value: 10, U: 1e-3, Reading: 10, UReading: 1e-3}}
	fresh, err := GainOf(c, a, "", point)
	c.Drift.AgeOffset = 0.05
	old, err2 := GainOf(c, a, "", point)
	if err != nil || err2 != nil || old.Scale.UOffset < 0.04 || fresh.Scale.UOffset > 2e-3 {
		t.Errorf("u of zero %v, of an old one %v; %v, %v", fresh.Scale, old.Scale, err, err2)
	}
}

// A record of the form before drift was stated keeps its id.
func TestRecordWithoutDriftKeepsItsID(t *testing.T) {
	const text = `"done":"gain","at":"2026-11-16T09:00:00Z","by":"ada","instrument":{"kind":"pmd","serial":"7"},` +
		`"valid_until":"2027-11-16T09:00:00Z","conditions":{"temperature_c":23.1},"channels":[{"name":"a","unit":"A",` +
		`"scale":{"gain":0.05,"offset":1,"u_gain":0.001,"u_offset":0.001,"noise":0.1},` +
		`"nominal":{"gain":0.05,"offset":1,"u_gain":0.01,"u_offset":0.1,"noise":0.1}}]}`
	sum := sha256.Sum256([]byte("{" + text))
	id := hex.EncodeToString(sum[:6])
	r, err := Parse(measure.CalibrationRecord{ID: id, Text: `{"id":"` + id + `",` + text})
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*Record){
		"an entry of drift is negative": func(r *Record) { r.Channels[0].Drift = &Drift{GainPerK: value(-1)} },
		"within_k is -1":                func(r *Record) { r.Conditions.WithinK = value(-1) },
	} {
		bad := r
		bad.Channels = slices.Clone(r.Channels)
		change(&bad)
		if err := bad.Seal(); err != nil {
			t.Fatal(err)
		}
		if err := bad.Validate(); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%v, want %q", err, name)
		}
	}
}

package validate

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/wattmark/wattmark/internal/coverage"
	"github.com/wattmark/wattmark/measure"
)

func judged(gpu, driver, name string, truth float64, errs map[string]float64) *Report {
	r := &Report{Name: name, GPU: gpu, Driver: driver, Truth: Truth{Energy: measure.Joule(truth)}}
	for _, m := range []string{"mtsm", "papi"} {
		e, ok := errs[m]
		x := MethodReport{Name: m, ErrorPct: measure.Number(e), Energy: measure.Joule(truth * (1 + e/100)), Agreement: Reads}
		x.Interval = Interval{x.ErrorPct - 1, x.ErrorPct + 1}
		if math.Abs(e) <= 1 {
			x.Agreement = Agrees
		}
		if !ok {
			x = MethodReport{Name: m, Agreement: Unknown, ErrorPct: measure.Number(math.NaN())}
		}
		r.Methods = append(r.Methods, x)
	}
	return r
}

func TestSummarise(t *testing.T) {
	s := Summarise([]*Report{
		judged("A", "1", "x", 100, map[string]float64{"mtsm": 3, "papi": 10}),
		judged("A", "1", "y", 200, map[string]float64{"mtsm": -1, "papi": -20}),
		judged("B", "2", "z", 50, map[string]float64{"mtsm": 4}),
	}, Options{})
	if s.Subjects != 3 || len(s.Lines) != 2+2+1 {
		t.Fatalf("%+v", s)
	}
	m := s.Lines[0]
	if m.Method != "mtsm" || m.GPU != "" || m.N != 3 || m.Agreeing != 1 || m.WorstName != "z" || m.WorstPct != 4 {
		t.Errorf("%+v", m)
	}
	around(t, "mean", m.MeanErrorPct, 2, 1e-9)
	around(t, "MAPE", m.MAPEPct, 8.0/3, 1e-9)
	around(t, "RMSE in per cent", m.RMSEPct, math.Sqrt((9+1+16)/3.0), 1e-9)
	around(t, "RMSE in joules", float64(m.RMSE), math.Sqrt((9+4+4)/3.0), 1e-9)
	if p := s.Lines[1]; p.Method != "papi" || p.N != 2 || measure.Known(p.Interval.Lo) {
		t.Errorf("%+v", p)
	}
	if a, b := s.Lines[2], s.Lines[4]; a.GPU != "A" || a.N != 2 || b.GPU != "B" || b.Driver != "2" || b.N != 1 {
		t.Errorf("%+v, %+v", a, b)
	}
}

// The interval of a mean error holds the method's own in 93 to 97 % of the cases.
func TestSummaryCoverage(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	in := 0
	times := coverage.Trials(1000)
	for i := range times {
		var list []*Report
		for range 12 {
			list = append(list, judged("A", "1", "x", 100, map[string]float64{"mtsm": 5 + 3*rng.NormFloat64()}))
		}
		if l := Summarise(list, Options{Resamples: 300, Seed: uint64(i)}).Lines[0]; l.Interval.Lo <= 5 && 5 <= l.Interval.Hi {
			in++
		}
	}
	if share := 100 * float64(in) / float64(times); !coverage.Within(share/100, 0.93, 0.97, times) {
		t.Errorf("held in %.1f %%", share)
	}
}

// A plot has the readings that hold in it, also the one before it, and the one that ends the last.
func TestReadingsToDraw(t *testing.T) {
	var all []Reading
	for i := range 1000 {
		all = append(all, Reading{At: measure.Seconds(i) / 10, Power: measure.Watt(i % 10)})
	}
	all[500].Power = 99
	for _, c := range []struct {
		name          string
		from, to      float64
		n             int
		first, last   measure.Seconds
		least, mostly measure.Watt
	}{
		{"between two", 10.02, 10.08, 2, 10, 10.1, 0, 1},
		{"some", 9.95, 10.15, 4, 9.9, 10.2, 0, 9},
		{"beyond both ends", -1, 200, 400, 0, 99.9, 0, 99},
		{"before all", -5, -1, 0, 0, 0, 0, 0},
		{"behind all", 100, 101, 0, 0, 0, 0, 0},
	} {
		got := thin(all, c.from, c.to, 400)
		if len(got) > c.n || (c.n < 400 && len(got) != c.n) {
			t.Errorf("%s: %d readings, want %d", c.name, len(got), c.n)
			continue
		}
		if c.n == 0 {
			continue
		}
		if got[0].At != c.first || got[len(got)-1].At != c.last {
			t.Errorf("%s: from %v to %v", c.name, got[0].At, got[len(got)-1].At)
		}
		least, most := got[0].Power, got[0].Power
		for _, r := range got {
			least, most = min(least, r.Power), max(most, r.Power)
		}
		if least != c.least || most != c.mostly {
			t.Errorf("%s: %v to %v", c.name, least, most)
		}
	}
}

// A report comes back from its JSON form; figures that are not known are left out or null.
func TestReportAsJSON(t *testing.T) {
	none := measure.Number(math.NaN())
	r := Report{
		Name: "a", Truth: Truth{Energy: 100, U: measure.Joule(math.NaN())}, Peak: measure.Watt(none), Alternation: 0.5,
		Clock:   Clock{Offset: 2, DriftPPM: none, DriftUPPM: none, Found: &Found{Edges: 3, Scatter: measure.Seconds(none)}},
		Methods: []MethodReport{{Name: "sma", ErrorPct: 0, Interval: Interval{-1, none}, Bias: measure.Watt(none)}},
		Kernels: []KernelReport{}, Unmeasured: []string{},
	}
	b, err := json.Marshal(&r)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`"meter_j":100,"meter_u_j":null`, `"clock_offset_s":2,"clock_offset_u_s":0,"clock_edges":3`, `"alternation":0.5`,
		`"error_pct":0,"interval":[-1,null]`, `"kernels":[],"missing_rails":[]`,
	} {
		if !strings.Contains(string(b), want) {
			t.Errorf("no %s in %s", want, b)
		}
	}
	for _, not := range []string{"peak_w", "drift", "scatter", "bias_w", "missing_most_w", "Trace", "Work"} {
		if strings.Contains(string(b), not) {
			t.Errorf("%s in %s", not, b)
		}
	}
	var back Report
	if err := json.Unmarshal(b, &back); err != nil {
		t.Fatal(err)
	}
	if m := back.Methods[0]; back.Energy != 100 || back.Edges != 3 || m.Interval.Lo != -1 || measure.Known(m.Interval.Hi) {
		t.Errorf("read back %+v", back)
	}
}

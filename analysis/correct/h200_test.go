package correct

import (
	"encoding/csv"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"wattmark/analysis/sensor"
	"wattmark/measure"
)

// h200 is our own recording: the instant and the average field, the counter in
// joules, and what the GPU did.
type h200 struct {
	instant, average, counter []Reading
	activities                []Activity
}

func readH200(t testing.TB) h200 {
	t.Helper()
	dir := sharedData(t, "h200")
	number := func(s string) float64 {
		v, err := strconv.ParseFloat(s, 64)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	rows := func(name string) [][]string {
		f, err := os.Open(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		out, err := csv.NewReader(f).ReadAll()
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	var h h200
	for _, r := range rows("nvml-power.csv") {
		at := measure.Seconds(number(r[0]) / 1e6)
		add := func(to *[]Reading, s string) {
			*to = append(*to, Reading{At: at, Power: measure.Watt(number(s) / 1e3)})
		}
		add(&h.instant, r[1])
		add(&h.average, r[2])
		add(&h.counter, r[4])
	}
	events := rows("kernel-events.csv")
	for i := 0; i+1 < len(events); i += 2 {
		name := strings.TrimSuffix(events[i][1], "-begin")
		if name == "gap" {
			continue // like the time before: no kernel
		}
		h.activities = append(h.activities, Activity{name, Span{From: measure.Seconds(number(events[i][0]) / 1e6), To: measure.Seconds(number(events[i+1][0]) / 1e6)}})
	}
	return h
}

// counted is the counter's energy of a span, interpolated between its renewals.
func (h h200) counted(s Span) float64 {
	c := Renewals(h.counter, 0.1)
	return float64(valueAt(c, s.To) - valueAt(c, s.From))
}

// averageField is the H200's average field, as public studies have it; the delay is
// the one of least residual on this trace.
func averageField() *sensor.Profile {
	return &sensor.Profile{Field: "average", Model: sensor.Boxcar, Period: 0.1, Window: 1, Delay: 0.02, Gain: 1}
}

// TestAverageFieldOfAnH200 undoes the one-second window and holds it against the
// energy counter, which is the card's own and no independent truth.
func TestAverageFieldOfAnH200(t *testing.T) {
	h := readH200(t)
	renewals := Renewals(h.average, 0.1)
	smooth, err := Deconvolve(renewals, averageField(), 0.05, 50)
	if err != nil {
		t.Fatal(err)
	}
	levels, err := FindLevels(renewals, averageField(), h.activities)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("noise %v, step %v; levels %q %v ± %v, residual %v", smooth.Noise, smooth.Step, levels.Names, levels.Power, levels.U, levels.Residual)
	var end measure.Seconds
	for _, a := range h.activities {
		end = max(end, a.To)
	}
	for _, c := range []struct {
		name           string
		s              Span
		raw, off, kern float64 // the least that the reading is off by, and the most that the corrected ones are, in %
	}{
		{"arithmetic, 2 s", Span{From: 2, To: 4}, 13, 1, 1},
		{"memory, 2 s", Span{From: 5, To: 7}, 18, 1, 1.5},
		{"rest, 2 s", Span{From: 8, To: 10}, 0, 1, 1},
		{"alternating, all", Span{From: 11, To: end}, 0.1, 1, 1},
		{"all", Span{From: 1, To: end}, 0.1, 1, 1},
	} {
		truth := h.counted(c.s)
		e, err1 := smooth.Energy(c.s)
		k, err2 := levels.Energy(c.s)
		raw, err3 := Integrate(h.average, c.s)
		for _, err := range []error{err1, err2, err3} {
			if err != nil {
				t.Fatal(c.name, err)
			}
		}
		percent := func(e measure.Joule) float64 { return 100 * (float64(e)/truth - 1) }
		t.Logf("%-18s counter %.1f J; as read %+.2f %%; deconvolved %+.2f ± %.2f %%; by kernels %+.2f ± %.2f %%", c.name, truth, percent(raw), percent(e.Energy), 100*float64(e.U)/truth, percent(k.Energy), 100*float64(k.U)/truth)
		if math.Abs(percent(raw)) < c.raw || math.Abs(percent(e.Energy)) > c.off || math.Abs(percent(k.Energy)) > c.kern {
			t.Errorf("%s: raw %.2f %%, deconvolved %.2f %%, by kernels %.2f %%", c.name, percent(raw), percent(e.Energy), percent(k.Energy))
		}
	}
}

// TestAlternationsOfAnH200 tells what can be recovered of kernels that take turns.
func TestAlternationsOfAnH200(t *testing.T) {
	h := readH200(t)
	renewals := Renewals(h.average, 0.1)
	instant := &sensor.Profile{Field: "instant", Model: sensor.Boxcar, Period: 0.1, Window: 0.025, Delay: 0.01, Gain: 1}
	seen := Renewals(h.instant, 0.1)
	smooth := must(Deconvolve(renewals, averageField(), 0.05, 50))(t)
	levels := must(FindLevels(renewals, averageField(), h.activities))(t)
	for _, block := range alternations(h.activities) {
		truth := h.counted(block.Span)
		i := must(Integrate(h.instant, block.Span))(t)
		a := must(Integrate(h.average, block.Span))(t)
		e := must(smooth.Energy(block.Span))(t)
		k := must(levels.Energy(block.Span))(t)
		u := must(FindUnseen(seen, instant, block.Span, 120, 480))(t)
		percent := func(e measure.Joule) float64 { return 100 * (float64(e)/truth - 1) }
		t.Logf("turns of %-6s %.2f s: counter %.1f J; instant %+.1f %%, average %+.1f %%; deconvolved %+.1f ± %.1f %%; by kernels %+.1f ± %.1f %%; instant saw %.0f %%: %.0f to %.0f J",
			block.Name, float64(block.Length()), truth, percent(i), percent(a), percent(e.Energy), 100*float64(e.U)/truth, percent(k.Energy), 100*float64(k.U)/truth, 100*u.Share(), float64(u.Low), float64(u.High))
		// The counter is itself renewed every 100 ms: it tells less of a shorter stretch.
		within := map[bool]float64{true: 1.5, false: 15}[block.Length() > 1.5]
		if math.Abs(percent(k.Energy)) > within || math.Abs(percent(e.Energy)) > within {
			t.Errorf("turns of %s: deconvolved %.1f %%, by kernels %.1f %% off, want %.1f", block.Name, percent(e.Energy), percent(k.Energy), within)
		}
		if truth < float64(u.Low) || truth > float64(u.High) {
			t.Errorf("turns of %s: the counter's %.1f J lie outside of the bound %v to %v", block.Name, truth, u.Low, u.High)
		}
	}
}

// alternations are the stretches in which mem and idle took turns of one length.
func alternations(list []Activity) (out []Activity) {
	for i, a := range list {
		length := float64(a.Length())
		if length > 1 || a.Name != "mem" && a.Name != "idle" {
			continue
		}
		name := measure.Seconds(math.Round(length*1e3/5) * 5e-3).String()
		if n := len(out); n > 0 && out[n-1].Name == name && a.From-list[i-1].To < 0.01 {
			out[n-1].To = a.To
			continue
		}
		out = append(out, Activity{name, a.Span})
	}
	return out
}

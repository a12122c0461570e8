package serving

import (
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/wattmark/wattmark/measure"
)

func TestRead(t *testing.T) {
	const in = `{"id":"a","stage":"prefill","begin_ns":1,"end_ns":2,"counts":{"tokens":7},"energy_j":9}

{"id":"b","begin_ns":3}
{"id":"c","begin_ns":3,"end_ns":4,"counts":{"tokens":-1}}
not JSON
{"id":"d","begin_ns":5,"end_ns":6}
{"id":"e","begin_ns":5,"en`
	got, refused, err := Read(strings.NewReader(in))
	want := []Window{{ID: "a", Stage: "prefill", Begin: 1, End: 2, Counts: map[string]float64{"tokens": 7}}, {ID: "d", Begin: 5, End: 6}}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if !errors.Is(refused, ErrWindow) || refused.Error() != "line 3: not a window: it never ended, or before it began, and 3 more" {
		t.Errorf("refused: %v", refused)
	}
}

// A line without an end costs no memory, and not those behind it.
func TestReadPassesOverALongLine(t *testing.T) {
	long := `{"id":"` + strings.Repeat("x", 1<<20) + `"}`
	for _, in := range []string{long, strings.Repeat(" ", 1<<20) + long} {
		got, refused, err := Read(strings.NewReader(in + "\n" + `{"id":"b","begin_ns":1,"end_ns":2}` + "\n"))
		if len(got) != 1 || refused == nil || !strings.HasPrefix(refused.Error(), "line 1: ") || err != nil {
			t.Errorf("%d windows, %v, %v", len(got), refused, err)
		}
	}
}

func TestRefuses(t *testing.T) {
	many := map[string]float64{}
	for i := range manyKeys + 1 {
		many[strings.Repeat("x", i+1)] = 1
	}
	for name, w := range map[string]Window{
		"no begin":           {End: 2},
		"backwards":          {Begin: 2, End: 1},
		"empty":              {Begin: 2, End: 2},
		"a long id":          {Begin: 1, End: 2, ID: strings.Repeat("x", longName+1)},
		"a class of control": {Begin: 1, End: 2, Class: "a\x1b[2J"},
		"infinitely many":    {Begin: 1, End: 2, Counts: map[string]float64{"tokens": math.Inf(1)}},
		"a nameless count":   {Begin: 1, End: 2, Counts: map[string]float64{"": 1}},
		"many counts":        {Begin: 1, End: 2, Counts: many},
	} {
		if err := w.Check(); !errors.Is(err, ErrWindow) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Stages, requests of several stages, windows without energy, and joules by what was counted.
func TestSummarise(t *testing.T) {
	w := func(id, stage string, e measure.Joule, tokens float64) Window {
		return Window{
			ID: id, Class: "chat", Stage: stage, Begin: 1, End: 1e9 + 1, Counts: map[string]float64{"tokens": tokens},
			Share: &measure.Share{Estimate: measure.Estimate{Energy: e, U: e / 10}},
		}
	}
	lost := w("c", "decode", 0, 5)
	lost.Share = nil
	got := Summarise([]Window{w("a", "prefill", 10, 100), w("b", "prefill", 30, 100), w("a", "decode", 20, 10), lost})
	per := func(count float64, e, u measure.Joule) []Per {
		return []Per{{"tokens", count, measure.Estimate{Energy: e, U: u}}}
	}
	want := []Line{
		{Class: "chat", Windows: 2, Unknown: 1, Time: 3, Estimate: measure.Estimate{Energy: 60, U: 6}, P50: 30, P90: 30, P99: 30, Per: per(210, 60./210, 6./210)},
		{Class: "chat", Stage: "decode", Windows: 1, Unknown: 1, Time: 1, Estimate: measure.Estimate{Energy: 20, U: 2}, P50: 20, P90: 20, P99: 20, Per: per(10, 2, 0.2)},
		{Class: "chat", Stage: "prefill", Windows: 2, Time: 2, Estimate: measure.Estimate{Energy: 40, U: 4}, P50: 10, P90: 30, P99: 30, Per: per(200, 0.2, 0.02)},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	// A window of all of a request is a part of it, and counts once.
	all := w("a", "", 5, 0)
	if got := Summarise([]Window{w("a", "decode", 20, 10), all, w("z", "", 7, 1)})[0]; got.Windows != 2 || got.Energy != 32 || got.P99 != 25 {
		t.Errorf("requests with a window of their own: %+v", got)
	}
	if len(Summarise(nil)) != 0 {
		t.Error("lines of nothing")
	}
}

// A hundred windows whose U is mostly their own have a sum that is known better than each.
func TestSumsOfIndependentParts(t *testing.T) {
	var ws []Window
	for range 100 {
		ws = append(ws, Window{
			ID: "a", Begin: 1, End: 2, Counts: map[string]float64{"tokens": 1},
			Share: &measure.Share{Estimate: measure.Estimate{Energy: 10, U: 5}, Own: 4},
		})
	}
	l := Summarise(ws)[0]
	if want := measure.Joule(math.Hypot(300, 40)); l.Energy != 1000 || math.Abs(float64(l.U-want)) > 1e-9 || l.Per[0].U != l.U/100 {
		t.Errorf("%+v, want U of %v", l, want)
	}
}

// The fields of InferenceX: the warm-up is not of it, and what is not valid has no energy.
func TestServed(t *testing.T) {
	w := func(id, class string, begin, end int64, in, out float64) Window {
		return Window{ID: id, Class: class, Begin: begin, End: end, Counts: map[string]float64{Input: in, Output: out}}
	}
	ws := []Window{w("w", WarmUp, 1, 9e9, 5, 5), w("a", "chat", 10e9, 11e9, 100, 0), w("a", "chat", 11e9, 14e9, 0, 20), w("b", "chat", 12e9, 15e9, 0, 5)}
	s := Serve(ws)
	s.Took(measure.Estimate{Energy: 500, U: 10})
	got, err := json.Marshal(s)
	const want = `{"power_metric_schema_version":2,"begin_ns":10000000000,"end_ns":15000000000,"completed":2,"total_input_tokens":100,` +
		`"total_output_tokens":25,"power_valid":1,"avg_power_w":100,"avg_total_gpu_power_w":100,"total_gpu_energy_j":500,"energy_u_j":10,` +
		`"joules_per_successful_query":250,"joules_per_input_token":5,"joules_per_output_token":20,"joules_per_total_token":4}`
	if string(got) != want || err != nil {
		t.Errorf("%v\n%s\nwant\n%s", err, got, want)
	}
	s = Serve(ws[3:])
	s.Took(measure.Estimate{Energy: 1}, "lost")
	if got, err := json.Marshal(s); err != nil || !strings.HasSuffix(string(got), `"power_valid":0,"power_invalid_reasons":["lost"]}`) {
		t.Errorf("%s, %v", got, err)
	}
	if got := Serve([]Window{w("", "chat", 1, 2, 1, 1), w("", "chat", 3, 4, 1, 1)}); got.Requests != 2 {
		t.Errorf("%d requests without ids, want 2", got.Requests)
	}
	if Serve(ws[:1]) != nil {
		t.Error("a warm-up alone was served")
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(`{"id":"a","begin_ns":1,"end_ns":2}` + "\n{"))
	f.Fuzz(func(t *testing.T, in []byte) {
		got, _, err := Read(strings.NewReader(string(in)))
		if err != nil {
			t.Fatal(err)
		}
		for i := range got {
			if err := got[i].Check(); err != nil || got[i].Share != nil {
				t.Errorf("%+v: %v", got[i], err)
			}
		}
		Summarise(got)
	})
}

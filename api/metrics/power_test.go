package metrics

import (
	"context"
	"math"
	"net/http/httptest"
	"regexp"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/session"
)

// Joules are the integral of what arrived: neither the first average of a capture nor a pause
// is counted, and the seconds cover the same time.
func TestPowerIntegrates(t *testing.T) {
	b := Bench{"lab", "GPU-1"}
	moments := []session.Moment{}
	at := func(capture string, t measure.Seconds, w measure.Watt) {
		moments = append(moments, session.Moment{
			CaptureID: capture, T: t, Rails: []session.RailValue{{Rail: "aux", Power: w}, {Rail: "slot", Power: 2 * w}},
		})
	}
	at("a", 10, 1000) // covers an unknown time
	at("a", 11, 100)
	at("a", 12.5, 200)
	at("a", 40, 1000) // after a pause
	at("b", 41, 1000) // another capture
	at("b", 42, 300)
	p := NewPower(false, func(ctx context.Context, idle bool, see func(Bench, session.Moment)) error {
		for _, m := range moments {
			see(b, m)
		}
		<-ctx.Done()
		return ctx.Err()
	})
	m := New()
	if err := m.Register(p); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan struct{})
	go func() { defer close(done); p.Run(ctx) }()
	value := func(line string) float64 {
		w := httptest.NewRecorder()
		m.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
		found := regexp.MustCompile(`(?m)^` + line + ` (\S+)$`).FindStringSubmatch(w.Body.String())
		if found == nil {
			return math.NaN()
		}
		v, _ := strconv.ParseFloat(found[1], 64)
		return v
	}
	joules := `wattmark_energy_joules_total{bench="lab",gpu="GPU-1",rail="aux"}`
	for value(joules) != 100+1.5*200+300 {
		if t.Context().Err() != nil {
			t.Fatal(value(joules))
		}
	}
	if v := value(`wattmark_energy_seconds_total{bench="lab",gpu="GPU-1"}`); v != 3.5 {
		t.Errorf("%v s", v)
	}
	if v := value(`wattmark_power_watts{bench="lab",gpu="GPU-1",rail="slot"}`); v != 600 {
		t.Errorf("%v W", v)
	}
	cancel()
	<-done
}

// A rail without a load reads a little below zero at times, and a broken one not at all: the
// counter neither falls nor loses its sum.
func TestEnergyNeverFalls(t *testing.T) {
	b := Bench{"lab", "GPU-1"}
	p := NewPower(false, nil)
	m := New()
	if err := m.Register(p); err != nil {
		t.Fatal(err)
	}
	last := 0.0
	for i, w := range []measure.Watt{1, 3, -0.5, 0.25, measure.Watt(math.NaN()), 0.5, 2} {
		p.see(b, session.Moment{
			CaptureID: "a", T: measure.Seconds(i), Rails: []session.RailValue{{Rail: "slot", Power: w}},
		})
		families, err := m.registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			if f.GetName() != "wattmark_energy_joules_total" {
				continue
			}
			v := f.GetMetric()[0].GetCounter().GetValue()
			if !(v >= last) {
				t.Errorf("after %v W: %v J, before %v J", w, v, last)
			}
			last = v
		}
	}
	if last != 3-0.5+0.25+0.5+2 {
		t.Errorf("%v J", last)
	}
}

// A watch that ends by itself is begun again at leisure.
func TestEndedWatchIsNoLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		p := NewPower(false, func(context.Context, bool, func(Bench, session.Moment)) error { n++; return nil })
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		p.Collect(make(chan prometheus.Metric, 1))
		p.Run(ctx)
		if n > 12 {
			t.Errorf("%d watches in 10 s", n)
		}
	})
}

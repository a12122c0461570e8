package metrics

import (
	"context"
	"math"
	"net/http/httptest"
	"regexp"
	"strconv"
	"testing"

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

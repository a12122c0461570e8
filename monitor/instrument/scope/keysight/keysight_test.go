package keysight

import (
	"context"
	"math"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/wattmark/wattmark/monitor/emulator/board"
	keysightface "github.com/wattmark/wattmark/monitor/emulator/keysight"
	"github.com/wattmark/wattmark/monitor/instrument/scope"
)

// open opens a scope with options on a face.
func open(t *testing.T, m keysightface.Model, flaky int, o scope.Options) (*scope.Device, error) {
	t.Helper()
	b, err := board.New(board.Config{})
	if err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	cfg := keysightface.Config{Flaky: flaky}
	cfg.Now = func() time.Duration { return time.Since(begin) }
	face, err := keysightface.New(b, m, cfg)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- face.Serve(ctx, l, nil) }()
	t.Cleanup(func() { cancel(); <-done })
	d, err := scope.New(scope.Config{Family: InfiniiVision, Address: "tcp:" + l.Addr().String(), Options: o})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d, d.Open(t.Context())
}

func TestRefusals(t *testing.T) {
	clipped := InfiniiVision.Defaults() // 12 V off at 50 mV a division: the scope sets 2 V
	clipped.Inputs["ch2"] = scope.Input{Scale: 0.05, Offset: -12}
	four := InfiniiVision.Defaults()
	four.Inputs["ch4"] = scope.Input{Scale: 1}
	for name, c := range map[string]struct {
		options scope.Options
		flaky   int
		says    string
	}{
		"an offset that it has not":   {clipped, 0, "less range at this scale"},
		"a channel that it has not":   {four, 0, "2 channels"},
		"a preamble that never comes": {InfiniiVision.Defaults(), 1, "+0 again and again"},
	} {
		if _, err := open(t, keysightface.DSOX1102G, c.flaky, c.options); err == nil ||
			!strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	o := InfiniiVision.Defaults()
	o.Depth = 1000
	if err := o.Validate(); err == nil || !strings.Contains(err.Error(), "leave it out") {
		t.Errorf("a depth: got %v", err)
	}
}

// Memory is divided among the channels in use, and all of it is used.
func TestRates(t *testing.T) {
	one := InfiniiVision.Defaults()
	delete(one.Inputs, "ch2")
	for name, c := range map[string]struct {
		model   keysightface.Model
		options scope.Options
		want    float64
	}{
		"one channel":   {keysightface.DSOX1102G, one, 100e3}, // 1 M in 10 s, the next window
		"two channels":  {keysightface.DSOX1102G, InfiniiVision.Defaults(), 50e3},
		"small memory":  {keysightface.EDUX1002G, InfiniiVision.Defaults(), 5e3},
		"four channels": {keysightface.DSOX1204G, InfiniiVision.Defaults(), 100e3},
	} {
		d, err := open(t, c.model, 0, c.options)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got := float64(d.Inputs().Timebase.SampleRate()); math.Abs(got/c.want-1) > 1e-6 {
			t.Errorf("%s: %v S/s, want %v", name, got, c.want)
		}
	}
}

// FuzzPreamble: what is no preamble is an error or +0, never a scale.
func FuzzPreamble(f *testing.F) {
	for _, s := range []string{
		"+0", "0", "+0,+0,+500000,+1,+2.0E-06,+0.0E+00,+0,+1.5625E-02,+1.2E+01,+128", "",
		"+0,+0",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		p, err := parsePreamble(s)
		if err != nil {
			return
		}
		if t2 := strings.TrimSpace(s); p.XIncrement == 0 && t2 != "+0" && t2 != "0" {
			t.Errorf("%q gives no increment", s)
		}
		for _, v := range []float64{p.XIncrement, p.XOrigin, p.YIncrement, p.YOrigin, p.YReference} {
			if math.IsNaN(v) || math.IsInf(v, 0) {
				t.Errorf("%q gives %v", s, v)
			}
		}
	})
}

package rigol

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/wattmark/wattmark/monitor/emulator/board"
	rigolface "github.com/wattmark/wattmark/monitor/emulator/rigol"
	scopeface "github.com/wattmark/wattmark/monitor/emulator/scope"
	"github.com/wattmark/wattmark/monitor/instrument/scope"
	"github.com/wattmark/wattmark/monitor/scpi"
)

// one is options with only a channel 1.
func one(in scope.Input) func(*scope.Options) {
	return func(o *scope.Options) { o.Inputs = map[string]scope.Input{"ch1": in} }
}

func TestRefusedOptions(t *testing.T) {
	for name, change := range map[string]func(*scope.Options){
		"no window":           func(o *scope.Options) { o.Window = 0 },
		"window too long":     func(o *scope.Options) { o.Window = time.Hour },
		"unknown depth":       func(o *scope.Options) { o.Depth = 12345 },
		"no timeout":          func(o *scope.Options) { o.Timeout = 0 },
		"no inputs":           func(o *scope.Options) { o.Inputs = nil },
		"unknown channel":     func(o *scope.Options) { o.Inputs = map[string]scope.Input{"ch5": {Scale: 1}} },
		"scale too large":     one(scope.Input{Scale: 100}),
		"scale not finite":    one(scope.Input{Scale: math.NaN()}),
		"offset too large":    one(scope.Input{Scale: 1, Offset: 1000}),
		"negative probe":      one(scope.Input{Scale: 1, Probe: -1}),
		"clamp is not finite": one(scope.Input{Scale: 1, AmperePerVolt: math.NaN()}),
	} {
		o := DS1000Z.Defaults()
		change(&o)
		if _, err := scope.New(scope.Config{Family: DS1000Z, Address: "tcp:localhost:5555", Options: o}); err == nil {
			t.Errorf("%s: %+v is taken", name, o)
		}
	}
	if err := (scope.Options{}).Validate(); err == nil {
		t.Error("options of no family are taken")
	}
}

// open opens a scope of a family on its face.
func open(t *testing.T, f *scope.Family, face *rigolface.Face, o scope.Options) (*scope.Device, error) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- face.Serve(ctx, l, nil) }()
	t.Cleanup(func() { cancel(); <-done })
	d, err := scope.New(scope.Config{Family: f, Address: "tcp:" + l.Addr().String(), Options: o})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d, d.Open(t.Context())
}

func newFace(t *testing.T, f *rigolface.Family, cfg scopeface.Config) *rigolface.Face {
	t.Helper()
	b, err := board.New(board.Config{})
	if err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	cfg.Now = func() time.Duration { return time.Since(begin) }
	face, err := rigolface.New(b, f, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return face
}

// What the scope itself refuses is said with its own words.
func TestTheScopeRefuses(t *testing.T) {
	o := DS1000Z.Defaults() // allowed at a large scale only
	o.Inputs["ch1"] = scope.Input{Scale: 0.01, Offset: 50}
	if _, err := open(t, DS1000Z, newFace(t, rigolface.DS1000Z, scopeface.Config{}), o); err == nil ||
		!strings.Contains(err.Error(), "-222") {
		t.Errorf("got %v", err)
	}
}

func TestModels(t *testing.T) {
	for m, want := range map[string]string{
		"DS1054Z": "rigol-ds1000z", "MSO1104Z-S": "rigol-ds1000z", "ds1074z": "rigol-ds1000z", "DS1102E": "",
		"DS1202Z-E": "", "": "", "DS1": "",
	} {
		if k, _ := scope.Identify(scpi.Identity{Maker: "RIGOL TECHNOLOGIES", Model: m}); k.Kind != want {
			t.Errorf("%s: kind %q, want %q", m, k.Kind, want)
		}
	}
	if k, ok := scope.Identify(scpi.Identity{Maker: "SIGLENT", Model: "DS1054Z"}); ok {
		t.Errorf("another maker's: %+v", k)
	}
}

func TestWindows(t *testing.T) {
	for w, want := range map[time.Duration]float64{
		6 * time.Second: 0.5, 6001 * time.Millisecond: 1, 12 * time.Second: 1, 600 * time.Millisecond: 0.05,
		24 * time.Second: 2, time.Microsecond: 1e-7, 10 * time.Minute: 50,
	} {
		got := (&scope.Plan{Options: scope.Options{Window: w}}).TimeScale(12)
		if math.Abs(got/want-1) > 1e-9 {
			t.Errorf("%v gives %v s a division, want %v", w, got, want)
		}
	}
}

// A member with two channels takes two.
func TestTooManyChannels(t *testing.T) {
	face := newFace(t, rigolface.MSO5000, scopeface.Config{Model: "MSO5072"})
	if _, err := open(t, MSO5000, face, MSO5000.Defaults()); err == nil || !strings.Contains(err.Error(), "ch3") ||
		!strings.Contains(err.Error(), "2 channels") {
		t.Errorf("got %v", err)
	}
	o := MSO5000.Defaults()
	delete(o.Inputs, "ch3")
	delete(o.Inputs, "ch4")
	d, err := open(t, MSO5000, face, o)
	if err != nil || len(d.Inputs().Channels) != 2 {
		t.Errorf("%+v, %v", d.Inputs(), err)
	}
}

func TestDepths(t *testing.T) {
	for _, c := range []struct {
		family *scope.Family
		used   int
		want   string
	}{
		{DS1000Z, 1, "[12000 120000 1200000 12000000]"},
		{DS1000Z, 3, "[3000 30000 300000 3000000]"},
		{MSO5000, 4, "[1000 10000 100000 1000000 10000000 25000000]"},
		{DHO, 1, "[1000 10000 100000 1000000 5000000 10000000 25000000 50000000]"},
		{DHO, 4, "[1000 10000 100000 1000000 5000000 10000000]"},
	} {
		if got := fmt.Sprint(c.family.Depths(scope.Model{Memory: c.family.Memory}, c.used)); got != c.want {
			t.Errorf("%s, %d channels: %s, want %s", c.family.Kind, c.used, got, c.want)
		}
	}
	for n, want := range map[int]string{1000: "1k", 25_000_000: "25M", 12_345: "12.345k"} {
		if got := scope.ShowPoints(n); got != want {
			t.Errorf("%d is sent as %s", n, got)
		}
	}
}

// FuzzState: no answer but the five makes a state.
func FuzzState(f *testing.F) {
	for _, s := range []string{"STOP", "WAIT", "RUN", "TD", "AUTO", "", "RUN\r"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		v, err := parseState(s)
		if (err == nil) == (v == 0) || err != nil && !errors.Is(err, scpi.ErrReply) {
			t.Errorf("%q: %v, %v", s, v, err)
		}
	})
}

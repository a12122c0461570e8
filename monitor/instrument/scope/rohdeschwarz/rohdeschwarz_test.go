package rohdeschwarz

import (
	"math"
	"net"
	"strings"
	"testing"
	"time"

	rsface "github.com/wattmark/wattmark/monitor/emulator/rohdeschwarz"
	scopeface "github.com/wattmark/wattmark/monitor/emulator/scope"
	"github.com/wattmark/wattmark/monitor/instrument/scope"
	"github.com/wattmark/wattmark/monitor/internal/montest"
)

// open opens a scope with options on a face.
func open(t *testing.T, m rsface.Model, o scope.Options) (*scope.Device, error) {
	t.Helper()
	b, now := montest.Busy(t)
	face, err := rsface.New(b, m, scopeface.Config{Now: now})
	if err != nil {
		t.Fatal(err)
	}
	at := "tcp:" + net.JoinHostPort("127.0.0.1", montest.Listen(t, face))
	d, err := scope.New(scope.Config{Family: RTB2000, Address: at, Options: o})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d, d.Open(t.Context())
}

func TestRefusals(t *testing.T) {
	clipped := RTB2000.Defaults() // 12 V off at 50 mV a division: the emulated scope sets 2 V
	clipped.Inputs["ch2"] = scope.Input{Scale: 0.05, Offset: -12}
	wide := RTB2000.Defaults() // two channels of a pair have 10 Mpts each
	wide.Inputs = map[string]scope.Input{"ch1": {Scale: 1}}
	wide.Depth = 20_000_000
	for name, c := range map[string]struct {
		model   rsface.Model
		options scope.Options
		says    string
	}{
		"an offset that it has not": {rsface.RTB2004, clipped, "less range at this scale"},
		"channels that it has not":  {rsface.RTB2002, RTB2000.Defaults(), "2 channels"},
		"all of a pair's memory":    {rsface.RTB2002, wide, ""},
	} {
		if _, err := open(t, c.model, c.options); (err != nil) != (c.says != "") ||
			err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	wide.Inputs["ch2"] = scope.Input{Scale: 1}
	if err := wide.Validate(); err == nil || !strings.Contains(err.Error(), "20000000") {
		t.Errorf("20 Mpts of two channels: %v", err)
	}
}

// Depth and window are rounded to those that the scope has; a code has its ten bits at the top of sixteen.
func TestDefaults(t *testing.T) {
	o := RTB2000.Defaults()
	o.Window = 50 * time.Second
	d, err := open(t, rsface.RTB2004, o)
	if err != nil {
		t.Fatal(err)
	}
	// A scope that was left with a long window is opened as quickly.
	_ = d.Close()
	if err := d.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	in := d.Inputs()
	if rate := float64(in.Timebase.SampleRate()); math.Abs(rate/(2e6/60)-1) > 1e-9 {
		t.Errorf("%v S/s", rate)
	}
	volts := in.Channels[1] // 0.5 V a division, 12 V in the middle
	if got := float64(volts.Gain) * 6400; math.Abs(got/0.5-1) > 1e-6 {
		t.Errorf("%v V a division", got)
	}
	if got := 32640*float64(volts.Gain) + float64(volts.Offset); math.Abs(got-12) > 1e-5 {
		t.Errorf("%v V in the middle", got)
	}
	if volts.MinCount != 0 || volts.MaxCount != 65472 {
		t.Errorf("codes %v to %v", volts.MinCount, volts.MaxCount)
	}
}

// FuzzReplies: what is no reply is an error, never a state, a scale or a record.
func FuzzReplies(f *testing.F) {
	for _, s := range []string{
		"RUN;8;NORM", "COMP;0;AUTO", "BRE;0;NORM", "RUN;0.5;NORM", "RUN;8", "WAIT;8;NORM",
		"7.812499803E-07;-2.550000139E-02;10;-4.998000058E-07;5.000000000E-03;5.000000000E+09",
		"1;0;0;0;1;1", "1;0;17;0;1;1", "1;0;10;0;1;0",
		"-4.998000058E-07,5.000000000E-07,5000,1", "0,1,1,1", "1,0,100,1", "0,1,100,2", "0,1,1.5,1", "",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if r, err := parseStatus(s); err == nil && (len(r.state) < 3 || strings.Count(s, ";") != 2) {
			t.Errorf("%q gives the state %+v", s, r)
		}
		if p, err := parseScale(s); err == nil && (!(p.Step >= 0) || !(p.Quantum >= 1) || p.Most < 0 || p.Most > 65535) {
			t.Errorf("%q gives %+v", s, p)
		}
		if h, err := parseHeader(s); err == nil && (h.points < 2 || !(h.step > 0) || math.IsInf(h.step, 0)) {
			t.Errorf("%q gives %+v", s, h)
		}
	})
}

// The example of the user manual: a word counts a 256th of a byte from the same origin.
func TestScale(t *testing.T) {
	s, err := parseScale("7.812499803E-7;-2.55E-2;8;-4.998000058E-7;5E-3;5E9")
	if err != nil || s.Gain != 7.812499803e-7 || s.Zero != -2.55e-2 || s.Quantum != 256 || s.Most != 0xff00 ||
		s.Begin != -4.998000058e-7 || s.Division != 5e-3 || math.Abs(s.Step/2e-10-1) > 1e-12 {
		t.Errorf("%+v, %v", s, err)
	}
	h, err := parseHeader("-4.998000058E-7,5.0E-7,5000,1")
	if err != nil || h.points != 5000 || math.Abs(h.step/2e-10-1) > 1e-6 {
		t.Errorf("%+v, %v", h, err)
	}
}

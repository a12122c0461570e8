//go:build linux

package tektronix

import (
	"errors"
	"math"
	"net"
	"strings"
	"testing"
	"time"

	scopeface "github.com/wattmark/wattmark/monitor/emulator/scope"
	scpiface "github.com/wattmark/wattmark/monitor/emulator/scpi"
	tekface "github.com/wattmark/wattmark/monitor/emulator/tektronix"
	"github.com/wattmark/wattmark/monitor/instrument/scope"
	"github.com/wattmark/wattmark/monitor/internal/montest"
	"github.com/wattmark/wattmark/monitor/scpi"
)

// emulated is a scope that listens.
func emulated(t *testing.T, family *tekface.Family) (*tekface.Face, string) {
	t.Helper()
	b, now := montest.Busy(t)
	f, err := tekface.New(b, family, scopeface.Config{Now: now})
	if err != nil {
		t.Fatal(err)
	}
	return f, "tcp:127.0.0.1:" + montest.Listen(t, f)
}

// short are the family's defaults with 50 ms of 10 000 points.
func short() scope.Options {
	o := Tektronix.Defaults()
	o.Window, o.Depth, o.Timeout = 50*time.Millisecond, 10_000, 300*time.Millisecond
	return o
}

// other sends messages as another client, and waits until they were carried out.
func other(address, messages string) {
	c, err := net.Dial("tcp", strings.TrimPrefix(address, "tcp:"))
	if err != nil {
		return
	}
	defer c.Close()
	_, _ = c.Write([]byte(messages + ";*OPC?\n"))
	_, _ = c.Read(make([]byte, 8))
}

// A preamble without a description, junk behind the points, and headers that
// somebody has switched on again.
func TestQuirks(t *testing.T) {
	f, address := emulated(t, tekface.MSO4NoID)
	f.Inject(scpiface.Fault{Kind: scpiface.Junk, Match: "CURV?", Times: 4, Text: "\n;\n"})
	k, in, err := montest.Record(t, Tektronix, address, short(), 80*time.Millisecond,
		func() { other(address, "HEAD ON;VERB OFF") })
	if err != nil || len(k.Scans()) != 10_000 || f.Pending() != 0 {
		t.Fatalf("%d scans, %v", len(k.Scans()), err)
	}
	for _, ch := range []int{1, 3} {
		for _, n := range k.Counts(ch) {
			if v := in.Channels[ch].Gain*float64(n) + in.Channels[ch].Offset; v < 11.8 || v > 12.3 {
				t.Fatalf("channel %d: %d counts are %v V", ch+1, n, v)
			}
		}
	}
}

// What somebody else does to the scope while it records.
func TestMeddling(t *testing.T) {
	t.Parallel()
	for messages, says := range map[string]string{
		"ACQ:STATE STOP": "front panel", "CH2:SCA 1": "set otherwise", "CH2:POS 1": "set otherwise",
		"HOR:MOD:RECO 1000": "front panel", "HOR:POS 100": "memory begins",
	} {
		_, address := emulated(t, tekface.MSO4)
		o := short()
		o.Window = 500 * time.Millisecond
		_, _, err := montest.Record(t, Tektronix, address, o, 300*time.Millisecond,
			func() { other(address, "HEAD OFF;"+messages) })
		if !errors.Is(err, scpi.ErrInstrument) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: got %v", messages, err)
		}
	}
}

// A record whose preamble tells of other settings than those that were read.
func TestAgreement(t *testing.T) {
	s := scope.Scale{Gain: 0.02, Zero: 12, Division: 0.5, Step: 1e-6}
	good := preamble{yIncrement: 0.02, yOffset: 25, yZero: 12.5, xIncrement: 1e-6}
	if err := agree(s, good); err != nil {
		t.Error(err)
	}
	for name, change := range map[string]func(*preamble){
		"gain": func(p *preamble) { p.yIncrement = 0.04 }, "zero": func(p *preamble) { p.yZero = 12 },
		"step": func(p *preamble) { p.xIncrement = 2e-6 },
	} {
		p := good
		change(&p)
		if err := agree(s, p); !errors.Is(err, scpi.ErrInstrument) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestWhatTheScopeRefuses(t *testing.T) {
	_, address := emulated(t, tekface.MDO3000)
	for says, change := range map[string]func(*scope.Options){
		"222":             func(o *scope.Options) { o.Inputs["ch1"] = scope.Input{Scale: 0.01, Offset: -12} },
		"the scope knows": func(o *scope.Options) { o.Depth = 20_000_000 },
	} {
		o := short()
		change(&o)
		if _, _, err := montest.Record(t, Tektronix, address, o, time.Millisecond, nil); err == nil ||
			!strings.Contains(err.Error(), says) {
			t.Errorf("%s: got %v", says, err)
		}
	}
}

func TestWindows(t *testing.T) {
	for w, want := range map[time.Duration]float64{
		6 * time.Second: 1, 12 * time.Second: 2, 600 * time.Millisecond: 0.1,
		30 * time.Second: 4, 50 * time.Second: 10, time.Microsecond: 1e-7,
	} {
		if got := timeScale(&scope.Plan{Options: scope.Options{Window: w}}); math.Abs(got/want-1) > 1e-9 {
			t.Errorf("%v gives %v s a division, want %v", w, got, want)
		}
	}
}

func TestStates(t *testing.T) {
	for s, want := range map[string]scope.State{
		"SAVE": scope.Stopped, "SAV": scope.Stopped, "READY": scope.Waiting, "REA": scope.Waiting,
		"TRIGGER": scope.Sampling, "TRIG": scope.Sampling,
		"AUTO": scope.Free, "ARMED": scope.Arming, "ARM": scope.Arming, ":TRIGGER:STATE READY": scope.Waiting,
	} {
		if got, err := parseState(s); err != nil || got != want {
			t.Errorf("%s: %v, %v", s, got, err)
		}
	}
	for _, s := range []string{"", "S", "RUN", "12", "SAVED"} {
		if _, err := parseState(s); !errors.Is(err, scpi.ErrReply) {
			t.Errorf("%q: %v", s, err)
		}
	}
}

func TestEvents(t *testing.T) {
	for s, want := range map[string]int{
		`0,"No events to report - queue empty"`:                          0,
		`1,"No events to report - new events pending *ESR?"`:             0,
		`401,"Power on",402,"Operation complete"`:                        0,
		`113,"Undefined header; ""CH9:SCA"", x",222,"Data out of range"`: 2,
		`420,"Query UNTERMINATED"`:                                       1,
		`540,"Measurement warning"`:                                      0,
		`2244,"Source waveform is not active"`:                           1,
	} {
		if got, err := parseEvents(s); err != nil || len(got) != want {
			t.Errorf("%s: %v, %v", s, got, err)
		}
	}
	for _, s := range []string{
		"", "x", "113", `113,"open`, `113,"a"b`, `113,"a",`, `-1,"a"`,
		strings.Repeat(`1,"a",`, 1000) + `1,"a"`,
	} {
		if got, err := parseEvents(s); !errors.Is(err, scpi.ErrReply) {
			t.Errorf("%.40q: %v, %v", s, got, err)
		}
	}
}

func FuzzEvents(f *testing.F) {
	for _, s := range []string{`113,"Undefined header; ""x""",222,"Data out of range"`, `0,""`, `,`, `1,"`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		events, err := parseEvents(s)
		if err != nil && len(events) > 0 || len(events) > maxEvents {
			t.Errorf("%q: %v, %v", s, events, err)
		}
		for _, e := range events {
			if e.Code < 100 {
				t.Errorf("%q: %v", s, e)
			}
		}
		_, _ = parseState(s)
	})
}

//go:build linux

package siglent

import (
	"errors"
	"math"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/wattmark/wattmark/internal/coverage"
	"github.com/wattmark/wattmark/measure"
	scopeface "github.com/wattmark/wattmark/monitor/emulator/scope"
	scpiface "github.com/wattmark/wattmark/monitor/emulator/scpi"
	siglentface "github.com/wattmark/wattmark/monitor/emulator/siglent"
	"github.com/wattmark/wattmark/monitor/instrument/scope"
	"github.com/wattmark/wattmark/monitor/internal/montest"
	"github.com/wattmark/wattmark/monitor/scpi"
)

// emulated is a scope that listens.
func emulated(t *testing.T, family *siglentface.Family) (*siglentface.Face, string) {
	t.Helper()
	b, now := montest.Busy(t)
	f, err := siglentface.New(b, family, scopeface.Config{Now: now})
	if err != nil {
		t.Fatal(err)
	}
	return f, "tcp:127.0.0.1:" + montest.Listen(t, f)
}

// short are the family's defaults with 50 ms of 10 000 points.
func short() scope.Options {
	o := E11.Defaults()
	o.Window, o.Depth, o.Timeout = 50*time.Millisecond, 10_000, 300*time.Millisecond
	return o
}

// Words with the code at their bottom, without its sign, are exact from the others.
func TestLowBits(t *testing.T) {
	_, address := emulated(t, siglentface.LowBits)
	o := short()
	o.Inputs["ch4"] = scope.Input{Scale: 0.5, Offset: -13} // below the middle: negative codes
	k, in, err := montest.Record(t, E11, address, o, 60*time.Millisecond, nil)
	if err != nil || len(k.Scans()) != 10_000 {
		t.Fatalf("%d scans, %v", len(k.Scans()), err)
	}
	for _, ch := range []int{1, 3} {
		if in.Channels[ch].MinCount != -2048 || in.Channels[ch].MaxCount != 2047 {
			t.Errorf("%+v", in.Channels[ch])
		}
		for _, n := range k.Counts(ch) {
			if v := in.Channels[ch].Gain*float64(n) + in.Channels[ch].Offset; v < 11.8 || v > 12.3 {
				t.Fatalf("channel %d: %d counts are %v V", ch+1, n, v)
			}
		}
	}
}

// Some accept a query and never answer: it is asked again, twice.
func TestQueriesWithoutAnAnswer(t *testing.T) {
	coverage.Long(t)
	f, address := emulated(t, siglentface.SDS2000XPlus)
	o := short()
	o.Timeout = 100 * time.Millisecond
	for _, match := range []string{
		"*OPC?", ":CHAN2:SCAL?", ":ACQ:MDEP?", ":WAV:PRE?", ":WAV:MAXP?", ":TRIG:STAT?",
		":ACQ:POIN?", ":WAV:DATA?",
	} {
		f.Inject(scpiface.Fault{Kind: scpiface.Mute, Match: match, Times: 2})
		k, _, err := montest.Record(t, E11, address, o, 60*time.Millisecond, nil)
		if err != nil || len(k.Scans()) != 10_000 || f.Pending() != 0 {
			t.Fatalf("%s: %d faults to come, %v", match, f.Pending(), err)
		}
	}
}

// A scope that is stopped by hand says so: nobody knows what it then holds.
func TestStoppedByHand(t *testing.T) {
	_, address := emulated(t, siglentface.SDS2000XPlus)
	o := short()
	o.Window, o.Depth = time.Second, 10_000
	_, _, err := montest.Record(t, E11, address, o, 400*time.Millisecond, func() {
		c, err := net.Dial("tcp", strings.TrimPrefix(address, "tcp:"))
		if err != nil {
			return
		}
		defer c.Close()
		_, _ = c.Write([]byte(":TRIG:STOP;*OPC?\n"))
		_, _ = c.Read(make([]byte, 8))
	})
	if !errors.Is(err, scpi.ErrInstrument) || !strings.Contains(err.Error(), "front panel") {
		t.Errorf("got %v", err)
	}
}

// The scope takes what it cannot do in silence; the driver does not.
func TestWhatTheScopeRefuses(t *testing.T) {
	_, address := emulated(t, siglentface.SDS2000XPlus)
	for says, change := range map[string]func(*scope.Options){
		"too far": func(o *scope.Options) { o.Inputs["ch1"] = scope.Input{Scale: 0.05, Offset: -12} },
		"this model has": func(o *scope.Options) {
			o.Inputs = map[string]scope.Input{"ch1": o.Inputs["ch1"], "ch3": o.Inputs["ch3"]}
		},
		"the scope knows": func(o *scope.Options) {
			o.Depth = 625_000 // of an SDS5000X
		},
	} {
		o := short()
		change(&o)
		if _, _, err := montest.Record(t, E11, address, o, time.Millisecond, nil); err == nil ||
			!strings.Contains(err.Error(), says) {
			t.Errorf("%s: got %v", says, err)
		}
	}
}

func TestPoints(t *testing.T) {
	for n, s := range map[int]string{
		10_000: "10k", 1_250_000: "1.25M", 625_000: "625k", 100_000_000: "100M",
		1_000_000_000: "1G", 7: "7",
	} {
		if got := scope.ShowPoints(n); got != s {
			t.Errorf("%d is written %s", n, got)
		}
		if got, err := parsePoints(s); err != nil || got != n {
			t.Errorf("%s: %d, %v", s, got, err)
		}
	}
	for s, n := range map[string]int{
		"1.00E+07": 10_000_000, " 12.5Mpts\r": 12_500_000, "20kpt": 20_000,
		"14000000": 14_000_000, "0": 0,
	} {
		if got, err := parsePoints(s); err != nil || got != n {
			t.Errorf("%q: %d, %v", s, got, err)
		}
	}
	for _, s := range []string{"", "M", "-1", "1e12", "10kk", "9.91E37", "many"} {
		if n, err := parsePoints(s); !errors.Is(err, scpi.ErrReply) {
			t.Errorf("%q: %d, %v", s, n, err)
		}
	}
}

func TestDefaultDepths(t *testing.T) {
	for series, want := range map[string]int{
		"SDS1000X": 1_000_000, "SDS2000X": 1_000_000, "SDS3000X": 1_000_000,
		"SDS5000X": 1_250_000, "SDS6000A": 2_500_000,
	} {
		best := 0
		for _, d := range depths(scope.Model{Series: series}, 4) {
			if d <= 3_000_000 {
				best = d
			}
		}
		if best != want {
			t.Errorf("%s: %d", series, best)
		}
	}
	if got := depths(scope.Model{Series: "SDS2000X"}, 1); got[0] != 20_000 {
		t.Errorf("one channel alone: %v", got)
	}
}

func TestStates(t *testing.T) {
	for s, want := range map[string]scope.State{
		"Stop": scope.Stopped, "Ready": scope.Waiting, "Trig'd": scope.Sampling,
		"Auto": scope.Free, "Roll": scope.Free, "Arm": scope.Arming,
	} {
		if got, err := parseState(s); err != nil || got != want {
			t.Errorf("%s: %v, %v", s, got, err)
		}
	}
	if _, err := parseState("1.00E+00"); !errors.Is(err, scpi.ErrReply) {
		t.Error(err)
	}
}

func FuzzReplies(f *testing.F) {
	for _, s := range []string{"10k", "1.25Mpts", "1E7", "Trig'd", "\x00"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if n, err := parsePoints(s); err == nil && (n < 0 || n > math.MaxInt32) {
			t.Errorf("%q: %d", s, n)
		}
		_, _ = parseState(s)
	})
}

func FuzzExtend(f *testing.F) {
	f.Add([]byte{0xff, 0x0f, 0x00, 0x08, 0x01}, 12)
	f.Fuzz(func(t *testing.T, b []byte, bits int) {
		if bits < 9 || bits > 16 {
			return
		}
		raw := append([]byte(nil), b...)
		extend(b, bits)
		out := make([]measure.Count, len(b)/2)
		scope.Codes{Bytes: 2, Signed: true}.Decode(out, b)
		for i, n := range out {
			code := int(raw[2*i]) | int(raw[2*i+1])<<8
			if top := 1 << (bits - 1); int(n) < -top || int(n) >= top || (int(n)-code)&(1<<bits-1) != 0 {
				t.Errorf("%#x of %d bits is %d", code, bits, n)
			}
		}
	})
}

// BenchmarkExtend is what words with their code at the bottom cost beyond decoding.
func BenchmarkExtend(b *testing.B) {
	const n = 1 << 16
	raw, out := make([]byte, 2*n), make([]measure.Count, n)
	b.ReportAllocs()
	for b.Loop() {
		extend(raw, 12)
		scope.Codes{Bytes: 2, Signed: true}.Decode(out, raw)
	}
	b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds(), "samples/s")
}

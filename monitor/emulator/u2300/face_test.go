package u2300

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/wattmark/wattmark/measure/load"
	"github.com/wattmark/wattmark/monitor/emulator/board"
	"github.com/wattmark/wattmark/monitor/internal/montest"
)

// still is a device in a time that the test moves.
func still(t *testing.T, cfg Config) (*Face, *time.Duration) {
	t.Helper()
	b, err := board.New(board.Config{})
	if err != nil {
		t.Fatal(err)
	}
	now := new(time.Duration)
	cfg.Now = func() time.Duration { return *now }
	f, err := New(b, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return f, now
}

// expect sends messages and compares replies; a long one by its begin.
func expect(t *testing.T, f *Face, pairs ...string) {
	t.Helper()
	for i := 0; i < len(pairs); i += 2 {
		s := f.NewSession()
		s.Send(pairs[i])
		got := ""
		if strings.Contains(pairs[i], "?") {
			r, _ := s.Receive()
			got = strings.TrimRight(string(r), "\n")
		}
		if want, begin := strings.CutSuffix(pairs[i+1], "…"); got != want && !(begin && strings.HasPrefix(got, want)) {
			t.Errorf("%s gives %.60q, want %q", pairs[i], got, pairs[i+1])
		}
	}
}

const none = `+0,"No error"`

func TestSettings(t *testing.T) {
	f, _ := still(t, Config{})
	expect(
		t, f,
		"*IDN?", "Keysight Technologies,U2356A,MY00000001,A-01-2026",
		"ROUT:CHAN:RANG 2.5,(@101:103,105)", "",
		"ROUTe:CHANnel:RANGe? (@101,104,105)", "2.5,10,2.5",
		"ROUT:CHAN:POL UNIPolar,(@102)", "",
		"ROUT:CHAN:POL? (@101:102)", "BIP,UNIP",
		"ROUT:CHAN:STYP DIFF,(@101)", "",
		"ROUT:CHAN:STYP? (@101)", "DIFF",
		"SYST:ERR?", none,
		"ROUT:CHAN:RANG 3,(@101)", "", "SYST:ERR?", `-222,"Data out of range"`,
		"ROUT:CHAN:RANG 5,(@165)", "", "SYST:ERR?", `-222,"Data out of range"`,
		"ROUT:CHAN:STYP DIFF,(@133)", "", "SYST:ERR?", `-222,"Data out of range"`,
		"ROUT:CHAN:RANG 5", "", "SYST:ERR?", `-109,"Missing parameter"`,
		"ROUT:SCAN (@101:106)", "", "ROUT:SCAN?", "(@101,102,103,104,105,106)",
		"ACQ:SRAT 83333", "", "ACQ:SRAT?", "83333",
		"ACQ:SRAT 83334", "", "SYST:ERR?", `-222,"Data out of range"`,
		"ROUT:SCAN (@101:107)", "", "SYST:ERR?", `-221,"Settings conflict"`,
		"ACQ:BURS ON;BURS?", "1",
		"MEAS? (@101,103)", "6.0…",
		"*RST;ROUT:SCAN?;:ACQ:SRAT?;BURS?", "(@101);1000;0",
		"SYST:ERR?", none,
	)
}

func TestAnAcquisition(t *testing.T) {
	f, now := still(t, Config{Noise: -1, Memory: 4000})
	expect(
		t, f,
		"ROUT:SCAN (@101:102);:ACQ:SRAT 1000;:WAV:POIN 100;STAT?", "EPTY",
		"WAV:DATA?", "#800000000",
		"RUN;:WAV:STAT?", "EPTY",
		"RUN", "", "SYST:ERR?", `-221,"Settings conflict"`,
		"ACQ:SRAT 500", "", "SYST:ERR?", `-221,"Settings conflict"`,
	)
	*now = 50 * time.Millisecond
	expect(t, f, "WAV:STAT?", "FRAG", "WAV:DATA?", "#800000000")
	*now = 250 * time.Millisecond
	expect(t, f, "WAV:STAT?", "DATA", "WAV:DATA?", "#800000400…", "WAV:STAT?", "DATA", "WAV:DATA?", "#800000400…",
		"WAV:STAT?", "FRAG")
	*now = 2200 * time.Millisecond // 2000 scans wait, which memory holds
	expect(t, f, "WAV:STAT?", "DATA")
	*now = 2202 * time.Millisecond
	expect(t, f, "WAV:STAT?", "OVER", "WAV:DATA?", "#800000000", "STOP;:WAV:STAT?", "OVER", "RUN;:WAV:STAT?", "EPTY")
	if runs := f.Runs(); len(runs) != 2 || runs[0].Begin != 0 || runs[0].Read != 200 || runs[1].Begin != *now {
		t.Errorf("%+v", runs)
	}
	expect(t, f, "STOP;:ACQ:POIN 10;:DIG;:WAV:COMP?", "NO")
	*now += 20 * time.Millisecond
	expect(t, f, "WAV:COMP?;STAT?;DATA?", "YES;DATA;#800000040…")
}

// Codes are the voltage on the range that is set, whatever the range.
func TestCodes(t *testing.T) {
	c := channel{polarity: "BIP"}
	for v, want := range map[float64]float64{0: 0, 5: 16384, -10: -32768} {
		if got := c.code(v, 10); got != want {
			t.Errorf("%v V: %v, want %v", v, got, want)
		}
	}
	c.polarity = "UNIP"
	for v, want := range map[float64]float64{0: -32768, 2.5: 0, 5: 32768} {
		if got := c.code(v, 5); math.Abs(got-want) > 1e-9 {
			t.Errorf("%v V: %v, want %v", v, got, want)
		}
	}
}

func TestRefusedConfigurations(t *testing.T) {
	b, _ := board.New(board.Config{})
	for _, cfg := range []Config{
		{},
		{Model: "U2331A"},
		{Rails: []string{"none"}},
		{Model: "U2351A", Rails: make([]string, 9)},
	} {
		if cfg.Model != "" || cfg.Rails != nil {
			cfg.Now = func() time.Duration { return 0 }
		}
		if _, err := New(b, cfg); err == nil {
			t.Errorf("%+v is taken", cfg)
		}
	}
}

// running serves a device on a card that computes.
func running(t *testing.T) (*Face, string) {
	t.Helper()
	b, err := board.New(board.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.SetLoad(0, load.Compute); err != nil {
		t.Fatal(err)
	}
	epoch := time.Now()
	f, err := New(b, Config{Now: func() time.Duration { return time.Since(epoch) + time.Second }})
	if err != nil {
		t.Fatal(err)
	}
	return f, montest.Listen(t, f)
}

// visa streams the way a lab's script does: blocks for as long as it takes, until
// the device says that its memory overflowed.
const visa = `
import sys, time, pyvisa
daq = pyvisa.ResourceManager("@py").open_resource("TCPIP::127.0.0.1::" + sys.argv[1] + "::SOCKET", read_termination="\n", write_termination="\n", timeout=5000)
print(daq.query("*IDN?")); daq.write("*CLS")
daq.write("ACQ:SRAT 3"); daq.write("ROUT:SCAN (@101,102)"); daq.write("ROUT:CHAN:RANG 10,(@101:102)")
daq.write("ROUT:CHAN:POL UNIP,(@101)"); daq.write("ACQ:BURS ON"); daq.write("ACQ:SRAT 10000"); daq.write("WAV:POIN 500")
print(daq.query("SYST:ERR?")); print(daq.query("ROUT:CHAN:POL? (@101,102)"))
daq.write("RUN")
codes = []
while len(codes) < 10000:
    s = daq.query("WAV:STAT?")
    assert s in ("EPTY", "FRAG", "DATA"), s
    if s == "DATA":
        codes += daq.query_binary_values("WAV:DATA?", datatype="h", is_big_endian=False)
    else:
        time.sleep(0.01)
daq.write("STOP")
volts = [(c / 65536 + 0.5) * 10 for c in codes[0::2]]; amps = [2 * c / 65536 * 10 * 10 for c in codes[1::2]]
print(len(codes), 2 * sum(volts) / len(volts), sum(amps) / len(amps))
daq.write("ROUT:CHAN:RANG 7,(@101)"); print(daq.query("SYST:ERR?")); print(daq.query("SYST:ERR?"))
`

func TestPyVISA(t *testing.T) {
	montest.NeedVISA(t)
	f, port := running(t)
	out := montest.Lines(montest.Run(t, montest.Python, "-c", visa, port))
	if len(out) != 6 {
		t.Fatalf("%q", out)
	}
	for i, want := range map[int]string{
		0: "Keysight Technologies,U2356A,MY00000001,A-01-2026", 1: none, 2: "UNIP,BIP", 4: `-222,"Data out of range"`,
		5: none,
	} {
		if out[i] != want {
			t.Errorf("line %d is %q, want %q", i, out[i], want)
		}
	}
	var n int
	var v, a float64
	r := f.board.At(2 * time.Second)[2]
	if _, err := fmt.Sscan(out[3], &n, &v, &a); err != nil || n != 10_000 || v < 0.99*float64(r.V) ||
		v > 1.01*float64(r.V) || a < 0.99*float64(r.I) || a > 1.01*float64(r.I) {
		t.Errorf("%s, the board has %v and %v", out[3], r.V, r.I)
	}
}

func TestLXITools(t *testing.T) {
	montest.Need(t, "lxi-tools", "lxi", "--version")
	_, port := running(t)
	ask := func(q string) string {
		return strings.TrimSpace(montest.Run(t, "lxi", "scpi", "-a", "127.0.0.1", "-r", "-p", port, q))
	}
	for q, want := range map[string]string{
		"*IDN?":      "Keysight Technologies,U2356A,MY00000001,A-01-2026",
		"ROUT:SCAN?": "(@101)", "WAV:STAT?": "EPTY",
	} {
		if got := ask(q); got != want {
			t.Errorf("%s gives %q", q, got)
		}
	}
	if out := montest.Run(t, "lxi", "benchmark", "-a", "127.0.0.1", "-r", "-p", port, "-c",
		"300"); !strings.Contains(out, "Result:") {
		t.Errorf("benchmark gives %q", out)
	}
}

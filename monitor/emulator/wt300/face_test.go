package wt300

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wattmark/wattmark/measure/load"
	"github.com/wattmark/wattmark/monitor/emulator/board"
	"github.com/wattmark/wattmark/monitor/internal/montest"
)

// still is a meter in a time that the test moves.
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

func ask(f *Face, message string) string {
	s := f.NewSession()
	s.Send(message)
	if !strings.Contains(message, "?") {
		return ""
	}
	r, _ := s.Receive()
	return strings.TrimRight(string(r), "\n")
}

func expect(t *testing.T, f *Face, pairs ...string) {
	t.Helper()
	for i := 0; i < len(pairs); i += 2 {
		if got := ask(f, pairs[i]); got != pairs[i+1] {
			t.Errorf("%s gives %.60q, want %q", pairs[i], got, pairs[i+1])
		}
	}
}

func TestSettings(t *testing.T) {
	f, _ := still(t, Config{Model: "WT332"})
	expect(
		t, f,
		"*IDN?", "YOKOGAWA,WT332,C2AB00001V,F1.03",
		":RATE?", ":RATE 250.0E-03", // headers, until they are turned off
		":COMM:HEAD OFF;:RATE 100MS;:RATE?", "100.0E-03",
		":RATE 5S;:RATE?;:RATE 0.5;:RATE?", "5.0E+00;500.0E-03",
		":INP:VOLT:RANG 15V;RANG?;:VOLT:RANG 60;:INPUT:VOLTAGE:RANGE?", "15.0E+00;60.0E+00",
		":CURR:RANG 500MA;RANG?", "500.0E-03",
		":INP:MODE DC;MODE?;SYNC OFF;SYNC?", "DC;OFF",
		":NUM:NORM:ITEM2 P,3;ITEM2?;ITEM9?", "P,3;NONE",
		":STAT:ERR?", `0,"No error"`,
		":RATE 70MS", "", ":STAT:ERR?", `222,"Data out of range"`,
		":CURR:RANG 5MA", "", ":STAT:ERR?", `222,"Data out of range"`, // a WT332 begins at 0.5 A
		":NUM:NORM:ITEM1 P,2", "", ":STAT:ERR?", `222,"Data out of range"`, // and has no element 2
		":NUM:NORM:ITEM1 Q,1", "", ":STAT:ERR?", `224,"Illegal parameter value"`,
		":INP:VOLT:RANG 15X", "", ":STAT:ERR?", `104,"Data type error"`,
		"SYST:ERR?", "", ":STAT:ERR?", `113,"Undefined header"`, // it speaks no SCPI
		"*RST;:COMM:HEAD?", ":COMMUNICATE:HEADER 1",
	)
}

func TestUpdatesAndTheirMarks(t *testing.T) {
	f, now := still(t, Config{})
	expect(t, f, ":COMM:HEAD OFF;:NUM:NORM:VAL?", "NAN,NAN,NAN", ":RATE 100MS;:INP:VOLT:RANG 15;:STAT:EESR?", "0")
	*now = 150 * time.Millisecond
	expect(t, f, ":STAT:EESR?", "0") // no filter is set
	ask(f, ":STAT:FILT1 FALL")
	*now = 250 * time.Millisecond
	expect(t, f, ":STAT:EESR?", "1", ":STAT:EESR?", "0")
	f.Late(50 * time.Millisecond)
	*now = 340 * time.Millisecond
	expect(t, f, ":STAT:EESR?", "0")
	*now = 351 * time.Millisecond
	expect(t, f, ":STAT:EESR?", "1")
	*now = 400 * time.Millisecond // the next is on time again
	expect(t, f, ":STAT:EESR?", "1")
	*now = 500 * time.Millisecond
	expect(t, f, "*CLS;:STAT:EESR?", "0")
	f.NoData(1)
	expect(t, f, ":NUM:NORM:VAL?", "NAN,NAN,NAN")
	f.Overload(1)
	expect(t, f, ":NUM:FORM FLO;:NUM:NORM:VAL?", "#40012\x7e\x94\xf5\x6a\x7e\x94\xf5\x6a\x7e\x94\xf5\x6a")
	if reads := f.Reads(); len(reads) != 3 || reads[2].Update != 5 || reads[2].End != 500*time.Millisecond {
		t.Errorf("%+v", reads)
	}
	expect(t, f, ":STAT:COND?", "0", ":CURR:RANG 5MA;:STAT:ERR?", `0,"No error"`)
	*now = 600 * time.Millisecond
	expect(t, f, ":STAT:COND?", "64", ":NUM:FORM ASC;:NUM:NORM:ITEM1 P,1;NUM 1;VAL?", "INF")
}

// A client that waits holds up no other.
func TestWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, err := board.New(board.Config{})
		if err != nil {
			t.Fatal(err)
		}
		epoch := time.Now()
		f, err := New(b, Config{Now: func() time.Duration { return time.Since(epoch) }})
		if err != nil {
			t.Fatal(err)
		}
		ask(f, ":RATE 1S;:STAT:FILT1 FALL")
		var waited time.Duration
		done := make(chan struct{})
		go func() {
			defer close(done)
			ask(f, ":COMM:WAIT 1;*OPC?")
			waited = time.Since(epoch)
		}()
		synctest.Wait()
		expect(t, f, "*IDN?", "YOKOGAWA,WT310,C2AB00001V,F1.03")
		if time.Since(epoch) != 0 {
			t.Error("it was held up")
		}
		if <-done; waited != time.Second {
			t.Errorf("it waited %v", waited)
		}
	})
}

func TestRefusedConfigurations(t *testing.T) {
	b, _ := board.New(board.Config{})
	for _, cfg := range []Config{
		{},
		{Model: "WT1800"},
		{Rails: []string{"none"}},
		{Rails: []string{"aux_12v_1", "aux_12v_2"}},
	} {
		if cfg.Model != "" || cfg.Rails != nil {
			cfg.Now = func() time.Duration { return 0 }
		}
		if _, err := New(b, cfg); err == nil {
			t.Errorf("%+v is taken", cfg)
		}
	}
}

// running serves a meter on a card that computes.
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
	f, err := New(b, Config{Model: "WT333", Now: func() time.Duration { return time.Since(epoch) + time.Second }})
	if err != nil {
		t.Fatal(err)
	}
	return f, montest.Listen(t, f)
}

// visa reads five updates as the maker's manual has it, then one as text.
const visa = `
import sys, time, pyvisa
wt = pyvisa.ResourceManager("@py").open_resource("TCPIP::127.0.0.1::" + sys.argv[1] + "::SOCKET", read_termination="\n", write_termination="\n", timeout=5000)
print(wt.query("*IDN?")); wt.write("*CLS"); print(wt.query(":RATE?"))
wt.write(":COMM:HEAD OFF"); wt.write(":INP:VOLT:RANG 15V"); wt.write(":INP:CURR:RANG 20A"); wt.write(":INP:MODE DC"); wt.write(":RATE 100MS")
wt.write(":NUM:FORM FLO"); wt.write(":NUM:NORM:NUM 3;ITEM1 U,2;ITEM2 I,2;ITEM3 P,2"); print(wt.query(":NUM:NORM:ITEM3?"), wt.query(":INP:VOLT:RANG?"))
wt.write(":STAT:FILT1 FALL"); wt.query(":STAT:EESR?")
begin = time.monotonic()
for i in range(5):
    wt.write(":COMM:WAIT 1")
    v = wt.query_binary_values(":NUM:NORM:VAL?", datatype="f", is_big_endian=True)
    wt.query(":STAT:EESR?")
print(time.monotonic() - begin, *v)
wt.write(":NUM:FORM ASC"); print(wt.query(":NUM:NORM:VAL?"))
wt.write(":NO:SUCH"); print(wt.query(":STAT:ERR?")); print(wt.query(":STAT:ERR?"))
`

func TestPyVISA(t *testing.T) {
	montest.NeedVISA(t)
	f, port := running(t)
	out := montest.Lines(montest.Run(t, montest.Python, "-c", visa, port))
	if len(out) != 7 {
		t.Fatalf("%q", out)
	}
	for i, want := range map[int]string{
		0: "YOKOGAWA,WT333,C2AB00001V,F1.03", 1: ":RATE 250.0E-03", 2: "P,2 15.0E+00",
		5: `113,"Undefined header"`, 6: `0,"No error"`,
	} {
		if out[i] != want {
			t.Errorf("line %d is %q, want %q", i, out[i], want)
		}
	}
	r := f.board.At(2 * time.Second)[0] // the second element has the first of the other rails
	var took, u, i, p float64
	if _, err := fmt.Sscan(out[3], &took, &u, &i, &p); err != nil || took < 0.4 || u < 0.99*float64(r.V) ||
		p < 0.99*float64(r.P) || p > 1.01*float64(r.P) {
		t.Errorf("%s, the board has %+v", out[3], r)
	}
	var a, b, c float64
	if _, err := fmt.Sscanf(out[4], "%g,%g,%g", &a, &b, &c); err != nil || a < 0.99*u || a > 1.01*u || c < 0.99*p ||
		c > 1.01*p {
		t.Errorf("as text %s", out[4])
	}
}

func TestLXITools(t *testing.T) {
	montest.Need(t, "lxi-tools", "lxi", "--version")
	_, port := running(t)
	for q, want := range map[string]string{
		"*IDN?": "YOKOGAWA,WT333,C2AB00001V,F1.03", ":STAT:ERR?": `0,"No error"`,
		":INP:MODE?": ":INPUT:MODE RMS",
	} {
		if got := strings.TrimSpace(montest.Run(t, "lxi", "scpi", "-a", "127.0.0.1", "-r", "-p", port,
			q)); got != want {
			t.Errorf("%s gives %q", q, got)
		}
	}
	if out := montest.Run(t, "lxi", "benchmark", "-a", "127.0.0.1", "-r", "-p", port, "-c",
		"300"); !strings.Contains(out, "Result:") {
		t.Errorf("benchmark gives %q", out)
	}
}

package wt300face

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"wattmark/monitor/emulator/board"
	"wattmark/monitor/emulator/facetest"
)

// running serves a meter on a card that computes.
func running(t *testing.T) (*Face, string) {
	t.Helper()
	b, err := board.New(board.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.SetLoad(0, board.Compute); err != nil {
		t.Fatal(err)
	}
	epoch := time.Now()
	f, err := New(b, Config{Model: "WT333", Now: func() time.Duration { return time.Since(epoch) + time.Second }})
	if err != nil {
		t.Fatal(err)
	}
	return f, facetest.Listen(t, f)
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
	facetest.NeedVISA(t)
	f, port := running(t)
	out := facetest.Lines(facetest.Run(t, facetest.Python, "-c", visa, port))
	if len(out) != 7 {
		t.Fatalf("%q", out)
	}
	for i, want := range map[int]string{0: "YOKOGAWA,WT333,C2AB00001V,F1.03", 1: ":RATE 250.0E-03", 2: "P,2 15.0E+00", 5: `113,"Undefined header"`, 6: `0,"No error"`} {
		if out[i] != want {
			t.Errorf("line %d is %q, want %q", i, out[i], want)
		}
	}
	r := f.board.At(2 * time.Second)[0] // the second element has the first of the other rails
	var took, u, i, p float64
	if _, err := fmt.Sscan(out[3], &took, &u, &i, &p); err != nil || took < 0.4 || u < 0.99*float64(r.V) || p < 0.99*float64(r.P) || p > 1.01*float64(r.P) {
		t.Errorf("%s, the board has %+v", out[3], r)
	}
	var a, b, c float64
	if _, err := fmt.Sscanf(out[4], "%g,%g,%g", &a, &b, &c); err != nil || a < 0.99*u || a > 1.01*u || c < 0.99*p || c > 1.01*p {
		t.Errorf("as text %s", out[4])
	}
}

func TestLXITools(t *testing.T) {
	facetest.Need(t, "lxi-tools", "lxi", "--version")
	_, port := running(t)
	for q, want := range map[string]string{"*IDN?": "YOKOGAWA,WT333,C2AB00001V,F1.03", ":STAT:ERR?": `0,"No error"`, ":INP:MODE?": ":INPUT:MODE RMS"} {
		if got := strings.TrimSpace(facetest.Run(t, "lxi", "scpi", "-a", "127.0.0.1", "-r", "-p", port, q)); got != want {
			t.Errorf("%s gives %q", q, got)
		}
	}
	if out := facetest.Run(t, "lxi", "benchmark", "-a", "127.0.0.1", "-r", "-p", port, "-c", "300"); !strings.Contains(out, "Result:") {
		t.Errorf("benchmark gives %q", out)
	}
}

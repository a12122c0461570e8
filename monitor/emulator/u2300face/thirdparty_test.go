package u2300face

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"wattmark/monitor/emulator/board"
	"wattmark/monitor/emulator/facetest"
)

// running serves a device on a card that computes.
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
	f, err := New(b, Config{Now: func() time.Duration { return time.Since(epoch) + time.Second }})
	if err != nil {
		t.Fatal(err)
	}
	return f, facetest.Listen(t, f)
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
	facetest.NeedVISA(t)
	f, port := running(t)
	out := facetest.Lines(facetest.Run(t, facetest.Python, "-c", visa, port))
	if len(out) != 6 {
		t.Fatalf("%q", out)
	}
	for i, want := range map[int]string{
		0: "Keysight Technologies,U2356A,MY00000001,A-01-2026", 1: none, 2: "UNIP,BIP", 4: `-222,"Data out of range"`, 5: none,
	} {
		if out[i] != want {
			t.Errorf("line %d is %q, want %q", i, out[i], want)
		}
	}
	var n int
	var v, a float64
	r := f.board.At(2 * time.Second)[2]
	if _, err := fmt.Sscan(out[3], &n, &v, &a); err != nil || n != 10_000 || v < 0.99*float64(r.V) || v > 1.01*float64(r.V) || a < 0.99*float64(r.I) || a > 1.01*float64(r.I) {
		t.Errorf("%s, the board has %v and %v", out[3], r.V, r.I)
	}
}

func TestLXITools(t *testing.T) {
	facetest.Need(t, "lxi-tools", "lxi", "--version")
	_, port := running(t)
	ask := func(q string) string {
		return strings.TrimSpace(facetest.Run(t, "lxi", "scpi", "-a", "127.0.0.1", "-r", "-p", port, q))
	}
	for q, want := range map[string]string{"*IDN?": "Keysight Technologies,U2356A,MY00000001,A-01-2026", "ROUT:SCAN?": "(@101)", "WAV:STAT?": "EPTY"} {
		if got := ask(q); got != want {
			t.Errorf("%s gives %q", q, got)
		}
	}
	if out := facetest.Run(t, "lxi", "benchmark", "-a", "127.0.0.1", "-r", "-p", port, "-c", "300"); !strings.Contains(out, "Result:") {
		t.Errorf("benchmark gives %q", out)
	}
}

//go:build linux

package tektronix

import (
	"fmt"
	"strings"
	"testing"

	"github.com/wattmark/wattmark/monitor/emulator/scope"
	"github.com/wattmark/wattmark/monitor/internal/montest"
)

// visa takes one record as the programmer manuals' example does.
const visa = `
import sys, time, pyvisa
scope = pyvisa.ResourceManager("@py").open_resource(sys.argv[1], read_termination="\n", write_termination="\n", timeout=5000)
print(scope.query("*IDN?"))
scope.write("HEADer OFF"); scope.write("*CLS")
scope.write(sys.argv[2])
scope.write("CH2:SCAle 0.5"); scope.write("CH2:OFFSet 12"); scope.write("HORizontal:SCAle 1E-3"); scope.write("HORizontal:RECOrdlength 10000")
scope.write("TRIGger:A:MODe NORMal"); scope.write("TRIGger:A:LEVel:CH1 0.5")
scope.write("ACQuire:STOPAfter SEQuence"); scope.write("ACQuire:STATE RUN"); scope.write("TRIGger FORCe")
while scope.query("TRIGger:STATE?") != "SAVE":
    time.sleep(0.005)
scope.write("DATa:SOUrce CH2"); scope.write("DATa:ENCdg SRIbinary"); scope.write("DATa:WIDth 2")
scope.write("DATa:STARt 1"); scope.write("DATa:STOP %s" % scope.query("HORizontal:RECOrdlength?"))
n = int(scope.query("WFMOutpre:NR_Pt?"))
mult, off, zero = (float(scope.query("WFMOutpre:%s?" % x)) for x in ("YMUlt", "YOFf", "YZEro"))
codes = scope.query_binary_values("CURVe?", datatype="h")
volts = [(c - off) * mult + zero for c in codes]
print(n, len(volts), min(volts), max(volts))
scope.write("NO:SUCH:THING")
print(scope.query("*ESR?"), scope.query("ALLEv?"))
`

func TestPyVISA(t *testing.T) {
	montest.Need(t, "python3-pyvisa python3-pyvisa-py", montest.Python, "-c", "import pyvisa, pyvisa_py")
	for family, display := range map[*Family]string{MDO3000: "SELect:CH2 ON", MSO4: "DISplay:GLObal:CH2:STATE ON"} {
		b, now := montest.Busy(t)
		f, err := New(b, family, scope.Config{Now: now})
		if err != nil {
			t.Fatal(err)
		}
		out := montest.Run(t, montest.Python, "-c", visa, "TCPIP::127.0.0.1::"+montest.Listen(t, f)+"::SOCKET", display)
		lines := strings.Split(strings.TrimSpace(out), "\n")
		var n, got int
		var least, most float64
		if len(lines) != 3 || lines[2] != `32 113,"Undefined header"` ||
			!strings.HasPrefix(lines[0], family.traits.ID) {
			t.Fatalf("%s: %s", family.traits.ID, out)
		}
		if _, err := fmt.Sscan(lines[1], &n, &got, &least, &most); err != nil || n != 10_000 || got != n ||
			least < 11.9 || most > 12.3 || most <= least {
			t.Errorf("%s: %s", family.traits.ID, out)
		}
	}
}

func TestLXITools(t *testing.T) {
	montest.Need(t, "lxi-tools", "lxi", "--version")
	b, now := montest.Busy(t)
	f, err := New(b, MSO4, scope.Config{Now: now})
	if err != nil {
		t.Fatal(err)
	}
	port := montest.Listen(t, f)
	for query, want := range map[string]string{
		"*IDN?":       "TEKTRONIX,MSO44,C023456,CF:91.1CT FV:1.44.3",
		"TRIG:STATE?": ":TRIGGER:STATE AUTO",
	} {
		if out := montest.Run(t, "lxi", "scpi", "-a", "127.0.0.1", "-r", "-p", port,
			query); strings.TrimSpace(out) != want {
			t.Errorf("%s gives %q", query, out)
		}
	}
}

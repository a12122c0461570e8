//go:build linux

package rohdeschwarz

import (
	"fmt"
	"strings"
	"testing"

	"github.com/wattmark/wattmark/monitor/emulator/scope"
	"github.com/wattmark/wattmark/monitor/internal/montest"
)

// visa takes a waveform as the user manual's example does: a single acquisition, its end by *OPC?, the header, then
// words that increment and origin scale.
const visa = `
import sys, pyvisa
scope = pyvisa.ResourceManager("@py").open_resource(sys.argv[1], read_termination="\n", write_termination="\n", timeout=5000)
print(scope.query("*IDN?"))
scope.write("CHANnel2:STATe ON"); scope.write("CHANnel2:SCALe 0.5"); scope.write("CHANnel2:OFFSet 12")
scope.write("TIMebase:SCALe 1E-3"); scope.write("ACQuire:POINts 10000"); scope.write("FORMat:BORDer LSBFirst")
scope.write("TRIGger:A:MODE AUTO")
scope.write("SINGle"); assert scope.query("*OPC?") == "1"
assert scope.query("ACQuire:STATe?") == "COMP"
scope.write("CHANnel:DATA:POINts MAXimum")
start, stop, n, values = [float(x) for x in scope.query("CHANnel2:DATA:HEADer?").split(",")]
for form, kind in (("UINT,8", "B"), ("UINT,16", "H"), ("REAL", "f")):
    scope.write("FORMat " + form)
    origin, inc = 0, 1
    if kind != "f":
        origin, inc = float(scope.query("CHANnel2:DATA:YORigin?")), float(scope.query("CHANnel2:DATA:YINCrement?"))
    volts = [origin + inc * c for c in scope.query_binary_values("CHANnel2:DATA?", datatype=kind)]
    print(n, len(volts), stop - start, min(volts), max(volts))
scope.write("NO:SUCH:THING"); print(scope.query("SYSTem:ERRor?"))
`

func TestPyVISA(t *testing.T) {
	montest.NeedVISA(t)
	b, now := montest.Busy(t)
	f, err := New(b, RTB2004, scope.Config{Now: now})
	if err != nil {
		t.Fatal(err)
	}
	out := montest.Lines(montest.Run(t, montest.Python, "-c", visa, "TCPIP::127.0.0.1::"+montest.Listen(t, f)+"::SOCKET"))
	if len(out) != 5 || !strings.HasPrefix(out[0], "Rohde&Schwarz,RTB2004,") || out[4] != `-113,"Undefined header"` {
		t.Fatalf("%q", out)
	}
	for _, line := range out[1:4] {
		var n float64
		var got int
		var span, least, most float64
		if _, err := fmt.Sscan(line, &n, &got, &span, &least, &most); err != nil || n != 10_000 || got != 10_000 ||
			span < 11.99e-3 || span > 12e-3 || least < 11.9 || most > 12.3 || most <= least {
			t.Errorf("%s", line)
		}
	}
}

func TestLXITools(t *testing.T) {
	montest.Need(t, "lxi-tools", "lxi", "--version")
	b, now := montest.Busy(t)
	f, err := New(b, RTB2002, scope.Config{Now: now})
	if err != nil {
		t.Fatal(err)
	}
	port := montest.Listen(t, f)
	for query, want := range map[string]string{
		"*IDN?": "Rohde&Schwarz,RTB2002,1333.1005k02/100002,02.400", "ACQ:STAT?": "RUN",
	} {
		if out := montest.Run(t, "lxi", "scpi", "-a", "127.0.0.1", "-r", "-p", port,
			query); strings.TrimSpace(out) != want {
			t.Errorf("%s gives %q", query, out)
		}
	}
}

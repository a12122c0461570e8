//go:build linux

package siglent

import (
	"fmt"
	"strings"
	"testing"

	"github.com/wattmark/wattmark/monitor/emulator/scope"
	"github.com/wattmark/wattmark/monitor/internal/montest"
)

// visa reads a channel as the programming guide's example does: the descriptor's
// fields, then memory.
const visa = `
import struct, sys, time, pyvisa
scope = pyvisa.ResourceManager("@py").open_resource(sys.argv[1], read_termination="\n", write_termination="\n", timeout=5000)
print(scope.query("*IDN?"))
scope.write(":CHANnel2:SWITch ON"); scope.write(":CHANnel2:SCALe 0.5"); scope.write(":CHANnel2:OFFSet -12")
scope.write(":TIMebase:SCALe 1E-3"); scope.write(":TIMebase:DELay 5E-3"); scope.write(":ACQuire:MDEPth 10k")
scope.write(":TRIGger:MODE FTRIG")
while scope.query(":TRIGger:STATus?") != "Stop":
    time.sleep(0.005)
scope.write(":WAVeform:SOURce C2"); scope.write(":WAVeform:STARt 0")
width = sys.argv[2]
scope.write(":WAVeform:WIDTh " + width)
def block(query):
    scope.write(query)
    head = scope.read_bytes(2)
    n = int(scope.read_bytes(int(head[1:2])))
    data = scope.read_bytes(n)
    assert scope.read_bytes(2) == b"\n\n"
    return data
d = block(":WAVeform:PREamble?")
vdiv, offset, codes = struct.unpack("<fff", d[156:168])
points, = struct.unpack("<i", d[116:120])
probe, = struct.unpack("<f", d[328:332])
if width == "BYTE" and codes > 64: codes /= 256
raw = block(":WAVeform:DATA?")
codes_ = struct.unpack("<%d%s" % (points, "b" if width == "BYTE" else "h"), raw)
volts = [c / codes * vdiv * probe - offset * probe for c in codes_]
print(len(volts), int(float(scope.query(":ACQuire:POINts?"))), min(volts), max(volts))
`

func TestPyVISA(t *testing.T) {
	montest.Need(t, "python3-pyvisa python3-pyvisa-py", montest.Python, "-c", "import pyvisa, pyvisa_py")
	for _, c := range []struct {
		family *Family
		width  string
	}{{SDS2000XPlus, "BYTE"}, {SDS2000XHD, "BYTE"}, {SDS2000XHD, "WORD"}} {
		b, now := montest.Busy(t)
		f, err := New(b, c.family, scope.Config{Now: now})
		if err != nil {
			t.Fatal(err)
		}
		out := montest.Run(t, montest.Python, "-c", visa, "TCPIP::127.0.0.1::"+montest.Listen(t, f)+"::SOCKET", c.width)
		lines := strings.Split(strings.TrimSpace(out), "\n")
		var n, told int
		var least, most float64
		if _, err := fmt.Sscan(lines[len(lines)-1], &n, &told, &least, &most); err != nil || n != 10_000 || told != n ||
			least < 11.9 || most > 12.3 || most <= least {
			t.Errorf("%s %s: %s", c.family.traits.ID, c.width, out)
		}
		if lines[0] != c.family.traits.ID {
			t.Errorf("identity %q", lines[0])
		}
		montest.Expect(t, f, "SYST:ERR?", `0,"No error"`)
	}
}

func TestLXITools(t *testing.T) {
	montest.Need(t, "lxi-tools", "lxi", "--version")
	b, now := montest.Busy(t)
	f, err := New(b, SDS2000XPlus, scope.Config{Now: now})
	if err != nil {
		t.Fatal(err)
	}
	port := montest.Listen(t, f)
	for query, want := range map[string]string{
		"*IDN?":       "Siglent Technologies,SDS2104X Plus,SDS2PEED6R0001,1.3.9R10",
		":TRIG:STAT?": "Auto",
	} {
		if out := montest.Run(t, "lxi", "scpi", "-a", "127.0.0.1", "-r", "-p", port,
			query); strings.TrimSpace(out) != want {
			t.Errorf("%s gives %q", query, out)
		}
	}
}

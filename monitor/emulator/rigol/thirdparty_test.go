//go:build linux

package rigol

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/wattmark/wattmark/monitor/emulator/pty"
	"github.com/wattmark/wattmark/monitor/emulator/scope"
	"github.com/wattmark/wattmark/monitor/internal/montest"
)

// busy is a scope on a board whose load changes every 7 ms.
func busy(t *testing.T, family *Family) *Face {
	t.Helper()
	b, now := montest.Busy(t)
	f, err := New(b, family, scope.Config{Now: now})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestSigrok(t *testing.T) {
	montest.Need(t, "sigrok-cli", "sigrok-cli", "--version")
	f := busy(t, DS1000Z)
	device := "rigol-ds:conn=tcp-raw/127.0.0.1/" + montest.Listen(t, f)
	if out := montest.Run(t, "sigrok-cli", "-d", device, "--scan"); !strings.Contains(out,
		"Rigol DS1054Z 00.04.04.SP3 [S/N: DS1ZA000000001] with 4 channels: CH1 CH2 CH3 CH4") {
		t.Errorf("scan gives %s", out)
	}
	if out := montest.Run(t, "sigrok-cli", "-d", device, "--show"); !strings.Contains(out,
		"data_source: Live (current), Memory") || !strings.Contains(out, "triggerlevel: 0.000000 (current)") {
		t.Errorf("show gives %s", out)
	}
	if out := montest.Run(t, "sigrok-cli", "-d", device, "-C", "CH2", "--frames", "1", "-O", "csv"); strings.Count(out,
		"\n") < DS1000Z.screen {
		t.Errorf("%d lines of a live frame: %.300s", strings.Count(out, "\n"), out)
	}
	// CH1 is a clamp of 10 mV/A whose current crosses 5 A with every other load.
	for _, c := range []string{
		":RUN", ":CHAN1:PROB 1", ":CHAN1:SCAL 0.05", ":CHAN1:OFFS -0.1", ":TIM:SCAL 1e-3",
		":ACQ:MDEP 12000000",
	} {
		montest.Exec(f, c)
	}
	// Over raw TCP libsigrok ends a frame behind the first 30 000 points of memory.
	out := montest.Run(t, "sigrok-cli", "-d", device, "-C", "CH1", "--config", "data_source=Memory:triggerlevel=0.05",
		"--frames", "1", "-O", "csv")
	if n := strings.Count(out, "\n"); n < 30_000 {
		t.Errorf("%d lines of memory: %.300s", n, out)
	}
	if out := montest.Exec(f, "SYST:ERR?"); !strings.HasPrefix(out, "0,") {
		t.Errorf("the scope complains: %s", out)
	}
}

func TestLXITools(t *testing.T) {
	montest.Need(t, "lxi-tools", "lxi", "--version")
	port := montest.Listen(t, busy(t, DS1000Z))
	if out := montest.Run(t, "lxi", "scpi", "-a", "127.0.0.1", "-r", "-p", port,
		"*IDN?"); strings.TrimSpace(out) != "RIGOL TECHNOLOGIES,DS1054Z,DS1ZA000000001,00.04.04.SP3" {
		t.Errorf("scpi gives %q", out)
	}
	out := montest.Run(t, "lxi", "benchmark", "-a", "127.0.0.1", "-r", "-p", port, "-c", "500")
	if i := strings.Index(out, "Result:"); i < 0 {
		t.Errorf("benchmark gives %s", out)
	} else {
		t.Log(strings.TrimSpace(out[i:]))
	}
}

// visa reads the identity, a setting, the deep memory of a channel and the error
// queue the way a lab's script does.
const visa = `
import sys, time, pyvisa
scope = pyvisa.ResourceManager("@py").open_resource(sys.argv[1], read_termination="\n", write_termination="\n", timeout=5000)
print(scope.query("*IDN?"))
scope.write(":CHAN1:DISP OFF"); scope.write(":CHAN2:DISP ON"); scope.write(":CHAN2:PROB 1")
scope.write(":CHAN2:SCAL 0.5"); scope.write(":CHAN2:OFFS -12"); scope.write(":TIM:SCAL 1e-3")
scope.write(":ACQ:MDEP 12000"); scope.write(":TIM:OFFS 6e-3"); scope.write(":SING"); scope.write(":TFOR")
while scope.query(":TRIG:STAT?") != "STOP":
    time.sleep(0.005)
scope.write(":WAV:SOUR CHAN2"); scope.write(":WAV:MODE RAW"); scope.write(":WAV:FORM BYTE")
pre = [float(x) for x in scope.query(":WAV:PRE?").split(",")]
scope.write(":WAV:STAR 1"); scope.write(":WAV:STOP %d" % pre[2])
codes = scope.query_binary_values(":WAV:DATA?", datatype="B")
volts = [(c - pre[8] - pre[9]) * pre[7] for c in codes]
print(len(volts), min(volts), max(volts))
scope.write(":NO:SUCH:THING"); print(scope.query(":SYST:ERR?")); print(scope.query(":SYST:ERR?"))
`

func TestPyVISA(t *testing.T) {
	montest.NeedVISA(t)
	port, err := pty.OpenPort()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- busy(t, DS1000Z).Run(ctx, port) }()
	for name, resource := range map[string]string{
		"socket": "TCPIP::127.0.0.1::" + montest.Listen(t, busy(t, DS1000Z)) + "::SOCKET", "serial": "ASRL" +
			port.Path() + "::INSTR",
	} {
		out := montest.Lines(montest.Run(t, montest.Python, "-c", visa, resource))
		if len(out) != 4 {
			t.Errorf("%s: %q", name, out)
			continue
		}
		var n int
		var least, most float64
		if _, err := fmt.Sscan(out[1], &n, &least, &most); err != nil || n != 12_000 || least < 11.9 || most > 12.3 ||
			most <= least {
			t.Errorf("%s: memory: %s", name, out[1])
		}
		if !strings.HasPrefix(out[0], "RIGOL") || out[2] != `-113,"Undefined header"` || out[3] != `0,"No error"` {
			t.Errorf("%s: %q", name, out)
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

//go:build linux

package keysight

import (
	"encoding/json"
	"testing"

	"github.com/wattmark/wattmark/monitor/internal/montest"
)

// pymeasure drives the scope as its users do.
const pymeasure = `
import json, sys
from pymeasure.adapters import VISAAdapter
from pymeasure.instruments.keysight import KeysightDSOX1102G
adapter = VISAAdapter(sys.argv[1], visa_library="@py", read_termination="\n", write_termination="\n")
scope = KeysightDSOX1102G(adapter)
scope.clear_status()
scope.ch1.setup(display=False)
scope.ch2.setup(display=True, coupling="dc", probe_attenuation=1, scale=0.5, offset=12, bwlimit=True, label="rail")
scope.timebase_setup(mode="main", offset=0.005, horizontal_range=0.01)
scope.single()
adapter.write(":TRIG:FORC")
while int(adapter.ask(":OPER:COND?")) & 8:
    pass
data, pre = scope.download_data("channel2", points=50000)
adapter.write(":WAV:POIN MAX")
scope.waveform_points_mode = "raw"
raw = scope.waveform_preamble
print(json.dumps({"id": scope.id, "n": len(data), "min": min(data), "max": max(data), "pre": pre, "raw": raw,
    "channel": scope.ch2.current_configuration, "timebase": scope.timebase}))
scope.check_errors()
`

func TestPyMeasure(t *testing.T) {
	montest.Need(t, "python3-pymeasure python3-pyvisa-py", montest.Python, "-c",
		"import pyvisa_py; from pymeasure.instruments.keysight import KeysightDSOX1102G")
	b, now := montest.Busy(t)
	cfg := Config{}
	cfg.Now = now
	f, err := New(b, DSOX1102G, cfg)
	if err != nil {
		t.Fatal(err)
	}
	out := montest.Run(t, montest.Python, "-c", pymeasure, "TCPIP::127.0.0.1::"+montest.Listen(t, f)+"::SOCKET")
	var got struct {
		ID       string
		N        int
		Min, Max float64
		Pre, Raw struct {
			Format     string
			Points     int
			XIncrement float64
			YOrigin    float64
		}
		Channel, Timebase map[string]any
	}
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if got.ID != "KEYSIGHT TECHNOLOGIES,DSO-X 1102G,CN57000002,02.12.2021071625" {
		t.Errorf("identity %q", got.ID)
	}
	if got.N != 50_000 || got.Pre.Points != got.N || got.Pre.XIncrement != 0.01/50_000 || got.Pre.YOrigin != 12 {
		t.Errorf("%d values, preamble %+v", got.N, got.Pre)
	}
	if got.Min < 11.8 || got.Max > 12.4 || got.Max <= got.Min {
		t.Errorf("%v to %v V on a 12 V rail", got.Min, got.Max)
	}
	if got.Raw.Points != 1_000_000 || got.Raw.Format != "ASCII" {
		t.Errorf("deep memory: %+v", got.Raw)
	}
	if got.Channel["OFFS"] != 12.0 || got.Channel["RANG"] != 4.0 || got.Channel["DISP"] != true ||
		got.Timebase["MAIN:RANG"] != 0.01 || got.Timebase["POS"] != 0.005 {
		t.Errorf("channel %v, time base %v", got.Channel, got.Timebase)
	}
	montest.Expect(t, f, "SYST:ERR?", `+0,"No error"`)
}

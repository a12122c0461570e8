package keysight

import (
	"strings"
	"testing"
	"time"

	"github.com/wattmark/wattmark/monitor/internal/montest"
)

// still is a scope in a time that the test moves.
func still(t *testing.T, m Model, flaky int) (*Face, *time.Duration) {
	t.Helper()
	now := new(time.Duration)
	cfg := Config{Flaky: flaky}
	cfg.Now, cfg.NoiseCodes = func() time.Duration { return *now }, -1
	f, err := New(montest.Idle(t), m, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return f, now
}

const setup = ":CHAN2:DISP 1;PROB 1;SCAL 0.5;OFFS 12;:TIM:REF CENT;RANG 1;POS 0.5;:TRIG:SWE NORM;:TRIG:LEV 5"

func TestASingleAcquisition(t *testing.T) {
	f, now := still(t, DSOX1102G, 0)
	montest.Expect(
		t, f,
		setup, "",
		":ACQ:SRAT?;POIN?", "+2.50000000E+05;+250000", // free-running: half of the memory
		":OPER:COND?", "+40",
		":SING;:OPER:COND?;:AER?;:AER?;:TER?", "+40;+1;+0;+0",
		":ACQ:SRAT?;POIN?", "+5.00000000E+05;+500000",
		":TRIG:FORC;:OPER:COND?;:TER?;:TER?", "+8;+1;+0",
		":WAV:SOUR CHAN2;POIN MAX;POIN:MODE?", "MAX",
		":WAV:POIN:MODE RAW;:WAV:FORM BYTE;DATA?;:SYST:ERR?", `#800000000;-221,"Settings conflict"`,
	)
	*now = time.Second
	montest.Expect(
		t, f, ":OPER:COND?;:RSTate?", "+0;STOP",
		":WAV:POIN?;PRE?", "+500000;+0,+0,+500000,+1,+2.00000000E-06,+0.00000000E+00,+0,+1.56250000E-02,+1.20000000E+01,+128",
		":WAV:UNS 0;:WAV:PRE?", "+0,+0,+500000,+1,+2.00000000E-06,+0.00000000E+00,+0,+1.56250000E-02,+1.20000000E+01,+0",
		":WAV:POIN 1000;:WAV:PRE?", "+0,+0,+1000,+1,+1.00000000E-03,+0.00000000E+00,+0,+1.56250000E-02,+1.20000000E+01,+0",
	)
	for format, bytes := range map[string]int{"BYTE": 1000, "WORD": 2000} {
		got := montest.Exec(f, ":WAV:FORM "+format+";:WAV:DATA?")
		if !strings.HasPrefix(got, "#8") || len(got) != 10+bytes {
			t.Errorf("%s: %d bytes", format, len(got))
		}
	}
}

// What a stop in the middle leaves is a hole.
func TestHoles(t *testing.T) {
	f, now := still(t, EDUX1002G, 0)
	montest.Exec(f, setup+";:SING;:TRIG:FORC")
	*now = 250 * time.Millisecond
	montest.Exec(f, ":STOP;:WAV:SOUR CHAN2;POIN MAX;POIN:MODE RAW;:WAV:FORM BYTE;UNS 1")
	got := montest.Exec(f, ":WAV:DATA?")[10:]
	if len(got) != 50_000 || got[12_499] == hole || strings.Trim(got[12_500:], "\x00") != "" {
		t.Errorf("%d points, %x at the stop", len(got), got[12_498:12_502])
	}
	montest.Exec(f, ":CHAN2:OFFS 0")
	if got := montest.Exec(f, ":WAV:DATA?")[10:]; got[0] != 255 {
		t.Errorf("12 V above the screen give %d", got[0])
	}
	montest.Exec(f, ":CHAN2:OFFS 24")
	if got := montest.Exec(f, ":WAV:DATA?")[10:]; got[0] != 1 {
		t.Errorf("12 V below the screen give %d", got[0])
	}
}

func TestRefusals(t *testing.T) {
	f, _ := still(t, DSOX1102G, 2)
	montest.Expect(
		t, f, "SYST:ERR?", `+0,"No error"`,
		":CHAN1:SCAL 1e6;SCAL?", "1.000000E+01", // to the nearest, in silence
		":CHAN1:OFFS 99;OFFS?", "2.500000E+01",
		":WAV:FORM BYTE;:WAV:XINC?", "", "SYST:ERR?", `-113,"Undefined header"`,
	)
	if pre := montest.Exec(f, ":WAV:PRE?"); pre == "+0" {
		t.Error("the first preamble is none")
	}
	montest.Expect(t, f, ":WAV:PRE?", "+0")
	montest.Refused(t, f, ":CHAN3:SCAL 1", ":WAV:SOUR CHAN3", ":WAV:POIN 77", ":WAV:POIN:MODE DEEP", ":TIM:RANG 1e9",
		":TRIG:LEV 1e3", ":CHAN1:PROB 0", ":TRIG:SWE SING")
}

package tektronix

import (
	"strings"
	"testing"
	"time"

	"github.com/wattmark/wattmark/monitor/emulator/scope"
	"github.com/wattmark/wattmark/monitor/internal/montest"
)

// still is a scope in a time that the test moves.
func still(t *testing.T, family *Family) (*Face, *time.Duration) {
	t.Helper()
	now := new(time.Duration)
	f, err := New(montest.Idle(t), family, scope.Config{Now: func() time.Duration { return *now }, NoiseCodes: -1})
	if err != nil {
		t.Fatal(err)
	}
	return f, now
}

// ready is one channel and a window of 1 s behind the trigger.
const ready = "HEAD 0;:SEL:CH2 1;:CH2:SCA 0.5;OFFS 12;:HOR:DEL:MOD OFF;:HOR:POS 0;SCA 0.1;RECO 100000;:TRIG:A:MOD " +
	"NORM;LEV:CH1 0.5"

func TestASingleAcquisition(t *testing.T) {
	f, now := still(t, MDO3000)
	montest.Expect(
		t, f, ready, "",
		"HOR:SCA?;RECO?;SAMPLER?", "100.0000E-3;100000;100.0000E+3",
		"TRIG:STATE?", "READY", // it runs, and waits for its level
		"ACQ:STOPA SEQ;STATE RUN;:TRIG:STATE?;:ACQ:NUMAC?", "READY;0",
		"TRIG FORC;:TRIG:STATE?;:VERB 0;:TRIG:STATE?;:VERB 1", "TRIGGER;TRIG",
	)
	*now = time.Second
	montest.Expect(
		t, f, "TRIG:STATE?;:ACQ:STATE?;NUMAC?", "SAVE;0;1",
		"DAT:SOU CH2;ENC SRI;WID 1;STAR 1;STOP 100000", "",
		"WFMO?", `1;8;BINARY;RI;LSB;"Ch2, DC coupling, 0.5V/div, 0.1s/div, 100000 points, Sample mode";100000;Y;LINEAR;"s";10.0000E-6;0.0E+0;0;"V";20.0000E-3;0.0E+0;12.0000E+0;TIME;ANALOG;0.0E+0;0.0E+0;0.0E+0`,
		"CH2:POS 2;:WFMO:YOF?;YZE?", "50.0000E+0;12.0000E+0", // in codes, on this one
		"CH2:POS 0;:DAT:STAR 99991;:WFMO:NR_P?", "10",
	)
	for set, bytes := range map[string]int{"ENC SRI;WID 1": 10, "ENC RIB;WID 2": 20, "ENC SRP;WID 2": 20} {
		montest.Exec(f, ":DAT:"+set)
		got := montest.Exec(f, "CURV?")
		if !strings.HasPrefix(got, "#2") || len(got) != 4+bytes {
			t.Errorf("%s: %q", set, got)
		}
		if again := montest.Exec(f, "CURV?"); again != got {
			t.Errorf("%s: memory changes while it is read", set)
		}
	}
	if got := montest.Exec(f, "DAT:ENC ASCI;WID 1;:CURV?"); strings.Count(got, ",") != 9 {
		t.Errorf("text: %q", got)
	}
}

// After power came replies have headers.
func TestHeaders(t *testing.T) {
	f, _ := still(t, MSO4)
	montest.Expect(
		t, f,
		"*IDN?", "TEKTRONIX,MSO44,C023456,CF:91.1CT FV:1.44.3",
		"CH2:SCA?", ":CH2:SCALE 100.0000E-3",
		"DIS:GLO:CH3:STATE?", ":DISPLAY:GLOBAL:CH3:STATE 0",
		"VERB OFF;:CH2:SCA?", ":CH2:SCA 100.0000E-3",
		"HEAD OFF;:CH2:SCA?", "100.0000E-3",
	)
	montest.Exec(f, "HEAD ON;VERB ON;DAT:SOU CH1;STOP 10")
	if got := montest.Exec(f, "WFMO?"); !strings.HasPrefix(got, ":WFMOUTPRE BYT_NR 1;BIT_NR 8;") ||
		!strings.Contains(got, "NR_PT 10;") || !strings.Contains(got, "ASC_FMT INTEGER;BYT_OR MSB;WFID \"Ch1,") {
		t.Errorf("preamble %s", got)
	}
}

// The 4 Series makes the window of rate and depth.
func TestRates(t *testing.T) {
	f, _ := still(t, MSO4NoID)
	montest.Expect(
		t, f, "HEAD 0;:HOR:MOD MAN;MOD:SAMPLER 1.7E5;:HOR:MOD:RECO 500000", "",
		"HOR:SAMPLER?;SCA?;RECO?", "125.0000E+3;400.0000E-3;500000",
		"HOR:MOD:SAMPLER 9e4;:HOR:SAMPLER?", "100.0000E+3",
		"HOR:MOD:SAMPLER 1e12;:HOR:SAMPLER?", "6.2500E+9",
		"CH1:OFFS 5;POS 2;:WFMO:YOF?;YZE?", "0.0E+0;4.8000E+0", // both in one
	)
	if got := montest.Exec(f, "WFMO?"); !strings.HasPrefix(got, "1;8;BINARY;RI;INTEGER;MSB;10000;Y;LINEAR;") {
		t.Errorf("preamble without a description: %s", got)
	}
}

// A record that was stopped in its middle cannot be had, nor one of a channel
// that is off.
func TestNoRecord(t *testing.T) {
	f, now := still(t, MDO3000)
	montest.Exec(f, ready+";:ACQ:STOPA SEQ;STATE RUN;:TRIG FORC")
	*now = 300 * time.Millisecond
	montest.Expect(
		t, f, "ACQ:STATE STOP;:TRIG:STATE?;:ACQ:NUMAC?", "SAVE;0",
		"*CLS;DAT:SOU CH2;:CURV?", "", "*ESR?", "12", // the reader who was left waiting is an error too
		"ALLEV?", `2244,"Source waveform is not active",420,"Query UNTERMINATED"`,
		"WFMO?", "1;8;BINARY;RI;MSB",
		"ACQ:STATE RUN;:DAT:SOU CH4;:WFMO?", "1;8;BINARY;RI;MSB",
	)
}

// A single acquisition in automatic mode does not wait.
func TestAutomatic(t *testing.T) {
	f, _ := still(t, MDO3000)
	montest.Expect(t, f, ready+";:TRIG:A:MOD AUTO;:ACQ:STOPA SEQ;STATE RUN;:TRIG:STATE?", "TRIGGER")
}

func TestRefusals(t *testing.T) {
	for _, family := range []*Family{MDO3000, MSO4} {
		f, _ := still(t, family)
		for _, s := range []string{
			"CH1:SCA 1e6", "CH1:SCA -1", "CH1:OFFS 1e6", "CH1:POS 9", "HOR:SCA 1e6", "HOR:POS 101", "HOR:RECO 77",
			"DAT:SOU CH9", "CH9:SCA 1",
			"DAT:WID 4", "DAT:ENC LATER", "TRIG:A:LEV:CH1 99", "TRIG SOON", "ACQ:STATE MAYBE", "NO:SUCH 1", "SYST:ERR?",
			map[bool]string{true: "SEL:CH1 1", false: "DIS:GLO:CH1:STATE 1"}[family.series], // of the others
		} {
			montest.Exec(f, "*CLS")
			montest.Exec(f, s)
			montest.Exec(f, "*ESR?")
			if e := montest.Exec(f, "ALLEV?"); strings.Contains(e, "No events") {
				t.Errorf("%s: %s is taken", family.traits.ID, s)
			}
		}
		if _, err := New(montest.Idle(t), family, scope.Config{}); err == nil {
			t.Error("a scope without time")
		}
	}
}

// Whatever is sent, in whatever order, is answered or refused.
func FuzzFace(f *testing.F) {
	for _, s := range []string{
		"ACQ:STATE RUN;:CURV?", "CH1:PROBEF:EXTA 1e-4;:CH1:SCA?",
		"HOR:MOD MAN;MOD:SAMPLER 1e-9;:HOR:SCA?", "DAT:STAR 9;STOP 3;:CURV?;:WFMO?", "HEAD 1;VERB 0;CH2:SCA?",
	} {
		f.Add(s, "*RST;*CLS", int64(time.Second))
	}
	f.Fuzz(func(t *testing.T, first, second string, later int64) {
		scope, now := still(t, MSO4)
		for _, s := range []string{first, second} {
			if got := montest.Exec(scope, s); len(got) > 100<<20 {
				t.Errorf("%q gives %d bytes", s, len(got))
			}
			*now += time.Duration(max(0, later) % int64(time.Hour))
		}
	})
}

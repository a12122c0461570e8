package rohdeschwarz

import (
	"encoding/binary"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/wattmark/wattmark/monitor/emulator/scope"
	"github.com/wattmark/wattmark/monitor/emulator/scpi"
	"github.com/wattmark/wattmark/monitor/internal/montest"
)

// still is a scope in a time that the test moves.
func still(t *testing.T, m Model) (*Face, *time.Duration) {
	t.Helper()
	now := new(time.Duration)
	f, err := New(montest.Idle(t), m, scope.Config{Now: func() time.Duration { return *now }, NoiseCodes: -1})
	if err != nil {
		t.Fatal(err)
	}
	return f, now
}

// setup shows 12 V in the middle of channel 2, from the trigger on for 1.2 s.
const setup = "CHAN2:STAT 1;SCAL 0.5;OFFS 12;:TIM:SCAL 0.1;POS 0.6;:ACQ:POIN 20000;:TRIG:A:MODE NORM;LEV1 2E-2"

func TestASingleAcquisition(t *testing.T) {
	f, now := still(t, RTB2004)
	montest.Expect(
		t, f,
		"*IDN?", "Rohde&Schwarz,RTB2004,1333.1005k04/100001,02.400",
		setup+";:SYST:ERR?", `0,"No error"`,
		"ACQ:POIN?;SRAT?;:TIM:ACQT?;DIV?", "20000;1.666666602E+04;1.200000048E+00;12",
		"ACQ:STAT?;:STAT:OPER:COND?", "RUN;8", // runs freely, and waits
		"SING;:ACQ:STAT?;:STAT:OPER:COND?;:TRIG:A:MODE?", "RUN;8;NORM",
		"*TRG;:ACQ:STAT?;:STAT:OPER:COND?", "RUN;0",
		"ACQ:STAT STOP;STAT?", "RUN", // what is triggered goes on
	)
	*now = 1300 * time.Millisecond
	montest.Expect(
		t, f, "*OPC?;:ACQ:STAT?;:STAT:OPER:COND?", "1;COMP;0",
		"CHAN2:DATA:POIN?", "10000", // as displayed
		"CHAN2:DATA:POIN MAX;POIN?;HEAD?", "20000;5.999999848E-05,1.200000048E+00,20000,1",
		"CHAN3:DATA:HEAD?;YRES?", "5.999999848E-05,5.999999848E-05,0,1;10", // it is off
	)
}

// Forms of the same memory: volts at the probe's tip.
func TestForms(t *testing.T) {
	f, now := still(t, RTB2004)
	montest.Exec(f, setup+";:SING;*TRG")
	*now = 2 * time.Second
	montest.Exec(f, "CHAN:DATA:POIN MAX")
	volts := func(n int, code float64) float64 {
		inc, zero := 0.5/25/math.Ldexp(1, n-8), 12-0.5/25*127.5
		return zero + code*inc
	}
	for form, value := range map[string]func(b []byte) float64{
		"UINT,8":  func(b []byte) float64 { return volts(8, float64(b[0])) },
		"UINT,16": func(b []byte) float64 { return volts(16, float64(binary.LittleEndian.Uint16(b))) },
		"UINT,32": func(b []byte) float64 { return volts(32, float64(binary.LittleEndian.Uint32(b))) },
		"REAL,32": func(b []byte) float64 { return float64(math.Float32frombits(binary.LittleEndian.Uint32(b))) },
	} {
		montest.Expect(t, f, "FORM "+form+";FORM?", form)
		little := montest.Exec(f, "FORM:BORD LSBF;:CHAN2:DATA?")
		size := f.bits / 8
		if head := scpi.Block(0, make([]byte, 20_000*size)); len(little) != len(head) || little[:7] != string(head[:7]) {
			t.Errorf("%s: %d bytes", form, len(little))
			continue
		}
		first := []byte(little[7 : 7+size])
		if got := value(first); got < 12 || got > 12.2 {
			t.Errorf("%s: %v V on an idle rail of 12 V", form, got)
		}
		big := []byte(montest.Exec(f, "FORM:BORD MSBF;:CHAN2:DATA?")[7 : 7+size])
		if slices.Reverse(big); !slices.Equal(big, first) {
			t.Errorf("%s: %x backwards is not %x", form, big, first)
		}
	}
	list := montest.Exec(f, "FORM ASC;:CHAN2:DATA?")
	if n := strings.Count(list, ","); n != 19_999 || !strings.HasPrefix(list, "12.") {
		t.Errorf("%d commas in %.40s", n, list)
	}
	montest.Expect(
		t, f, "FORM?", "ASC,0",
		"FORM UINT,16;:CHAN2:DATA:YINC?;YOR?;YRES?", "7.812499825E-05;9.449999809E+00;10",
		"FORM UINT,8;:CHAN2:DATA:YINC?;YOR?", "1.999999955E-02;9.449999809E+00",
	)
	// What lies beyond the converter's range shows as its ends.
	montest.Exec(f, "FORM UINT,16;FORM:BORD LSBF;:CHAN2:OFFS 0")
	if got := montest.Exec(f, "CHAN2:DATA?"); got[7:9] != "\xc0\xff" {
		t.Errorf("12 V above the screen give %x", got[7:9])
	}
}

// A break ends an acquisition, and what it left untaken is zero.
func TestBreak(t *testing.T) {
	f, now := still(t, RTB2002)
	montest.Exec(f, setup+";:SING;*TRG")
	*now = 300 * time.Millisecond
	montest.Expect(t, f, "STOP;:ACQ:STAT?;:FORM UINT,16;:CHAN2:DATA:POIN MAX;POIN?", "BRE;20000")
	got := montest.Exec(f, "CHAN2:DATA?")[7:]
	const taken = 4999 // in 0.3 s, from one point behind the trigger on
	if got[2*taken-2:2*taken] == "\x00\x00" || strings.Trim(got[2*taken:], "\x00") != "" {
		t.Errorf("%x at the break", got[2*taken-2:2*taken+2])
	}
	// With its trigger AUTO a single acquisition does not wait.
	montest.Expect(t, f, "TRIG:A:MODE AUTO;:SING;:STAT:OPER:COND?", "0")
	*now += 1300 * time.Millisecond
	montest.Expect(t, f, "ACQ:STAT?", "COMP", "SING;:ACQ:STAT BRE;STAT?", "BRE", "RUN;:ACQ:STAT?", "RUN")
}

// The record length is one of a list; the longest needs the memory of a pair of channels.
func TestRecordLength(t *testing.T) {
	f, _ := still(t, RTB2002)
	montest.Expect(
		t, f,
		"ACQ:POIN?", "10000", "ACQ:POIN 7E5;POIN?", "500000", "ACQ:POIN 1E9;POIN?", "20000000",
		"ACQ:POIN 20000000;:CHAN2:STAT ON;:ACQ:POIN?", "10000000",
		"PROB2:SET:ATT:MAN 10;MAN?;:CHAN2:SCAL?", "1.000000000E+01;5.000000075E-02",
		"CHAN2:POS -2;SCAL 1;OFFS 1E9;OFFS?", "2.000000000E+01",
		"TRIG:A:SOUR CH2;SOUR?;LEV2 19;LEV2?", "CH2;1.900000E+01",
		"FORM UINT;FORM?", "UINT,8",
	)
	montest.Refused(t, f, "CHAN3:SCAL 1", "CHAN3:DATA?", "FORM UINT,12", "FORM REAL,64", "TIM:SCAL 1000", "TIM:REF 10",
		"TRIG:A:LEV2 1E3", "TRIG:A:LEV1 0", "TRIG:A:SOUR CH3", "CHAN1:POS 6", "PROB1:SET:ATT:MAN 0", "ACQ:NSIN:COUN 2",
		"ACQ:HRES OFF")
}

// *OPC? answers behind a single acquisition, as its maker says.
func TestOperationComplete(t *testing.T) {
	b, now := montest.Busy(t)
	f, err := New(b, RTB2004, scope.Config{Now: now})
	if err != nil {
		t.Fatal(err)
	}
	montest.Expect(t, f, "TIM:SCAL 2E-3;:SING;*OPC?;:ACQ:STAT?", "1;COMP")
}

package siglent

import (
	"encoding/binary"
	"math"
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

// ready is four channels and a window of 1 s behind the trigger.
const ready = ":CHAN2:SWIT ON;:CHAN3:SWIT ON;:CHAN4:SWIT ON;:CHAN2:SCAL 0.5;OFFS -12;:TIM:SCAL 0.1;:TIM:DEL " +
	"0.5;:ACQ:MDEP 100k;:TRIG:EDGE:SOUR C1;LEV 0.5"

func TestASingleAcquisition(t *testing.T) {
	f, now := still(t, SDS2000XPlus)
	montest.Expect(
		t, f, ready, "",
		":ACQ:MDEP?;SRAT?", "100k;1.00E+05",
		":TRIG:STAT?;MODE?", "Auto;AUTO",
		":TRIG:MODE SINGle;:TRIG:STAT?;MODE?", "Ready;SINGle",
		":ACQ:MDEP 1M;:SYST:ERR?;:ACQ:MDEP?", `-221,"Settings conflict";100k`,
		":TRIG:MODE FTRIG;:TRIG:STAT?;:WAV:SOUR C2;DATA?", "Trig'd;#9000000000",
	)
	*now = 999 * time.Millisecond
	montest.Expect(t, f, ":TRIG:STAT?", "Trig'd")
	*now = time.Second
	montest.Expect(t, f, ":TRIG:STAT?;:ACQ:POIN?;:WAV:MAXP?", "Stop;1.00E+05;5000000")
	for _, c := range []struct {
		set   string
		bytes int
	}{
		{":WAV:STAR 0;POIN 0", 100_000},
		{":WAV:STAR 99999", 1},
		{":WAV:STAR 100000", 0},
		{":WAV:STAR 5;POIN 20", 20},
		{":WAV:WIDT WORD", 40},
	} {
		montest.Exec(f, c.set)
		got := montest.Exec(f, ":WAV:DATA?")
		if len(got) != 11+c.bytes {
			t.Errorf("%s: %d bytes", c.set, len(got)-11)
		}
		if again := montest.Exec(f, ":WAV:DATA?"); again != got {
			t.Errorf("%s: memory changes while it is read", c.set)
		}
	}
}

// A trigger in the middle or at the right edge ends sooner.
func TestTheDelay(t *testing.T) {
	for delay, ends := range map[string]time.Duration{"0.5": time.Second, "0": 500 * time.Millisecond, "-0.5": 0} {
		f, now := still(t, SDS2000XPlus)
		montest.Exec(f, ready+";:TIM:DEL "+delay)
		*now = 2 * time.Second
		montest.Exec(f, ":TRIG:MODE SING")
		montest.Exec(f, ":TRIG:MODE FTRIG")
		if *now += ends - 1; ends > 0 {
			montest.Expect(t, f, ":TRIG:STAT?", "Trig'd")
		}
		*now++
		montest.Expect(t, f, ":TRIG:STAT?", "Stop")
	}
}

// What is left of a recording that was stopped cannot be read.
func TestAStopInTheMiddle(t *testing.T) {
	f, now := still(t, SDS2000XPlus)
	montest.Exec(f, ready+";:TRIG:MODE FTRIG")
	*now = 300 * time.Millisecond
	montest.Expect(t, f, ":TRIG:STOP;:TRIG:STAT?;:ACQ:POIN?", "Stop;0.00E+00")
}

// What is out of range is taken at the range's end, in silence.
func TestRanges(t *testing.T) {
	f, _ := still(t, SDS2000XHD)
	montest.Expect(
		t, f,
		":CHAN1:SCAL 99;SCAL?", "1.00E+01", ":CHAN1:SCAL 0.05;OFFS -12;OFFS?", "-2.00E+00",
		":TRIG:EDGE:LEV 99;LEV?", "2.21E+00", // 4.1 divisions above the middle
		":CHAN1:PROB VAL,10;PROB?;SCAL?", "1.00E+01;5.00E-01",
		"SYST:ERR?", `0,"No error"`,
	)
	montest.Refused(t, f, ":ACQ:MDEP 77", ":WAV:SOUR C9", ":CHAN9:SCAL 1", ":WAV:STAR -1", ":WAV:STAR 1.5",
		":TRIG:MODE LATER", ":CHAN1:PROB VAL,0", ":CHAN1:SWIT MAYBE")
	if _, err := New(montest.Idle(t), SDS2000XPlus, scope.Config{}); err == nil {
		t.Error("a scope without time")
	}
}

// Depths and rates are those of the channels that share a converter.
func TestDepths(t *testing.T) {
	f, _ := still(t, SDS2000XPlus)
	montest.Expect(
		t, f,
		":ACQ:MDEP 20M;:ACQ:MDEP?;:TIM:SCAL 1;:ACQ:SRAT?", "20M;2.00E+06",
		":CHAN3:SWIT ON;:ACQ:MDEP?", "20M", // of the other pair
		":CHAN2:SWIT ON;:ACQ:MDEP?", "100M",
		":ACQ:MDEP 1.00E+06;:ACQ:MDEP?;:TIM:SCAL 0.2;:ACQ:SRAT?;POIN?", "1M;4.00E+05;8.00E+05",
	)
}

// The three ways to send the same voltage.
func TestCodes(t *testing.T) {
	for _, c := range []struct {
		family *Family
		width  string
		perDiv float64
	}{
		{SDS2000XPlus, "BYTE", 30}, {SDS2000XHD, "BYTE", 30}, {SDS2000XHD, "WORD", 7680}, {LowBits, "WORD", 480},
	} {
		f, now := still(t, c.family)
		montest.Exec(f, ready+";:TRIG:MODE FTRIG")
		*now = time.Second
		montest.Exec(f, ":WAV:SOUR C2;WIDT "+c.width+";POIN 1")
		var want float64
		f.Do(func() { want = f.Volts(1, 0, 1, 1)[0] })
		desc, data := montest.Exec(f, ":WAV:PRE?"), montest.Exec(f, ":WAV:DATA?")
		desc, data = desc[len(desc)-346:], data[2+int(data[1]-'0'):]
		got := float64(math.Float32frombits(binary.LittleEndian.Uint32([]byte(desc)[164:])))
		if got != c.perDiv && c.width == "WORD" {
			t.Errorf("%v codes a division, want %v", got, c.perDiv)
		}
		code := float64(int8(data[0]))
		if c.width == "WORD" {
			w := binary.LittleEndian.Uint16([]byte(data))
			if code = float64(int16(w)); c.family.low {
				code = float64(int16(w<<4) >> 4)
			}
		}
		if v := code*0.5/c.perDiv + 12; math.Abs(v-want) > 0.5/min(c.perDiv, 480) {
			t.Errorf("%s: %v V, want %v", c.width, v, want)
		}
	}
}

// Whatever is sent, in whatever order, is answered or refused.
func FuzzFace(f *testing.F) {
	for _, s := range []string{
		":TRIG:MODE FTRIG;:WAV:DATA?", ":CHAN1:PROB VAL,1e-6;SCAL 0",
		":ACQ:MDEP 1e3k;:TIM:SCAL 1e-9;:ACQ:SRAT?", ":WAV:POIN 1;STAR 1e9;:WAV:DATA?;PRE?",
	} {
		f.Add(s, "*RST;*CLS", int64(time.Second))
	}
	f.Fuzz(func(t *testing.T, first, second string, later int64) {
		scope, now := still(t, SDS2000XHD)
		for _, s := range []string{first, second} {
			if got := montest.Exec(scope, s); len(got) > 100<<20 {
				t.Errorf("%q gives %d bytes", s, len(got))
			}
			*now += time.Duration(max(0, later) % int64(time.Hour))
		}
	})
}

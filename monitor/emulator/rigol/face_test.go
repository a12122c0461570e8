package rigol

import (
	"strings"
	"testing"
	"time"

	"github.com/wattmark/wattmark/measure/load"
	"github.com/wattmark/wattmark/monitor/emulator/board"
	"github.com/wattmark/wattmark/monitor/emulator/scope"
	"github.com/wattmark/wattmark/monitor/internal/montest"
)

// still is a scope in a time that the test moves.
func still(t *testing.T, b *board.Board, family *Family, cfg scope.Config) (*Face, *time.Duration) {
	t.Helper()
	now := new(time.Duration)
	cfg.Now = func() time.Duration { return *now }
	f, err := New(b, family, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return f, now
}

func TestASingleAcquisition(t *testing.T) {
	f, now := still(t, montest.Idle(t), DS1000Z, scope.Config{NoiseCodes: -1})
	montest.Expect(
		t, f,
		":CHAN2:DISP ON;:CHAN3:DISP ON;:CHAN4:DISP ON", "",
		":TIM:SCAL 0.5;:TIM:OFFS 3;:ACQ:MDEP 3000000", "",
		":ACQ:MDEP?;SRAT?", "3000000;5.000000E+05",
		":TRIG:STAT?", "AUTO",
		":SING;:TRIG:STAT?", "WAIT",
		":TFOR;:TRIG:STAT?", "RUN",
		":WAV:SOUR CHAN2;MODE RAW;FORM BYTE;:WAV:DATA?", "#9000000000", // not while it samples
	)
	*now = 5 * time.Second
	montest.Expect(t, f, ":TRIG:STAT?", "RUN")
	*now = 6 * time.Second
	montest.Expect(t, f, ":TRIG:STAT?", "STOP", ":ACQ:MDEP 30000", "", ":SYST:ERR?", `-221,"Settings conflict"`,
		":WAV:PRE?", "0,2,3000000,1,2.000000000e-06,0.000000000e+00,0,4.000000000e-02,0,127")
	for _, c := range []struct {
		from, to  string
		want      int
		complains bool
	}{
		{"1", "250000", 250_000, false},
		{"2750001", "3000000", 250_000, false},
		{"1", "250001", 0, true},
		{"2999999", "3000001", 0, true},
		{"7", "7", 1, false},
		{"8", "7", 0, true},
	} {
		montest.Exec(f, ":WAV:STAR "+c.from+";STOP "+c.to)
		got := montest.Exec(f, ":WAV:DATA?")
		if len(got) != 11+c.want {
			t.Errorf("points %s to %s: %d", c.from, c.to, len(got)-11)
		}
		if again := montest.Exec(f, ":WAV:DATA?"); again != got {
			t.Error("memory changes while it is read")
		}
		if e := montest.Exec(f, "SYST:ERR?"); strings.HasPrefix(e, "-222") != c.complains {
			t.Errorf("points %s to %s: %s", c.from, c.to, e)
		}
		montest.Exec(f, "*CLS")
	}
}

func TestAStopInTheMiddle(t *testing.T) {
	f, now := still(t, montest.Idle(t), DS1000Z, scope.Config{})
	montest.Expect(t, f, ":TIM:SCAL 0.5;:TIM:OFFS 3;:ACQ:MDEP 12000;:SING;:TFOR", "")
	*now = 1500 * time.Millisecond
	montest.Expect(t, f, ":STOP;:TRIG:STAT?;:WAV:MODE RAW;PRE?",
		"STOP;0,2,3000,1,5.000000000e-04,0.000000000e+00,0,4.000000000e-02,0,127")
}

func TestAnEdgeTriggers(t *testing.T) {
	b := montest.Idle(t)
	f, now := still(t, b, DS1000Z, scope.Config{NoiseCodes: -1})
	if _, err := b.SetLoad(500*time.Millisecond, load.Full); err != nil {
		t.Fatal(err)
	}
	montest.Expect(t, f, ":CHAN1:PROB 1;SCAL 0.05;:TIM:SCAL 1e-3;:TRIG:EDG:SOUR CHAN1;LEV 0.05;:SING;:TRIG:STAT?",
		"WAIT")
	*now = 499 * time.Millisecond
	montest.Expect(t, f, ":TRIG:STAT?", "WAIT")
	*now = 600 * time.Millisecond
	montest.Expect(t, f, ":TRIG:STAT?", "STOP")
	if at := f.Begin() + 6*time.Millisecond; at < 500*time.Millisecond || at > 501*time.Millisecond {
		t.Errorf("triggered at %v", at)
	}
}

func TestRefusals(t *testing.T) {
	f, _ := still(t, montest.Idle(t), DS1000Z, scope.Config{})
	montest.Refused(
		t, f,
		":CHAN1:SCAL 1e6", ":CHAN1:SCAL -1", ":CHAN1:OFFS 1e6", ":CHAN1:PROB 0", ":TIM:SCAL 100", ":TIM:OFFS -1e3",
		":WAV:STAR 0",
		":ACQ:MDEP 77", ":WAV:SOUR CHAN9", ":WAV:MODE DEEP", ":CHAN9:SCAL 1", ":CHAN1:COUP XX", ":TRIG:EDG:LEV x",
		":CHAN1:DISP MAYBE",
	)
	b := montest.Idle(t)
	if _, err := New(b, DS1000Z, scope.Config{}); err == nil {
		t.Error("a scope without time")
	}
	if _, err := New(b, DS1000Z, scope.Config{
		Now:    func() time.Duration { return 0 },
		Probes: [scope.MaxChannels]scope.Probe{{Quantity: scope.Load, Rail: "none"}},
	}); err == nil {
		t.Error("a probe on no rail")
	}
}

// The two ends of a shunt differ by what flows through it.
func TestAShunt(t *testing.T) {
	rail := board.DefaultRails()[2].Name
	b := montest.Idle(t)
	f, now := still(t, b, DS1000Z, scope.Config{
		NoiseCodes: -1,
		Probes: [scope.MaxChannels]scope.Probe{
			{Quantity: scope.Source, Rail: rail, Ohm: 0.05},
			{Quantity: scope.Load, Rail: rail},
		},
	})
	montest.Exec(f, ":CHAN1:PROB 1;SCAL 0.05;OFFS 0")
	*now = time.Second
	r := b.At(*now)[2]
	var diff float64
	f.Do(func() {
		diff = f.Volts(0, 0, 1, 1)[0]
		diff -= f.Volts(1, 0, 1, 1)[0]
	})
	if want := 0.05 * float64(r.I); diff < want*0.99 || diff > want*1.01 {
		t.Errorf("%v V across the shunt, want %v", diff, want)
	}
}

// The reader of an MSO5000 gives nothing until mode and format were set behind
// an acquisition that has settled.
func TestAHastyRead(t *testing.T) {
	f, now := still(t, montest.Idle(t), MSO5000, scope.Config{NoiseCodes: -1})
	montest.Expect(t, f,
		":TIM:SCAL 1e-3;:TIM:OFFS 5e-3;:ACQ:MDEP 10k;:SING;:TFOR", "", ":ACQ:MDEP?", "10000",
		":WAV:SOUR CHAN1;MODE RAW;FORM BYTE;STAR 1;STOP 10", "")
	*now = 10 * time.Millisecond
	montest.Expect(t, f, ":TRIG:STAT?", "STOP", ":WAV:DATA?", "#9000000000", ":WAV:MODE RAW;FORM BYTE;:WAV:DATA?",
		"#9000000000")
	*now = 60 * time.Millisecond
	montest.Expect(t, f, ":WAV:DATA?", "#9000000000")
	if got := montest.Exec(f, ":WAV:MODE RAW;FORM BYTE;:WAV:DATA?"); len(got) != 11+10 {
		t.Errorf("%d bytes once it has settled", len(got))
	}
}

// A DHO tells pages where others tell points, gives words, and does not know how
// much of a memory was filled.
func TestPagesOfWords(t *testing.T) {
	f, now := still(t, montest.Idle(t), DHO, scope.Config{NoiseCodes: -1})
	// 20 divisions of memory
	montest.Expect(t, f, ":TIM:SCAL 0.1;:ACQ:MDEP 1M;SRAT?", "5.000000E+05", ":TIM:OFFS 1;:SING;:TFOR", "")
	*now = 1000 * time.Millisecond
	montest.Expect(t, f,
		":STOP;:ACQ:MDEP?", "1.000E+6",
		":WAV:MODE RAW;FORM WORD;STAR 499991;STOP 500010;:WAV:PRE?",
		"1,2,20,1,2.000000000e-06,0.000000000e+00,0,1.333333333e-04,0,32768",
		":WAV:FORM BYTE;:WAV:PRE?", "0,2,20,1,2.000000000e-06,0.000000000e+00,0,3.413333333e-02,0,128",
	)
	got := montest.Exec(f, ":WAV:FORM WORD;:WAV:DATA?")
	if len(got) != 11+40 {
		t.Fatalf("%d bytes", len(got))
	}
	taken, never := got[11:13], got[11+38:]
	if never != "\x00\x80" || taken == never {
		t.Errorf("a point that was taken %q, one that was not %q", taken, never)
	}
	montest.Refused(t, f, ":WAV:STAR 1;STOP 125001;:WAV:DATA?", ":ACQ:MDEP 10k")
}

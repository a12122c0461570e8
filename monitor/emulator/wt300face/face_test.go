package wt300face

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"wattmark/monitor/emulator/board"
)

// still is a meter in a time that the test moves.
func still(t *testing.T, cfg Config) (*Face, *time.Duration) {
	t.Helper()
	b, err := board.New(board.Config{})
	if err != nil {
		t.Fatal(err)
	}
	now := new(time.Duration)
	cfg.Now = func() time.Duration { return *now }
	f, err := New(b, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return f, now
}

func ask(f *Face, message string) string {
	s := f.NewSession()
	s.Send(message)
	if !strings.Contains(message, "?") {
		return ""
	}
	r, _ := s.Receive()
	return strings.TrimRight(string(r), "\n")
}

func expect(t *testing.T, f *Face, pairs ...string) {
	t.Helper()
	for i := 0; i < len(pairs); i += 2 {
		if got := ask(f, pairs[i]); got != pairs[i+1] {
			t.Errorf("%s gives %.60q, want %q", pairs[i], got, pairs[i+1])
		}
	}
}

func TestSettings(t *testing.T) {
	f, _ := still(t, Config{Model: "WT332"})
	expect(
		t, f,
		"*IDN?", "YOKOGAWA,WT332,C2AB00001V,F1.03",
		":RATE?", ":RATE 250.0E-03", // headers, until they are turned off
		":COMM:HEAD OFF;:RATE 100MS;:RATE?", "100.0E-03",
		":RATE 5S;:RATE?;:RATE 0.5;:RATE?", "5.0E+00;500.0E-03",
		":INP:VOLT:RANG 15V;RANG?;:VOLT:RANG 60;:INPUT:VOLTAGE:RANGE?", "15.0E+00;60.0E+00",
		":CURR:RANG 500MA;RANG?", "500.0E-03",
		":INP:MODE DC;MODE?;SYNC OFF;SYNC?", "DC;OFF",
		":NUM:NORM:ITEM2 P,3;ITEM2?;ITEM9?", "P,3;NONE",
		":STAT:ERR?", `0,"No error"`,
		":RATE 70MS", "", ":STAT:ERR?", `222,"Data out of range"`,
		":CURR:RANG 5MA", "", ":STAT:ERR?", `222,"Data out of range"`, // a WT332 begins at 0.5 A
		":NUM:NORM:ITEM1 P,2", "", ":STAT:ERR?", `222,"Data out of range"`, // and has no element 2
		":NUM:NORM:ITEM1 Q,1", "", ":STAT:ERR?", `224,"Illegal parameter value"`,
		":INP:VOLT:RANG 15X", "", ":STAT:ERR?", `104,"Data type error"`,
		"SYST:ERR?", "", ":STAT:ERR?", `113,"Undefined header"`, // it speaks no SCPI
		"*RST;:COMM:HEAD?", ":COMMUNICATE:HEADER 1",
	)
}

func TestUpdatesAndTheirMarks(t *testing.T) {
	f, now := still(t, Config{})
	expect(t, f, ":COMM:HEAD OFF;:NUM:NORM:VAL?", "NAN,NAN,NAN", ":RATE 100MS;:INP:VOLT:RANG 15;:STAT:EESR?", "0")
	*now = 150 * time.Millisecond
	expect(t, f, ":STAT:EESR?", "0") // no filter is set
	ask(f, ":STAT:FILT1 FALL")
	*now = 250 * time.Millisecond
	expect(t, f, ":STAT:EESR?", "1", ":STAT:EESR?", "0")
	f.Late(50 * time.Millisecond)
	*now = 340 * time.Millisecond
	expect(t, f, ":STAT:EESR?", "0")
	*now = 351 * time.Millisecond
	expect(t, f, ":STAT:EESR?", "1")
	*now = 400 * time.Millisecond // the next is on time again
	expect(t, f, ":STAT:EESR?", "1")
	*now = 500 * time.Millisecond
	expect(t, f, "*CLS;:STAT:EESR?", "0")
	f.NoData(1)
	expect(t, f, ":NUM:NORM:VAL?", "NAN,NAN,NAN")
	f.Overload(1)
	expect(t, f, ":NUM:FORM FLO;:NUM:NORM:VAL?", "#40012\x7e\x94\xf5\x6a\x7e\x94\xf5\x6a\x7e\x94\xf5\x6a")
	if reads := f.Reads(); len(reads) != 3 || reads[2].Update != 5 || reads[2].End != 500*time.Millisecond {
		t.Errorf("%+v", reads)
	}
	expect(t, f, ":STAT:COND?", "0", ":CURR:RANG 5MA;:STAT:ERR?", `0,"No error"`)
	*now = 600 * time.Millisecond
	expect(t, f, ":STAT:COND?", "64", ":NUM:FORM ASC;:NUM:NORM:ITEM1 P,1;NUM 1;VAL?", "INF")
}

// A client that waits holds up no other.
func TestWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, err := board.New(board.Config{})
		if err != nil {
			t.Fatal(err)
		}
		epoch := time.Now()
		f, err := New(b, Config{Now: func() time.Duration { return time.Since(epoch) }})
		if err != nil {
			t.Fatal(err)
		}
		ask(f, ":RATE 1S;:STAT:FILT1 FALL")
		var waited time.Duration
		done := make(chan struct{})
		go func() {
			defer close(done)
			ask(f, ":COMM:WAIT 1;*OPC?")
			waited = time.Since(epoch)
		}()
		synctest.Wait()
		expect(t, f, "*IDN?", "YOKOGAWA,WT310,C2AB00001V,F1.03")
		if time.Since(epoch) != 0 {
			t.Error("it was held up")
		}
		if <-done; waited != time.Second {
			t.Errorf("it waited %v", waited)
		}
	})
}

func TestRefusedConfigurations(t *testing.T) {
	b, _ := board.New(board.Config{})
	for _, cfg := range []Config{{}, {Model: "WT1800"}, {Rails: []string{"none"}}, {Rails: []string{"aux_12v_1", "aux_12v_2"}}} {
		if cfg.Model != "" || cfg.Rails != nil {
			cfg.Now = func() time.Duration { return 0 }
		}
		if _, err := New(b, cfg); err == nil {
			t.Errorf("%+v is taken", cfg)
		}
	}
}

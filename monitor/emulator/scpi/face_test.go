package scpi

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
)

// knob is an instrument with one setting and one action.
func knob() *Instrument {
	scale := 1.0
	return New("ACME,K1,7,1.0", func() { scale = 1 }, []Command{
		{
			Pattern: "CHANnel<n>:SCALe",
			Set: func(c Call) error {
				v, err := c.Number(0)
				if err == nil && v > 100 {
					return ErrRange
				}
				if err == nil {
					scale = v
				}
				return err
			},
			Query: func(c Call) ([]byte, error) { return Text("%d:%g", c.Suffixes[0], scale) },
		},
		{Pattern: "CHANnel<n>:UNITs", Query: func(Call) ([]byte, error) { return Text("VOLT") }},
		{Pattern: "TIMebase[:MAIN]:SCALe", Query: func(Call) ([]byte, error) { return Text("0.5") }},
		{Pattern: "RUN", Set: func(Call) error { return nil }},
	})
}

func TestHeadersAndStatus(t *testing.T) {
	i := knob()
	for _, c := range []struct{ send, want string }{
		{"*IDN?", "ACME,K1,7,1.0"},
		{"*ESR?", "128"}, // power on
		{"*OPC?", "1"},
		{":CHANnel2:SCALe?", "2:1"},
		{"chan:scal?", "1:1"},
		{":CHAN1:SCAL 5.0E-1;SCAL?;:CHAN3:SCAL?", "1:0.5;3:0.5"},
		{":CHAN4:SCAL?;UNIT?", "4:0.5;VOLT"},
		{":TIM:SCAL?", "0.5"},
		{":TIM:MAIN:SCAL?", "0.5"},
		{":CHANN:SCAL?", ""}, // neither the short nor the long form
		{"SYST:ERR?", `-113,"Undefined header"`},
		{"SYSTem:ERRor:NEXT?", `0,"No error"`},
		{"*ESR?", "32"},
		{":CHAN1:SCAL 1000", ""},
		{":SYST:ERR?", `-222,"Data out of range"`},
		{"*ESR?", "16"},
		{":CHAN1:SCAL x", ""},
		{":CHAN1:SCAL", ""},
		{":RUN?", ""}, // a command has no query form: no reply
		{":SYST:ERR?", `-104,"Data type error"`},
		{":SYST:ERR?", `-109,"Missing parameter"`},
		{"*STB?", "4"},
		{":SYST:ERR?", `-113,"Undefined header"`},
		{"*ESE 1;*OPC;*STB?", "32"},
		{"*RST;*CLS;:CHAN1:SCAL?", "1:1"},
		{"", ""},
	} {
		if got := string(i.execute(t.Context(), c.send)); got != c.want {
			t.Errorf("%s gives %q, want %q", c.send, got, c.want)
		}
	}
}

func TestChannelLists(t *testing.T) {
	for s, want := range map[string][]int{"(@101)": {101}, "(@101,103:105, 102)": {101, 103, 104, 105, 102}} {
		u, _ := split("ROUT:SCAN 1,"+s+",2", nil)
		got, err := Call{Args: u.args}.Channels(1)
		if err != nil || !slices.Equal(got, want) || len(u.args) != 3 {
			t.Errorf("%s: %v, %v", s, got, err)
		}
	}
	for s, want := range map[string]error{
		"101": ErrType, "(@)": ErrType, "(@a)": ErrType, "(@3:1)": ErrRange,
		"(@1:99999999)": ErrRange, "": ErrMissing,
	} {
		u, _ := split("ROUT:SCAN "+s, nil)
		if got, err := (Call{Args: u.args}).Channels(0); !errors.Is(err, want) {
			t.Errorf("%s: %v, %v", s, got, err)
		}
	}
}

// An instrument that speaks IEEE 488.2 but not SCPI.
func TestAnotherErrorQueue(t *testing.T) {
	i, cleared := knob(), false
	i.MoveErrorQuery("STATus:ERRor")
	i.Positive, i.Cleared = true, func() { cleared = true }
	for _, c := range []struct{ send, want string }{
		{":NONE", ""},
		{"SYST:ERR?", ""}, // which is itself an error
		{":STAT:ERR?", `113,"Undefined header"`},
		{":STAT:ERR?", `113,"Undefined header"`},
		{":STAT:ERR?;*CLS", `0,"No error"`},
	} {
		if got := string(i.execute(t.Context(), c.send)); got != c.want {
			t.Errorf("%s gives %q, want %q", c.send, got, c.want)
		}
	}
	if !cleared {
		t.Error("*CLS does not tell the instrument")
	}
}

func TestTheErrorQueueOverflows(t *testing.T) {
	i := knob()
	for range queueSize + 5 {
		i.execute(context.Background(), ":NONE")
	}
	for range queueSize - 1 {
		i.execute(context.Background(), "SYST:ERR?")
	}
	if got := string(i.execute(context.Background(), "SYST:ERR?")); got != `-350,"Queue overflow"` {
		t.Errorf("the last entry is %s", got)
	}
	i.Signed = true
	if got := string(i.execute(context.Background(), "SYST:ERR?")); got != `+0,"No error"` {
		t.Errorf("an empty queue gives %s", got)
	}
}

func TestMessagesOutOfTurn(t *testing.T) {
	s := knob().NewSession()
	if _, ok := s.Receive(); ok {
		t.Error("a reply to nothing")
	}
	s.Send("SYST:ERR?")
	if r, _ := s.Receive(); !strings.HasPrefix(string(r), "-420") {
		t.Errorf("got %q", r)
	}
	s.Send("*OPC?")
	s.Send("*IDN?")
	if r, _ := s.Receive(); string(r) != "ACME,K1,7,1.0\n" {
		t.Errorf("the reply that was left is %q", r)
	}
	s.Send("SYST:ERR?")
	if r, _ := s.Receive(); !strings.HasPrefix(string(r), "-410") {
		t.Errorf("got %q", r)
	}
}

func FuzzExecute(f *testing.F) {
	for _, s := range []string{
		"*IDN?", ":CHAN1:SCAL 1;OFFS?", `:A:B "x;y",'z'`, "::::?", ";;",
		"CHAN99999999999999999999:SCAL?", "*?", "ROUT:SCAN (@1,2:3", "A (1;2),(@3)",
	} {
		f.Add(s)
	}
	i := knob()
	f.Fuzz(func(t *testing.T, s string) {
		if n := len(i.execute(context.Background(), s)); n > 64*(1+len(s)) {
			t.Errorf("%d bytes answer %d", n, len(s))
		}
		i.execute(context.Background(), "*CLS")
	})
}

func TestEvents(t *testing.T) {
	i := knob()
	i.UseEvents()
	for _, c := range []struct{ send, want string }{
		{"*CLS;*ESR?", "0"},
		{"ALLEV?", `0,"No events to report - queue empty"`},
		{":NONE;:CHAN1:SCAL 1000", ""},
		{"ALLEV?", `1,"No events to report - new events pending *ESR?"`},
		{"EVENT?", "1"},
		{"*ESR?", "48"},
		{"ALLEv?", `113,"Undefined header",222,"Data out of range"`},
		{"EVMsg?", `0,"No events to report - queue empty"`},
		{":CHAN1:SCAL x;*ESR?;:EVENT?;:EVENT?", "32;104;0"},
		{":NONE;*ESR?", "32"},
		{"*CLS;ALLEV?", `0,"No events to report - queue empty"`},
		{"SYST:ERR?", ""},
	} {
		if got := string(i.execute(t.Context(), c.send)); got != c.want {
			t.Errorf("%s gives %q, want %q", c.send, got, c.want)
		}
	}
}

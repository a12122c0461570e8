package scpiface

import "testing"

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

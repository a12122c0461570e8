package wt300

import (
	"fmt"
	"strconv"
	"time"

	"github.com/wattmark/wattmark/monitor/emulator/scpi"
)

// extra are settings that wattmark does not use, but other people's programs do: they are
// kept and read back, and change no value but for SAMPle's, which are the same as RATE and
// HOLD. The integrator's state is kept, its sums are not.
type extra struct {
	messages, keys, maxHold, frequency, lockout bool
	compat, kind, math, mode, state             string
	count                                       int
	timer                                       [3]int // h, min, s
}

// resetExtra is *RST of them.
func (f *Face) resetExtra() {
	f.extra = extra{compat: "WT300", kind: "LIN", math: "CFU1", mode: "NORM", state: "RESET", count: 8}
}

// mathFunctions are those of MATH, for the first element.
var mathFunctions = []string{"CFU1", "CFI1", "AVW1", "EFFiciency", "ADD", "SUB", "MUL", "DIV", "DIVA", "DIVB"}

// extras is their part of the tree; replies have headers where those are on.
func (f *Face) extras() []scpi.Command {
	x := &f.extra
	run := func(state string) func() { return func() { x.state = state } }
	all := []scpi.Command{
		scpi.Switch("STATus:QMESsage", &x.messages),
		scpi.Switch("SYSTem:KLOCk", &x.keys),
		scpi.Switch("COMMunicate:LOCKout", &x.lockout),
		scpi.Switch("MEASure:MHOLd", &x.maxHold),
		scpi.Switch("[:INPut]:FILTer:FREQuency", &x.frequency),
		scpi.Switch("SAMPle:HOLD", &f.hold),
		scpi.Choice("SYSTem:COMMunicate:COMMand", &x.compat, "WT200", "WT300"),
		scpi.Choice("MEASure:AVERaging:TYPE", &x.kind, "LINear", "EXPonent"),
		scpi.Choice("INTEGrate:MODE", &x.mode, "NORMal", "CONTinuous"),
		scpi.Choice("MATH", &x.math, mathFunctions...),
		scpi.Whole("MEASure:AVERaging:COUNt", &x.count, 8, 64),
		choice("SAMPle:RATE", "S", rates, func() float64 { return f.rate.Seconds() },
			func(v float64) { f.setRate(time.Duration(v * float64(time.Second))) }),
		{Pattern: "INTEGrate:TIMer", Set: f.setTimer, Query: scpi.Reply(func() string {
			return fmt.Sprintf("%d,%d,%d", x.timer[0], x.timer[1], x.timer[2])
		})},
		{Pattern: "[:INPut]:WIRing", Query: scpi.Fixed("P1W2")},
		{Pattern: "INTEGrate:STATe", Query: scpi.Reply(func() string { return x.state })},
	}
	for i, c := range all {
		all[i] = f.headed(c)
	}
	return append(all, scpi.Asked("*OPT", func() string { return "NONE" }),
		scpi.Action("INTEGrate:STARt", run("START")), scpi.Action("INTEGrate:STOP", run("STOP")),
		scpi.Action("INTEGrate:RESet", run("RESET")))
}

// setTimer reads hours, minutes and seconds.
func (f *Face) setTimer(c scpi.Call) error {
	if len(c.Args) != len(f.extra.timer) {
		return scpi.ErrMissing
	}
	for i, most := range []int{10000, 59, 59} {
		n, err := strconv.Atoi(c.Args[i])
		if err != nil {
			return scpi.ErrType
		}
		if n < 0 || n > most {
			return scpi.ErrRange
		}
		f.extra.timer[i] = n
	}
	return nil
}

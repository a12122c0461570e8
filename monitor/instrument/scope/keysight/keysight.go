// Package keysight drives Keysight InfiniiVision oscilloscopes over package scope.
//
// The scope chooses depth and rate: SetUp gives it the window, and a trial acquisition shows
// the memory that a single one has. Armed is an event that is read once, so the Dialect
// remembers it.
package keysight

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/wattmark/wattmark/monitor/instrument/scope"
	"github.com/wattmark/wattmark/monitor/scpi"
)

// InfiniiVision is the X-Series 1000 to 6000: 8 bits, and a depth that the scope
// chooses by itself so that its memory, divided among the channels, spans the
// screen. Sources: the programmer's guides of the 1000 and 3000T X-Series; the
// limits are those of the 1000 X-Series, from memory of its data sheet.
var InfiniiVision = &scope.Family{
	Kind: "keysight-infiniivision", Name: "Keysight InfiniiVision (EDUX1002, DSOX1102, DSOX2004, MSOX3024, …)",
	Port:     5025,
	Channels: 4, Usual: 2, Memory: 8_000_000, MaxWindow: divisions * 50 * time.Second,
	MinScale: 5e-4, MaxScale: 10, MaxOffset: 40,
	Force: ":TRIG:FORC", Stop: ":STOP",
	Spec:    scope.Spec{Gain: 0.03, ZeroDiv: 0.1, ZeroVolt: 2e-3, OffsetPart: 0.01, Clock: 60e-6, NoiseCodes: 0.7},
	Dialect: func() scope.Dialect { return &infiniivision{} },
}

// divisions across the screen, which memory spans.
const divisions = 10

// infiniivision remembers the armed state, which an event register reports once.
type infiniivision struct {
	scope.Record
	armed  bool
	points int // as ReadBack learned them
}

// SetUp sets channels, window, and the trigger. It
// lies at the left edge: memory is the screen's contents.
func (d *infiniivision) SetUp(l *scope.Link, p *scope.Plan) {
	setup := []string{":STOP", ":ACQ:MODE RTIM", ":ACQ:TYPE NORM", ":TIM:MODE MAIN", ":TIM:REF CENT"}
	setup = append(setup, p.Channels(":CHAN%[1]d:DISP 0", ":CHAN%[1]d:DISP 1", ":CHAN%[1]d:COUP DC", ":CHAN%[1]d:INV 0",
		":CHAN%[1]d:UNIT VOLT", ":CHAN%[1]d:PROB %[2]g", ":CHAN%[1]d:SCAL %[3]g", ":CHAN%[1]d:OFFS %[5]g")...)
	span := divisions * p.TimeScale(divisions)
	const above = 5 // divisions; the trigger's range ends at 6
	source, level := p.Edge(above)
	l.SetAll(append(setup,
		fmt.Sprintf(":TIM:RANG %g", span), fmt.Sprintf(":TIM:POS %g", span/2), ":TRIG:MODE EDGE", ":TRIG:SWE NORM",
		fmt.Sprintf(":TRIG:EDGE:SOUR CHAN%d", source), ":TRIG:EDGE:SLOP POS", fmt.Sprintf(":TRIG:EDGE:LEV %g", level))...)
}

// ReadBack compares the settings that the scope rounds in silence, and makes a
// trial acquisition: only a single one has the whole memory and the rate of the
// recording, and only one that was taken has a preamble.
func (d *infiniivision) ReadBack(l *scope.Link, p *scope.Plan) scope.Memory {
	l.Expect(":TIM:RANG?", divisions*p.TimeScale(divisions), 1e-3)
	p.ExpectOffsets(l, ":CHAN%d:OFFS?")
	d.try(l)
	rate := l.Number(":ACQ:SRAT?")
	const most = 1 << 28
	points := math.Round(rate * divisions * p.TimeScale(divisions))
	if !(points >= 1 && points <= most) {
		l.Fail("%w: %v S/s", scpi.ErrInstrument, rate)
		return scope.Memory{}
	}
	d.points = int(points)
	return scope.Memory{Points: d.points, Step: 1 / rate, Piece: d.points, Codes: scope.Codes{Bytes: 1}}
}

// try takes a moment of a single acquisition.
func (d *infiniivision) try(l *scope.Link) {
	d.SetTriggered(false)
	d.Arm(l)
	const tries, moment = 50, 10 * time.Millisecond
	for n := 0; l.Err == nil; n++ {
		switch s := d.State(l); {
		case s == scope.Waiting:
			d.SetTriggered(true)
			l.Send(InfiniiVision.Force)
			d.State(l) // the trigger was taken
			l.Send(InfiniiVision.Stop)
			return
		case s == scope.Sampling: // an edge from outside was faster
			l.Send(InfiniiVision.Stop)
			return
		case n == tries:
			l.Fail("%w: it is %v where it should wait for its trigger", scpi.ErrInstrument, s)
		}
		l.Sleep(moment)
	}
}

// Arm begins a single acquisition.
func (d *infiniivision) Arm(l *scope.Link) {
	d.armed = false
	l.Number(":AER?") // reading clears it
	l.Send(":SING")
}

// The bits of the operation status condition register.
const (
	running = 1 << 3
	waiting = 1 << 5
)

// State asks whether it runs. The condition register shows whether it is armed while
// it waits, and an event register once.
func (d *infiniivision) State(l *scope.Link) scope.State {
	v := l.Number(":OPER:COND?")
	if !(v >= 0 && v < 1<<16) || v != math.Trunc(v) {
		l.Fail("%w: :OPER:COND? gives %v", scpi.ErrReply, v)
	}
	switch bits := int(v); {
	case l.Err != nil:
		return 0
	case bits&running == 0:
		return scope.Stopped
	case d.Triggered: // a recording that goes on, or a scope that was set to run freely meanwhile
		if scpi.Answer(l, ":TRIG:SWE?", parseFree) {
			return scope.Free
		}
		return scope.Sampling
	case bits&waiting != 0:
		return scope.Waiting
	}
	if d.armed = d.armed || l.Number(":AER?") != 0; d.armed {
		return scope.Sampling // it has armed and waits no more
	}
	return scope.Free
}

// parseFree reads the trigger's sweep, which is not NORMal where the scope runs freely.
func parseFree(s string) (bool, error) {
	return !strings.HasPrefix(strings.ToUpper(strings.TrimSpace(s)), "NORM"), nil
}

// Scale reads a channel's scale in the preamble: V = (code − reference)·increment
// + origin, with the origin in volts.
func (d *infiniivision) Scale(l *scope.Link, channel int) scope.Scale {
	p := preamble(l, channel)
	return scope.Scale{
		Gain: p.YIncrement, Zero: p.YOrigin - p.YReference*p.YIncrement,
		Division: l.Number(fmt.Sprintf(":CHAN%d:SCAL?", channel)),
		Step:     p.XIncrement, Begin: p.XOrigin - p.XReference*p.XIncrement,
		Least: 1, Most: 255, // 0 is a hole: a point that was not taken
	}
}

// Held is the preamble's number. After a stop in the middle it is unknown how much of that was taken.
func (d *infiniivision) Held(l *scope.Link, channel int) (points int, exact bool) {
	return preamble(l, channel).Points, false
}

// Read reads all of a channel, as the scope knows no pieces, and takes out the
// points wanted.
func (d *infiniivision) Read(l *scope.Link, channel, first, n int, dst []byte) []byte {
	selectMemory(l, channel)
	return scope.ReadWhole(l, ":WAV:DATA?", d.points, 1, first, n, dst)
}

// selectMemory selects a channel's deep memory. MAX also sets the mode, so that
// RAW comes behind it.
func selectMemory(l *scope.Link, channel int) {
	l.Send(fmt.Sprintf(":WAV:SOUR CHAN%d", channel), ":WAV:POIN MAX", ":WAV:POIN:MODE RAW", ":WAV:FORM BYTE",
		":WAV:UNS 1")
}

// preamble asks how a channel's codes are scaled. A plain +0, which some models
// give now and then, is no answer.
func preamble(l *scope.Link, channel int) (p scpi.Preamble) {
	selectMemory(l, channel)
	const tries, moment = 4, 20 * time.Millisecond
	for n := 0; l.Err == nil; n++ {
		p = scpi.Answer(l, ":WAV:PRE?", parsePreamble)
		switch {
		case p.XIncrement > 0 && p.Format != 0:
			l.Fail("%w: format %d of the points after BYTE was set", scpi.ErrInstrument, p.Format)
		case p.XIncrement > 0:
			return p
		case n == tries:
			l.Fail("%w: :WAV:PRE? gives +0 again and again", scpi.ErrReply)
		}
		l.Sleep(moment)
	}
	return p
}

// parsePreamble reads a preamble; one without an increment stands for +0.
func parsePreamble(s string) (scpi.Preamble, error) {
	if t := strings.TrimSpace(s); t == "+0" || t == "0" {
		return scpi.Preamble{}, nil
	}
	return scpi.ParsePreamble(s)
}

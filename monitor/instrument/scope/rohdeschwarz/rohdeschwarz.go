// Package rohdeschwarz drives Rohde & Schwarz RTB2000 oscilloscopes over package scope.
//
// How codes are scaled shows only in a waveform that was taken with the settings, so SetUp takes a short
// one with the trigger AUTO before it sets the window. A stop within an acquisition leaves contents that the
// maker calls incomplete or incorrect: the Device waits until memory is full.
package rohdeschwarz

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/monitor/instrument/scope"
	"github.com/wattmark/wattmark/monitor/scpi"
)

// RTB2000 is the RTB2002 and RTB2004: 10 bits, in words of 16. Sources: pages of the user manuals on remote
// control (of the RTB2000, and of the RTM2000 and RTC1000, which share commands), the maker's FAQ, and public
// drivers (PyMeasure's, Lab::Moose's, libscopehal's, and one for MATLAB and firmware 02.300).
//
// Assumed, as no source states it or two disagree: that *TRG triggers an armed scope at once (the RTM2000's
// manual has it; drivers use none), that ACQ:SRAT? follows the settings while the scope stands, that volts
// are those at the probe's tip, that the trigger's level reaches 5 divisions from the middle, and the ranges of
// scale (a driver has 10 V as its most) and offset, of which the latter is read back. The accuracy is from
// memory of the data sheet.
var RTB2000 = &scope.Family{
	Kind: "rohde-schwarz-rtb2000", Name: "Rohde & Schwarz RTB2000 (RTB2002, RTB2004)", Port: 5025,
	Channels: 4, Usual: 4, Memory: 40_000_000, MaxWindow: divisions * 20 * time.Second,
	MinScale: 1e-3, MaxScale: 10, MaxOffset: 40,
	Depths: depths,
	Whole:  true,
	Force:  "*TRG", Stop: "STOP",
	Spec:    scope.Spec{Gain: 0.02, ZeroDiv: 0.1, ZeroVolt: 1e-3, OffsetPart: 0.005, Clock: 10e-6, NoiseCodes: 0.7},
	Dialect: func() scope.Dialect { return &dialect{} },
}

// divisions across the screen, which memory spans.
const divisions = 12

// least is the smallest depth.
const least = 10_000

// depths are those of one channel. The largest needs both memories of a pair of channels.
func depths(_ scope.Model, used int) []int {
	all := []int{
		least, 20_000, 50_000, 100_000, 200_000, 500_000, 1_000_000, 2_000_000, 5_000_000, 10_000_000, 20_000_000,
	}
	if used > 1 {
		return all[:len(all)-1]
	}
	return all
}

// dialect remembers the memory that ReadBack learned, and since Arm whether the scope was
// seen to wait: no register shows that a trigger came.
type dialect struct {
	scope.Record
	armed  bool
	points int
	step   float64
}

// SetUp sets channels, window, depth and the trigger, which lies at the left edge. Firmware differs in how
// decimation is set: *CLS drops the complaints about the commands that it does not know.
func (d *dialect) SetUp(l *scope.Link, p *scope.Plan) {
	setup := append([]string{
		"STOP", "CHAN:TYPE SAMP", "ACQ:HRES OFF", "ACQ:PEAK OFF", "*CLS",
		"ACQ:TYPE REFR", "ACQ:NSIN:COUN 1", "TIM:ROLL:AUT OFF", "TIM:REF 50",
	}, p.Channels("CHAN%[1]d:STAT OFF", "CHAN%[1]d:STAT ON", "CHAN%[1]d:COUP DCL", "CHAN%[1]d:POL NORM",
		"PROB%[1]d:SET:ATT:UNIT V", "PROB%[1]d:SET:ATT:MAN %[2]g", "CHAN%[1]d:SCAL %[3]g", "CHAN%[1]d:POS 0",
		"CHAN%[1]d:OFFS %[5]g")...)
	const short = 1e-6 // s a division
	l.SetAll(append(setup, fmt.Sprintf("TIM:SCAL %g", short), "TIM:POS 0", fmt.Sprintf("ACQ:POIN %d", least),
		"TRIG:A:MODE AUTO")...)
	try(l)
	const above = 5 // divisions; codes end at 5.1
	source, level := p.Edge(above)
	t := p.TimeScale(divisions)
	l.SetAll(fmt.Sprintf("TIM:SCAL %g", t), fmt.Sprintf("TIM:POS %g", t*divisions/2),
		fmt.Sprintf("ACQ:POIN %d", p.Points), "TRIG:A:TYPE EDGE", fmt.Sprintf("TRIG:A:SOUR CH%d", source),
		"TRIG:A:EDGE:SLOP POS", "TRIG:A:EDGE:COUP DC", fmt.Sprintf("TRIG:A:LEV%d %g", source, level), "TRIG:A:MODE NORM")
}

// try takes a single acquisition that triggers by itself. *OPC? would not answer before its end.
func try(l *scope.Link) {
	l.Send("SING")
	const tries, moment = 300, 10 * time.Millisecond
	for n := 0; l.Err == nil; n++ {
		r := scpi.Answer(l, stateQuery, parseStatus)
		switch {
		case r.state == "COMP":
			return
		case n == tries:
			l.Fail("%w: ACQ:STAT? gives %s where a trial acquisition should have ended", scpi.ErrInstrument, r.state)
		}
		l.Sleep(moment)
	}
}

// ReadBack compares the settings that the scope rounds, and reads the rate.
func (d *dialect) ReadBack(l *scope.Link, p *scope.Plan) scope.Memory {
	p.ExpectOffsets(l, "CHAN%d:OFFS?")
	l.Expect("TIM:SCAL?", p.TimeScale(divisions), 1e-3)
	l.Expect("TIM:POS?", p.TimeScale(divisions)*divisions/2, 1e-3)
	l.Expect("ACQ:POIN?", float64(p.Points), 0)
	rate := p.Rate(l, "ACQ:SRAT?")
	d.points = p.Points
	d.step = near(1/rate, p.TimeScale(divisions)*divisions/float64(p.Points))
	return scope.Memory{Points: d.points, Step: d.step, Piece: d.points, Codes: scope.Codes{Bytes: codeBytes}}
}

// near is a number of single precision as a scope gives it, or the exact one that it stands for.
func near(v, exact float64) float64 {
	const precision = 1e-6
	if math.Abs(v/exact-1) < precision {
		return exact
	}
	return v
}

// Arm begins a single acquisition.
func (d *dialect) Arm(l *scope.Link) {
	d.armed = false
	l.Send("STOP", "TRIG:A:MODE NORM", "ACQ:NSIN:COUN 1", "SING")
}

// stateQuery asks for acquisition, the register that shows waiting, and the trigger's mode at once.
const stateQuery = "ACQ:STAT?;:STAT:OPER:COND?;:TRIG:A:MODE?"

// status is the answer to stateQuery.
type status struct {
	state         string // RUN, STOP, COMP or BRE
	waiting, auto bool
}

// parseStatus reads the answer to stateQuery.
func parseStatus(s string) (r status, err error) {
	const waiting = 1 << 3
	f := strings.Split(strings.ToUpper(strings.TrimSpace(s)), ";")
	if len(f) == 3 {
		v, err := scpi.ParseNumber(f[1])
		if err == nil && v >= 0 && v < 1<<16 && v == math.Trunc(v) {
			r = status{f[0], int(v)&waiting != 0, f[2] == "AUTO"}
		}
	}
	switch r.state {
	case "RUN", "STOP", "COMP", "BRE":
		return r, nil
	}
	return status{}, fmt.Errorf("%w: %s gives %.80q", scpi.ErrReply, stateQuery, s)
}

// State asks for the state. What runs and waits no more samples.
func (d *dialect) State(l *scope.Link) scope.State {
	r := scpi.Answer(l, stateQuery, parseStatus)
	switch {
	case r.state != "RUN":
		return scope.Stopped
	case r.waiting:
		d.armed = true
		return scope.Waiting
	case (d.Triggered || d.armed) && !r.auto:
		return scope.Sampling
	}
	return scope.Free
}

// codeBytes is the size of a code.
const codeBytes = 2

// selectMemory selects all of memory, in words.
func selectMemory(l *scope.Link) { l.Send("FORM UINT,16", "FORM:BORD LSBF", "CHAN:DATA:POIN MAX") }

// Scale reads a channel's scale: V = code·increment + origin, with the converter's bits at the top of a word.
// The step is that of the settings, as a waveform that was taken before them has another.
func (d *dialect) Scale(l *scope.Link, channel int) scope.Scale {
	selectMemory(l)
	query := fmt.Sprintf("CHAN%[1]d:DATA:YINC?;:CHAN%[1]d:DATA:YOR?;:CHAN%[1]d:DATA:YRES?;:CHAN%[1]d:DATA:XOR?;"+
		":CHAN%[1]d:SCAL?;:ACQ:SRAT?", channel)
	s := scpi.Answer(l, query, parseScale)
	s.Step = near(s.Step, d.step)
	return s
}

// parseScale reads the six numbers that Scale asks for.
func parseScale(s string) (scope.Scale, error) {
	const word = 8 * codeBytes
	f, err := scpi.ParseNumbers(strings.ReplaceAll(s, ";", ","), 6)
	if err != nil {
		return scope.Scale{}, err
	}
	bits := f[2]
	if !(bits >= 1 && bits <= word) || bits != math.Trunc(bits) || !(f[5] > 0) {
		return scope.Scale{}, fmt.Errorf("%w: %v bits a code and %v S/s", scpi.ErrReply, bits, f[5])
	}
	quantum := math.Ldexp(1, word-int(bits))
	return scope.Scale{
		Gain: f[0], Zero: f[1], Quantum: quantum, Begin: f[3], Division: f[4], Step: 1 / f[5],
		Least: 0, Most: measure.Count(1<<word - quantum),
	}, nil
}

// header describes a waveform.
type header struct {
	points int
	step   float64
}

// parseHeader reads the answer to CHAN:DATA:HEAD?: begin and end in seconds, points, and values a point.
func parseHeader(s string) (header, error) {
	f, err := scpi.ParseNumbers(s, 4)
	if err != nil {
		return header{}, err
	}
	step := (f[1] - f[0]) / (f[2] - 1)
	if !(f[2] >= 2 && f[2] <= math.MaxInt32) || f[2] != math.Trunc(f[2]) || f[3] != 1 || !(step > 0) ||
		math.IsInf(step, 0) {
		return header{}, fmt.Errorf("%w: a waveform from %v s to %v s with %v points of %v values", scpi.ErrReply,
			f[0], f[1], f[2], f[3])
	}
	return header{int(f[2]), step}, nil
}

// Held is the number in the waveform's header, whose step must be that of the settings.
func (d *dialect) Held(l *scope.Link, channel int) (points int, exact bool) {
	selectMemory(l)
	h := scpi.Answer(l, fmt.Sprintf("CHAN%d:DATA:HEAD?", channel), parseHeader)
	if math.Abs(h.step/d.step-1) > 1e-3 {
		l.Fail("%w: channel %d holds points %v s apart, %v s by its rate", scpi.ErrInstrument, channel, h.step, d.step)
	}
	return h.points, false
}

// Read takes the points wanted out of all of a channel, as the scope knows no pieces.
func (d *dialect) Read(l *scope.Link, channel, first, n int, dst []byte) []byte {
	selectMemory(l)
	return scope.ReadWhole(l, fmt.Sprintf("CHAN%d:DATA?", channel), d.points, codeBytes, first, n, dst)
}

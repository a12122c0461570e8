// Package tektronix drives Tektronix oscilloscopes over package scope: MDO, MSO and DPO 3000
// and 4000, and the 4, 5 and 6 Series MSO.
//
// Errors come as events of *ESR? and ALLEv?. The preamble has its fields in an order that
// depends on the firmware, and is parsed by their form.
package tektronix

import (
	"encoding/csv"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/monitor/instrument/scope"
	"github.com/wattmark/wattmark/monitor/scpi"
)

// Tektronix are the families MDO3000, MDO4000, MSO/DPO3000 and 4000, and the 4, 5
// and 6 Series MSO. Sources: programmer manuals as public drivers cite them; the
// accuracy is from memory of the data sheet of the MDO3000.
var Tektronix = &scope.Family{
	Kind: "tektronix", Name: "Tektronix MDO/MSO/DPO 3000 or 4000, or 4, 5 or 6 Series MSO", Port: 4000,
	Channels: 4, Usual: 4, Memory: 250_000_000, MaxWindow: divisions * 100 * time.Second,
	MinScale: 1e-3, MaxScale: 10, MaxOffset: 100,
	Depths: depths,
	Whole:  true,
	Force:  "TRIG FORC", Stop: "ACQ:STATE STOP",
	Spec:    scope.Spec{Gain: 0.02, ZeroDiv: 0.2, ZeroVolt: 1e-3, OffsetPart: 0.005, Clock: 10e-6, NoiseCodes: 0.7},
	Dialect: func() scope.Dialect { return &dialect{} },
}

const (
	divisions = 10      // across the screen; memory spans it
	perDiv    = 25      // codes of one byte a division
	series    = "4/5/6" // the model's, of the newer ones
	piece     = 250_000 // points a read; no limit is stated
)

// depths are those of one channel, on a model that has its share of memory.
func depths(m scope.Model, _ int) (out []int) {
	for _, d := range []int{1000, 10_000, 100_000, 1_000_000, 5_000_000, 10_000_000, 20_000_000} {
		if d <= m.Memory/max(1, m.Channels) {
			out = append(out, d)
		}
	}
	return out
}

// dialect remembers from ReadBack a channel's settings, and whether a record
// of its own is there to be compared with that.
type dialect struct {
	width, depth int
	step         float64
	quantum      float64 // codes between two steps of the converter
	scope.Record
}

// SetUp sets channels, window, depth and the trigger.
func (d *dialect) SetUp(l *scope.Link, p *scope.Plan) {
	d.Triggered = false // a record of its own is there no more
	newer := p.Model.Series == series
	setup := []string{
		"HEAD OFF", "VERB ON", "ACQ:STATE STOP", "ACQ:MOD SAM", "ACQ:STOPA SEQ", "HOR:DEL:MOD OFF", "HOR:POS 0",
	}
	display, probe := "SEL:CH%[1]d", "CH%[1]d:PRO:GAIN %[6]g"
	if newer {
		display, probe = "DIS:GLO:CH%[1]d:STATE", "CH%[1]d:PROBEF:EXTA %[6]g"
	}
	// This maker counts an offset the other way: +12 puts 12 V in the middle.
	setup = append(setup, p.Channels(display+" OFF", display+" ON", "CH%[1]d:COUP DC", "CH%[1]d:INV OFF", probe,
		"CH%[1]d:SCA %[3]g", "CH%[1]d:POS 0", "CH%[1]d:OFFS %[5]g")...)
	const above = 6 // divisions; codes end at 5.12, the trigger's range at 8
	source, level := p.Edge(above)
	setup = append(setup, "TRIG:A:TYP EDGE", "TRIG:A:MOD NORM", fmt.Sprintf("TRIG:A:EDGE:SOU CH%d", source),
		"TRIG:A:EDGE:SLO RIS", "TRIG:A:EDGE:COUP DC", fmt.Sprintf("TRIG:A:LEV:CH%d %g", source, level))
	if !newer {
		l.SetAll(append(setup, fmt.Sprintf("HOR:SCA %g", timeScale(p)), fmt.Sprintf("HOR:RECO %d", p.Points))...)
		return
	}
	l.SetAll(append(setup, "HOR:MOD MAN")...)
	setRate(l, p)
}

// timeScale is the next of the steps 1, 2, 4 of seconds a division.
func timeScale(p *scope.Plan) float64 { return scope.Step(p.Window.Seconds()/divisions, 1, 2, 4) }

// setRate looks for the fastest rate at which memory spans the window: the scope
// takes one of its own near the command's, and may change the depth by it.
func setRate(l *scope.Link, p *scope.Plan) {
	want := float64(p.Points) / p.Window.Seconds()
	for _, part := range []float64{1, 0.8, 0.6, 0.5, 0.4, 0.25, 0.1} {
		l.SetAll(fmt.Sprintf("HOR:MOD:SAMPLER %g", want*part), fmt.Sprintf("HOR:MOD:RECO %d", p.Points))
		if got := l.Number("HOR:MOD:SAMPLER?"); got > 0 && got <= want*(1+1e-6) {
			return
		}
	}
	l.Fail("%w: no rate at which %s span %v: choose a deeper memory or a shorter window", scpi.ErrInstrument,
		measure.Plural(p.Points, "point"), p.Window)
}

// ReadBack compares the scope's answers with the settings.
func (d *dialect) ReadBack(l *scope.Link, p *scope.Plan) scope.Memory {
	for _, n := range p.Used {
		in, _ := p.On(n)
		l.Expect(fmt.Sprintf("CH%d:SCA?", n), in.Scale, 1e-2)
	}
	l.Expect("HOR:RECO?", float64(p.Points), 0)
	d.width, d.quantum, d.depth, d.step = 1, 1, p.Points, 1/p.Rate(l, "HOR:SAMPLER?")
	if p.Model.Series == series {
		d.width, d.quantum = 2, 16 // 12 bits at the top of 16
	}
	return scope.Memory{
		Points: d.depth, Step: d.step, Piece: min(piece, d.depth),
		Codes: scope.Codes{Bytes: d.width, Signed: true},
	}
}

// Arm begins a single acquisition.
func (d *dialect) Arm(l *scope.Link) { l.Send("HEAD OFF", "ACQ:STOPA SEQ", "ACQ:STATE RUN") }

// State asks for the trigger's state.
func (d *dialect) State(l *scope.Link) scope.State {
	return scpi.Answer(l, "TRIG:STATE?", parseState).Settled(d.Triggered)
}

// parseState reads a state, in its long or short form.
func parseState(s string) (scope.State, error) {
	t := strings.ToUpper(strings.TrimSpace(s))
	if i := strings.LastIndexByte(t, ' '); i >= 0 { // :TRIGGER:STATE READY
		t = t[i+1:]
	}
	for long, state := range map[string]scope.State{
		"SAVE": scope.Stopped, "READY": scope.Waiting, "TRIGGER": scope.Sampling, "AUTO": scope.Free, "ARMED": scope.Arming,
	} {
		if len(t) >= 3 && strings.HasPrefix(long, t) {
			return state, nil
		}
	}
	return 0, fmt.Errorf("%w: TRIG:STATE? gives %s", scpi.ErrReply, shown(s))
}

// maxEvents is more than an event queue holds.
const maxEvents = 256

// parseEvents reads the reply to ALLEv?: code,"text" and on. What is no complaint
// (nothing to report, power on, operation complete, a warning) is left out.
func parseEvents(s string) (out []scpi.DeviceError, err error) {
	bad := fmt.Errorf("%w: ALLEv? gives %s", scpi.ErrReply, shown(s))
	line := strings.TrimSpace(s)
	r := csv.NewReader(strings.NewReader(line))
	fields, err := r.Read()
	if err != nil || len(fields)%2 != 0 || len(fields) > 2*maxEvents || strings.ContainsAny(line, "\r\n") {
		return nil, bad
	}
	for i := 0; i < len(fields); i += 2 {
		v, err := strconv.Atoi(strings.TrimSpace(fields[i]))
		if _, at := r.FieldPos(i + 1); err != nil || v < 0 || v > 99_999 || !strings.HasPrefix(line[at-1:], `"`) {
			return nil, bad
		}
		// 4xx are events of the system, of which 410 to 430 are errors of queries; 5xx and 6xx are warnings
		// (programmer manuals, "Event Codes").
		if v >= 100 && !(v >= 400 && v < 410) && !(v > 430 && v < 700) {
			out = append(out, scpi.DeviceError{Code: v, Text: fields[i+1]})
		}
	}
	return out, nil
}

// Check asks for the events since *CLS. *ESR? releases them.
func (*dialect) Check(l *scope.Link) {
	l.Number("*ESR?")
	var all []error
	for _, e := range scpi.Answer(l, "ALLEV?", parseEvents) {
		all = append(all, e)
	}
	l.Keep(errors.Join(all...))
}

// Package rigol drives Rigol oscilloscopes over package scope: one Dialect a family, with the
// commands that all of them have in common. Depth can be set only while the scope runs, and
// memory is read in pieces of the family's size.
package rigol

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/monitor/instrument/scope"
	"github.com/wattmark/wattmark/monitor/scpi"
)

// dialect speaks the commands of the families that need no care of their own.
type dialect struct {
	scope.Record
	divisions float64  // across the screen; memory spans it
	above     float64  // divisions of the trigger's level, near to the end of its range
	setup     []string // settings of the family's own
	// wide: memory may span more than the screen, around its middle.
	wide  bool
	depth func(points int) string
	// size is the bytes of a code. Words of 16 bits are little-endian, with the 12 of the converter
	// spread into them, and read in pieces of half the points.
	size int
	// pages: the preamble's points are the size of a page, so that it cannot be known how many
	// were taken before a stop.
	pages bool
}

// SetUp sets channels, window, depth and the trigger.
func (d *dialect) SetUp(l *scope.Link, p *scope.Plan) {
	// Memory can be set only while the scope runs.
	l.SetAll(slices.Concat([]string{":RUN", ":ACQ:TYPE NORM", ":TIM:MODE MAIN"}, d.setup,
		p.Channels(":CHAN%[1]d:DISP OFF", ":CHAN%[1]d:DISP ON", ":CHAN%[1]d:COUP DC", ":CHAN%[1]d:INV OFF",
			":CHAN%[1]d:PROB %[2]g", ":CHAN%[1]d:SCAL %[3]g", ":CHAN%[1]d:OFFS %[4]g"),
		[]string{fmt.Sprintf(":TIM:MAIN:SCAL %g", p.TimeScale(d.divisions)), ":ACQ:MDEP " + d.depth(p.Points)})...)
	span := d.span(l, p)
	source, level := p.Edge(d.above)
	l.SetAll(fmt.Sprintf(":TIM:MAIN:OFFS %g", span/2), ":TRIG:MODE EDGE",
		fmt.Sprintf(":TRIG:EDGE:SOUR CHAN%d", source), ":TRIG:EDGE:SLOP POS", fmt.Sprintf(":TRIG:EDGE:LEV %g", level))
}

// span is the time that memory spans, around the middle of the screen.
func (d *dialect) span(l *scope.Link, p *scope.Plan) float64 {
	if !d.wide {
		return p.TimeScale(d.divisions) * d.divisions
	}
	return float64(p.Points) / p.Rate(l, rateQuery)
}

// rateQuery asks for the rate in samples a second.
const rateQuery = ":ACQ:SRAT?"

// ReadBack compares depth and window with the settings, and reads the rate.
func (d *dialect) ReadBack(l *scope.Link, p *scope.Plan) scope.Memory {
	l.Expect(":ACQ:MDEP?", float64(p.Points), 0)
	l.Expect(":TIM:MAIN:SCAL?", p.TimeScale(d.divisions), 1e-3)
	l.Expect(":TIM:MAIN:OFFS?", d.span(l, p)/2, 1e-3)
	return scope.Memory{
		Points: p.Points, Step: 1 / p.Rate(l, rateQuery), Piece: pieceBytes / d.size, Codes: scope.Codes{Bytes: d.size},
	}
}

// pieceBytes is the most that a read gives.
const pieceBytes = 250_000

// Arm begins a single acquisition.
func (*dialect) Arm(l *scope.Link) { l.Send(":SING") }

// State asks for the trigger's state.
func (*dialect) State(l *scope.Link) scope.State { return scpi.Answer(l, ":TRIG:STAT?", parseState) }

// states are the answers to :TRIG:STAT?; TD is there for a moment only.
var states = map[string]scope.State{
	"STOP": scope.Stopped, "WAIT": scope.Waiting, "RUN": scope.Sampling, "TD": scope.Sampling, "AUTO": scope.Free,
}

// parseState reads the answer to :TRIG:STAT?.
func parseState(s string) (scope.State, error) {
	if v, ok := states[s]; ok {
		return v, nil
	}
	return 0, fmt.Errorf("%w: :TRIG:STAT? gives %q", scpi.ErrReply, s)
}

// selectMemory selects a channel's deep memory. Everything is set anew each time:
// the link may be a new one.
func (d *dialect) selectMemory(l *scope.Link, channel int) {
	l.Send(fmt.Sprintf(":WAV:SOUR CHAN%d", channel), ":WAV:MODE RAW", ":WAV:FORM "+scope.Width[d.size])
}

// Read reads a piece.
func (d *dialect) Read(l *scope.Link, channel, first, n int, dst []byte) []byte {
	d.selectMemory(l, channel)
	l.Send(fmt.Sprintf(":WAV:STAR %d", first+1), fmt.Sprintf(":WAV:STOP %d", first+n))
	return l.Block(":WAV:DATA?", d.size*n, dst)
}

// Scale reads a channel's scale in the preamble: V = (code − origin − reference)·increment,
// with the origin in codes.
func (d *dialect) Scale(l *scope.Link, channel int) scope.Scale {
	p := d.preamble(l, channel)
	division := l.Number(fmt.Sprintf(":CHAN%d:SCAL?", channel))
	if !(division > 0 && !math.IsInf(division, 0)) {
		l.Fail("%w: %v V a division", scpi.ErrReply, division)
	}
	return scope.Scale{
		Gain: p.YIncrement, Zero: -(p.YOrigin + p.YReference) * p.YIncrement,
		Division: division, Step: p.XIncrement, Least: 0, Most: measure.Count(1<<(8*d.size) - 1),
	}
}

// Held is the preamble's number, the points really taken, or the depth where that is not known.
func (d *dialect) Held(l *scope.Link, channel int) (points int, exact bool) {
	if d.pages {
		return int(l.Number(":ACQ:MDEP?")), false
	}
	return d.preamble(l, channel).Points, true
}

// preamble selects a channel's deep memory and asks how its codes are scaled.
func (d *dialect) preamble(l *scope.Link, channel int) scpi.Preamble {
	d.selectMemory(l, channel)
	p := scpi.Answer(l, ":WAV:PRE?", scpi.ParsePreamble)
	if p.Format != d.size-1 {
		l.Fail("%w: format %d of the points after %s was set", scpi.ErrInstrument, p.Format, scope.Width[d.size])
	}
	return p
}

// DHO is the DHO800 and DHO900: two or four channels of 12 bits on a memory of
// 50 million points in all (25 before firmware 00.01.03 of the DHO800: the depth
// is read back). Sources: programming guide of April 2025 and data sheet.
var DHO = &scope.Family{
	Kind: "rigol-dho", Name: "Rigol DHO800 or DHO900 (DHO802, DHO804, DHO814, DHO924, …)", Port: 5555,
	Channels: 4, Usual: 4, Memory: 50_000_000, MaxWindow: 10 * 500 * time.Second,
	MinScale: 5e-4, MaxScale: 10, MaxOffset: 100,
	Depths: inSteps(1000, 10_000, 100_000, 1_000_000, 5_000_000, 10_000_000, 25_000_000, 50_000_000),
	Force:  ":TFOR", Stop: ":STOP",
	Spec: scope.Spec{Gain: 0.02, ZeroDiv: 0.1, ZeroVolt: 2e-3, OffsetPart: 0.015, Clock: 30e-6, NoiseCodes: 16},
	Dialect: func() scope.Dialect {
		return &dialect{
			divisions: 10, above: 4.4, wide: true, depth: scope.ShowPoints, size: 2, pages: true,
			setup: []string{":TRIG:SWE AUTO", ":TIM:ROLL 0"},
		}
	},
}

// DS1000Z is the DS1054Z and its sisters: four channels of 8 bits on a memory
// of 12 million points. Sources: its programming manual and data sheet.
var DS1000Z = &scope.Family{
	Kind: "rigol-ds1000z", Name: "Rigol DS1000Z (DS1054Z, DS1074Z, DS1104Z, MSO1074Z, …)", Port: 5555,
	Channels: 4, Usual: 4, Memory: 12_000_000, MaxWindow: 12 * 50 * time.Second,
	MinScale: 1e-3, MaxScale: 10, MaxOffset: 100,
	// A thousandth, a hundredth, a tenth and the whole of each channel's share of memory.
	Depths: func(m scope.Model, used int) (out []int) {
		most := m.Memory / share(used)
		for d := most / 1000; d <= most; d *= 10 {
			out = append(out, d)
		}
		return out
	},
	Force: ":TFOR", Stop: ":STOP",
	Spec:    scope.Spec{Gain: 0.03, ZeroDiv: 0.1, ZeroVolt: 2e-3, OffsetPart: 0.01, Clock: 25e-6, NoiseCodes: 0.7},
	Dialect: func() scope.Dialect { return &dialect{divisions: 12, above: 4.9, depth: strconv.Itoa, size: 1} },
}

// share is into how many parts memory is divided: with three or four channels
// all converters are in use.
func share(used int) int {
	if used > 2 {
		return 4
	}
	return max(1, used)
}

// MSO5000 is the MSO5074 and its sisters: two or four channels of 8 bits on a
// memory of 100 million points (an option doubles it). Sources: its programming
// manual; the limits are from memory of its data sheet.
var MSO5000 = &scope.Family{
	Kind: "rigol-mso5000", Name: "Rigol MSO5000 (MSO5072, MSO5074, MSO5104, …)", Port: 5555,
	Channels: 4, Usual: 4, Memory: 100_000_000, MaxWindow: 10 * 50 * time.Second,
	MinScale: 5e-4, MaxScale: 10, MaxOffset: 100,
	Depths: inSteps(1000, 10_000, 100_000, 1_000_000, 10_000_000, 25_000_000, 50_000_000, 100_000_000),
	Force:  ":TFOR", Stop: ":STOP",
	Spec: scope.Spec{Gain: 0.02, ZeroDiv: 0.1, ZeroVolt: 2e-3, OffsetPart: 0.015, Clock: 10e-6, NoiseCodes: 0.7},
	Dialect: func() scope.Dialect {
		return &mso5000{dialect: dialect{
			divisions: 10, above: 4.9, wide: true, depth: scope.ShowPoints, size: 1, setup: []string{":TRIG:SWE AUTO"},
		}}
	},
}

// inSteps are those of some depths that fit a channel's share of memory.
func inSteps(all ...int) func(m scope.Model, used int) []int {
	return func(m scope.Model, used int) (out []int) {
		for _, d := range all {
			if d*share(used) <= m.Memory {
				out = append(out, d)
			}
		}
		return out
	}
}

// mso5000 is a DS1000Z that wants to be waited for: read too soon after a
// trigger it sends a block's header and then nothing, until mode and format were
// set once more.
type mso5000 struct{ dialect }

// settle is how long it gets behind a stop.
const settle = 100 * time.Millisecond

// Read waits until the scope has carried out its commands, and then sets everything
// anew. The Device asks again where the scope was not ready yet.
func (d *mso5000) Read(l *scope.Link, channel, first, n int, dst []byte) []byte {
	l.Send("*WAI")
	return d.dialect.Read(l, channel, first, n, dst)
}

// Held waits as well: it is the first to read the recording.
func (d *mso5000) Held(l *scope.Link, channel int) (points int, exact bool) {
	if d.Triggered { // since the last wait
		l.Sleep(settle)
		d.Triggered = l.Err != nil
	}
	return d.dialect.Held(l, channel)
}

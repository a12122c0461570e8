// Package siglent drives Siglent oscilloscopes with the E11 command set over package scope.
//
// These scopes have no error queue and set a value out of range to the range's end, so that
// every setting is read back. The scale comes in a binary descriptor; the place of a code's bits
// in a word follows from the codes a division, as firmware differs.
package siglent

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/monitor/instrument/scope"
	"github.com/wattmark/wattmark/monitor/scpi"
)

// E11 are the families that speak the E11 command set. Sources: programming
// guide EN11 and public drivers; the accuracy is from memory of the data sheet of
// the SDS2000X Plus.
var E11 = &scope.Family{
	Kind: "siglent-e11", Name: "Siglent with the E11 commands (SDS2000X Plus, SDS5000X, SDS6000A, SDS…X HD)",
	Port:     5025,
	Channels: 4, Usual: 4, Memory: 500_000_000, MaxWindow: divisions * 100 * time.Second,
	MinScale: 500e-6, MaxScale: 10, MaxOffset: 200,
	Depths: depths,
	Whole:  true,
	Force:  ":TRIG:MODE FTRIG", Stop: ":TRIG:STOP",
	Spec:    scope.Spec{Gain: 0.03, ZeroDiv: 0.12, ZeroVolt: 2e-3, OffsetPart: 0.01, Clock: 25e-6, NoiseCodes: 0.7},
	Dialect: func() scope.Dialect { return &dialect{} },
}

const (
	divisions = 10      // across the screen; memory spans it
	maxPiece  = 250_000 // points a read
)

// dialect remembers of ReadBack how wide points are, and whether it was triggered.
type dialect struct {
	scope.Record
	size int // bytes
	bits int
}

// SetUp sets channels, window, depth and the trigger. The
// horizontal delay of half a window puts the trigger at the left edge.
func (d *dialect) SetUp(l *scope.Link, p *scope.Plan) {
	// Memory can be set only while the scope runs freely.
	setup := []string{":TRIG:MODE AUTO", ":TRIG:RUN", ":ACQ:SEQ OFF", ":ACQ:MODE YT", ":ACQ:TYPE NORM", ":ACQ:MMAN AUTO"}
	setup = append(setup, p.Channels(":CHAN%[1]d:SWIT OFF", ":CHAN%[1]d:SWIT ON", ":CHAN%[1]d:COUP DC",
		":CHAN%[1]d:INV OFF", ":CHAN%[1]d:UNIT V", ":CHAN%[1]d:PROB VAL,%[2]g", ":CHAN%[1]d:SCAL %[3]g",
		":CHAN%[1]d:OFFS %[4]g")...)
	t := p.TimeScale(divisions)
	const above = 4.05 // divisions; the trigger's range ends at 4.1
	source, level := p.Edge(above)
	l.SetAll(append(setup, fmt.Sprintf(":TIM:SCAL %g", t), fmt.Sprintf(":TIM:DEL %g", t*divisions/2),
		":ACQ:MDEP "+scope.ShowPoints(p.Points), ":TRIG:TYPE EDGE", fmt.Sprintf(":TRIG:EDGE:SOUR C%d", source),
		":TRIG:EDGE:SLOP RIS", ":TRIG:EDGE:COUP DC", fmt.Sprintf(":TRIG:EDGE:LEV %g", level))...)
}

// Check finds nothing: these scopes have no error queue. They set a value out
// of range to the range's end; ReadBack looks at every setting.
func (*dialect) Check(*scope.Link) {}

// ReadBack compares the scope's answers with the settings.
func (d *dialect) ReadBack(l *scope.Link, p *scope.Plan) scope.Memory {
	for _, n := range p.Used {
		// Three digits come back; an offset may be rounded to a pixel.
		in, _ := p.On(n)
		if !scpi.Answer(l, fmt.Sprintf(":CHAN%d:SWIT?", n), scpi.ParseBool) {
			l.Fail("%w: channel %d stays off", scpi.ErrInstrument, n)
		}
		l.Expect(fmt.Sprintf(":CHAN%d:SCAL?", n), in.Scale, 1e-2)
		offset := l.Number(fmt.Sprintf(":CHAN%d:OFFS?", n))
		if !(math.Abs(offset-in.Offset) <= in.Scale/10+math.Abs(in.Offset)/100) {
			l.Fail("%w: channel %d has an offset of %v V after %v V was set: too far for %v V a division?",
				scpi.ErrInstrument, n, offset, in.Offset, in.Scale)
		}
	}
	t := p.TimeScale(divisions)
	l.Expect(":TIM:SCAL?", t, 1e-2)
	l.Expect(":TIM:DEL?", t*divisions/2, 1e-2)
	if depth := scpi.Answer(l, ":ACQ:MDEP?", parsePoints); depth != p.Points {
		l.Fail("%w: memory depth %d after %d was set: choose one that this model has", scpi.ErrInstrument, depth,
			p.Points)
	}
	return d.memory(l, p, t*divisions)
}

// memory learns how points are recorded and read.
func (d *dialect) memory(l *scope.Link, p *scope.Plan, window float64) scope.Memory {
	d.size = 1
	desc := d.describe(l, p.Used[0])
	if desc.adc > 8 {
		d.size = 2
		desc = d.describe(l, p.Used[0])
	}
	d.bits = desc.bits
	rate := l.Number(":ACQ:SRAT?")
	if !(rate > 0 && !math.IsInf(rate, 0)) {
		l.Fail("%w: %v S/s", scpi.ErrInstrument, rate)
	}
	piece := scpi.Answer(l, ":WAV:MAXP?", parsePoints)
	points := min(float64(p.Points), math.Round(rate*window))
	return scope.Memory{
		Points: int(points), Step: 1 / rate, Piece: min(piece, maxPiece),
		Codes: scope.Codes{Bytes: desc.size, Signed: true},
	}
}

// from selects a channel and the width of its points.
func (d *dialect) from(l *scope.Link, channel int) {
	l.Send(fmt.Sprintf(":WAV:SOUR C%d", channel), ":WAV:WIDT "+scope.Width[d.size], ":WAV:INT 1")
}

// describe asks for a channel's descriptor.
func (d *dialect) describe(l *scope.Link, channel int) descriptor {
	d.from(l, channel)
	b := l.Block(":WAV:PRE?", 2*descriptorSize, nil)
	desc, err := parseDescriptor(b)
	l.Keep(err)
	if desc.size != d.size {
		l.Fail("%w: a waveform descriptor of another width than was set", scpi.ErrReply)
	}
	return desc
}

// Scale reads a channel's scale in the descriptor.
func (d *dialect) Scale(l *scope.Link, channel int) scope.Scale {
	desc := d.describe(l, channel)
	top := math.Ldexp(1, desc.bits-1)
	return scope.Scale{
		Gain: desc.gain(), Zero: -desc.offset, Division: desc.volts, Step: desc.seconds, Quantum: desc.quantum(),
		Least: measure.Count(-top), Most: measure.Count(top - desc.quantum()),
	}
}

// Arm begins a single acquisition.
func (d *dialect) Arm(l *scope.Link) { l.Send(":TRIG:MODE SING") }

// State asks for the trigger's state.
func (d *dialect) State(l *scope.Link) scope.State {
	return scpi.Answer(l, ":TRIG:STAT?", parseState).Settled(d.Triggered)
}

// states are the answers to :TRIG:STAT?, in lower case.
var states = map[string]scope.State{
	"stop": scope.Stopped, "fstop": scope.Stopped, "ready": scope.Waiting, "arm": scope.Arming,
	"trig'd": scope.Sampling, "auto": scope.Free, "roll": scope.Free,
}

// parseState reads the answer to :TRIG:STAT?. Trig'd is taken for a recording: whether the scope
// runs freely the Dialect knows.
func parseState(s string) (scope.State, error) {
	if v, ok := states[strings.ToLower(strings.TrimSpace(s))]; ok {
		return v, nil
	}
	return 0, fmt.Errorf("%w: :TRIG:STAT? gives %.40q", scpi.ErrReply, s)
}

// Held is the number of points of the recording.
func (*dialect) Held(l *scope.Link, _ int) (points int, exact bool) {
	return scpi.Answer(l, ":ACQ:POIN?", parsePoints), true
}

// Read reads a piece.
func (d *dialect) Read(l *scope.Link, channel, first, n int, dst []byte) []byte {
	d.from(l, channel)
	l.Send(fmt.Sprintf(":WAV:STAR %d", first), fmt.Sprintf(":WAV:POIN %d", n))
	out := l.Block(":WAV:DATA?", n*d.size, dst)
	if d.size == 2 {
		extend(out[len(dst):], d.bits)
	}
	return out
}

// ladders are the depths of one channel of each series where both channels of a
// pair are in use. Sources: :ACQuire:MDEPth in the programming guide for the
// SDS2000X Plus and SDS5000X, public drivers for the others.
var ladders = map[string][]int{
	"SDS1000X": {10_000, 100_000, 1_000_000, 10_000_000},
	"SDS2000X": {10_000, 100_000, 1_000_000, 10_000_000, 100_000_000},
	"SDS3000X": {
		1000, 5000, 10_000, 50_000, 100_000, 500_000, 1_000_000, 5_000_000, 10_000_000, 50_000_000, 100_000_000,
	},
	"SDS5000X": {5000, 25_000, 125_000, 625_000, 1_250_000, 6_250_000, 12_500_000, 62_500_000, 125_000_000},
	"SDS6000A": {
		2500, 5000, 25_000, 50_000, 250_000, 500_000, 2_500_000, 5_000_000, 12_500_000, 25_000_000, 50_000_000, 125_000_000,
	},
}

// depths are those of a model, or of all. One channel alone has a converter for
// itself, and on most twice as much memory.
func depths(m scope.Model, used int) (out []int) {
	for series, ladder := range ladders {
		if m.Series != "" && series != m.Series {
			continue
		}
		for _, d := range ladder {
			if used == 1 && series != "SDS6000A" && series != "SDS1000X" {
				d *= 2
			}
			out = append(out, d)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// parsePoints reads one: 10M, 1.25Mpts, 1.00E+07, 10000000.
func parsePoints(s string) (int, error) {
	t := strings.ToUpper(strings.TrimSpace(s))
	t = strings.TrimSuffix(strings.TrimSuffix(t, "PTS"), "PT")
	scale := 1.0
	for _, u := range scope.Prefixes {
		if rest, ok := strings.CutSuffix(t, strings.ToUpper(u.Name)); ok {
			t, scale = rest, u.Value
			break
		}
	}
	v, err := scpi.ParseNumber(t)
	if err != nil || !(v >= 0 && v*scale <= math.MaxInt32) {
		return 0, fmt.Errorf("%w: %.40q is no number of points", scpi.ErrReply, s)
	}
	return int(math.Round(v * scale)), nil
}

// descriptorSize is the length of the reply to :WAVeform:PREamble?.
const descriptorSize = 346

// Where the fields lie in a descriptor, in bytes; little-endian. The layout is
// LeCroy's WAVEDESC with the maker's own fields in its reserved places
// (programming guide EN11, :WAVeform:PREamble).
const (
	atCommType = 32  // i16: 0 bytes, 1 words
	atLength   = 36  // i32: of the descriptor
	atPoints   = 116 // i32: of the waveform
	atVolts    = 156 // f32: V a division at the input
	atOffset   = 160 // f32: V at the input
	atCodes    = 164 // f32: codes a division
	atBits     = 172 // i16: of the converter
	atInterval = 176 // f32: s between points
	atProbe    = 328 // f32: ratio
)

// descriptor describes a channel's waveform.
type descriptor struct {
	points  int
	volts   float64 // a division, at the probe's tip
	offset  float64 // at the probe's tip
	codes   float64 // a division, of the width that is sent
	adc     int     // bits of the converter
	bits    int     // that a code has, of the width that is sent
	size    int     // bytes of a code that is sent
	seconds float64 // between points
	probe   float64
}

// gain is volts a code: V = code · gain − offset.
func (d descriptor) gain() float64 { return d.volts / d.codes }

// narrowest is the fewest divisions that the codes of a scope span. Of a scope
// with 8 bits no more than 64 codes can be one division, then.
const narrowest = 4

// parseDescriptor reads the 346 bytes of a descriptor. It refuses fields that
// cannot scale a waveform.
func parseDescriptor(b []byte) (descriptor, error) {
	if len(b) != descriptorSize {
		return descriptor{}, fmt.Errorf("%w: a waveform descriptor of %d bytes, want %d: does this scope know the "+
			"E11 commands?", scpi.ErrReply, len(b), descriptorSize)
	}
	if !bytes.HasPrefix(b, []byte("WAVEDESC")) {
		return descriptor{}, fmt.Errorf("%w: a waveform descriptor that begins with %q, not WAVEDESC", scpi.ErrReply, b[:8])
	}
	le := binary.LittleEndian
	single := func(at int) float64 { return float64(math.Float32frombits(le.Uint32(b[at:]))) }
	d := descriptor{
		points: int(int32(le.Uint32(b[atPoints:]))), probe: single(atProbe), codes: single(atCodes),
		adc: int(le.Uint16(b[atBits:])), size: 1, seconds: single(atInterval),
	}
	if le.Uint16(b[atCommType:]) == 1 {
		d.size = 2
	}
	d.volts, d.offset = single(atVolts)*d.probe, single(atOffset)*d.probe
	for _, f := range []struct {
		name     string
		v        float64
		positive bool
	}{
		{"volts a division", d.volts, true},
		{"codes a division", d.codes, true},
		{"interval", d.seconds, true},
		{"probe", d.probe, true},
		{"offset", d.offset, false},
	} {
		if !measure.Known(f.v) || f.positive && f.v <= 0 {
			return descriptor{}, fmt.Errorf("%w: a waveform descriptor whose %s is %v", scpi.ErrReply, f.name, f.v)
		}
	}
	if n := int(int32(le.Uint32(b[atLength:]))); n != descriptorSize {
		return descriptor{}, fmt.Errorf("%w: a waveform descriptor that calls itself %d bytes long", scpi.ErrReply, n)
	}
	if d.points < 0 || d.adc < 8 || d.adc > 16 {
		return descriptor{}, fmt.Errorf("%w: a waveform descriptor of %d points with %d bits", scpi.ErrReply, d.points,
			d.adc)
	}
	return d.aligned()
}

// aligned finds out how many of the bits sent are a code. Words carry the
// converter's bits at their top or at their bottom; the codes a division show
// which. Some scopes state those of words where bytes are sent.
func (d descriptor) aligned() (descriptor, error) {
	most := func(bits int) float64 { return math.Ldexp(1, bits) / narrowest }
	d.bits = d.adc
	switch {
	case d.size == 1 && d.codes > most(8):
		d.bits, d.codes = 8, d.codes/256
	case d.size == 1:
		d.bits = 8
	case d.codes > most(d.bits):
		d.bits = 16
	}
	if d.codes > most(d.bits) || d.codes < 1 {
		return descriptor{}, fmt.Errorf("%w: a waveform descriptor of %v codes a division with %d bits", scpi.ErrReply,
			d.codes, d.bits)
	}
	return d, nil
}

// quantum is how many codes a step of the converter is wide.
func (d descriptor) quantum() float64 { return math.Ldexp(1, max(0, d.bits-d.adc)) }

// extend carries the sign of words that have fewer bits than 16 to their top.
func extend(words []byte, bits int) {
	if bits >= 16 {
		return
	}
	shift := 16 - bits
	for ; len(words) >= 2; words = words[2:] {
		v := int16(binary.LittleEndian.Uint16(words)<<shift) >> shift
		binary.LittleEndian.PutUint16(words, uint16(v))
	}
}

package tektronix

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/wattmark/wattmark/monitor/emulator/scope"
	"github.com/wattmark/wattmark/monitor/emulator/scpi"
)

// transfer holds the settings of DATa.
type transfer struct {
	source      int
	encoding    string
	width       int
	start, stop int
}

// errNotActive is the answer of a channel without a record.
var errNotActive = &scpi.Error{Code: 2244, Text: "Source waveform is not active"}

// waveCommands choose source, encoding and points of a transfer, and give the record, the preamble and
// each of its fields.
func (f *Face) waveCommands() []scpi.Command {
	field := func(pattern string, get func(p shape) string) scpi.Command {
		return scpi.Command{Pattern: pattern, Query: func(scpi.Call) ([]byte, error) {
			if !f.active() {
				return nil, errNotActive
			}
			return []byte(get(f.shape())), nil
		}}
	}
	d := &f.data
	return []scpi.Command{
		f.SourceOf("DATa:SOUrce", "CH", &d.source),
		scpi.Choice("DATa:ENCdg", &d.encoding, "ASCIi", "RIBinary", "RPBinary", "SRIbinary", "SRPbinary"),
		scpi.Whole("DATa:WIDth", &d.width, 1, 2), scpi.Whole("DATa:STARt", &d.start, 1, math.MaxInt32),
		scpi.Whole("DATa:STOP", &d.stop, 1, math.MaxInt32),
		{Pattern: "CURVe", Query: func(scpi.Call) ([]byte, error) { return f.curve() }},
		{Pattern: "WFMOutpre", Query: func(scpi.Call) ([]byte, error) { return f.preamble(), nil }},
		field("WFMOutpre:NR_Pt", func(p shape) string { return fmt.Sprint(p.points) }),
		field("WFMOutpre:XINcr", func(p shape) string { return thousands(p.step) }),
		field("WFMOutpre:XZEro", func(p shape) string { return thousands(p.xZero) }),
		field("WFMOutpre:YMUlt", func(p shape) string { return thousands(p.gain) }),
		field("WFMOutpre:YOFf", func(p shape) string { return thousands(p.offset) }),
		field("WFMOutpre:YZEro", func(p shape) string { return thousands(p.zero) }),
	}
}

// active reports whether the source has a record to transfer. Of one that was
// stopped before its end the manuals give no account; here there is none.
func (f *Face) active() bool { return f.Channel[f.data.source].Shown && (f.Running() || f.whole()) }

// shape is how the source's points are transferred.
type shape struct {
	points             int
	step, xZero        float64
	gain, offset, zero float64 // V = (code − offset)·gain + zero
}

// shape computes the preamble: points, their distance in s, and the scale of the codes in V.
func (f *Face) shape() shape {
	in, v := &f.Channel[f.data.source], f.Memory()
	p := shape{
		points: max(0, min(f.data.stop, v.Points)-f.data.start+1), step: v.Step * 1e-9, xZero: f.Delay(),
		gain: f.Increment(f.data.source) * f.unit(), zero: in.Offset,
	}
	if f.family.series { // position and offset are reported as one
		p.zero -= in.Position * in.Scale
	} else {
		p.offset = in.Position * perDiv / f.unit()
	}
	return p
}

// unit is how many codes of two bytes make one of those that are sent.
func (f *Face) unit() float64 {
	if f.data.width == 1 {
		return 256
	}
	return 1
}

// preamble is the answer to WFMOutpre?. A source without a record has only the fields of the transfer.
func (f *Face) preamble() []byte {
	enc, order, sign := "BINARY", "MSB", "RI"
	if strings.HasPrefix(f.data.encoding, "ASC") {
		enc = "ASCII"
	}
	if strings.HasPrefix(f.data.encoding, "S") {
		order = "LSB"
	}
	if strings.Contains(f.data.encoding, "RP") {
		sign = "RP"
	}
	head := []string{strconv.Itoa(f.data.width), strconv.Itoa(8 * f.data.width), enc, sign}
	if f.family.series {
		head = append(head, "INTEGER")
	}
	head = append(head, order)
	if f.active() { // the fields behind the byte order
		p, ch := f.shape(), f.Channel[f.data.source]
		if !f.family.noID {
			head = append(head, fmt.Sprintf("\"Ch%d, %s coupling, %.4gV/div, %.4gs/div, %d points, Sample mode\"",
				f.data.source+1, ch.Coupling, ch.Scale, f.Window()/divisions, f.depth))
		}
		head = append(head, strconv.Itoa(p.points), "Y", "LINEAR", `"s"`, thousands(p.step), thousands(p.xZero), "0",
			`"V"`, thousands(p.gain), thousands(p.offset), thousands(p.zero), "TIME", "ANALOG", "0.0E+0", "0.0E+0",
			"0.0E+0")
		if f.family.series {
			head = append(head, "1")
		}
	}
	return []byte(f.named(head))
}

// named puts the fields' names before them where headers are on.
func (f *Face) named(values []string) string {
	if !f.header {
		return strings.Join(values, ";")
	}
	names := strings.Fields("BYT_NR BIT_NR ENCDG BN_FMT ASC_FMT BYT_OR WFID NR_PT PT_FMT PT_ORDER XUNIT XINCR XZERO " +
		"PT_OFF YUNIT YMULT YOFF YZERO DOMAIN WFMTYPE CENTERFREQUENCY SPAN REFLEVEL NR_FR")
	if !f.family.series {
		names = append(names[:4:4], names[5:]...)
	}
	if f.family.noID {
		names = append(names[:6:6], names[7:]...)
	}
	for i := range values {
		values[i] = names[i] + " " + values[i]
	}
	return strings.Join(values, ";")
}

// curve is the answer to CURVe?: the points from DATa:STARt to DATa:STOP.
func (f *Face) curve() ([]byte, error) {
	d := &f.data
	if !f.active() {
		return nil, errNotActive
	}
	v, n := f.Memory(), f.shape().points
	out, flip := make([]byte, 0, n*d.width), uint16(0)
	if strings.Contains(d.encoding, "RP") { // counted from the lowest
		flip = 0x8000
	}
	text, little := strings.HasPrefix(d.encoding, "ASC"), strings.HasPrefix(d.encoding, "S")
	f.Each(d.source, d.start-1, n, v, func(codes []int32) {
		if text {
			out = scope.Listed(out, codes, func(c int32) string { return strconv.Itoa(int(c) >> (16 - 8*d.width)) })
		} else {
			out = scope.Coded(out, codes, d.width, little, func(c int32) uint32 { return uint32(uint16(c)^flip) << 16 })
		}
	})
	if text {
		return out, nil
	}
	return scpi.Block(0, out), nil
}

// probe is the probe's gain: 0.1 of one that divides by ten.
func (f *Face) probe(pattern string) scpi.Command {
	return f.Value(pattern, func(c *channel) float64 { return 1 / c.Ratio }, func(c *channel, v float64) error {
		return c.SetRatio(1/v, 1e-4, 1e4)
	})
}

// inputCommands set the channels.
func (f *Face) inputCommands() []scpi.Command {
	return []scpi.Command{
		f.Value("CH<n>:SCAle", func(c *channel) float64 { return c.Scale }, func(c *channel, v float64) error {
			return scpi.Put(&c.Scale, v, 1e-3*c.Ratio*0.999, 10*c.Ratio*1.001)
		}),
		f.Value("CH<n>:OFFSet", func(c *channel) float64 { return c.Offset }, func(c *channel, v float64) error {
			most := c.Reach(0.051, 1, 1.01, 50, 100) // 10 V below 0.1 V a division on some
			return scpi.Put(&c.Offset, v, -most, most)
		}),
		f.Value("CH<n>:POSition", func(c *channel) float64 { return c.Position }, func(c *channel, v float64) error {
			return scpi.Put(&c.Position, v, -8, 8)
		}),
		f.Keep("CH<n>:COUPling", func(ch *channel) *string { return &ch.Coupling }, "DC", "AC"),
		f.Keep("CH<n>:INVert", func(ch *channel) *string { return &ch.Invert }, "OFF", "0"),
		f.Keep("CH<n>:BANdwidth", func(ch *channel) *string { return &ch.Limit }, "FULl", "TWEnty"),
	}
}

// states are the answers to TRIGger:STATE?, in their long and short form.
var states = map[scope.State][2]string{
	scope.Stopped: {"SAVE", "SAV"}, scope.Waiting: {"READY", "REA"}, scope.Sampling: {"TRIGGER", "TRIG"},
	scope.Free: {"AUTO", "AUTO"}, scope.Triggered: {"TRIGGER", "TRIG"},
}

// triggerCommands set mode and edge of the trigger and force it.
func (f *Face) triggerCommands() []scpi.Command {
	t := &f.Trig
	return []scpi.Command{
		{Pattern: "TRIGger", Set: scpi.Do(scpi.OneOf("FORCe"), func(string) { f.Force() })},
		scpi.Asked("TRIGger:STATE", func() string {
			forms := states[f.State()]
			if f.verbose {
				return forms[0]
			}
			return forms[1]
		}),
		scpi.Sole("TRIGger:A:TYPe", "EDGE"),
		scpi.Choice("TRIGger:A:MODe", &t.Sweep, "AUTO", "NORMal"),
		f.SourceOf("TRIGger:A:EDGE:SOUrce", "CH", &t.Source),
		f.Slope("TRIGger:A:EDGE:SLOpe", strings.ToUpper, "RISe", "FALL", "EITher"),
		scpi.Choice("TRIGger:A:EDGE:COUPling", &t.Coupling, "DC", "AC", "HFRej", "LFRej", "NOISErej"),
		f.Value("TRIGger:A:LEVel:CH<n>", func(*channel) float64 { return t.Level }, func(c *channel, v float64) error {
			return scpi.Put(&t.Level, v, -8*c.Scale-c.Shift, 8*c.Scale-c.Shift)
		}),
	}
}

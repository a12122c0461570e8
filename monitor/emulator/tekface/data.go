package tekface

import (
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
	"strings"

	"wattmark/monitor/emulator/scopeface"
	"wattmark/monitor/emulator/scpiface"
)

// transfer is what DATa is set to.
type transfer struct {
	source      int
	encoding    string
	width       int
	start, stop int
}

// errNotActive is what a channel without a record answers.
var errNotActive = &scpiface.Error{Code: 2244, Text: "Source waveform is not active"}

func (f *Face) dataCommands() []command {
	d := &f.data
	whole := func(pattern string, at *int, most float64) command {
		return command{Pattern: pattern, Set: scopeface.Set(func(v float64) error {
			if !(v >= 1 && v <= most) {
				return scpiface.ErrRange
			}
			*at = int(v)
			return nil
		}), Query: func(call) ([]byte, error) { return scpiface.Text("%d", *at) }}
	}
	return []command{
		{Pattern: "DATa:SOUrce", Set: f.Source(&d.source, "CH"), Query: func(call) ([]byte, error) { return scpiface.Text("CH%d", d.source+1) }},
		{
			Pattern: "DATa:ENCdg", Set: scopeface.Word(&d.encoding, "ASCIi", "RIBinary", "RPBinary", "SRIbinary", "SRPbinary"),
			Query: scopeface.Text(&d.encoding),
		},
		whole("DATa:WIDth", &d.width, 2), whole("DATa:STARt", &d.start, math.MaxInt32), whole("DATa:STOP", &d.stop, math.MaxInt32),
		{Pattern: "CURVe", Query: func(call) ([]byte, error) { return f.curve() }},
	}
}

func (f *Face) preambleCommands() []command {
	told := func(pattern string, get func(p shape) string) command {
		return command{Pattern: pattern, Query: func(call) ([]byte, error) {
			if !f.active() {
				return nil, errNotActive
			}
			return []byte(get(f.shape())), nil
		}}
	}
	return []command{
		{Pattern: "WFMOutpre", Query: func(call) ([]byte, error) { return f.preamble(), nil }},
		told("WFMOutpre:NR_Pt", func(p shape) string { return fmt.Sprint(p.points) }),
		told("WFMOutpre:XINcr", func(p shape) string { return thousands(p.step) }),
		told("WFMOutpre:XZEro", func(p shape) string { return thousands(p.xZero) }),
		told("WFMOutpre:YMUlt", func(p shape) string { return thousands(p.gain) }),
		told("WFMOutpre:YOFf", func(p shape) string { return thousands(p.offset) }),
		told("WFMOutpre:YZEro", func(p shape) string { return thousands(p.zero) }),
	}
}

// active tells whether the source has a record to transfer. Of one that was
// stopped before its end the manuals say nothing; here there is none.
func (f *Face) active() bool { return f.Channel[f.data.source].Shown && (f.Running() || f.whole()) }

// shape is how the source's points are transferred.
type shape struct {
	points             int
	step, xZero        float64
	gain, offset, zero float64 // V = (code − offset)·gain + zero
}

func (f *Face) shape() shape {
	in, v := f.inputs[f.data.source], f.Memory()
	p := shape{
		points: max(0, min(f.data.stop, v.Points)-f.data.start+1), step: v.Step * 1e-9, xZero: f.Delay(),
		gain: f.Increment(f.data.source) * f.unit(), zero: in.offset,
	}
	if f.family.series { // position and offset are told as one
		p.zero -= in.position * f.Channel[f.data.source].Scale
	} else {
		p.offset = in.position * perDiv / f.unit()
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

// preamble is the answer to WFMOutpre?. A source without a record has only what
// concerns the transfer.
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
	if f.active() {
		head = append(head, f.described()...)
	}
	return []byte(f.named(head))
}

// described are the fields of a preamble behind the byte order.
func (f *Face) described() (out []string) {
	p, ch := f.shape(), f.Channel[f.data.source]
	if !f.family.noID {
		out = append(out, fmt.Sprintf("\"Ch%d, %s coupling, %.4gV/div, %.4gs/div, %d points, Sample mode\"",
			f.data.source+1, ch.Coupling, ch.Scale, f.Window()/divisions, f.depth))
	}
	out = append(
		out, strconv.Itoa(p.points), "Y", "LINEAR", `"s"`, thousands(p.step), thousands(p.xZero), "0",
		`"V"`, thousands(p.gain), thousands(p.offset), thousands(p.zero), "TIME", "ANALOG", "0.0E+0", "0.0E+0", "0.0E+0",
	)
	if f.family.series {
		out = append(out, "1")
	}
	return out
}

// named puts the fields' names before them where headers are on.
func (f *Face) named(values []string) string {
	if !f.header {
		return strings.Join(values, ";")
	}
	names := strings.Fields("BYT_NR BIT_NR ENCDG BN_FMT ASC_FMT BYT_OR WFID NR_PT PT_FMT PT_ORDER XUNIT XINCR XZERO PT_OFF YUNIT YMULT YOFF YZERO DOMAIN WFMTYPE CENTERFREQUENCY SPAN REFLEVEL NR_FR")
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
	if strings.HasPrefix(d.encoding, "ASC") {
		all := make([]string, 0, n)
		f.Each(d.source, d.start-1, n, v, func(codes []int32) {
			for _, c := range codes {
				all = append(all, strconv.Itoa(int(c)>>(16-8*d.width)))
			}
		})
		return []byte(strings.Join(all, ",")), nil
	}
	out := make([]byte, 0, n*d.width)
	f.Each(d.source, d.start-1, n, v, func(codes []int32) { out = d.encode(out, codes) })
	return scpiface.Block(len(strconv.Itoa(len(out))), out), nil
}

// encode appends codes in binary form.
func (d *transfer) encode(out []byte, codes []int32) []byte {
	var flip uint16
	if strings.Contains(d.encoding, "RP") { // counted from the lowest
		flip = 0x8000
	}
	for _, c := range codes {
		w := uint16(c) ^ flip
		switch {
		case d.width == 1:
			out = append(out, byte(w>>8))
		case strings.HasPrefix(d.encoding, "S"):
			out = binary.LittleEndian.AppendUint16(out, w)
		default:
			out = binary.BigEndian.AppendUint16(out, w)
		}
	}
	return out
}

package siglent

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/wattmark/wattmark/monitor/emulator/scpi"
)

// waveform holds the settings of :WAV.
type waveform struct {
	source                 int
	width                  string
	start, point, interval int
}

// waveCommands choose source, width and points of a download, and give descriptor and data.
func (f *Face) waveCommands() []command {
	const most = 1e9 // of points
	w := &f.wav
	return []command{
		f.SourceOf("WAVeform:SOURce", "C", &w.source),
		scpi.Choice("WAVeform:WIDTh", &w.width, "BYTE", "WORD"),
		scpi.Whole("WAVeform:STARt", &w.start, 0, most), scpi.Whole("WAVeform:POINt", &w.point, 0, most),
		scpi.Whole("WAVeform:INTerval", &w.interval, 0, most),
		scpi.Asked("WAVeform:MAXPoint", func() string { return fmt.Sprint(f.maxPoints()) }),
		{Pattern: "WAVeform:PREamble", Query: func(call) ([]byte, error) { return f.block(f.descriptor()), nil }},
		{Pattern: "WAVeform:DATA", Query: func(call) ([]byte, error) { return f.data() }},
	}
}

// bytes of a code.
func (f *Face) bytes() int { return map[string]int{"BYTE": 1, "WORD": 2}[f.wav.width] }

// maxPoints is the most points of one read.
func (f *Face) maxPoints() int { return f.family.maxRead / f.bytes() }

// readable is the points that can be read: none of a recording that was stopped
// before memory was full, which the manual does not describe.
func (f *Face) readable() int {
	if v := f.Memory(); v.Points == f.Depth() {
		return v.Points
	}
	return 0
}

// block makes a block; this maker ends it with two line feeds.
func (f *Face) block(data []byte) []byte {
	digits := f.family.digits
	if digits == 0 {
		digits = len(fmt.Sprint(len(data)))
	}
	return append(scpi.Block(digits, data), '\n')
}

// codesPerDiv are those that the descriptor states.
func (f *Face) codesPerDiv() float64 {
	switch {
	case f.wav.width == "WORD" && f.family.low:
		return perDiv / math.Ldexp(1, 16-f.family.bits)
	case f.wav.width == "WORD", f.family.wordCodes:
		return perDiv
	}
	return perDiv / 256
}

// descriptor is the answer to :WAV:PRE?: LeCroy's WAVEDESC, of which this maker
// fills a part. Volts are those at the input, in front of them the probe.
func (f *Face) descriptor() []byte {
	b := make([]byte, 346)
	copy(b[0:], "WAVEDESC")
	copy(b[16:], "WAVEACE")
	copy(b[76:], "Siglent SDS")
	ch, v, le := f.Channel[f.wav.source], f.Memory(), binary.LittleEndian
	word := func(at, v int) { le.PutUint16(b[at:], uint16(v)) }
	long := func(at, v int) { le.PutUint32(b[at:], uint32(v)) }
	single := func(at int, v float64) { le.PutUint32(b[at:], math.Float32bits(float32(v))) }
	word(32, f.bytes()-1)
	long(36, len(b))
	long(60, f.readable()*f.bytes())
	long(116, f.readable())
	long(132, f.wav.start)
	long(136, f.wav.interval)
	single(156, ch.Scale/ch.Ratio)
	single(160, ch.Shift/ch.Ratio)
	single(164, f.codesPerDiv())
	word(172, f.family.bits)
	single(176, v.Step*1e-9)
	le.PutUint64(b[180:], math.Float64bits(f.delay))
	single(328, ch.Ratio)
	word(344, f.wav.source)
	return b
}

// data is the answer to :WAV:DATA?: :WAV:POIN points (all where it is 0) behind
// :WAV:STAR, no more than :WAV:MAXP at a time and than there are.
func (f *Face) data() ([]byte, error) {
	w := &f.wav
	v := f.Memory()
	n := f.readable() - w.start
	if w.point > 0 {
		n = min(n, w.point)
	}
	n = min(n, f.maxPoints())
	if f.Running() || !f.Channel[w.source].Shown || n <= 0 || w.interval > 1 {
		return f.block(nil), nil
	}
	out := make([]byte, 0, n*f.bytes())
	f.Each(w.source, w.start, n, v, func(codes []int32) {
		for _, c := range codes {
			switch {
			case w.width == "BYTE":
				out = append(out, byte(c>>8))
			case f.family.low:
				out = binary.LittleEndian.AppendUint16(out, uint16(c)>>(16-f.family.bits))
			default:
				out = binary.LittleEndian.AppendUint16(out, uint16(c))
			}
		}
	})
	return f.block(out), nil
}

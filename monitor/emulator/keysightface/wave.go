package keysightface

import (
	"encoding/binary"
	"fmt"
	"slices"

	"wattmark/monitor/emulator/scopeface"
	"wattmark/monitor/emulator/scpiface"
)

// waveform is what :WAV is set to.
type waveform struct {
	source              int
	mode, format, order string
	unsigned            bool
	points              int
	codes               []int32
}

// screenMost is the most points of a measurement record, in mode NORMal.
const screenMost = 62_500

// steps are the numbers of points that can be asked for, beside all there are.
var steps = []int{100, 250, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000, 62_500, 100_000, 200_000, 500_000, 1_000_000, 2_000_000}

func (f *Face) waveCommands() []command {
	w := &f.wav
	return []command{
		{
			Pattern: "WAVeform:SOURce", Set: f.setSource,
			Query: func(call) ([]byte, error) { return scpiface.Text("CHAN%d", w.source+1) },
		},
		{Pattern: "WAVeform:FORMat", Set: scopeface.Word(&w.format, "BYTE", "WORD", "ASCii"), Query: scopeface.Text(&w.format)},
		{Pattern: "WAVeform:BYTeorder", Set: scopeface.Word(&w.order, "MSBFirst", "LSBFirst"), Query: scopeface.Text(&w.order)},
		{Pattern: "WAVeform:UNSigned", Set: func(c call) (err error) {
			v, err := c.Bool(0)
			if err == nil {
				w.unsigned = v
			}
			return err
		}, Query: scopeface.Told(func() string { return scopeface.Flag(w.unsigned) })},
		{Pattern: "WAVeform:POINts:MODE", Set: scopeface.Word(&w.mode, "NORMal", "MAXimum", "RAW"), Query: scopeface.Text(&w.mode)},
		{Pattern: "WAVeform:POINts", Set: f.setPoints, Query: scopeface.Told(func() string { return fmt.Sprintf("%+d", f.view().Points) })},
		{Pattern: "WAVeform:PREamble", Query: func(call) ([]byte, error) { return f.preamble() }},
		{Pattern: "WAVeform:DATA", Query: func(call) ([]byte, error) { return f.data() }},
		{Pattern: "WAVeform:TYPE", Query: scopeface.Text(&f.acqType)},
	}
}

// setSource also puts the channel on the screen.
func (f *Face) setSource(c call) error {
	err := f.Source(&f.wav.source, "CHANnel")(c)
	if err == nil {
		f.Channel[f.wav.source].Shown = true
	}
	return err
}

// setPoints takes a number of the table; MAX takes all and sets that mode.
func (f *Face) setPoints(c call) error {
	if w, err := c.Word(0, "MAXimum"); err == nil && w == "MAX" {
		f.wav.points, f.wav.mode = steps[len(steps)-1], "MAX"
		return nil
	}
	v, err := c.Number(0)
	if err == nil && !slices.Contains(steps, int(v)) {
		err = scpiface.ErrRange
	}
	if err == nil {
		f.wav.points = int(v)
	}
	return err
}

// view is the points that would be sent now. Deep memory that has more than are
// wanted gives every second, third, … point.
func (f *Face) view() scopeface.View {
	running := f.Running()
	if f.wav.mode == "NORM" || f.wav.mode == "MAX" && running {
		return f.Screen(min(f.wav.points, screenMost, max(1, f.Points())))
	}
	depth, step := f.Depth(), f.Memory().Step
	every := max(1, (depth+f.wav.points-1)/f.wav.points)
	return scopeface.View{Points: depth / every, Step: step * float64(every)}
}

// taken is how many points of a view were really taken.
func (f *Face) taken(v scopeface.View) int {
	if f.Running() {
		return v.Points
	}
	m := f.Memory()
	return min(v.Points, int(float64(m.Points)*m.Step/v.Step+1e-6))
}

// preamble is the answer to :WAV:PRE?.
func (f *Face) preamble() ([]byte, error) {
	f.preambles++
	if f.cfg.Flaky > 0 && f.preambles%f.cfg.Flaky == 0 {
		return scpiface.Text("+0")
	}
	format := map[string]int{"BYTE": 0, "WORD": 1, "ASC": 4}[f.wav.format]
	kind := map[string]int{"NORM": 0, "PEAK": 1, "AVER": 2, "HRES": 3}[f.acqType]
	v, unit, reference := f.view(), 1.0, middle
	switch {
	case f.wav.format == "WORD":
		unit = 256
	}
	reference *= int(unit)
	if !f.wav.unsigned {
		reference = 0
	}
	return scpiface.Text("%+d,%+d,%+d,+1,%s,%s,+0,%s,%s,%+d", format, kind, v.Points, exact(v.Step*1e-9), exact(f.Delay()),
		exact(f.Increment(f.wav.source)/unit), exact(-f.Channel[f.wav.source].Shift), reference)
}

// data is the answer to :WAV:DATA?. What it cannot give is an empty block.
func (f *Face) data() ([]byte, error) {
	v, w := f.view(), &f.wav
	if w.mode == "RAW" && f.Running() {
		return scpiface.Block(8, nil), scpiface.ErrConflict
	}
	w.codes = f.Codes(w.codes[:0], w.source, 0, f.taken(v), v)
	for len(w.codes) < v.Points {
		w.codes = append(w.codes, hole)
	}
	return scpiface.Block(8, f.encode(w.codes)), nil
}

func (f *Face) encode(codes []int32) (out []byte) {
	w, zero := &f.wav, int32(0)
	if !w.unsigned {
		zero = middle
	}
	inc, shift := f.Increment(w.source), f.Channel[w.source].Shift
	for i, c := range codes {
		switch {
		case w.format == "ASC":
			if i > 0 {
				out = append(out, ',')
			}
			out = fmt.Appendf(out, "%+.6E", float64(c-middle)*inc-shift)
		case w.format == "BYTE":
			out = append(out, byte(c-zero))
		case w.order == "LSBF":
			out = binary.LittleEndian.AppendUint16(out, uint16((c-zero)<<8))
		default:
			out = binary.BigEndian.AppendUint16(out, uint16((c-zero)<<8))
		}
	}
	return out
}

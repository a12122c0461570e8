package rigol

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/wattmark/wattmark/monitor/emulator/scope"
	"github.com/wattmark/wattmark/monitor/emulator/scpi"
)

// waveform holds the settings of :WAV.
type waveform struct {
	source       int
	mode, format string
	start, stop  int
	// fresh: mode and format were set since the last acquisition settled.
	fresh [2]bool
	codes []int32
}

// waveCommands choose source, mode, form and the points of a download, and give preamble and data.
func (f *Face) waveCommands() []command {
	w, most := &f.wav, float64(slices.Max(f.family.depths(1)))
	return []command{
		f.SourceOf("WAVeform:SOURce", "CHANnel", &w.source),
		{
			Pattern: "WAVeform:MODE", Set: f.refresh(0, scpi.Word(&w.mode, "NORMal", "MAXimum", "RAW")),
			Query: scpi.Show("%s", &w.mode),
		},
		{
			Pattern: "WAVeform:FORMat", Set: f.refresh(1, scpi.Word(&w.format, "BYTE", "WORD", "ASCii")),
			Query: scpi.Show("%s", &w.format),
		},
		scpi.Whole("WAVeform:STARt", &w.start, 1, most), scpi.Whole("WAVeform:STOP", &w.stop, 1, most),
		{Pattern: "WAVeform:PREamble", Query: func(call) ([]byte, error) { return f.preamble() }},
		{Pattern: "WAVeform:DATA", Query: func(call) ([]byte, error) { return f.data() }},
		scpi.Asked("WAVeform:XINCrement", func() string { return exact(f.view().Step * 1e-9) }),
		scpi.Asked("WAVeform:YINCrement", func() string { inc, _ := f.scaling(); return exact(inc) }),
		scpi.Asked("WAVeform:YORigin", func() string { _, origin := f.scaling(); return fmt.Sprint(origin) }),
		scpi.Asked("WAVeform:YREFerence", func() string { return fmt.Sprint(f.reference()) }),
	}
}

// refresh notes a setting that the reader wants to hear again behind an
// acquisition, once that has settled.
func (f *Face) refresh(which int, set func(call) error) func(call) error {
	return func(c call) error {
		f.wav.fresh[which] = !f.Running() && f.Since() >= f.family.settle
		return set(c)
	}
}

// view is the points that can be read now.
func (f *Face) view() scope.View {
	if f.wav.mode == "NORM" || (f.wav.mode == "MAX" && f.Running()) {
		return f.Screen(f.family.screen)
	}
	return f.Memory()
}

// unit is how many of the converter's codes make one of those reported.
func (f *Face) unit() float64 {
	if f.family.words && f.wav.format != "WORD" {
		return 256
	}
	return 1
}

// reference is the code of the screen's middle, in the unit of the codes sent.
func (f *Face) reference() int { return int(f.Middle / f.unit()) }

// scaling turns the source's codes into volts.
func (f *Face) scaling() (inc float64, origin int) {
	inc = f.Increment(f.wav.source) * f.unit()
	return inc, int(math.Round(f.Channel[f.wav.source].Shift / inc))
}

// preamble is the answer to :WAV:PRE?.
func (f *Face) preamble() ([]byte, error) {
	format := map[string]int{"BYTE": 0, "WORD": 1, "ASC": 2}[f.wav.format]
	kind := map[string]int{"NORM": 0, "MAX": 1, "RAW": 2}[f.wav.mode]
	v := f.view()
	points := v.Points
	if f.family.pages {
		points = max(0, f.wav.stop-f.wav.start+1)
	}
	inc, origin := f.scaling()
	return scpi.Text("%d,%d,%d,1,%s,%s,0,%s,%d,%d", format, kind, points, exact(v.Step*1e-9), exact(f.Delay()),
		exact(inc), origin, f.reference())
}

// exact writes a number with all the digits that it has.
func exact(v float64) string { return fmt.Sprintf("%.9e", v) }

// data is the answer to :WAV:DATA?: the points from :WAV:STAR to :WAV:STOP.
// Deep memory is readable only while the scope stands; a read that cannot be
// gives an empty block.
func (f *Face) data() ([]byte, error) {
	v, w := f.view(), &f.wav
	first, n := w.start-1, w.stop-w.start+1
	most := f.family.maxRead / map[string]int{"BYTE": 1, "WORD": 2, "ASC": 16}[w.format]
	hasty := f.family.settle > 0 && (f.Since() < f.family.settle || w.fresh != [2]bool{true, true})
	if w.mode != "NORM" && (f.Running() || hasty) || !f.Channel[w.source].Shown {
		return scpi.Block(9, nil), nil
	}
	limit := v.Points
	if f.family.pages && w.mode != "NORM" {
		limit = f.Depth()
	}
	if n < 1 || n > most || first+n > limit {
		return scpi.Block(9, nil), scpi.ErrRange
	}
	w.codes = f.Codes(w.codes[:0], w.source, first, max(0, min(n, v.Points-first)), v)
	for len(w.codes) < n { // never filled
		w.codes = append(w.codes, int32(f.Middle))
	}
	return scpi.Block(9, f.encode(w.codes)), nil
}

// encode writes codes as :WAV:FORM asks for: a byte, a word, or text in volts.
func (f *Face) encode(codes []int32) (out []byte) {
	switch f.wav.format {
	case "WORD":
		for _, c := range codes {
			out = binary.LittleEndian.AppendUint16(out, uint16(c))
		}
	case "ASC":
		var b strings.Builder
		inc, origin := f.scaling()
		for i, c := range codes {
			if i > 0 {
				b.WriteByte(',')
			}
			b.WriteString(scpi.Exponent((float64(c)/f.unit() - float64(origin+f.reference())) * inc))
		}
		return []byte(b.String())
	default:
		for _, c := range codes {
			out = append(out, byte(c/int32(f.unit())))
		}
	}
	return out
}

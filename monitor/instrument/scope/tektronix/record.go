package tektronix

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/monitor/instrument/scope"
	"github.com/wattmark/wattmark/monitor/scpi"
)

// preamble is the reply to WFMOutpre? with HEADer off:
//
//	BYT_NR;BIT_NR;ENCDG;BN_FMT[;ASC_FMT];BYT_OR[;WFID];NR_PT;PT_FMT[;PT_ORDER];
//	XUNIT;XINCR;XZERO;PT_OFF;YUNIT;YMULT;YOFF;YZERO[;…]
//
// ASC_FMT is of the 4, 5 and 6 Series. Their firmware leaves WFID out at times.
// PT_ORDER is of some firmware of each family. What follows YZERO, up to eight
// fields more, concerns spectra and history.
type preamble struct {
	bytes, bits     int
	signed, bigEnd  bool
	points          int
	xIncrement      float64 // s
	xZero           float64 // s; of point xOffset
	xOffset         float64 // points
	unit            string
	yIncrement      float64 // V a code
	yOffset, yZero  float64 // V = (code − yOffset)·yIncrement + yZero
	binary, samples bool    // no text; one value a point, not pairs of an envelope
}

// maxFields bounds a preamble: 24 are the most that were seen.
const maxFields = 64

// fields splits a preamble at semicolons outside of quotes.
func fields(s string) ([]string, error) {
	var out []string
	start, quoted := 0, false
	for i := range len(s) {
		switch {
		case s[i] == '"':
			quoted = !quoted // a doubled quote ends and begins
		case s[i] == ';' && !quoted:
			out = append(out, strings.TrimSpace(s[start:i]))
			start = i + 1
			if len(out) > maxFields {
				return nil, fmt.Errorf("%w: a waveform preamble of more than %d fields", scpi.ErrReply, maxFields)
			}
		}
	}
	if quoted {
		return nil, fmt.Errorf("%w: a waveform preamble in which a quote does not end: %s", scpi.ErrReply, shown(s))
	}
	return append(out, strings.TrimSpace(s[start:])), nil
}

// shown cites a text in an error, cut to 120 bytes.
func shown(s string) string { return scpi.Quote(s, 120) }

// walk takes field after field; the first that is wrong ends it.
type walk struct {
	left []string
	at   int
	err  error
}

// fail keeps the first error: the field that was read is not the one expected.
func (w *walk) fail(what string) {
	if w.err == nil {
		got := "nothing"
		if len(w.left) > 0 {
			got = shown(w.left[0])
		}
		w.err = fmt.Errorf("%w: field %d of a waveform preamble is %s, not %s", scpi.ErrReply, w.at+1, got, what)
	}
}

// next is the next field of the preamble.
func (w *walk) next() (s string) {
	if w.err == nil && len(w.left) > 0 {
		s, w.left = w.left[0], w.left[1:]
		w.at++
	}
	return s
}

// peek returns the next bytes; none where none come.
func (w *walk) peek() string {
	if w.err != nil || len(w.left) == 0 {
		return ""
	}
	return w.left[0]
}

// word takes one of the words, of which a shortened form does too (VERBose OFF).
func (w *walk) word(what string, words ...string) string {
	s := strings.ToUpper(w.peek())
	for _, long := range words {
		if s == long || len(s) >= min(3, len(long)) && strings.HasPrefix(long, s) {
			w.next()
			return long
		}
	}
	w.fail(what)
	return ""
}

// field takes a field that parse can read.
func field[T any](w *walk, what string, parse func(string) (T, bool)) (v T) {
	v, ok := parse(w.peek())
	if !ok {
		w.fail(what)
		return *new(T)
	}
	w.next()
	return v
}

// whole reads a field that is a whole number.
func (w *walk) whole(what string, most int) int {
	return field(w, what, func(s string) (int, bool) {
		v, err := strconv.Atoi(s)
		return v, err == nil && v >= 0 && v <= most
	})
}

// number reads a field that is a number.
func (w *walk) number(what string) float64 {
	return field(w, what, func(s string) (float64, bool) {
		v, err := scpi.ParseNumber(s)
		return v, err == nil && measure.Known(v)
	})
}

// quoted reads a field in quotes, in which a quote is doubled.
func (w *walk) quoted(what string) string {
	return field(w, what, func(s string) (string, bool) {
		if len(s) < 2 || s[0] != '"' || s[len(s)-1] != '"' {
			return "", false
		}
		return strings.ReplaceAll(s[1:len(s)-1], `""`, `"`), true
	})
}

// parsePreamble reads a preamble. It refuses one that cannot scale a waveform.
func parsePreamble(s string) (preamble, error) {
	all, err := fields(s)
	if err != nil {
		return preamble{}, err
	}
	var p preamble
	w := &walk{left: all}
	p.bytes = w.whole("1, 2, 4 or 8 bytes a point", 8)
	p.bits = w.whole("bits a point", 64)
	p.binary = strings.HasPrefix(w.word("BINARY or ASCII", "BINARY", "ASCII"), "B")
	p.signed = w.word("RI, RP or FP", "RI", "RP", "FP") == "RI"
	if strings.HasPrefix(strings.ToUpper(w.peek()), "INT") || strings.HasPrefix(strings.ToUpper(w.peek()), "ENG") {
		w.next() // ASC_FMT
	}
	p.bigEnd = w.word("MSB or LSB", "MSB", "LSB") == "MSB"
	if strings.HasPrefix(w.peek(), `"`) {
		w.quoted("a description in quotes")
	}
	p.points = w.whole("a number of points", math.MaxInt32)
	p.samples = w.word("Y or ENV", "Y", "ENV") == "Y"
	if s := w.peek(); s != "" && s[0] != '"' {
		w.word("LINEAR or LOG", "LINEAR", "LOG") // PT_ORDER
	}
	w.quoted("a unit in quotes")
	p.xIncrement, p.xZero, p.xOffset = w.number("seconds a point"), w.number("seconds"), w.number("a point")
	p.unit = w.quoted("a unit in quotes")
	p.yIncrement, p.yOffset, p.yZero = w.number("units a code"), w.number("codes"), w.number("units")
	if w.err == nil && (!(p.xIncrement > 0) || p.yIncrement == 0) {
		w.err = fmt.Errorf("%w: a waveform preamble whose increments are %v and %v: %s", scpi.ErrReply, p.xIncrement,
			p.yIncrement, shown(s))
	}
	if w.err != nil {
		return preamble{}, w.err
	}
	return p, nil
}

// from selects a channel and points first to first+n−1, counted from 0.
func (d *dialect) from(l *scope.Link, channel, first, n int) {
	l.Send("HEAD OFF", fmt.Sprintf("DAT:SOU CH%d", channel), "DAT:ENC SRI", fmt.Sprintf("DAT:WID %d", d.width),
		fmt.Sprintf("DAT:STAR %d", first+1), fmt.Sprintf("DAT:STOP %d", first+n))
}

// describe asks for the preamble of the whole record, which must have been
// finished since Arm. One that was stopped in its middle leaves the record before it.
func (d *dialect) describe(l *scope.Link, channel int) preamble {
	d.from(l, channel, 0, d.depth)
	if n := l.Number("ACQ:NUMAC?"); n < 1 {
		l.Fail("%w: it took no record: was it stopped at its front panel?", scpi.ErrInstrument)
	}
	p := scpi.Answer(l, "WFMO?", parsePreamble)
	if !p.binary || !p.signed || p.bigEnd || !p.samples || p.bytes != d.width {
		l.Fail("%w: points of %d bytes in another format than was set", scpi.ErrReply, p.bytes)
	}
	if p.unit != "V" {
		l.Fail("%w: channel %d is in %s: set its probe to volts; ampere_per_volt makes it a current",
			scpi.ErrInstrument, channel, shown(p.unit))
	}
	return p
}

// Scale follows from the settings: a preamble is of the record that is there, and
// before the first there is none of ours. Behind a recording the two must agree.
func (d *dialect) Scale(l *scope.Link, channel int) scope.Scale {
	l.Send("HEAD OFF") // others may have put them on
	ask := func(what string) float64 { return l.Number(fmt.Sprintf("CH%d:%s?", channel, what)) }
	division, position, offset := ask("SCA"), ask("POS"), ask("OFFS")
	codes := math.Ldexp(perDiv, 8*(d.width-1))
	top := math.Ldexp(1, 8*d.width-1)
	s := scope.Scale{
		Gain: division / codes, Zero: offset - position*division, Division: division, Step: d.step,
		Least: measure.Count(-top), Most: measure.Count(top - d.quantum), Quantum: d.quantum,
	}
	if !d.Triggered {
		return s
	}
	p := d.describe(l, channel)
	l.Keep(agree(s, p))
	s.Begin = p.xZero - p.xOffset*p.xIncrement
	return s
}

// agree compares a record's preamble with the settings.
func agree(s scope.Scale, p preamble) error {
	zero := p.yZero - p.yOffset*p.yIncrement
	switch {
	case math.Abs(p.yIncrement/s.Gain-1) > 1e-3:
		return fmt.Errorf("%w: the record has %v V a code, its settings %v", scpi.ErrInstrument, p.yIncrement, s.Gain)
	case math.Abs(zero-s.Zero) > 0.01*s.Division:
		return fmt.Errorf("%w: the record's zero lies at %v V, by its settings at %v V", scpi.ErrInstrument, zero, s.Zero)
	case math.Abs(p.xIncrement/s.Step-1) > 1e-3:
		return fmt.Errorf("%w: the record has %v s a point, its settings %v", scpi.ErrInstrument, p.xIncrement, s.Step)
	}
	return nil
}

// Held is the preamble's number.
func (d *dialect) Held(l *scope.Link, channel int) (points int, exact bool) {
	return d.describe(l, channel).points, true
}

// Read reads a piece.
func (d *dialect) Read(l *scope.Link, channel, first, n int, dst []byte) []byte {
	d.from(l, channel, first, n)
	return l.Block("CURV?", n*d.width, dst)
}

package tektronix

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"wattmark/monitor/scpi"
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

func shown(s string) string {
	const most = 120
	if len(s) > most {
		return fmt.Sprintf("%q… (%d bytes)", s[:most], len(s))
	}
	return fmt.Sprintf("%q", s)
}

// walk takes field after field; the first that is wrong ends it.
type walk struct {
	left []string
	at   int
	err  error
}

func (w *walk) fail(what string) {
	if w.err == nil {
		got := "nothing"
		if len(w.left) > 0 {
			got = shown(w.left[0])
		}
		w.err = fmt.Errorf("%w: field %d of a waveform preamble is %s, not %s", scpi.ErrReply, w.at+1, got, what)
	}
}

func (w *walk) next() (s string) {
	if w.err == nil && len(w.left) > 0 {
		s, w.left = w.left[0], w.left[1:]
		w.at++
	}
	return s
}

// peek is what comes; nothing where nothing does.
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

func (w *walk) whole(what string, most int) int {
	v, err := strconv.Atoi(w.peek())
	if err != nil || v < 0 || v > most {
		w.fail(what)
		return 0
	}
	w.next()
	return v
}

func (w *walk) number(what string) float64 {
	v, err := scpi.ParseNumber(w.peek())
	if err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
		w.fail(what)
		return 0
	}
	w.next()
	return v
}

func (w *walk) quoted(what string) string {
	s := w.peek()
	if len(s) < 2 || s[0] != '"' || s[len(s)-1] != '"' {
		w.fail(what)
		return ""
	}
	w.next()
	return strings.ReplaceAll(s[1:len(s)-1], `""`, `"`)
}

// parsePreamble reads a preamble. It refuses what cannot scale a waveform.
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
		w.err = fmt.Errorf("%w: a waveform preamble whose increments are %v and %v: %s", scpi.ErrReply, p.xIncrement, p.yIncrement, shown(s))
	}
	if w.err != nil {
		return preamble{}, w.err
	}
	return p, nil
}

package serialtext

import (
	"bytes"
	"fmt"
	"math"

	"wattmark/measure"
)

// sample is what a line or frame held.
type sample struct {
	stamp, seq int64
	counts     []measure.Count
}

// maxLine bounds a line.
const maxLine = 512

// lineParser finds lines in a stream of bytes, whatever its fragments.
type lineParser struct {
	layout  layout
	comment []byte
	sample  sample

	malformed uint64
	why       string // the first line that could not be read, and why

	buf    [maxLine]byte
	n      int
	begun  bool // an end of line was seen: what follows is a whole line
	tooFar bool
}

func newLineParser(l layout, comment string) *lineParser {
	return &lineParser{layout: l, comment: []byte(comment), sample: sample{counts: make([]measure.Count, len(l.channels))}}
}

func (p *lineParser) current() *sample { return &p.sample }

// errors returns what could not be read since the last call.
func (p *lineParser) errors() (malformed, skipped uint64) {
	n := p.malformed
	p.malformed = 0
	return n, 0
}

func (p *lineParser) reason() string { return p.why }

// next consumes bytes of b up to the end of a line that could be read. It
// returns how many it took and whether there is one. It takes all of b if not.
func (p *lineParser) next(b []byte) (n int, ok bool) {
	for n < len(b) {
		i := bytes.IndexByte(b[n:], '\n')
		end := i >= 0
		if !end {
			i = len(b) - n
		}
		if p.n+i > maxLine {
			p.tooFar = true
			p.n = 0
		} else {
			p.n += copy(p.buf[p.n:], b[n:n+i])
		}
		n += i
		if !end {
			return n, false
		}
		n++
		if p.line() {
			return n, true
		}
	}
	return n, false
}

// line reads the line that has ended.
func (p *lineParser) line() bool {
	text := bytes.TrimSuffix(p.buf[:p.n], []byte{'\r'})
	whole, long := p.begun, p.tooFar
	p.n, p.begun, p.tooFar = 0, true, false
	switch {
	case !whole: // the stream may have begun within it
		return false
	case long:
		p.bad(text, tooLong)
	case len(bytes.TrimSpace(text)) == 0, len(p.comment) > 0 && bytes.HasPrefix(text, p.comment):
	default:
		if f := p.read(text); f != fine {
			p.bad(text, f)
			return false
		}
		return true
	}
	return false
}

// flaw is why a line cannot be read.
type flaw uint8

const (
	fine flaw = iota
	tooLong
	noText
	noNumber
	tooMany
	tooGreat
	wrongSum
	leftOver
)

var flaws = [...]string{
	tooLong: "it is longer than 512 bytes", noText: "text of the pattern is missing", noNumber: "no number where one is due",
	tooMany: "more decimals than the pattern keeps: write .DIGITS behind the unit", tooGreat: "a number does not fit",
	wrongSum: "its check sum is wrong", leftOver: "it goes on behind the pattern's end",
}

func (p *lineParser) bad(text []byte, f flaw) {
	p.malformed++
	if p.why == "" {
		p.why = fmt.Sprintf("%.80q: %s", text, flaws[f])
	}
}

// read takes the fields out of one line.
func (p *lineParser) read(text []byte) flaw {
	at := 0
	for i := range p.layout.fields {
		f := &p.layout.fields[i]
		switch f.role {
		case literal:
			if len(text)-at < len(f.text) || string(text[at:at+len(f.text)]) != f.text {
				return noText
			}
			at += len(f.text)
			continue
		case ignored:
			at += word(text[at:], p.layout.fields[i+1:])
			continue
		case checksum:
			if len(text)-at < 2 || hexDigit(text[at])<<4|hexDigit(text[at+1]) != int(xor(text[:at])) {
				return wrongSum
			}
			at += 2
			continue
		}
		v, n, flaw := number(text[at:], f.decimals)
		if flaw != fine {
			return flaw
		}
		at += n
		if flaw := p.store(f, v); flaw != fine {
			return flaw
		}
	}
	if len(bytes.TrimSpace(text[at:])) > 0 {
		return leftOver
	}
	return fine
}

func (p *lineParser) store(f *field, v int64) flaw {
	switch f.role {
	case stamp:
		if v < 0 || v >= stampMod {
			return tooGreat
		}
		p.sample.stamp = v
	case sequence:
		if v < 0 || v >= p.layout.seqMod {
			return tooGreat
		}
		p.sample.seq = v
	default:
		if v < math.MinInt32 || v > math.MaxInt32 {
			return tooGreat
		}
		p.sample.counts[f.channel] = measure.Count(v)
	}
	return fine
}

// word is the length of a word that ends where the next literal begins.
func word(text []byte, after []field) int {
	if len(after) > 0 {
		if i := bytes.Index(text, []byte(after[0].text)); i >= 0 {
			return i
		}
	}
	return len(text)
}

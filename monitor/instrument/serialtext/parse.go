package serialtext

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/monitor/transport"
)

// Parser reads the values of lines or frames, as options describe them, out of
// bytes, without regard to time or losses.
type Parser interface {
	// Next consumes bytes of b until a line or frame was read. It returns how many it
	// took and whether there is one; call it until it returns false, which it does
	// only when all of b is taken.
	Next(b []byte) (n int, ok bool)
	// Unread returns the lines that could not be read and the bytes that belonged to
	// no frame since it was called last.
	Unread() (lines, bytes uint64)
	current() *sample
	reason() string
}

// readings is the part that both parsers share: the last sample, and the account of the rest.
type readings struct {
	sample             sample
	malformed, skipped uint64 // lines and bytes that could not be read
	why                string // why the first one could not
}

// current is the sample of the last line or frame; valid until the next call of Next.
func (r *readings) current() *sample { return &r.sample }

// Unread implements Parser.
func (r *readings) Unread() (lines, bytes uint64) {
	lines, bytes = r.malformed, r.skipped
	r.malformed, r.skipped = 0, 0
	return lines, bytes
}

// reason cites the first line that did not fit, and why, or words the refusal of a stream without frames.
func (r *readings) reason() string { return r.why }

// NewParser makes the parser of options that Validate has found fit: frames where Frame is given, else lines.
func NewParser(o Options) Parser {
	l, _ := o.layout()
	if f := o.Frame; f != nil {
		header, _ := f.header()
		return newFrameParser(l, header, orders[f.Order], cmp.Or(f.Check, noCheck))
	}
	return newLineParser(l, o.Comment)
}

// frameParser finds binary frames in a stream of bytes, whatever its fragments.
//
// With a check sum a frame stands for itself. Without one it is released when a
// header follows right behind it, where bytes lost or added would have moved it.
type frameParser struct {
	layout layout
	header []byte
	order  binary.ByteOrder
	check  string
	readings

	buf        [4096]byte
	start, end int
}

// newFrameParser makes a parser for frames of fixed length.
func newFrameParser(l layout, header []byte, order binary.ByteOrder, check string) *frameParser {
	return &frameParser{
		layout: l, header: header, order: order, check: check, readings: readings{
			sample: sample{counts: make([]measure.Count, len(l.channels))},
			why:    "no frame with this header, size and check sum was found",
		},
	}
}

// noCheck is the default of Frame.Check.
const noCheck = "none"

// checkBytes are the check sums that a frame may end with, and their size.
var checkBytes = map[string]int{noCheck: 0, "xor8": 1, "sum8": 1, "crc16": 2}

// Next implements Parser.
func (p *frameParser) Next(b []byte) (n int, ok bool) {
	return transport.Feed(p.buf[:], &p.start, &p.end, b, p.step)
}

// step releases a frame at the head of the buffer once its check sum, or the mark of the next,
// confirms it.
func (p *frameParser) step() bool {
	size := len(p.header) + p.layout.size + checkBytes[p.check]
	want := size
	if p.check == noCheck {
		want += len(p.header)
	}
	for p.end-p.start >= want {
		b := p.buf[p.start:p.end]
		if bytes.HasPrefix(b, p.header) && p.sound(b[:size], b[size:]) {
			p.read(b[len(p.header):])
			p.start += size
			return true
		}
		p.start++
		p.skipped++
	}
	return false
}

// sound reports whether a frame is whole.
func (p *frameParser) sound(frame, after []byte) bool {
	body := frame[len(p.header) : len(p.header)+p.layout.size]
	sum := frame[len(p.header)+p.layout.size:]
	switch p.check {
	case "xor8":
		return sum[0] == xor(body)
	case "sum8":
		s := byte(0)
		for _, c := range body {
			s += c
		}
		return sum[0] == s
	case "crc16":
		return p.order.Uint16(sum) == crc16(body)
	}
	return bytes.HasPrefix(after, p.header)
}

// crc16 is CRC-16/CCITT-FALSE: polynomial 0x1021, from 0xFFFF, not reflected.
func crc16(b []byte) uint16 {
	crc := uint16(0xFFFF)
	for _, c := range b {
		crc ^= uint16(c) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return crc
}

// read takes the fields out of a frame's body.
func (p *frameParser) read(b []byte) {
	for i := range p.layout.fields {
		f := &p.layout.fields[i]
		var u uint32
		switch f.size {
		case 1:
			u = uint32(b[0])
		case 2:
			u = uint32(p.order.Uint16(b))
		default:
			u = p.order.Uint32(b)
		}
		v := int64(u)
		if above := 32 - 8*f.size; f.signed { // the sign moves up to bit 31 and back
			v = int64(int32(u<<above) >> above)
		}
		b = b[f.size:]
		switch f.role {
		case stamp:
			p.sample.stamp = v
		case sequence:
			p.sample.seq = v
		default:
			p.sample.counts[f.channel] = measure.Count(v)
		}
	}
}

// sample holds the values of a line or frame.
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
	readings

	buf    [maxLine]byte
	n      int
	begun  bool // an end of line was seen: the next is a whole line
	tooFar bool
}

// newLineParser makes a parser for lines of the pattern's fields.
func newLineParser(l layout, comment string) *lineParser {
	return &lineParser{
		layout: l, comment: []byte(comment),
		readings: readings{sample: sample{counts: make([]measure.Count, len(l.channels))}},
	}
}

// Next implements Parser.
func (p *lineParser) Next(b []byte) (n int, ok bool) {
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
	case long:
		p.bad(text, tooLong)
	case len(bytes.TrimSpace(text)) == 0, len(p.comment) > 0 && bytes.HasPrefix(text, p.comment):
	default:
		f := p.read(text)
		if f == fine {
			return true
		}
		p.bad(text, f)
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

// flaws in words, by flaw.
var flaws = [...]string{
	tooLong: "it is longer than 512 bytes", noText: "text of the pattern is missing",
	noNumber: "no number where one is due",
	tooMany:  "more decimals than the pattern keeps: write .DIGITS behind the unit", tooGreat: "a number does not fit",
	wrongSum: "its check sum is wrong", leftOver: "it goes on behind the pattern's end",
}

// bad counts a line that does not fit, and keeps the reason.
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
			end := -1 // a word ends where the next literal begins
			if after := p.layout.fields[i+1:]; len(after) > 0 {
				end = bytes.Index(text[at:], []byte(after[0].text))
			}
			if at += end; end < 0 {
				at = len(text)
			}
			continue
		case checksum:
			var sum [1]byte
			if len(text)-at < 2 || at < 2*f.marks {
				return wrongSum
			}
			if _, err := hex.Decode(sum[:], text[at:at+2]); err != nil || sum[0] != xor(text[f.marks:at-f.marks]) {
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

// store puts a field's value into the sample: a count, the number, or the time.
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

// number reads a decimal number as a whole number of 10^−decimals; blanks may
// stand before it.
func number(b []byte, decimals int) (v int64, n int, f flaw) {
	for n < len(b) && b[n] == ' ' {
		n++
	}
	neg := false
	if n < len(b) && (b[n] == '-' || b[n] == '+') {
		neg = b[n] == '-'
		n++
	}
	digits, left, point := 0, decimals, false
	for ; n < len(b); n++ {
		c := b[n]
		if c == '.' && !point && digits > 0 {
			point = true
			continue
		}
		if c < '0' || c > '9' {
			break
		}
		digits++
		if point {
			if left == 0 {
				if c != '0' {
					return 0, n, tooMany
				}
				continue
			}
			left--
		}
		if v = 10*v + int64(c-'0'); v > 1<<40 {
			return 0, n, tooGreat
		}
	}
	if digits == 0 {
		return 0, n, noNumber
	}
	for ; left > 0; left-- {
		if v *= 10; v > 1<<40 {
			return 0, n, tooGreat
		}
	}
	if neg {
		v = -v
	}
	return v, n, fine
}

// xor is the check sum of bytes.
func xor(b []byte) (x byte) {
	for _, c := range b {
		x ^= c
	}
	return x
}

package serialtext

import (
	"bytes"
	"encoding/binary"

	"wattmark/measure"
)

// frameParser finds binary frames in a stream of bytes, whatever its fragments.
//
// With a check sum a frame stands for itself. Without one it is released when a
// header follows right behind it, where bytes lost or added would have moved it.
type frameParser struct {
	layout layout
	header []byte
	order  binary.ByteOrder
	check  string
	sample sample

	skipped    uint64
	buf        [4096]byte
	start, end int
}

func newFrameParser(l layout, header []byte, order binary.ByteOrder, check string) *frameParser {
	return &frameParser{layout: l, header: header, order: order, check: check, sample: sample{counts: make([]measure.Count, len(l.channels))}}
}

func (p *frameParser) current() *sample { return &p.sample }

func (p *frameParser) errors() (malformed, skipped uint64) {
	n := p.skipped
	p.skipped = 0
	return 0, n
}

func (p *frameParser) reason() string {
	return "no frame with this header, size and check sum was found"
}

// size is the bytes of a frame.
func (p *frameParser) size() int { return len(p.header) + p.layout.size + checkBytes[p.check] }

// checkBytes are the check sums that a frame may end with, and their size.
var checkBytes = map[string]int{"none": 0, "xor8": 1, "sum8": 1, "crc16": 2}

// next consumes bytes of b until a frame is complete; see lineParser.next.
func (p *frameParser) next(b []byte) (n int, ok bool) {
	for {
		if p.step() {
			return n, true
		}
		if n == len(b) {
			return n, false
		}
		if p.end == len(p.buf) {
			p.end = copy(p.buf[:], p.buf[p.start:p.end])
			p.start = 0
		}
		k := copy(p.buf[p.end:], b[n:])
		p.end += k
		n += k
	}
}

func (p *frameParser) step() bool {
	size := p.size()
	want := size
	if p.check == "none" {
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

// sound tells whether a frame is whole.
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
		v := p.number(b[:f.size], f.signed)
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

func (p *frameParser) number(b []byte, signed bool) int64 {
	switch len(b) {
	case 1:
		if signed {
			return int64(int8(b[0]))
		}
		return int64(b[0])
	case 2:
		if signed {
			return int64(int16(p.order.Uint16(b)))
		}
		return int64(p.order.Uint16(b))
	}
	if signed {
		return int64(int32(p.order.Uint32(b)))
	}
	return int64(p.order.Uint32(b))
}

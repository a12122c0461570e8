package powenetics

import "encoding/binary"

const (
	// Connectors of a frame, each with a voltage and a current.
	Connectors = 13
	// FrameBytes is a mark, a number and thirteen times five bytes.
	FrameBytes = 4 + 5*Connectors
	// Turn is where the frame's number wraps: 65.5 s.
	Turn = 1 << 16

	// A frame is released when two more, less what their numbers need, are there.
	lookAhead = 2*FrameBytes + 4
)

// Frame is one reading of all connectors.
type Frame struct {
	Number uint16
	// Millivolts (0 to 65535) and Milliamperes (0 to 2^24−1), as they are sent.
	Millivolts, Milliamperes [Connectors]int32
}

// Parser finds frames in a stream of bytes, whatever its fragments. The zero
// value is ready.
//
// A frame is released once the frames behind it stand where they must: bytes
// that were lost or added within it would have moved them.
type Parser struct {
	// Frame is the one that Next completed.
	Frame Frame
	// Skipped counts bytes that belong to no frame, Repaired frames whose number
	// was wrong and follows from their neighbours', Repeated frames that were there
	// twice. The user may set them to zero.
	Skipped, Repaired, Repeated uint64

	buf        [16 * FrameBytes]byte
	start, end int
	have       bool // a frame was released
	last       uint16
}

// Next consumes bytes of b until a frame is complete. It returns how many it
// took and whether Frame is complete; call it until it returns false, which it
// does only when all of b is taken.
func (p *Parser) Next(b []byte) (n int, ok bool) {
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

// Rest releases a frame that still waits for its successors where the line has
// fallen silent right behind whole frames. Call it until it returns false.
func (p *Parser) Rest() bool {
	b := p.buf[p.start:p.end]
	if len(b) == 0 || len(b)%FrameBytes != 0 || !p.have {
		return false
	}
	for i := 0; i < len(b); i += FrameBytes {
		if !marked(b[i:]) || number(b[i:]) != p.last+uint16(i/FrameBytes)+1 {
			return false
		}
	}
	p.release(b, number(b))
	return true
}

// step looks at what is buffered until a frame is released or bytes are wanting.
func (p *Parser) step() bool {
	for {
		b := p.buf[p.start:p.end]
		if len(b) < lookAhead {
			return false
		}
		if !marked(b) {
			p.start++
			p.Skipped++
			continue
		}
		n, far := number(b), b[2*FrameBytes:]
		next := marked(b[FrameBytes:])
		after := number(b[FrameBytes:])
		switch {
		case next && after == n+1, marked(far) && number(far) == n+2:
			p.release(b, n)
			return true
		case next && after == n:
			p.start += FrameBytes
			p.Repeated++
		case next && p.have && after == p.last+2:
			p.Repaired++
			p.release(b, p.last+1)
			return true
		case next && marked(far) && number(far) == after+1 && p.have && n == p.last+1:
			p.release(b, n) // the number jumps behind it: whole frames are missing
			return true
		default:
			p.start++
			p.Skipped++
		}
	}
}

// release hands out the frame at the head of b.
func (p *Parser) release(b []byte, n uint16) {
	p.Frame.Number = n
	for c := range Connectors {
		v := b[4+5*c:]
		p.Frame.Millivolts[c] = int32(v[0])<<8 | int32(v[1])
		p.Frame.Milliamperes[c] = int32(v[2])<<16 | int32(v[3])<<8 | int32(v[4])
	}
	p.have, p.last = true, n
	p.start += FrameBytes
}

func marked(b []byte) bool   { return b[0] == 0xCA && b[1] == 0xAC }
func number(b []byte) uint16 { return binary.BigEndian.Uint16(b[2:]) }

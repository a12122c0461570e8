package pmd

import "encoding/binary"

const (
	// Channels of a record: V and I of PCIE1, PCIE2, EPS1 and EPS2.
	Channels = 8
	// RecordBytes is a time stamp of two bytes and eight words.
	RecordBytes = 2 + 2*Channels
	// StampTurn is where the time stamp wraps: some 22 ms.
	StampTurn = 1 << 16
	// MinStep and MaxStep bound the ticks between neighbouring records,
	// MinStep ≤ step < MaxStep. The public captures have 581 to 1017; with one
	// record lost it would be at least twice the least.
	MinStep, MaxStep = 400, 1160
	// chain is how many records in a row must fit before the parser believes that
	// it has found their beginning.
	chain = 4
)

// Record is one reading of all channels.
type Record struct {
	Stamp  uint16
	Counts [Channels]int16 // −2048 to 2047
}

// Parser finds records in a stream of bytes, whatever its fragments, also one
// that begins in the middle of a record. The zero value is ready.
//
// A record is released once the next one is seen to fit, because bytes lost at
// its end would show only there.
type Parser struct {
	// Record is the one that Next completed.
	Record Record
	// Skipped counts bytes that belong to no record. The user may set it to zero.
	Skipped uint64

	buf        [16 * RecordBytes]byte
	start, end int
	locked     bool
	held       Record
	holding    bool
	lost       int // bytes skipped since the last record fitted
}

// Next consumes bytes of b until a record is complete. It returns how many it
// took and whether Record is complete; call it until it returns false, which it
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

// Flush releases the last record of a stream that has ended.
func (p *Parser) Flush() bool {
	ok := p.holding
	p.Record, p.holding = p.held, false
	return ok
}

// Rest releases the record that waits for its successor where the line has
// fallen silent right behind it. Bytes behind it would say that a loss may have
// bitten into it: then it still waits.
func (p *Parser) Rest() bool { return p.start == p.end && p.Flush() }

// step looks at what is buffered until a record is released or bytes are
// wanting.
func (p *Parser) step() (released bool) {
	for {
		have := p.buf[p.start:p.end]
		switch {
		case p.locked && len(have) < RecordBytes, !p.locked && len(have) < chain*RecordBytes:
			return false
		case p.locked:
			if !aligned(have) || !follows(p.held.Stamp, stamp(have)) {
				p.locked = false
				continue
			}
			if p.accept(have) {
				return true
			}
		case chained(have):
			p.locked = true
			if p.holding && !p.whole(stamp(have)) {
				p.Skipped += RecordBytes
				p.holding = false
			}
			p.lost = 0
			if p.accept(have) {
				return true
			}
		default:
			p.start++
			p.lost++
			p.Skipped++
		}
	}
}

// accept releases the record that was held and holds the next.
func (p *Parser) accept(b []byte) (released bool) {
	released = p.holding
	p.Record = p.held
	p.held.Stamp = stamp(b)
	for c := range p.held.Counts {
		p.held.Counts[c] = int16(binary.LittleEndian.Uint16(b[2+2*c:])) >> 4
	}
	p.holding = true
	p.start += RecordBytes
	return released
}

// whole tells whether the record before a loss can be trusted. The loss may have
// bitten into it, and even joined it to a later one, unless as many records as
// were skipped fit into the time that passed: then their bytes were wrong, not lost.
func (p *Parser) whole(next uint16) bool {
	k := uint16(p.lost / RecordBytes)
	d := next - p.held.Stamp
	return k > 0 && k < 20 && p.lost%RecordBytes == 0 && d >= (k+1)*MinStep && d < (k+1)*(MaxStep-MinStep)
}

func stamp(b []byte) uint16 { return binary.LittleEndian.Uint16(b) }

// follows tells whether two stamps can be neighbours.
func follows(from, to uint16) bool {
	d := to - from // modulo 2^16
	return d >= MinStep && d < MaxStep
}

// aligned tells whether the low nibbles of all words are zero.
func aligned(b []byte) bool {
	bits := b[2] | b[4] | b[6] | b[8] | b[10] | b[12] | b[14] | b[16]
	return bits&0xF == 0
}

// chained tells whether several records follow each other from here.
func chained(b []byte) bool {
	for i := range chain {
		r := b[i*RecordBytes:]
		if !aligned(r) {
			return false
		}
		if i > 0 && !follows(stamp(b[(i-1)*RecordBytes:]), stamp(r)) {
			return false
		}
	}
	return true
}

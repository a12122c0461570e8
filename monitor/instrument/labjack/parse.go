package labjack

import (
	"encoding/binary"

	"wattmark/measure"
)

const (
	headerBytes = 16
	maxSamples  = 512 // of one packet
	maxPacket   = headerBytes + 2*maxSamples
	lengthRest  = 10 // of the header, counted by its length field
)

// Statuses of a stream packet.
const (
	statusRecovering = 2940 // the device's buffer is full; it will lose scans
	statusRecovered  = 2941 // it has lost scans before this packet
	statusOverlap    = 2942 // a scan began before the one before had ended: the stream is over
	statusOverflow   = 2943 // it lost more than it can count: the stream is over
)

// Packet is one packet of a stream.
type Packet struct {
	Backlog, Status, Extra uint16
	// Data are whole scans of big-endian u16; valid until the next call.
	Data []byte
}

// Scans calls take for every whole scan of the packet, of as many inputs as counts
// has room for; counts is used for each scan anew. The error is take's, which ends
// it.
func (p *Packet) Scans(counts []measure.Count, take func([]measure.Count) error) error {
	size := bytesSample * len(counts)
	for b := p.Data; size > 0 && len(b) >= size; b = b[size:] {
		for c := range counts {
			counts[c] = measure.Count(binary.BigEndian.Uint16(b[bytesSample*c:]))
		}
		if err := take(counts); err != nil {
			return err
		}
	}
	return nil
}

// Parser cuts a stream into packets, whatever its fragments. The zero value is
// ready. A packet is released when a header follows right behind it.
type Parser struct {
	// Packet is the one that Next completed.
	Packet Packet
	// Broken says that the stream is out of step: nothing more comes of it. TCP
	// loses no bytes, so that such a connection cannot be trusted any more.
	Broken bool

	buf        [4 * maxPacket]byte
	start, end int
}

// Next consumes bytes of b until a packet is complete. It returns how many it
// took and whether Packet is complete; call it until it returns false, which it
// does only when all of b is taken or the stream is out of step.
func (p *Parser) Next(b []byte) (n int, ok bool) {
	for {
		if p.step(true) {
			return n, true
		}
		if p.Broken || n == len(b) {
			return len(b), false
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

// Rest releases a last packet that nothing follows, where the line is silent
// right behind it.
func (p *Parser) Rest() bool { return p.step(false) && p.start == p.end }

// step releases the packet at the head of what is buffered, if it is whole.
func (p *Parser) step(followed bool) bool {
	b := p.buf[p.start:p.end]
	if p.Broken || len(b) < 8 {
		return false
	}
	size, ok := packetSize(b)
	if !ok {
		p.Broken = true
		return false
	}
	if len(b) < size {
		return false
	}
	switch rest := b[size:]; {
	case len(rest) >= 8:
		if _, ok := packetSize(rest); !ok {
			p.Broken = true
			return false
		}
	case followed || len(rest) > 0:
		return false
	}
	p.Packet = Packet{
		Backlog: binary.BigEndian.Uint16(b[10:]), Status: binary.BigEndian.Uint16(b[12:]),
		Extra: binary.BigEndian.Uint16(b[14:]), Data: b[headerBytes:size],
	}
	p.start += size
	return true
}

// packetSize reads a header's first eight bytes.
func packetSize(b []byte) (int, bool) {
	length := int(binary.BigEndian.Uint16(b[4:]))
	ok := b[2] == 0 && b[3] == 0 && b[7] == 76 && length >= lengthRest && length <= lengthRest+2*maxSamples && length%2 == 0
	return 6 + length, ok
}

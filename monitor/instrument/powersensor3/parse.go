package powersensor3

const (
	// Sensors is the number of inputs of a device: even ids current, odd ids voltage.
	Sensors = 8
	// MaxLevel is full scale of the 10-bit converter.
	MaxLevel = 1023
	// StampTurn is where the time stamp wraps, in µs.
	StampTurn = 1024
	// FrameMicros is the distance of two frames.
	FrameMicros = 50
	stampID     = 7
)

// Frame is one reading of all sensors.
type Frame struct {
	// Stamp is the device's time in µs, modulo StampTurn.
	Stamp uint16
	// Levels are 0 to MaxLevel, by sensor id; those not sent are 0.
	Levels [Sensors]uint16
	// Marker says that the host had asked to mark this frame.
	Marker bool
}

// Parser finds frames in a stream of bytes, whatever its fragments. The zero
// value waits for all eight sensors. It keys on the sensors' ids and never
// counts bytes, so that a lost packet costs one frame.
type Parser struct {
	// Frame is the frame that Next completed.
	Frame Frame
	// Want has a bit for each sensor that a frame must have; zero means all.
	Want uint8
	// Skipped counts bytes that were no packet, Broken frames that began and
	// lacked a sensor. The user may set them to zero.
	Skipped, Broken uint64

	first   byte // first half of a packet
	pending bool
	open    bool // a stamp was seen and its frame is not complete
	seen    uint8
	last    int8 // id of the last sensor
}

// Next consumes bytes of b up to the end of the next frame. It returns how many
// it took and whether Frame is complete. It takes all of b if not.
func (p *Parser) Next(b []byte) (n int, ok bool) {
	for i, c := range b {
		switch {
		case !p.pending && c&0x80 == 0: // second half without a first
			p.Skipped++
		case !p.pending:
			p.first, p.pending = c, true
		case c&0x80 != 0: // first half again: the one before lost its second
			p.Skipped++
			p.first = c
		default:
			p.pending = false
			if p.packet(p.first>>4&7, c&0x40 != 0, uint16(p.first&0xF)<<6|uint16(c&0x3F)) {
				return i + 1, true
			}
		}
	}
	return len(b), false
}

// packet takes one packet and reports whether it completes a frame.
func (p *Parser) packet(id byte, marker bool, level uint16) bool {
	if id == stampID && marker {
		p.abandon()
		p.open, p.seen, p.last = true, 0, -1
		p.Frame = Frame{Stamp: level}
		return false
	}
	if !p.open {
		return false // a sensor that is not wanted, or the rest of a broken frame
	}
	switch {
	case int8(id) > p.last:
	case int8(id) == p.last && p.Frame.Levels[id] == level:
		return false // the line delivered a packet twice
	default: // packets of two frames: nothing here can be trusted
		p.abandon()
		return false
	}
	p.Frame.Levels[id], p.last = level, int8(id)
	p.seen |= 1 << id
	if id == 0 {
		p.Frame.Marker = marker
	}
	if p.seen&p.want() == p.want() {
		p.open = false
		return true
	}
	return false
}

func (p *Parser) want() uint8 {
	if p.Want == 0 {
		return 0xFF
	}
	return p.Want
}

// abandon gives up an unfinished frame.
func (p *Parser) abandon() {
	if p.open {
		p.Broken++
		p.open = false
	}
}

// stopMark finds the two packets FF 3F that end a stream. One of them is also
// sensor 7 at full scale, but a stamp always follows that sensor, so two in a
// row are no data. It is looked for only once the stop was asked for.
type stopMark struct{ n int }

func (s *stopMark) find(b []byte) bool {
	for _, c := range b {
		switch {
		case s.n%2 == 0 && c == 0xFF, s.n%2 == 1 && c == 0x3F:
			s.n++
		case c == 0xFF:
			s.n = 1
		default:
			s.n = 0
		}
		if s.n == 4 {
			return true
		}
	}
	return false
}

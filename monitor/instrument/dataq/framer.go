package dataq

const (
	learnScans   = 16 // from which the framer learns what never changes
	confirmScans = 8  // must fit in a row before a new beginning counts
	maxItems     = 9
	// holdBytes stay behind the scan that is released: as many as the text with
	// which a device ends its stream.
	holdBytes = len(overflowText) + 1
)

// overflowText is what a device whose buffer is full sends before it stops, with
// a carriage return.
const overflowText = "stop 01"

// Layout says which bits of a scan never change.
type Layout struct {
	// Items of 16 bits in a scan.
	Items int
	// Low: the low four bits of every item are zero, but for the two lowest of the
	// first, which are the digital inputs. (DI-1100)
	Low bool
	// Digital: the first item is the digital inputs. (DI-2108)
	Digital bool
}

// Framer cuts a stream of words into scans, whatever its fragments. The stream
// must begin with a scan. A scan is released when it and the next fit the layout;
// after bytes that do not fit, the next place where eight scans in a row do is a
// new beginning.
type Framer struct {
	// Scan is the one that Next completed; valid until the next call.
	Scan []byte
	// Skipped is the bytes thrown away before Scan, Changed says that the digital
	// inputs changed before it. The caller clears them.
	Skipped int
	Changed bool
	// Blind says that lost bytes cannot be seen: the bits that should never change
	// did. Weak says that only an odd number of them can.
	Blind, Weak bool

	layout     Layout
	size       int
	mask, want [2 * maxItems]byte
	begun      bool
	buf        [4096]byte
	start, end int
}

// NewFramer makes a framer; a layout without any mark makes a blind one.
func NewFramer(l Layout) *Framer {
	f := &Framer{layout: l, size: 2 * l.Items}
	switch {
	case l.Low:
		for i := range l.Items {
			f.mask[2*i] = 0x0F
		}
	case l.Digital:
		f.mask[0], f.mask[1] = 0xFF, 0xFF
	default:
		f.Blind, f.begun = true, true
	}
	return f
}

// Next consumes bytes of b until a scan is complete. It returns how many it took
// and whether Scan is complete; call it until it returns false, which it does
// only when all of b is taken.
func (f *Framer) Next(b []byte) (n int, ok bool) {
	for {
		if f.step() {
			return n, true
		}
		if n == len(b) {
			return n, false
		}
		if f.end == len(f.buf) {
			f.end = copy(f.buf[:], f.buf[f.start:f.end])
			f.start = 0
		}
		k := copy(f.buf[f.end:], b[n:])
		f.end += k
		n += k
	}
}

// Rest releases the next of the whole scans that are held, for a stream that has
// ended.
func (f *Framer) Rest() bool {
	b := f.buf[f.start:f.end]
	if len(b) < f.size {
		return false
	}
	if !f.begun {
		f.begin(b)
	}
	if !f.fits(b) {
		return false
	}
	f.release()
	return true
}

// Overflowed tells that the stream ends with the text of a full buffer, and takes
// that text away. It is to be asked when the line is silent.
func (f *Framer) Overflowed() bool {
	b := f.buf[f.start:f.end]
	for len(b) > 0 && (b[len(b)-1] == '\r' || b[len(b)-1] == '\n') {
		b = b[:len(b)-1]
	}
	n := len(b) - len(overflowText)
	if n < 0 || string(b[n:]) != overflowText {
		return false
	}
	f.end = f.start + n
	return true
}

func (f *Framer) release() {
	f.Scan = f.buf[f.start : f.start+f.size]
	f.start += f.size
}

// step releases the scan at the head of what is buffered, if that is sure.
func (f *Framer) step() bool {
	for {
		b := f.buf[f.start:f.end]
		switch {
		case !f.begun && len(b) < learnScans*f.size, len(b) < max(2*f.size, f.size+holdBytes):
			return false
		case !f.begun:
			f.begin(b)
		case f.fits(b) && f.fits(b[f.size:]):
			f.release()
			return true
		case len(b) < (2+confirmScans)*f.size+1:
			return false
		case f.fits(b) && f.changed(b[f.size:]):
			f.release()
			return true
		case f.changed(b):
			f.want[0], f.want[1], f.Changed = b[0]&f.mask[0], b[1]&f.mask[1], true
		default:
			n := f.search(b)
			f.start += n
			f.Skipped += n
		}
	}
}

// begin learns the state of the digital inputs from the first scans.
func (f *Framer) begin(b []byte) {
	f.begun = true
	if f.Blind {
		return
	}
	f.want[0], f.want[1] = b[0]&f.mask[0], b[1]&f.mask[1]
	f.Weak = f.layout.Low && f.layout.Items > 1 && f.want[0] == 0
	if !f.plausible(b) || !f.fitsAll(b, min(learnScans, len(b)/f.size)) {
		f.Blind, f.mask, f.want = true, [2 * maxItems]byte{}, [2 * maxItems]byte{}
	}
}

// plausible tells whether the first item can be what the layout says.
func (f *Framer) plausible(b []byte) bool {
	if f.layout.Digital {
		return b[0] == 0 && b[1]&0x80 == 0
	}
	return b[0]&0x0C == 0
}

// fits tells whether the scan at the head of b has the bits that never change.
func (f *Framer) fits(b []byte) bool {
	for i := range f.size {
		if b[i]&f.mask[i] != f.want[i] {
			return false
		}
	}
	return true
}

func (f *Framer) fitsAll(b []byte, n int) bool {
	for i := range n {
		if !f.fits(b[i*f.size:]) {
			return false
		}
	}
	return true
}

// changed tells whether b goes on as before with another state of the digital
// inputs.
func (f *Framer) changed(b []byte) bool {
	if f.fits(b) || !f.plausible(b) {
		return false
	}
	was := f.want
	f.want[0], f.want[1] = b[0]&f.mask[0], b[1]&f.mask[1]
	ok := f.fitsAll(b, confirmScans)
	f.want = was
	return ok
}

// search looks for a new beginning behind the head of b, and returns how many
// bytes are to be thrown away: up to there, or a scan's worth where there is none.
func (f *Framer) search(b []byte) int {
	for s := 1; s <= 2*f.size; s++ {
		if s+confirmScans*f.size <= len(b) && f.fitsAll(b[s:], confirmScans) {
			return s
		}
	}
	return f.size
}

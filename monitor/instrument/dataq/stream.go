package dataq

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"time"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/monitor/instrument"
	"github.com/wattmark/wattmark/monitor/instrument/series"
	"github.com/wattmark/wattmark/monitor/transport"
)

const (
	readSize  = 4096
	blockTime = 0.02 // seconds a block
	stopTime  = 2 * time.Second
	// wrongRate is how far a rate, by the host's clock, may be off before the
	// stream is given up: no crystal is that bad.
	wrongRate = 0.02
	judgeSpan = 3 // seconds, before the rate is judged
)

// stream is one Stream call.
type stream struct {
	d      *Device
	framer *Framer
	out    *series.Builder
	counts []measure.Count

	rate   series.Rate
	behind series.Behind
	noted  bool
	judged bool
}

// stream starts the scan, pumps it, and stops the device however it ended: a device that scans on
// would not hear the next Open.
func (d *Device) stream(ctx context.Context, sink instrument.Sink) error {
	if err := d.Write(ctx, "start", []byte("start\r")); err != nil { // never echoed
		return err
	}
	o := d.opts
	s := &stream{
		d: d, counts: make([]measure.Count, len(o.Inputs)), framer: NewFramer(o.Layout()),
		out:  series.New(d.In, int(blockTime*o.Rate), sink),
		rate: series.Rate{Nominal: o.rate()}, behind: series.Behind{Nominal: o.rate()},
	}
	p := transport.Pump{Size: readSize, Silence: d.opts.Silence, Take: s.take, Rest: s.quiet, Finish: s.finish}
	err := p.Run(ctx, d.Conn)
	if ctx.Err() != nil && transport.Ended(err) {
		err = s.finish()
	}
	return cmp.Or(err, instrument.Last(ctx, stopTime, d.stop)) // whatever ended the stream, the device is stopped
}

// take parses the bytes of one read.
func (s *stream) take(b []byte, full bool) error {
	at := s.d.Now()
	for range transport.Records(b, s.framer.Next) {
		if err := s.scan(at); err != nil {
			return err
		}
	}
	return s.clock(at, full)
}

// quiet is called when the line is quiet: a device whose buffer was full reports
// that, and nothing more.
func (s *stream) quiet() error {
	if !s.framer.Overflowed() {
		return s.out.Flush()
	}
	if err := s.finish(); err != nil {
		return err
	}
	if err := s.out.Overflow("the device's buffer was full, and it has stopped: it is not read fast enough"); err != nil {
		return err
	}
	return fmt.Errorf("%w: its buffer was full, and it has stopped", instrument.ErrDisconnected)
}

// finish delivers the scans held back at the end of a stream.
func (s *stream) finish() error {
	for s.framer.Rest() {
		if err := s.deliver(); err != nil {
			return err
		}
	}
	return s.out.Flush()
}

// scan takes the framer's scan, and reports the changes and losses before it.
func (s *stream) scan(at time.Time) error {
	f := s.framer
	note := ""
	switch { // once, of the losses that cannot be seen on this stream
	case s.noted:
	case f.Blind && models[s.d.opts.Model].digital && !s.d.opts.Sync:
		note = "sync is off: lost bytes cannot be seen"
	case f.Blind:
		note = "the bits that should never change do: lost bytes cannot be seen"
	case f.Weak:
		note = "both digital inputs are low: lost words cannot be seen; leave one open"
	}
	for _, text := range []string{note, map[bool]string{true: "the digital inputs changed"}[f.Changed]} {
		if text == "" {
			continue
		}
		if err := s.out.Note("%s", text); err != nil {
			return err
		}
	}
	s.noted, f.Changed = true, false
	if f.Skipped > 0 {
		lost := max(1, int(math.Round(float64(f.Skipped)/float64(2*s.d.opts.items()))))
		s.out.Skipped(uint64(f.Skipped))
		f.Skipped = 0
		if err := s.out.Gap(uint64(lost), false, "bytes were lost or doubled: about %s, by the bytes that fit nowhere",
			measure.Plural(lost, "scan")); err != nil {
			return err
		}
	}
	if err := s.deliver(); err != nil {
		return err
	}
	if !s.judged {
		s.rate.Seen(at, int64(s.out.Next()))
	}
	return nil
}

// deliver hands the scan on.
func (s *stream) deliver() error {
	s.framer.layout.Counts(s.framer.Scan, s.counts)
	return s.out.Add(s.counts)
}

// clock compares the count of scans with the host's clock: nothing else reports
// whole scans that are missing, and of a rate that is not the one assumed.
func (s *stream) clock(at time.Time, full bool) error {
	if s.judged {
		lost := s.behind.Seen(at, int64(s.out.Next()), full)
		if lost == 0 {
			return nil
		}
		return s.out.Gap(uint64(lost), false, "about %s lost, by the host's clock, some time in the last seconds",
			measure.Plural(lost, "scan"))
	}
	rate, span := s.rate.Measured()
	if span < judgeSpan {
		return nil
	}
	s.judged = true
	if off := rate/s.d.opts.rate() - 1; math.Abs(off) > wrongRate {
		return fmt.Errorf("the device sends %.4g scans a second by the host's clock, not %.4g: are srate_counts and "+
			"model right?", rate, s.d.opts.rate())
	}
	return nil
}

const (
	learnScans   = 16 // from which the framer learns the constant bits
	confirmScans = 8  // must fit in a row before a new beginning counts
	maxItems     = 9
	// holdBytes stay behind the scan that is released: as many as the text with
	// which a device ends its stream.
	holdBytes = len(overflowText) + 1
)

// overflowText is sent by a device whose buffer is full before it stops, with
// a carriage return.
const overflowText = "stop 01"

// Layout describes the bits of a scan that never change.
type Layout struct {
	// Items of 16 bits in a scan.
	Items int
	// Low: the low four bits of every item are zero, but for the two lowest of the
	// first, which are the digital inputs. (DI-1100)
	Low bool
	// Digital: the first item is the digital inputs. (DI-2108)
	Digital bool
}

// Counts reads the analog items of a scan, the last of it, as many as counts has
// room for, which is at most Items.
func (l Layout) Counts(scan []byte, counts []measure.Count) {
	first := l.Items - len(counts)
	for c := range counts {
		w := binary.LittleEndian.Uint16(scan[2*(c+first):])
		if c == 0 && l.Low {
			w &^= 3 // the digital inputs
		}
		counts[c] = measure.Count(int16(w))
	}
}

// Framer cuts a stream of words into scans, whatever its fragments. The stream
// must begin with a scan. A scan is released when it and the next fit the layout;
// after bytes that do not fit, the next place where eight scans in a row do is a
// new beginning.
type Framer struct {
	// Scan is the one that Next completed; valid until the next call.
	Scan []byte
	// Skipped is the bytes thrown away before Scan, Changed reports that the digital
	// inputs changed before it. The caller clears them.
	Skipped int
	Changed bool
	// Blind reports that lost bytes cannot be seen: the bits that should never change
	// did. Weak reports that only an odd number of them can.
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

// Next consumes bytes of b until a scan is complete; see transport.Feed.
func (f *Framer) Next(b []byte) (n int, ok bool) {
	return transport.Feed(f.buf[:], &f.start, &f.end, b, f.step)
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
	return f.fits(b) && f.release()
}

// Overflowed reports that the stream ends with the text of a full buffer, and takes
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

// release hands out the scan at the head of the buffer; it returns true.
func (f *Framer) release() bool {
	f.Scan = f.buf[f.start : f.start+f.size]
	f.start += f.size
	return true
}

// step releases the scan at the head of the buffer, if that is sure.
func (f *Framer) step() bool {
	for {
		b := f.buf[f.start:f.end]
		switch {
		case !f.begun && len(b) < learnScans*f.size, len(b) < max(2*f.size, f.size+holdBytes):
			return false
		case !f.begun:
			f.begin(b)
		case f.fits(b) && f.fits(b[f.size:]):
			return f.release()
		case len(b) < (2+confirmScans)*f.size+1:
			return false
		case f.fits(b) && f.changed(b[f.size:]):
			return f.release()
		case f.changed(b):
			f.want[0], f.want[1], f.Changed = b[0]&f.mask[0], b[1]&f.mask[1], true
		default:
			n := 1 // bytes to throw away: up to a new beginning, or a scan's worth where there is none
			for n <= 2*f.size && (n+confirmScans*f.size > len(b) || !f.fitsAll(b[n:], confirmScans)) {
				n++
			}
			if n > 2*f.size {
				n = f.size
			}
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

// plausible reports whether the first item fits the layout.
func (f *Framer) plausible(b []byte) bool {
	if f.layout.Digital {
		return b[0] == 0 && b[1]&0x80 == 0
	}
	return b[0]&0x0C == 0
}

// fits reports whether the scan at the head of b has the bits that never change.
func (f *Framer) fits(b []byte) bool {
	for i := range f.size {
		if b[i]&f.mask[i] != f.want[i] {
			return false
		}
	}
	return true
}

// fitsAll reports whether n scans in a row fit.
func (f *Framer) fitsAll(b []byte, n int) bool {
	for i := range n {
		if !f.fits(b[i*f.size:]) {
			return false
		}
	}
	return true
}

// changed reports whether b goes on as before with another state of the digital
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

package labjack

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/monitor/instrument"
	"github.com/wattmark/wattmark/monitor/instrument/analog"
	"github.com/wattmark/wattmark/monitor/instrument/series"
	"github.com/wattmark/wattmark/monitor/transport"
)

const (
	readSize = 1 << 16
	stopTime = 2 * time.Second
)

// stream is one Stream call.
type stream struct {
	parser Parser
	out    *series.Builder
	counts []measure.Count
}

// stream connects to the stream's port, enables the stream and pumps it until ctx ends.
func (d *Device) stream(ctx context.Context, sink instrument.Sink) error {
	conn, err := d.connect(ctx, true)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := d.registers.writeU32(ctx, regEnable, 1); err != nil {
		return fmt.Errorf("start: %w", err)
	}
	defer func() { // whatever ends the stream, the device is stopped
		_ = instrument.Last(ctx, stopTime, func(ctx context.Context) error {
			return d.registers.writeU32(ctx, regEnable, 0)
		})
	}()
	rate := d.registers.readF32(ctx, regScanRate, &err) // which the device really keeps
	if err != nil {
		return fmt.Errorf("scan rate: %w", err)
	}
	if off := float64(rate)/d.opts.ScanRate - 1; math.Abs(off) > crystal {
		return fmt.Errorf("the device scans at %v a second, not %v: set scan_rate: %v", rate, d.opts.ScanRate, rate)
	}
	s := &stream{counts: make([]measure.Count, len(d.In.Channels))}
	s.out = series.New(d.In, int(2*packetTime*d.opts.ScanRate), sink)
	if d.doubt != "" {
		if err := s.out.Note("%s", d.doubt); err != nil {
			return err
		}
	}
	p := transport.Pump{Size: readSize, Silence: d.opts.Silence, Take: s.take, Rest: s.rest, Finish: s.rest}
	if err = p.Run(ctx, conn); transport.Ended(err) {
		err = s.rest()
	}
	return err
}

// take parses the bytes of one read.
func (s *stream) take(b []byte, _ bool) error {
	for range transport.Records(b, s.parser.Next) {
		if err := s.packet(); err != nil {
			return err
		}
	}
	if s.parser.Broken {
		return s.out.Fail(fmt.Errorf("%w: the stream is out of step", instrument.ErrDisconnected))
	}
	return nil
}

// rest delivers the scans held back while the stream is quiet.
func (s *stream) rest() error {
	if s.parser.Rest() {
		if err := s.packet(); err != nil {
			return err
		}
	}
	return s.out.Flush()
}

// packet takes the scans of a packet, and reports its status.
func (s *stream) packet() error {
	p := &s.parser.Packet
	size := analog.BytesCode * len(s.counts)
	if len(p.Data)%size != 0 {
		return fmt.Errorf("%w: a packet of %d samples for %d inputs", instrument.ErrDisconnected,
			len(p.Data)/analog.BytesCode, len(s.counts))
	}
	if err := s.status(p); err != nil {
		return err
	}
	return analog.ScansOf(Decode, p.Data, s.counts, s.out.Add)
}

// Decode reads a scan of big-endian codes.
func Decode(b []byte, counts []measure.Count) {
	for c := range counts {
		counts[c] = measure.Count(binary.BigEndian.Uint16(b[analog.BytesCode*c:]))
	}
}

// errStopped: the device has ended the stream by itself.
var errStopped = errors.New("the device has stopped the stream")

// status reports a packet's status: a full buffer is an event, scans lost in it are a gap of the
// reported size, and all other codes end the stream.
func (s *stream) status(p *Packet) error {
	switch p.Status {
	case 0:
		return nil
	case statusRecovering:
		return s.out.Overflow("the device's buffer is full: it is not read fast enough")
	case statusRecovered:
		// The field ends at 65535: more may have been lost.
		exact := p.Extra < 1<<16-1
		return s.out.Gap(uint64(p.Extra), exact, "%s lost, the device says", measure.Plural(p.Extra, "scan"))
	case statusOverlap:
		return s.out.Fail(fmt.Errorf("%w (status %d): a scan began before the last had ended: lower scan_rate or "+
			"settling", errStopped, p.Status))
	case statusOverflow:
		return s.out.Fail(fmt.Errorf("%w: %w (status %d): its buffer overflowed for longer than it can count",
			instrument.ErrDisconnected, errStopped, p.Status))
	}
	return s.out.Fail(fmt.Errorf("%w: status %d", errStopped, p.Status))
}

// answerTime bounds one exchange of Modbus.
const answerTime = 2 * time.Second

// errRefused is a Modbus exception: the device is there and does not do it.
var errRefused = errors.New("the device refuses")

// modbus is a client of Modbus TCP; one goroutine uses it.
type modbus struct {
	conn transport.Conn
	tid  uint16
}

// ask sends a request and returns the answer's bytes behind its function.
func (m *modbus) ask(ctx context.Context, function byte, request []byte) ([]byte, error) {
	m.tid++
	var head [8]byte
	binary.BigEndian.PutUint16(head[0:], m.tid)
	binary.BigEndian.PutUint16(head[4:], uint16(2+len(request)))
	head[6], head[7] = 1, function
	if err := transport.Ask(ctx, m.conn, append(head[:], request...), head[:], answerTime); err != nil {
		return nil, err
	}
	length := int(binary.BigEndian.Uint16(head[4:])) - 2
	if binary.BigEndian.Uint16(head[0:]) != m.tid || head[2] != 0 || head[3] != 0 || head[7]&0x7F != function ||
		length < 1 || length > 252 {
		return nil, fmt.Errorf("%w: answer % x to function %d: is this a LabJack?", instrument.ErrIdentity, head, function)
	}
	short, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	body := make([]byte, length)
	if _, err := transport.ReadFull(short, m.conn, body); err != nil {
		return nil, err
	}
	if head[7] != function {
		return nil, fmt.Errorf("%w: Modbus exception %d", errRefused, body[0])
	}
	return body, nil
}

// read reads n registers from an address.
func (m *modbus) read(ctx context.Context, address, n uint16) ([]byte, error) {
	b, err := m.ask(ctx, 3, binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, address), n))
	if err != nil {
		return nil, fmt.Errorf("read register %d: %w", address, err)
	}
	if len(b) != 1+2*int(n) || int(b[0]) != 2*int(n) {
		return nil, fmt.Errorf("read register %d: %w: %d bytes", address, instrument.ErrIdentity, len(b))
	}
	return b[1:], nil
}

// readU32 reads a register pair, big-endian, unless there is an error already.
func (m *modbus) readU32(ctx context.Context, address uint16, failed *error) uint32 {
	if *failed != nil {
		return 0
	}
	b, err := m.read(ctx, address, 2)
	if err != nil {
		*failed = err
		return 0
	}
	return binary.BigEndian.Uint32(b)
}

// readF32 reads a register pair as an IEEE float, unless there is an error already.
func (m *modbus) readF32(ctx context.Context, address uint16, failed *error) float32 {
	return math.Float32frombits(m.readU32(ctx, address, failed))
}

// writeU32 writes a register pair, big-endian.
func (m *modbus) writeU32(ctx context.Context, address uint16, v uint32) error {
	b := binary.BigEndian.AppendUint16(nil, address)
	b = append(b, 0, 2, 4)
	if _, err := m.ask(ctx, 16, binary.BigEndian.AppendUint32(b, v)); err != nil {
		return fmt.Errorf("write register %d: %w", address, err)
	}
	return nil
}

// set writes a value to a register pair and reads it back, unless there is an error already; a device that keeps
// another value is an error. float is by how much, relative, it may round an IEEE float; zero for a whole number.
func (m *modbus) set(ctx context.Context, failed *error, what string, register uint16, value, float float64) {
	if *failed != nil {
		return
	}
	v := uint32(value)
	if float > 0 {
		v = math.Float32bits(float32(value))
	}
	err := m.writeU32(ctx, register, v)
	kept := m.readU32(ctx, register, &err)
	got := float64(kept)
	if float > 0 {
		got = float64(math.Float32frombits(kept))
	}
	if err == nil && !(math.Abs(got-value) <= float*math.Abs(value)) {
		err = fmt.Errorf("register %d reads back as %v after %v was written", register, got, value)
	}
	if err != nil {
		*failed = fmt.Errorf("%s: %w", what, err)
	}
}

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

// Parser cuts a stream into packets, whatever its fragments. The zero value is
// ready. A packet is released when a header follows right behind it.
type Parser struct {
	// Packet is the one that Next completed.
	Packet Packet
	// Broken reports that the stream is out of step: nothing more comes of it. TCP
	// loses no bytes, so that such a connection cannot be trusted any more.
	Broken bool

	buf        [4 * maxPacket]byte
	start, end int
}

// Next consumes bytes of b until a packet is complete, or the stream is out of step; see transport.Feed.
func (p *Parser) Next(b []byte) (n int, ok bool) {
	return transport.Feed(p.buf[:], &p.start, &p.end, b, func() bool {
		ok := p.step(true)
		if p.Broken {
			p.start = p.end // the rest is of no use
		}
		return ok
	})
}

// Rest releases a last packet that nothing follows, where the line is silent
// right behind it.
func (p *Parser) Rest() bool { return p.step(false) && p.start == p.end }

// step releases the packet at the head of the buffer, if it is whole.
func (p *Parser) step(followed bool) bool {
	b := p.buf[p.start:p.end]
	if p.Broken || len(b) < 8 {
		return false
	}
	size, ok := packetSize(b)
	if p.Broken = !ok; p.Broken || len(b) < size {
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
	ok := b[2] == 0 && b[3] == 0 && b[7] == 76 && length >= lengthRest && length <= lengthRest+2*maxSamples &&
		length%2 == 0
	return 6 + length, ok
}

const (
	regFlashPointer = 61810
	regFlashRead    = 61812
	setBytes        = 16
	// variance is how far a constant may be off its nominal value, relative, before
	// it counts as no constant; the maker's own program allows as much.
	variance = 0.05
	// The standard uncertainties of a device with its own constants: of the reading,
	// and of the range. Wider than the 0.01 % of the range that its maker states, for
	// the years and the temperature since.
	uGainOwn, uOffsetOwn = 5e-4, 3e-4
)

// set are the constants of one input on one range:
// V = (code − Center)·PSlope above the center, (Center − code)·NSlope below. The flash holds them in this order.
type set struct{ PSlope, NSlope, Center, Offset float32 }

// scale turns constants into that of the stream's 16-bit codes. A device may keep
// them for its 24-bit codes, of which the stream sends the upper sixteen: the
// numbers themselves show which of the two. ok is false for constants that cannot
// be this model's.
func (s set) scale(m model, r int) (sc analog.Scale, ok bool) {
	nominal := m.spans[r] / half
	for _, k := range []float64{1, 1 << 8} {
		p, n, c := float64(s.PSlope)*k, float64(s.NSlope)*k, float64(s.Center)/k
		if near(p, nominal) && near(-n, nominal) && near(c, m.center) {
			// Power flows one way, so that the upper slope counts; the other's difference goes into
			// the uncertainty.
			u := math.Hypot(uGainOwn, math.Abs(p+n)/(2*p))
			return analog.Scale{Gain: p, Zero: c, UGain: u, UOffset: measure.Volt(uOffsetOwn * m.Ranges[r])}, true
		}
	}
	return sc, false
}

// near reports whether a value is within the variance of its nominal one; a NaN is not.
func near(v, nominal float64) bool { return math.Abs(v-nominal) < variance*math.Abs(nominal) }

// nominal is the scale of a device whose constants are not known.
func (m model) nominal(r int) analog.Scale {
	return analog.Scale{
		Gain: m.spans[r] / half, Zero: m.center, UGain: m.uGain, UOffset: measure.Volt(m.uOffset * m.Ranges[r]),
	}
}

// calibrate reads the constants of all inputs. Where one is not plausible the
// nominal scale with its wide uncertainty serves, and the stream reports so.
func (d *Device) calibrate(ctx context.Context) error {
	d.doubt = ""
	scales := make([]analog.Scale, len(d.opts.Inputs))
	for k, i := range d.opts.Inputs {
		r := slices.Index(d.model.Ranges, d.model.RangeOf(i))
		at := d.model.flash + uint32(setBytes*r)
		if d.model.perInput {
			at += uint32(setBytes * len(d.model.Ranges) * i.AIN)
		}
		var b []byte
		err := d.registers.writeU32(ctx, regFlashPointer, at)
		if err == nil {
			b, err = d.registers.read(ctx, regFlashRead, setBytes/2)
		}
		if err != nil {
			return fmt.Errorf("calibration constants: %w", err)
		}
		var s set
		_, _ = binary.Decode(b, binary.BigEndian, &s) // of setBytes
		var ok bool
		if scales[k], ok = s.scale(d.model, r); !ok {
			scales[k] = d.model.nominal(r)
			d.doubt = fmt.Sprintf("the device's constants for AIN%d, ±%v V, cannot be right (%+v): the nominal "+
				"scale is taken, with u_gain %v", i.AIN, d.model.Ranges[r], s, d.model.uGain)
		}
	}
	d.In = inputs(d.opts, d.model, scales)
	return nil
}

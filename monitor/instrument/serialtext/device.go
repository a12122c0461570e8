// Package serialtext reads any microcontroller that prints lines of numbers, or
// sends small frames of binary ones, over a serial line: an INA226 or INA228
// board, an ADC on an Arduino. A pattern in the bench file names the fields:
//
//	{seq},{t:us},{aux.current:mA.1},{aux.voltage:mV}
//
//	NAME:UNIT      a channel in V, mV, uV, A, mA, uA, W or mW
//	     .DIGITS   so many decimals are kept, as whole counts (text only, default 0)
//	     *FACTOR   of the unit, where the board does not scale itself
//	t:UNIT         the board's time, an unsigned 32-bit number of us or ms
//	seq            the line's number; seq:u8 and seq:u16 wrap sooner than 32 bits
//	*              a word that is not wanted (text only)
//	xor            two hex digits: XOR of all bytes of the line before it (text only)
//	   :inner      without the line's first byte and the one before the digits, as the $ and * of NMEA 0183
//
// All else stands for itself. Numbers become counts without rounding.
//
// The parser reads such patterns alone, NewParser is for the benchmark of decoders, and the placing of lines by number,
// time or arrival is this driver's own. A driver of another device parses by itself, and places its scans by package
// series: Builder, Rate, Behind.
package serialtext

import (
	"cmp"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/wattmark/wattmark/internal/lazy"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/monitor/instrument"
	"github.com/wattmark/wattmark/monitor/transport"
)

// Kind is the driver's name in bench files.
const Kind = "serialtext"

const (
	readSize   = 4096
	answerTime = 5 * time.Second // an Arduino starts anew when its port is opened
	staleBytes = 1 << 18
	enough     = 6 // lines that must be read before a board counts as known
)

// Device is a microcontroller behind a serial port. It implements
// instrument.Instrument.
type Device struct {
	instrument.Base
	opts   Options
	layout layout
}

// New makes a driver; nothing is opened yet.
func New(address string, o Options) (*Device, error) {
	l, _ := o.layout() // which Init checks
	d := &Device{opts: o, layout: l}
	d.Steps, d.Run = []instrument.Step{d.start}, d.stream
	return d, instrument.Init(&d.Base, Kind, address, o, transport.Options{Baud: o.Baud}, Inputs)
}

// start waits until enough samples came that fit the pattern, and checks their rate. A board that
// starts anew when its port is opened may take answerTime for that.
func (d *Device) start(ctx context.Context) error {
	limit := answerTime + time.Duration(enough/d.opts.Rate*float64(time.Second))
	short, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if err := transport.Stale(short, d.Conn, staleBytes); err != nil {
		return err
	}
	if err := d.send(short, d.opts.Start); err != nil {
		return err
	}
	p := NewParser(d.opts)
	var stamps []int64
	bad := uint64(0)
	return d.Listen(ctx, short, "wait for lines", func(b []byte) (bool, error) {
		for range transport.Records(b, p.Next) {
			lines, _ := p.Unread()
			if bad += lines; bad > 4*enough {
				return false, fmt.Errorf("%w: most lines do not fit the pattern: %s", instrument.ErrIdentity,
					p.reason())
			}
			if stamps = append(stamps, p.current().stamp); len(stamps) == enough {
				return true, d.checkRate(stamps)
			}
		}
		return false, nil
	}, fmt.Sprintf("nothing came within %v (is this the right port? does the board want a start text?)", limit),
		func(total int) string {
			return fmt.Sprintf("%d bytes came within %v, but too little that fits the pattern: %s", total, limit,
				cmp.Or(p.reason(), "no end of line"))
		})
}

// send sends the start or stop text, if there is one.
func (d *Device) send(ctx context.Context, text string) error {
	if text == "" {
		return nil
	}
	return d.Write(ctx, fmt.Sprintf("send %q", text), []byte(text))
}

// checkRate compares the distance of the stamps with the rate: losses could not be
// counted with a wrong one.
func (d *Device) checkRate(stamps []int64) error {
	if d.layout.tickHz == 0 {
		return nil
	}
	var steps []int64
	for i := range stamps[1:] {
		steps = append(steps, mod(stamps[i+1]-stamps[i], stampMod))
	}
	slices.Sort(steps)
	step := float64(steps[len(steps)/2]) / d.layout.tickHz
	if ratio := step * d.opts.Rate; math.Abs(ratio-1) > 0.2 {
		return fmt.Errorf("by its own stamps the board sends a line every %.4g s, not every %.4g s: set rate: %.4g",
			step, 1/d.opts.Rate, 1/max(step, 1e-6))
	}
	return nil
}

// mod is the remainder that is never negative.
func mod(a, m int64) int64 { return (a%m + m) % m }

// Options are the settings of the driver in a bench file.
type Options struct {
	// Pattern of a line; see the package. Unused where Frame is given.
	Pattern string `yaml:"pattern"`
	// Frame describes binary frames in place of lines.
	Frame *Frame `yaml:"frame"`
	// Baud is the line's speed; default 115200.
	Baud int `yaml:"baud"`
	// Rate is the lines a second; default 500. Where the board sends no time, it is
	// the measure of time.
	Rate float64 `yaml:"rate"`
	// UClock is the relative standard uncertainty of the board's clock, or of Rate
	// where it sends no time; default 3e-3, that of a ceramic resonator.
	UClock float64 `yaml:"u_clock"`
	// Start is sent before a stream, Stop after it; default nothing.
	Start string `yaml:"start"`
	Stop  string `yaml:"stop"`
	// Comment begins a line that is skipped; default #. Empty skips none.
	Comment string `yaml:"comment"`
	// UGain (relative) and UOffset (in V, A or W) are the standard uncertainties of
	// every channel that the bench file does not calibrate; defaults 0.01, 0.02.
	UGain   float64 `yaml:"u_gain"`
	UOffset float64 `yaml:"u_offset"`
	// Silence is how long the stream may fall silent before the board counts as
	// lost; default 5 s.
	Silence time.Duration `yaml:"silence"`
}

// Frame describes a binary frame: header, fields, check sum of the fields.
type Frame struct {
	// Header bytes in hex, for example "AA 55".
	Header string `yaml:"header"`
	// Order of the bytes: little or big.
	Order string `yaml:"order"`
	// Fields is a pattern with a type at each field's end:
	// "{seq:u16} {t:us:u32} {aux.current:mA*0.1:i16}".
	Fields string `yaml:"fields"`
	// Check is none, xor8, sum8 or crc16 (CCITT-FALSE), over the fields.
	Check string `yaml:"check"`
}

// Defaults are the options of a board that follows the driver's own pattern.
func Defaults() Options {
	return Options{
		Pattern: "{t:us},{aux.current:mA.1},{aux.voltage:mV}", Baud: 115200, Rate: 500, UClock: 3e-3,
		Comment: "#", UGain: 0.01, UOffset: 0.02, Silence: 5 * time.Second,
	}
}

// Validate reports an option that cannot be used.
func (o Options) Validate() error {
	l, err := o.layout()
	switch {
	case err != nil:
		return err
	case o.Baud < 50 || o.Baud > 12_000_000:
		return fmt.Errorf("baud %d: want 50 to 12000000", o.Baud)
	case o.Frame == nil && o.Comment != "" && strings.HasPrefix(o.Pattern, o.Comment):
		return fmt.Errorf("pattern: its lines begin with %q, which marks comments to be skipped: set comment to another "+
			"text, or to \"\" for none", o.Comment)
	case !(o.Rate >= 0.1 && o.Rate <= 100e3):
		return fmt.Errorf("rate %v: want 0.1 to 100e3", o.Rate)
	case l.tickHz > 0 && l.tickHz/o.Rate < 2:
		return fmt.Errorf("rate %v with a time in ms: such stamps would stand still, print us", o.Rate)
	case !(o.UClock >= 0 && o.UClock <= 0.2):
		return fmt.Errorf("u_clock %v: want 0 to 0.2", o.UClock)
	case !(o.UGain >= 0 && o.UGain <= 1) || !(o.UOffset >= 0 && o.UOffset <= 1000):
		return fmt.Errorf("u_gain %v, u_offset %v: want 0 to 1 and 0 to 1000", o.UGain, o.UOffset)
	}
	return instrument.CheckSilence(o.Silence)
}

// layout reads the pattern.
func (o Options) layout() (layout, error) {
	if o.Frame == nil {
		l, err := parsePattern(o.Pattern, false)
		if err != nil {
			return l, fmt.Errorf("pattern: %w", err)
		}
		return l, nil
	}
	l, err := parsePattern(o.Frame.Fields, true)
	if err != nil {
		return l, fmt.Errorf("frame.fields: %w", err)
	}
	if _, err := o.Frame.header(); err != nil {
		return l, fmt.Errorf("frame.header: %w", err)
	}
	if _, ok := checkBytes[cmp.Or(o.Frame.Check, noCheck)]; !ok {
		return l, fmt.Errorf("frame.check %q: want none, xor8, sum8 or crc16", o.Frame.Check)
	}
	if orders[o.Frame.Order] == nil {
		return l, fmt.Errorf("frame.order %q: want little or big", o.Frame.Order)
	}
	if l.size > 1024 {
		return l, fmt.Errorf("frame.fields: %d bytes: want at most 1024", l.size)
	}
	return l, nil
}

// header is the mark of a frame in bytes.
func (f *Frame) header() ([]byte, error) {
	b, err := hex.DecodeString(strings.ReplaceAll(f.Header, " ", ""))
	if err != nil || len(b) < 1 || len(b) > 8 {
		return nil, errors.New("want 1 to 8 bytes in hex, for example \"AA 55\"")
	}
	return b, nil
}

// orders are the values of Frame.Order.
var orders = map[string]binary.ByteOrder{
	"": binary.LittleEndian, "little": binary.LittleEndian, "big": binary.BigEndian,
}

// Inputs are the channels that the pattern names; none where it is wrong.
func Inputs(o Options) instrument.Inputs {
	l, err := o.layout()
	if err != nil {
		return instrument.Inputs{}
	}
	// The timebase follows the board's data: its own stamps, else the number of its lines, else their
	// arrival on the host's clock.
	tb := measure.Timebase{TickHz: measure.Hertz(o.Rate), UTickHz: o.UClock, TicksPerScan: 1}
	switch {
	case l.tickHz > 0:
		tb.TickHz, tb.TicksPerScan, tb.Stamped = measure.Hertz(l.tickHz), l.tickHz/o.Rate, true
	case l.seqMod == 0:
		tb.TickHz, tb.TicksPerScan, tb.Stamped = 1e9, 1e9/o.Rate, true
	}
	in := instrument.Inputs{Timebase: tb, Channels: l.channels}
	for i := range in.Channels {
		in.Channels[i].UGain, in.Channels[i].UOffset = o.UGain, o.UOffset
	}
	return in
}

// role is the purpose of a pattern's field.
type role uint8

const (
	literal role = iota
	value
	stamp
	sequence
	ignored
	checksum
)

// field is one part of a pattern.
type field struct {
	role     role
	text     string // of a literal
	channel  int    // of a value
	decimals int
	size     int // bytes of a binary number
	signed   bool
	marks    int // bytes before a check sum that it leaves out, at either end
}

// layout is a pattern that was read.
type layout struct {
	fields   []field
	channels []measure.Channel
	tickHz   float64 // of the stamps, 0 where there are none
	seqMod   int64   // where the number wraps, 0 where there is none
	size     int     // bytes of all binary fields
}

// stampMod is where a stamp wraps: millis() and micros() have 32 bits.
const stampMod = 1 << 32

// units of a field with the volts, amperes or watts that one stands for.
var units = map[string]struct {
	unit  measure.Unit
	scale float64
}{
	"V": {measure.UnitVolt, 1}, "mV": {measure.UnitVolt, 1e-3}, "uV": {measure.UnitVolt, 1e-6},
	"A": {measure.UnitAmpere, 1}, "mA": {measure.UnitAmpere, 1e-3}, "uA": {measure.UnitAmpere, 1e-6},
	"W": {measure.UnitWatt, 1}, "mW": {measure.UnitWatt, 1e-3},
}

var (
	nameText = lazy.Regexp(`^[A-Za-z][A-Za-z0-9_]*(\.[A-Za-z0-9_]+)*$`)
	unitText = lazy.Regexp(`^([munVAW]+)(?:\.([0-9]))?(?:\*([0-9.eE+-]+))?$`)
	typeText = lazy.Regexp(`^([iu])(8|16|32)$`)
)

const fieldHint = "want {NAME:UNIT}, {t:us}, {seq}, {xor}, {xor:inner} or {*}"

// parsePattern reads a pattern; binary ones give each field a type and have no
// text between them.
func parsePattern(s string, binary bool) (layout, error) {
	var l layout
	for rest := s; rest != ""; {
		if rest[0] != '{' {
			text, _, _ := strings.Cut(rest, "{")
			rest = rest[len(text):]
			if strings.ContainsAny(text, "}\r\n") {
				return l, fmt.Errorf("%q: a } without its {, or an end of line", text)
			}
			if !binary {
				l.fields = append(l.fields, field{role: literal, text: text})
			} else if strings.TrimSpace(text) != "" {
				return l, fmt.Errorf("%q between the fields of a binary frame", text)
			}
			continue
		}
		spec, after, ok := strings.Cut(rest[1:], "}")
		if !ok {
			return l, fmt.Errorf("%q: the } is missing", rest)
		}
		rest = after
		if err := l.add(spec, binary); err != nil {
			return l, fmt.Errorf("{%s}: %w", spec, err)
		}
	}
	return l, l.check(binary)
}

// add reads one field.
func (l *layout) add(spec string, binary bool) error {
	var f field
	parts := strings.Split(spec, ":")
	if binary {
		m := typeText().FindStringSubmatch(parts[len(parts)-1])
		if m == nil || len(parts) < 2 {
			return errors.New("its last part must be a type: i8, u8, i16, u16, i32 or u32")
		}
		bits, _ := strconv.Atoi(m[2])
		f.size, f.signed = bits/8, m[1] == "i"
		l.size += f.size
		if parts[0] != "seq" {
			parts = parts[:len(parts)-1]
		}
	}
	var err error
	switch {
	case parts[0] == "*" && len(parts) == 1 && !binary:
		f.role = ignored
	case (spec == "xor" || spec == "xor:inner") && !binary:
		f.role, f.marks = checksum, len(parts)-1
	case parts[0] == "seq" && len(parts) <= 2:
		f.role = sequence
		err = l.number(parts, f.signed)
	case parts[0] == "t" && len(parts) == 2:
		f.role = stamp
		err = l.stamp(parts[1])
		if binary && (f.size != 4 || f.signed) {
			err = errors.New("a stamp is u32")
		}
	case len(parts) == 2:
		f.role, f.channel = value, len(l.channels)
		f.decimals, err = l.value(parts[0], parts[1], binary)
		if err == nil && binary && f.size == 4 && !f.signed {
			err = errors.New("a value is at most i32")
		}
	default:
		err = errors.New(fieldHint)
	}
	l.fields = append(l.fields, f)
	return err
}

// number adds a field for the sample's number, of so many bits or decimals.
func (l *layout) number(parts []string, signed bool) error {
	kind := "u32"
	if len(parts) == 2 {
		kind = parts[1]
	}
	m := typeText().FindStringSubmatch(kind)
	if m == nil || m[1] != "u" || signed {
		return errors.New("a number is u8, u16 or u32")
	}
	if l.seqMod != 0 {
		return errors.New("there is one already")
	}
	bits, _ := strconv.Atoi(m[2])
	l.seqMod = 1 << bits
	return nil
}

// stamp sets the unit of the board's own time; a pattern has one such field at most.
func (l *layout) stamp(unit string) error {
	if l.tickHz != 0 {
		return errors.New("there is one already")
	}
	l.tickHz = map[string]float64{"us": 1e6, "ms": 1e3}[unit]
	if l.tickHz == 0 {
		return errors.New("the board's time is in us or ms")
	}
	return nil
}

// value adds a channel for a field NAME:UNIT, and returns the decimals to keep of it.
func (l *layout) value(name, spec string, binary bool) (decimals int, err error) {
	if !nameText().MatchString(name) {
		return 0, fmt.Errorf("%q is no name (letters, digits, _ and dots): %s", name, fieldHint)
	}
	m := unitText().FindStringSubmatch(spec)
	if m == nil {
		return 0, errors.New("its unit is V, mV, uV, A, mA, uA, W or mW, with .DIGITS and *FACTOR behind it")
	}
	u, ok := units[m[1]]
	if !ok {
		return 0, fmt.Errorf("unit %q: want V, mV, uV, A, mA, uA, W or mW", m[1])
	}
	if m[2] != "" {
		if binary {
			return 0, errors.New("a binary number has no decimals: use *FACTOR")
		}
		decimals = int(m[2][0] - '0')
	}
	factor := 1.0
	if m[3] != "" {
		if factor, err = strconv.ParseFloat(m[3], 64); err != nil || !(factor > 0) || math.IsInf(factor, 0) {
			return 0, fmt.Errorf("factor %q: must be a positive number", m[3])
		}
	}
	if slices.ContainsFunc(l.channels, func(c measure.Channel) bool { return c.Name == name }) {
		return 0, errors.New("there is a channel of that name already")
	}
	l.channels = append(l.channels, measure.Channel{
		Name: name, Unit: u.unit, Gain: u.scale * factor * math.Pow10(-decimals),
	})
	return decimals, nil
}

// check looks at the whole.
func (l *layout) check(binary bool) error {
	if len(l.channels) == 0 {
		return errors.New("it names no channel: " + fieldHint)
	}
	for i, f := range l.fields {
		if i > 0 && !binary && f.role != literal && l.fields[i-1].role != literal && l.fields[i-1].role != checksum {
			return errors.New("two fields touch each other: put text between them")
		}
	}
	return nil
}

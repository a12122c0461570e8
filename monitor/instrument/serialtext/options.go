package serialtext

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"wattmark/measure"
	"wattmark/monitor/instrument"
)

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
	// Comment begins a line that is skipped; default #.
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
	case !(o.Rate >= 0.1 && o.Rate <= 100e3):
		return fmt.Errorf("rate %v: want 0.1 to 100e3", o.Rate)
	case l.tickHz > 0 && l.tickHz/o.Rate < 2:
		return fmt.Errorf("rate %v with a time in ms: such stamps would stand still, print us", o.Rate)
	case !(o.UClock >= 0 && o.UClock <= 0.2):
		return fmt.Errorf("u_clock %v: want 0 to 0.2", o.UClock)
	case !(o.UGain >= 0 && o.UGain <= 1) || !(o.UOffset >= 0 && o.UOffset <= 1000):
		return fmt.Errorf("u_gain %v, u_offset %v: want 0 to 1 and 0 to 1000", o.UGain, o.UOffset)
	case o.Silence < 100*time.Millisecond || o.Silence > time.Hour:
		return fmt.Errorf("silence %v: want 100ms to 1h", o.Silence)
	}
	return nil
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
	if _, ok := checkBytes[o.Frame.check()]; !ok {
		return l, fmt.Errorf("frame.check %q: want none, xor8, sum8 or crc16", o.Frame.Check)
	}
	if _, err := o.Frame.order(); err != nil {
		return l, err
	}
	if l.size > 1024 {
		return l, fmt.Errorf("frame.fields: %d bytes: want at most 1024", l.size)
	}
	return l, nil
}

func (f *Frame) header() ([]byte, error) {
	b, err := hex.DecodeString(strings.ReplaceAll(f.Header, " ", ""))
	if err != nil || len(b) < 1 || len(b) > 8 {
		return nil, errors.New("want 1 to 8 bytes in hex, for example \"AA 55\"")
	}
	return b, nil
}

func (f *Frame) check() string {
	if f.Check == "" {
		return "none"
	}
	return f.Check
}

func (f *Frame) order() (binary.ByteOrder, error) {
	switch f.Order {
	case "little", "":
		return binary.LittleEndian, nil
	case "big":
		return binary.BigEndian, nil
	}
	return nil, fmt.Errorf("frame.order %q: want little or big", f.Order)
}

// checked tells whether what was read can be trusted to be what was sent.
func (o Options) checked(l layout) bool {
	if o.Frame != nil {
		return o.Frame.check() != "none"
	}
	for _, f := range l.fields {
		if f.role == checksum {
			return true
		}
	}
	return false
}

// timebase follows what the board sends: its own stamps, else the number of its
// lines, else their arrival on the host's clock.
func (o Options) timebase(l layout) measure.Timebase {
	tb := measure.Timebase{TickHz: measure.Hertz(o.Rate), UTickHz: o.UClock, TicksPerScan: 1}
	switch {
	case l.tickHz > 0:
		tb.TickHz, tb.TicksPerScan, tb.Stamped = measure.Hertz(l.tickHz), l.tickHz/o.Rate, true
	case l.seqMod == 0:
		tb.TickHz, tb.TicksPerScan, tb.Stamped = 1e9, 1e9/o.Rate, true
	}
	return tb
}

// Inputs are the channels that the pattern names; none where it is wrong.
func Inputs(o Options) instrument.Inputs {
	l, err := o.layout()
	if err != nil {
		return instrument.Inputs{}
	}
	in := instrument.Inputs{Timebase: o.timebase(l), Channels: l.channels}
	for i := range in.Channels {
		in.Channels[i].UGain, in.Channels[i].UOffset = o.UGain, o.UOffset
	}
	return in
}

// NaturalRails are those that the channels' names suggest. Whether any rail of
// the card is missing, only a bench file can say.
func NaturalRails(in instrument.Inputs) (rails []measure.Rail, missing []string) {
	return instrument.PairRails(in.Channels), nil
}

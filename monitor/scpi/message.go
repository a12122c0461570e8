package scpi

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/wattmark/wattmark/measure"
)

// Sentinel errors, wrapped with the query and the bytes that came.
var (
	// ErrReply: the reply is no possible answer to the query.
	ErrReply = errors.New("reply cannot be understood")
	// ErrIndefinite: a block without a length on a link that does not mark its end.
	ErrIndefinite = errors.New("indefinite block #0")
	// ErrInstrument: the instrument's error queue holds an error.
	ErrInstrument = errors.New("instrument reports an error")
	// ErrTooLong: a reply or a block is longer than was allowed for.
	ErrTooLong = errors.New("reply is too long")
)

// Identity is the reply to *IDN?.
type Identity struct{ Maker, Model, Serial, Firmware string }

// String is the four fields as *IDN? gives them.
func (i Identity) String() string {
	return strings.Join([]string{i.Maker, i.Model, i.Serial, i.Firmware}, ",")
}

// maxIdentity bounds an identity and the text of an error; IEEE 488.2 allows 72 and 255
// characters.
const maxIdentity = 256

// plain reports whether an instrument's text may be shown as it is.
func plain(s string) bool {
	return len(s) <= maxIdentity && utf8.ValidString(s) &&
		strings.IndexFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) < 0
}

// ParseIdentity reads MAKER,MODEL,SERIAL,FIRMWARE. The firmware may itself
// contain commas; a reply of less than two fields, of more than 256 bytes, or with
// bytes that cannot be printed is refused.
func ParseIdentity(s string) (Identity, error) {
	text := strings.TrimSpace(s)
	var fields [4]string
	for i, f := range strings.SplitN(text, ",", 4) {
		fields[i] = strings.TrimSpace(f)
	}
	if fields[0] == "" || fields[1] == "" || !plain(text) {
		return Identity{}, fmt.Errorf("%w: *IDN? gives %s", ErrReply, quote(s))
	}
	return Identity{fields[0], fields[1], fields[2], fields[3]}, nil
}

// DeviceError is an entry of an instrument's error queue.
type DeviceError struct {
	Code int
	Text string
}

// Error is the error as the queue gave it.
func (e DeviceError) Error() string {
	if !plain(e.Text) {
		return fmt.Sprintf("%d, %s", e.Code, quote(e.Text))
	}
	return fmt.Sprintf("%d, %s", e.Code, e.Text)
}

// Unwrap makes every entry an ErrInstrument.
func (e DeviceError) Unwrap() error { return ErrInstrument }

// ParseDeviceError reads the reply to SYST:ERR?: 0,"No error" with or without a
// sign and with or without quotes.
func ParseDeviceError(s string) (DeviceError, error) {
	code, text, _ := strings.Cut(strings.TrimSpace(s), ",")
	n, err := strconv.Atoi(strings.TrimSpace(code))
	if err != nil || n < -32768 || n > 32767 {
		return DeviceError{}, fmt.Errorf("%w: SYST:ERR? gives %s", ErrReply, quote(s))
	}
	text = strings.TrimSpace(text)
	if len(text) >= 2 && text[0] == '"' && text[len(text)-1] == '"' {
		text = strings.ReplaceAll(text[1:len(text)-1], `""`, `"`)
	}
	return DeviceError{n, text}, nil
}

// ParseNumber reads a decimal number in any of the forms of IEEE 488.2 (NR1,
// NR2, NR3). 9.91E37 is NaN, ±9.9E37 is an infinity, as SCPI has it.
func ParseNumber(s string) (float64, error) {
	t := strings.TrimSpace(s)
	v, err := strconv.ParseFloat(t, 64)
	switch {
	case err != nil || strings.ContainsAny(t, "xXpP_nNiI"): // Go's own forms are not SCPI's
		return 0, fmt.Errorf("%w: %s is no number", ErrReply, quote(s))
	case v == 9.91e37: // SCPI-1999, 7.2.1.5
		return math.NaN(), nil
	case math.Abs(v) == 9.9e37:
		return math.Inf(int(math.Copysign(1, v))), nil
	}
	return v, nil
}

// ParseNumbers reads exactly n numbers with commas between.
func ParseNumbers(s string, n int) (out []float64, err error) {
	fields := strings.Split(strings.TrimSpace(s), ",")
	if len(fields) != n {
		return nil, fmt.Errorf("%w: %d numbers in %s, want %d", ErrReply, len(fields), quote(s), n)
	}
	out = make([]float64, n)
	for i, f := range fields {
		if out[i], err = ParseNumber(f); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// ParseBool reads ON, OFF, or a number.
func ParseBool(s string) (bool, error) {
	switch strings.ToUpper(strings.TrimSpace(s)) {
	case "ON", "1", "+1":
		return true, nil
	case "OFF", "0", "+0":
		return false, nil
	}
	return false, fmt.Errorf("%w: %s is neither ON nor OFF", ErrReply, quote(s))
}

// Preamble is the ten-field reply to :WAV:PRE? of Rigol and Keysight scopes.
// What YOrigin means differs: counts at a Rigol, volts at a Keysight.
type Preamble struct {
	Format, Type, Points, Count int
	XIncrement, XOrigin         float64 // s
	XReference                  float64 // points
	YIncrement                  float64 // V a count
	YOrigin, YReference         float64
}

// ParsePreamble reads a preamble. It refuses one that cannot scale: increments
//
//	that are zero, not finite, or (in time) negative.
func ParsePreamble(s string) (Preamble, error) {
	f, err := ParseNumbers(s, 10)
	if err != nil {
		return Preamble{}, fmt.Errorf("waveform preamble: %w", err)
	}
	if slices.ContainsFunc(f, func(v float64) bool { return !measure.Known(v) }) {
		return Preamble{}, fmt.Errorf("waveform preamble: %w: %s has a field that is not finite", ErrReply, quote(s))
	}
	if slices.ContainsFunc(f[:4], func(v float64) bool { return v != math.Trunc(v) || v < 0 || v > math.MaxInt32 }) {
		return Preamble{}, fmt.Errorf("waveform preamble: %w: format, type, points and count of %s must be whole",
			ErrReply, quote(s))
	}
	p := Preamble{
		Format: int(f[0]), Type: int(f[1]), Points: int(f[2]), Count: int(f[3]),
		XIncrement: f[4], XOrigin: f[5], XReference: f[6], YIncrement: f[7], YOrigin: f[8], YReference: f[9],
	}
	if !(p.XIncrement > 0) || p.YIncrement == 0 {
		return Preamble{}, fmt.Errorf("waveform preamble: %w: increments of %s must not be zero", ErrReply, quote(s))
	}
	return p, nil
}

// quote shows the bytes that came, in bounds.
func quote(s string) string { return Quote(s, 80) }

// Quote shows at most so many of the bytes that came.
func Quote(s string, most int) string {
	if len(s) > most {
		return fmt.Sprintf("%q… (%d bytes)", s[:most], len(s))
	}
	return fmt.Sprintf("%q", s)
}

// maxPrefix is how much text an instrument may put before a block, as a header
// of its reply.
const maxPrefix = 64

// header finds the begin of a definite block (IEEE 488.2, 8.7.9) as its bytes
// come: #, a digit n, n digits of length. It is pure; feed it byte by byte.
type header struct {
	prefix int
	state  int // 0: before #, 1: n is due, 2: digits are due, 3: done
	digits int
	length int
}

// feed takes the next byte; done reports that the block's bytes follow. Line ends
// before the # are left over from the reply before and do not count.
func (h *header) feed(b byte) (done bool, err error) {
	digit := b >= '0' && b <= '9'
	switch {
	case h.state == 0 && b == '#':
		h.state = 1
	case h.state == 0 && b != '\r' && b != '\n':
		if h.prefix++; h.prefix > maxPrefix {
			err = fmt.Errorf("%w: no block #… within %d bytes", ErrReply, maxPrefix)
		}
	case h.state == 0:
		if h.prefix > 0 {
			err = fmt.Errorf("%w: a line of text came where a block #… is due", ErrReply)
		}
	case h.state == 1 && b == '0':
		err = fmt.Errorf("%w: its end cannot be told from data on this link: ask the instrument for "+
			"definite blocks", ErrIndefinite)
	case h.state == 1 && !digit:
		err = fmt.Errorf("%w: %q after the # of a block", ErrReply, b)
	case h.state == 1:
		h.digits, h.state = int(b-'0'), 2
	case !digit:
		err = fmt.Errorf("%w: %q in the length of a block", ErrReply, b)
	default:
		h.length = 10*h.length + int(b-'0')
		if h.digits--; h.digits == 0 {
			h.state = 3
		}
	}
	return h.state == 3, err
}

package serialtext

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/wattmark/wattmark/internal/lazy"
	"github.com/wattmark/wattmark/measure"
)

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

const fieldHint = "want {NAME:UNIT}, {t:us}, {seq}, {xor} or {*}"

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
	case parts[0] == "xor" && len(parts) == 1 && !binary:
		f.role = checksum
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
	switch unit {
	case "us":
		l.tickHz = 1e6
	case "ms":
		l.tickHz = 1e3
	default:
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
		if i == 0 || binary {
			continue
		}
		if f.role != literal && l.fields[i-1].role != literal && l.fields[i-1].role != checksum {
			return errors.New("two fields touch each other: put text between them")
		}
	}
	return nil
}

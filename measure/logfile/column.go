package logfile

import (
	"math"
	"slices"
	"strings"

	"github.com/wattmark/wattmark/measure"
)

// Second is the unit of time, beside those of channels.
const Second measure.Unit = "s"

// Unit is a quantity's unit and the power of ten that brings numbers to it: −3 for mW.
type Unit struct {
	Of       measure.Unit // Second, or a channel's; empty where a heading names none
	Exponent int
}

// Scale returns the factor from the column's numbers to SI units.
func (u Unit) Scale() float64 { return math.Pow10(u.Exponent) }

// units are the units by the words for them, in lower case.
var units = func() map[string]Unit {
	out := map[string]Unit{}
	for u, words := range map[Unit]string{
		{Second, 0}:              "s sec second seconds",
		{Second, -3}:             "ms msec msecond millisecond milliseconds",
		{Second, -6}:             "us µs μs usec usecond microsecond microseconds",
		{Second, -9}:             "ns nsec nsecond nanosecond nanoseconds",
		{measure.UnitVolt, 0}:    "v volt volts",
		{measure.UnitVolt, -3}:   "mv millivolts",
		{measure.UnitVolt, -6}:   "uv µv μv",
		{measure.UnitAmpere, 0}:  "a amp amps amperes",
		{measure.UnitAmpere, -3}: "ma milliamps",
		{measure.UnitAmpere, -6}: "ua µa μa",
		{measure.UnitWatt, 3}:    "kw kilowatts",
		{measure.UnitWatt, 0}:    "w watt watts",
		{measure.UnitWatt, -3}:   "mw milliwatts",
		{measure.UnitWatt, -6}:   "uw µw μw microwatts",
	} {
		for _, w := range strings.Fields(words) {
			out[w] = u
		}
	}
	return out
}()

// ParseUnit reads a unit's symbol or name, in lower or upper case.
func ParseUnit(s string) (Unit, bool) {
	u, ok := units[strings.ToLower(strings.TrimSpace(s))]
	return u, ok
}

// Column is a column of a table, as its heading describes it.
type Column struct {
	Index int    // of its field in a row; less than 0 where there is no such column
	Text  string // as the heading has it
	Base  string // without the unit
	Name  string // Base as a plain name
	Unit  Unit
}

// Is reports whether there is such a column.
func (c Column) Is() bool { return c.Index >= 0 }

// Named reports whether the column's name without the unit is one of names.
func (c Column) Named(names ...string) bool { return slices.Contains(names, c.Name) }

// ParseColumn splits a heading's text into name and unit: "x [mA]", "x (mA)", x_ma, and, with
// spaced, "x ma". A unit in brackets that is not known is dropped; any other stays a part of
// the name.
func ParseColumn(text string, spaced bool) Column {
	c := Column{Text: strings.TrimSpace(text)}
	c.Base = c.Text
	for _, p := range []string{"[]", "()"} {
		if i := strings.LastIndexByte(c.Text, p[0]); i > 0 && strings.HasSuffix(c.Text, p[1:]) {
			c.Base = strings.TrimRight(c.Text[:i], " _")
			c.Unit, _ = ParseUnit(c.Text[i+1 : len(c.Text)-1])
			c.Name = Plain(c.Base)
			return c
		}
	}
	separators := "_"
	if spaced {
		separators = "_ "
	}
	if i := strings.LastIndexAny(c.Text, separators); i > 0 {
		if u, ok := ParseUnit(c.Text[i+1:]); ok {
			c.Base, c.Unit = strings.TrimRight(c.Text[:i], " _"), u
		}
	}
	c.Name = Plain(c.Base)
	return c
}

// Plain returns a text as a name: lower-case letters and digits, with a _ for each run of
// anything else between them.
func Plain(s string) string {
	var b strings.Builder
	gap := false
	for _, r := range strings.ToLower(s) {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			if gap && b.Len() > 0 {
				b.WriteByte('_')
			}
			gap = false
			b.WriteRune(r)
		} else {
			gap = true
		}
	}
	return b.String()
}

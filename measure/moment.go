package measure

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// ErrTime is wrapped by errors about texts that are no time.
var ErrTime = errors.New("no time")

// maxSpan bounds times, in ns: some 146 years.
const maxSpan = math.MaxInt64 / 2

// ParseNanos reads a number of 10^exponent seconds as nanoseconds, cut off there. It
// keeps every decimal place: it does not pass through a float64.
func ParseNanos(s string, exponent int) (int64, error) {
	bad := fmt.Errorf("%w: %q", ErrTime, s)
	mantissa, power, scientific := strings.Cut(strings.ToLower(s), "e")
	if scientific {
		n, err := strconv.Atoi(power)
		if err != nil || n > 30 || n < -30 {
			return 0, bad
		}
		exponent += n
	}
	digits, negative := mantissa, false
	if digits != "" && (digits[0] == '-' || digits[0] == '+') {
		digits, negative = digits[1:], digits[0] == '-'
	}
	whole, fraction, _ := strings.Cut(digits, ".")
	if digits = whole + fraction; digits == "" {
		return 0, bad
	}
	keep := max(len(whole)+9+exponent, 0) // digits that make whole nanoseconds
	padded := "0" + digits + strings.Repeat("0", max(keep-len(digits), 0))
	ns, err := strconv.ParseInt(padded[:1+keep], 10, 64)
	if err != nil || ns > maxSpan || strings.Trim(digits, "0123456789") != "" {
		return 0, bad
	}
	if negative {
		ns = -ns
	}
	return ns, nil
}

// dates are the ways in which programs write a date with a time: ISO 8601 long and
// short, and with slashes. A fraction of the second may follow a point or a comma.
var dates = []string{
	"2006-01-02T15:04:05", "2006-01-02 15:04:05", "20060102T150405", "2006/01/02 15:04:05", "2006-01-02T15:04",
	"2006-01-02 15:04",
}

// zones are the ways of a zone behind it; without one it is UTC.
var zones = []string{"Z07:00", "Z0700", "Z07", " -07:00", " -0700", " UTC"}

// ParseMoment reads a time of day as nanoseconds since 1970: a date with a time, which
// is UTC where it names no zone, or a number of seconds, milliseconds, microseconds or
// nanoseconds since 1970. Its size shows which: a number of one between 1973 and 2286 is
// none of another. It keeps every decimal place. zoned is false for a date without a
// zone.
func ParseMoment(s string) (ns int64, zoned bool, err error) {
	s = strings.TrimSpace(s)
	whole, _, _ := strings.Cut(s, ".")
	if v, err := strconv.ParseFloat(s, 64); err == nil && !strings.ContainsAny(s, "xX_") &&
		(len(whole) != 8 || strings.Contains(s, ".")) {
		for _, exponent := range []int{0, -3, -6, -9} {
			if v >= 1e8*math.Pow10(-exponent) && v < 1e10*math.Pow10(-exponent) {
				if ns, err := ParseNanos(s, exponent); err == nil {
					return ns, true, nil
				}
			}
		}
		return 0, false, fmt.Errorf(
			"%w: %s is not seconds, ms, µs or ns since 1970 (from 1973 on): for another zero name the unit in "+
				"the heading, as in time_s", ErrTime, s)
	}
	for _, d := range dates {
		if len(s) < 13 || (d[4] == '-') != (s[4] == '-') || (d[4] == '/') != (s[4] == '/') ||
			(d[10] == ' ') != (s[10] == ' ') {
			continue
		}
		if t, err := time.Parse(d, s); err == nil {
			return moment(t, s, false)
		}
		for _, z := range zones {
			if t, err := time.Parse(d+z, s); err == nil {
				return moment(t, s, true)
			}
		}
	}
	return 0, false, fmt.Errorf(
		"%w: %q: want a date with a time, as in 2026-01-31T12:00:00.5Z, or a number of seconds, ms, µs or ns "+
			"since 1970", ErrTime, s)
}

func moment(t time.Time, s string, zoned bool) (int64, bool, error) {
	if t.Year() < 1970 || t.Year() >= 2200 {
		return 0, false, fmt.Errorf("%w: %q: want a year from 1970 to 2199", ErrTime, s)
	}
	return t.UnixNano(), zoned, nil
}

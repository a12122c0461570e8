package measure

import (
	"strings"
	"testing"
)

func TestParseNanos(t *testing.T) {
	for _, c := range []struct {
		s        string
		exponent int
		want     int64
	}{
		{"1.5", 0, 1_500_000_000},
		{"1700000000.123456789", 0, 1_700_000_000_123_456_789},
		{"1700000000123456789", -9, 1_700_000_000_123_456_789},
		{"-0.25", -3, -250_000},
		{"1e-3", 0, 1_000_000},
		{"7", -6, 7000},
		{"0.0000000019", 0, 1},
		{"+3", -9, 3},
		{"3.9", -9, 3},
		{"1.733935203149123456e+09", 0, 1733935203149123456},
		{"1.733935203149E12", -3, 1733935203149000000},
		{"1e-12", 0, 0},
		{"15e-10", 0, 1},
	} {
		if got, err := ParseNanos(c.s, c.exponent); err != nil || got != c.want {
			t.Errorf("%s: %d, %v; want %d", c.s, got, err, c.want)
		}
	}
	for _, s := range []string{"", "-", ".", "x", "1.2.3", "99999999999999999999", "1e300", "NaN", "1e", "e3", "1e1.5", "--1", "0x10", "1_0"} {
		if got, err := ParseNanos(s, 0); err == nil {
			t.Errorf("%q is taken as %d ns", s, got)
		}
	}
}

func TestParseMoment(t *testing.T) {
	for _, c := range []struct {
		s     string
		want  int64
		zoned bool
	}{
		{"1733935203.149", 1733935203149000000, true},
		{"1733935203", 1733935203000000000, true},
		{"1733935203.149123456", 1733935203149123456, true},
		{"1.733935203149123e+09", 1733935203149123000, true},
		{"1733935203149", 1733935203149000000, true},
		{"1733935203149.25", 1733935203149250000, true},
		{"1733935203149123", 1733935203149123000, true},
		{"1733935203149123456", 1733935203149123456, true},
		{"2026-01-31T12:00:00.5Z", 1769860800500000000, true},
		{"2026-01-31T14:00:00.5+02:00", 1769860800500000000, true},
		{"2026-01-31 14:00:00.5+0200", 1769860800500000000, true},
		{"2026-01-31 14:00:00.5+02", 1769860800500000000, true},
		{"2026-01-31 12:00:00.5 UTC", 1769860800500000000, true},
		{"2026-01-31 10:00:00.5 -0200", 1769860800500000000, true},
		{"2026-01-31 12:00:00,5", 1769860800500000000, false},
		{"2026-01-31T12:00", 1769860800000000000, false},
		{"20260131T120000.5Z", 1769860800500000000, true},
		{"2026/01/31 12:00:00.500", 1769860800500000000, false},
	} {
		if ns, zoned, err := ParseMoment(c.s); err != nil || ns != c.want || zoned != c.zoned {
			t.Errorf("%s: %d, %v, %v; want %d, %v", c.s, ns, zoned, err, c.want, c.zoned)
		}
	}
	for _, c := range []struct{ s, want string }{
		{"0.05", "name the unit in the heading"},
		{"99999999", "want a date"},
		{"50000000000", "name the unit"},
		{"1e30", "name the unit"},
		{"NaN", "name the unit"},
		{"", "want a date with a time"},
		{"12:00:00", "want a date with a time"},
		{"1066-10-14T09:00:00Z", "want a year"},
	} {
		if ns, _, err := ParseMoment(c.s); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %d, %v; want %q", c.s, ns, err, c.want)
		}
	}
}

func FuzzParseMoment(f *testing.F) {
	for _, s := range []string{"1733935203.149", "-17e3", "2026-01-31T12:00:00Z", "1.7e18"} {
		f.Add(s, -3)
	}
	f.Fuzz(func(t *testing.T, s string, e int) {
		if n, err := ParseNanos(s, -(e & 15)); err == nil && (n > maxSpan || n < -maxSpan) {
			t.Errorf("%q: %d", s, n)
		}
		if n, _, err := ParseMoment(s); err == nil && n < 0 {
			t.Errorf("%q: %d", s, n)
		}
	})
}

package smilog

import (
	"errors"
	"strings"
	"testing"
	"time"
	_ "time/tzdata"
)

// logAt is a log from a local time on.
func logAt(t *testing.T, first, last string) *Log {
	t.Helper()
	l, err := Parse(strings.NewReader("timestamp, power.draw [W]\n"+first+".000, 100\n"+last+".000, 100\n"), 0)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestOffsetIn(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, first, last string
		want              time.Duration
		fail              string
	}{
		{"winter", "2026/01/10 12:00:00", "2026/01/10 13:00:00", time.Hour, ""},
		{"summer", "2026/07/10 12:00:00", "2026/07/10 13:00:00", 2 * time.Hour, ""},
		{"just before the clocks went forward", "2026/03/29 01:00:00", "2026/03/29 01:59:59", time.Hour, ""},
		{"just after", "2026/03/29 03:00:00", "2026/03/29 04:00:00", 2 * time.Hour, ""},
		{"across", "2026/03/29 01:30:00", "2026/03/29 03:30:00", 0, "changed while"},
		{"the hour that never was", "2026/03/29 02:30:00", "2026/03/29 02:40:00", 0, "never was"},
		{"the hour that came twice", "2026/10/25 02:30:00", "2026/10/25 02:40:00", 0, "came twice"},
		{"after it", "2026/10/25 03:00:00", "2026/10/25 03:40:00", time.Hour, ""},
	} {
		got, err := logAt(t, c.first, c.last).OffsetIn(berlin)
		if c.fail != "" {
			if !errors.Is(err, ErrZone) || !strings.Contains(err.Error(), c.fail) {
				t.Errorf("%s: %v, %v; want %q", c.name, got, err, c.fail)
			}
			continue
		}
		if err != nil || got != c.want {
			t.Errorf("%s: %v, %v; want %v", c.name, got, err, c.want)
		}
	}
	if off, err := logAt(t, "2026/10/25 02:30:00", "2026/10/25 02:40:00").OffsetIn(time.UTC); off != 0 || err != nil {
		t.Errorf("UTC: %v, %v", off, err)
	}
}

func TestShiftAndCovers(t *testing.T) {
	l := logAt(t, "2026/01/10 12:00:00", "2026/01/10 13:00:00")
	at := func(h, m int) time.Time { return time.Date(2026, 1, 10, h, m, 0, 0, time.UTC) }
	if !l.Covers(at(12, 0), at(13, 0)) || l.Covers(at(11, 59), at(12, 30)) || l.Covers(at(12, 30), at(13, 1)) {
		t.Error("it covers what it does not, or not what it does")
	}
	if first, last := l.Shift(-time.Hour).Extent(); !first.Equal(at(11, 0)) || !last.Equal(at(12, 0)) {
		t.Errorf("shifted to %v, %v", first, last)
	}
	if first, _ := (&Log{}).Extent(); !first.IsZero() {
		t.Errorf("an empty log begins at %v", first)
	}
}

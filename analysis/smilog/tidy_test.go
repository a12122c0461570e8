package smilog

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"wattmark/measure"
)

func parse(t *testing.T, lines ...string) *Log {
	t.Helper()
	l, err := Parse(strings.NewReader("timestamp, power.draw [W]\n"+strings.Join(lines, "\n")+"\n"), 0)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestTidy(t *testing.T) {
	l := parse(t, "2026/01/10 12:00:00.000, 1", "2026/01/10 12:00:00.020, 2", "2026/01/10 12:00:00.020, 2", "2026/01/10 12:00:00.010, 3", "2026/01/10 12:00:00.020, 4", "2026/01/10 12:00:03.020, 5")
	got, err := l.Tidy()
	if err != nil {
		t.Fatal(err)
	}
	var powers []measure.Watt
	for _, r := range l.Columns[Draw] {
		powers = append(powers, r.Power)
	}
	if fmt.Sprint(powers) != fmt.Sprint([]measure.Watt{1, 3, 2, 4, 5}) {
		t.Errorf("powers %v", powers)
	}
	if got.Repeated != 1 || got.Unsorted != 1 || got.Gap != 3*time.Second || got.GapLine != 6 {
		t.Errorf("%+v", got)
	}
}

func TestTidyRefusesAClockThatWasSet(t *testing.T) {
	for _, c := range []struct{ name, second, want string }{
		{"back an hour", "11:00:00.150", "line 7: the log's time zone does not tell its time: its time lies 59m59.85s before that of the lines before it, as when a clock changes its time zone"},
		{"back seconds", "11:59:57.000", "as when a clock is set"},
		{"on an hour", "13:00:00.060", "line 6: the log's time zone does not tell its time: behind it time steps ahead by 1h0m0.02s"},
	} {
		var lines []string
		for i := range 5 {
			lines = append(lines, fmt.Sprintf("2026/01/10 12:00:00.0%d0, 1", i))
		}
		lines = append(lines, "2026/01/10 "+c.second+", 1")
		_, err := parse(t, lines...).Tidy()
		if !errors.Is(err, ErrZone) {
			t.Errorf("%s: %v", c.name, err)
		} else if want := strings.Replace(c.want, "59m59.85s", "59m59.89s", 1); !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", c.name, err, want)
		}
	}
}

// runs makes readings of work, in local time, every 10 ms with the last 100 ms's mean.
func runs(zone time.Duration, from, to time.Time, spans []Span, seed uint64) (rs []Reading) {
	r := rand.New(rand.NewPCG(seed, 1))
	p := 60.0
	for at := from; at.Before(to); at = at.Add(10 * time.Millisecond) {
		target := 60.0
		for _, s := range spans {
			if !at.Before(s.From) && at.Before(s.To) {
				target = 200
			}
		}
		p += (target - p) * 0.1
		rs = append(rs, Reading{At: at.Add(zone), Power: measure.Watt(p + r.NormFloat64())})
	}
	return rs
}

func TestRecover(t *testing.T) {
	start := time.Date(2026, 1, 10, 12, 0, 0, 0, time.UTC)
	spans := []Span{{start.Add(time.Second), start.Add(3 * time.Second)}, {start.Add(4 * time.Second), start.Add(4500 * time.Millisecond)}}
	for _, zone := range []time.Duration{0, time.Hour, -5 * time.Hour, 5*time.Hour + 45*time.Minute, 14 * time.Hour} {
		got, err := Recover(runs(zone, start, start.Add(6*time.Second), spans, 1), spans)
		if err != nil || got.Offset != zone || got.Next != 0 {
			t.Errorf("%v: %+v, %v", zone, got, err)
		}
	}
}

func TestRecoverFromALongLog(t *testing.T) {
	start := time.Date(2026, 1, 10, 12, 0, 0, 0, time.UTC)
	spans := []Span{{start.Add(time.Minute), start.Add(2 * time.Minute)}}
	work := []Span{{spans[0].From, spans[0].To}}
	rs := runs(2*time.Hour, start.Add(-20*time.Minute), start.Add(20*time.Minute), work, 2)
	got, err := Recover(rs, spans)
	if err != nil || got.Offset != 2*time.Hour || got.Next == 0 {
		t.Errorf("%+v, %v", got, err)
	}
	// The same work again a quarter of an hour later: nobody can tell.
	again := Span{spans[0].From.Add(15 * time.Minute), spans[0].To.Add(15 * time.Minute)}
	rs = runs(2*time.Hour, start.Add(-20*time.Minute), start.Add(20*time.Minute), append(work, again), 3)
	if got, err := Recover(rs, spans); !errors.Is(err, ErrZone) || !strings.Contains(err.Error(), "alike") {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestRecoverRefuses(t *testing.T) {
	start := time.Date(2026, 1, 10, 12, 0, 0, 0, time.UTC)
	spans := []Span{{start.Add(time.Second), start.Add(3 * time.Second)}}
	for _, c := range []struct {
		name  string
		rs    []Reading
		spans []Span
		want  string
	}{
		{"no readings", nil, spans, "too few"},
		{"no work", runs(0, start, start.Add(5*time.Second), nil, 1), nil, "too few"},
		{"another day", runs(48*time.Hour, start, start.Add(5*time.Second), spans, 1), spans, "cover"},
		{"an idle GPU", runs(0, start, start.Add(5*time.Second), nil, 1), spans, "follow"},
	} {
		if _, err := Recover(c.rs, c.spans); !errors.Is(err, ErrZone) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

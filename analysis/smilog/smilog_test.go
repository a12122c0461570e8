package smilog

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
	_ "time/tzdata"

	"github.com/wattmark/wattmark/measure"
)

const sample = `timestamp, pstate, power.draw [W], power.draw.instant [W]
2023/07/08 19:28:27.236, P0, 126.96, 100.00
2023/07/08 19:28:28.236, P0, [N/A], 200.00
2023/07/08 19:28:30.236, P0, 128.00 W, 200.00
`

func TestParse(t *testing.T) {
	log, err := Parse(strings.NewReader(sample), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	field, rs := log.Best()
	if field != Instant || len(rs) != 3 || log.Skipped != 1 || len(log.Columns[Draw]) != 2 {
		t.Fatalf("best %s with %d readings, %d skipped, %d of power.draw", field, len(rs), log.Skipped, len(log.Columns[Draw]))
	}
	if want := time.Date(2023, 7, 8, 18, 28, 27, 236e6, time.UTC); !rs[0].At.Equal(want) {
		t.Errorf("first reading at %v, want %v", rs[0].At, want)
	}
}

func TestParseRefuses(t *testing.T) {
	for _, c := range []struct{ name, in, want string }{
		{"empty", "", "it is empty"},
		{"another table", "a,b\n1,2\n", "want a column timestamp"},
		{"other unit", "timestamp, power.draw [A]\n", "want watts"},
		{"no lines", "timestamp, power.draw [W]\n", "no power readings"},
		{"bad time in the middle", strings.Replace(sample, "2023/07/08 19:28:28", "yesterday", 1), "line 3"},
		{"bad number in the middle", strings.Replace(sample, "200.00", "2oo", 1), "line 3"},
		{"short line in the middle", strings.Replace(sample, ", [N/A], 200.00", "", 1), "line 3"},
		{"only N/A", "timestamp, power.draw [W]\n2023/07/08 19:28:27.236, [N/A]\n", "no power readings"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Parse(strings.NewReader(c.in), 0)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("got %v, want an error with %q", err, c.want)
			}
		})
	}
}

func TestParseKeepsWhatStandsBeforeACutLine(t *testing.T) {
	log, err := Parse(strings.NewReader(sample+"2023/07/08 19:28:3"), 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, rs := log.Best(); len(rs) != 3 || log.Skipped != 2 {
		t.Fatalf("%d readings, %d skipped; want 3 and 2", len(rs), log.Skipped)
	}
}

func TestEnergy(t *testing.T) {
	log, err := Parse(strings.NewReader(sample), 0)
	if err != nil {
		t.Fatal(err)
	}
	_, rs := log.Best()
	at := func(s float64) time.Time { return rs[0].At.Add(measure.Seconds(s).Duration()) }
	for _, c := range []struct{ from, to, want float64 }{
		{0, 3, 150 + 400}, {0, 1, 150}, {0.5, 1, 87.5}, {1.5, 2, 100}, {0.5, 2.5, 87.5 + 300},
	} {
		e, err := Energy(rs, at(c.from), at(c.to))
		if err != nil || math.Abs(float64(e)-c.want) > 1e-9 {
			t.Errorf("[%v, %v]: %v, %v; want %v J", c.from, c.to, e, err, c.want)
		}
	}
	for _, c := range []struct{ from, to float64 }{{-1, 1}, {1, 4}, {2, 2}, {2, 1}} {
		if _, err := Energy(rs, at(c.from), at(c.to)); !errors.Is(err, ErrSpan) {
			t.Errorf("[%v, %v]: %v; want ErrSpan", c.from, c.to, err)
		}
	}
	rs[2].At = rs[0].At
	if _, err := Energy(rs[:3], rs[0].At, rs[0].At.Add(1)); err == nil {
		t.Error("a clock that steps back was taken")
	}
}

func FuzzParse(f *testing.F) {
	f.Add(sample)
	f.Add("timestamp, power.draw [W]\n2023/07/08 19:28:27.236, 1e308\n")
	f.Fuzz(func(t *testing.T, in string) {
		log, err := Parse(strings.NewReader(in), 0)
		if err != nil {
			return
		}
		for field, rs := range log.Columns {
			for _, r := range rs {
				if w := float64(r.Power); math.IsNaN(w) || math.IsInf(w, 0) {
					t.Fatalf("%s: reading of %v", field, w)
				}
			}
		}
	})
}

// Programs that keep such a log themselves write the time since 1970, or with its
// zone: then no offset applies.
func TestAbsoluteTimes(t *testing.T) {
	for _, text := range []string{
		"timestamp,power.draw\n1733935203.149,17\n1733935203.151,22 W\n",
		"timestamp, power.draw [W]\n2024-12-11T16:40:03.149Z, 17\n2024-12-11 17:40:03.151+01:00, 22\n",
	} {
		log, err := Parse(strings.NewReader(text), time.Hour)
		if err != nil || !log.Absolute || !log.Columns[Draw][0].At.Equal(time.UnixMilli(1733935203149)) || !log.Columns[Draw][1].At.Equal(time.UnixMilli(1733935203151)) {
			t.Errorf("%q: %+v, %v", text, log, err)
		}
	}
	mixed := "timestamp,power.draw\n1733935203.149,17\n2024/12/11 16:40:03.151,22\n1733935203.153,22\n"
	if _, err := Parse(strings.NewReader(mixed), 0); !errors.Is(err, ErrFormat) || !strings.Contains(err.Error(), "another form") {
		t.Errorf("mixed times: %v", err)
	}
}

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
	// The same work again a quarter of an hour later is ambiguous.
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

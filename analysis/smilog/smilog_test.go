package smilog

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"wattmark/measure"
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
		{"empty", "", "no header"},
		{"another table", "a,b\n1,2\n", "want a column timestamp"},
		{"other unit", "timestamp, power.draw [mW]\n", "want watts"},
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

package metercsv

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/wattmark/wattmark/analysis/validate"
	"github.com/wattmark/wattmark/measure"
)

func read(in string) (*Header, []validate.Sample, error) {
	h, samples, err := Read(strings.NewReader(in))
	if err != nil {
		return nil, nil, err
	}
	var out []validate.Sample
	for s, err := range samples {
		if err != nil {
			return h, out, err
		}
		out = append(out, s)
	}
	return h, out, nil
}

func TestRead(t *testing.T) {
	for _, c := range []struct {
		name, in string
		at, watt []float64
		origin   int64
	}{
		{"seconds and watts", "time_s,power_w\n0,1\n0.5,2\n", []float64{0, 0.5}, []float64{1, 2}, 0},
		{"units in brackets", "t [ms], power [mW]\n0,1000\n500,2000\n", []float64{0, 0.5}, []float64{1, 2}, 0},
		{"units in parentheses", "Time (us),Power (kW)\n0,1\n500000,2\n", []float64{0, 0.5}, []float64{1000, 2000}, 0},
		{"absolute", "time_s,power_w\n1700000000.25,1\n1700000001.5,2\n", []float64{0.25, 1.5}, []float64{1, 2}, 1700000000},
		{"absolute, in nanoseconds", "timestamp_ns,power_w\n1700000000250000000,1\n1700000001500000000,2\n", []float64{0.25, 1.5}, []float64{1, 2}, 1700000000},
		{"with zones", "timestamp,power_w\n2023-11-14T22:13:20.25Z,1\n2023-11-14 23:13:21.5+01:00,2\n", []float64{0.25, 1.5}, []float64{1, 2}, 1700000000},
		{"our own", "# task\n# not measured: rail pcie_3v3\nscan,t_s,power_w,a_current_a,a_voltage_v,a_power_w\n7,0,5,1,2,2\n8,0.5,6,1,2,2\n", []float64{0, 0.5}, []float64{5, 6}, 0},
		{"rails without a total", "t_s,a_power_w,b_power_w\n0,1,2\n0.5,3,4\n", []float64{0, 0.5}, []float64{3, 7}, 0},
		{"volts and amperes", "t_s,a_voltage_v,a_current_a,b_current_ma,b_voltage_v\n0,12,1,500,10\n0.5,12,2,1000,10\n", []float64{0, 0.5}, []float64{17, 34}, 0},
		{"a comment among the rows", "t_s,power_w\n0,1\n# pause\n0.5,2\n", []float64{0, 0.5}, []float64{1, 2}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			h, got, err := read(c.in)
			if err != nil || len(got) != len(c.at) {
				t.Fatalf("%v, %v", got, err)
			}
			for i := range got {
				if math.Abs(float64(got[i].At)-c.at[i]) > 1e-6 || math.Abs(float64(got[i].Power)-c.watt[i]) > 1e-9 {
					t.Errorf("sample %d: %v, want %v s and %v W", i, got[i], c.at[i], c.watt[i])
				}
			}
			if c.origin != 0 && h.Origin.Unix() != c.origin || c.origin == 0 && !h.Origin.IsZero() {
				t.Errorf("origin %v", h.Origin)
			}
			if c.name == "our own" && (len(h.Missing) != 1 || h.Missing[0] != "pcie_3v3") {
				t.Errorf("missing rails %q", h.Missing)
			}
		})
	}
}

func TestRefuses(t *testing.T) {
	for _, c := range []struct{ name, in, want string }{
		{"empty", "", "it is empty"},
		{"no time", "power_w\n1\n", "no column of time"},
		{"no power", "time_s,temperature\n1,2\n", "no column of power"},
		{"power without a unit", "time_s,power\n1,2\n", "line 1: power: name its unit"},
		{"time without a unit", "time,power_w\n1,2\n", "name the unit in the heading"},
		{"two times", "time_s,t_ms,power_w\n1,2,3\n", "both times"},
		{"two powers", "time_s,power_w,total_power_w\n1,2,3\n", "both the power"},
		{"voltage of one rail, current of another", "t_s,a_voltage_v,b_current_a\n0,1,1\n", "no column of power"},
		{"not a number", "# x\ntime_s,power_w\n0,1\n1,nan\n", "line 4: power_w: "},
		{"infinite", "time_s,power_w\n0,1\n1,Inf\n", "line 3: power_w: "},
		{"no number", "time_s,power_w\n0,1\n1,1o\n", "line 3: "},
		{"unsorted", "time_s,power_w\n0,1\n2,1\n1,1\n", "line 4: time_s: its time lies 1 s before"},
		{"repeated", "time_s,power_w\n0,1\n0,1\n", "is that of the row before"},
		{"mixed zones", "timestamp,power_w\n2023-11-14T22:13:20Z,1\n2023-11-14T22:13:21,2\n", "line 3: "},
		{"mixed forms", "timestamp_s,power_w\n2023-11-14T22:13:20Z,1\n1700000001,2\n", "another form"},
		{"a short row", "time_s,power_w\n0,1\n1\n", "line 3: "},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, got, err := read(c.in)
			if !errors.Is(err, ErrFormat) || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("%v, %v; want an error with %q", got, err, c.want)
			}
		})
	}
}

func TestHeaderOnly(t *testing.T) {
	if _, got, err := read("time_s,power_w\n"); err != nil || len(got) != 0 {
		t.Errorf("%v, %v", got, err)
	}
}

func FuzzRead(f *testing.F) {
	f.Add("time_s,power_w\n0,1\n1,2\n")
	f.Add("# c\ntimestamp,voltage_v,current_a\n2023-11-14T22:13:20Z,1,2\n")
	f.Fuzz(func(t *testing.T, in string) {
		_, got, err := read(in)
		for i, s := range got {
			if p := float64(s.Power); i > 0 && s.At <= got[i-1].At || math.IsNaN(float64(s.At)) || (math.IsNaN(p) && err == nil) {
				t.Fatalf("sample %d: %v", i, s)
			}
		}
	})
}

func BenchmarkRead(b *testing.B) {
	const rows = 10000
	var text strings.Builder
	text.WriteString("time_s,power_w\n")
	for i := range rows {
		fmt.Fprintf(&text, "%d.%06d,123.456\n", i/1000, i%1000*1000)
	}
	b.ReportAllocs()
	b.SetBytes(int64(text.Len()))
	for b.Loop() {
		if _, got, err := read(text.String()); err != nil || len(got) != rows {
			b.Fatal(err)
		}
	}
}

// A time of day keeps its decimal places, which a float64 of seconds since 1970 has not.
func TestSince1970(t *testing.T) {
	for _, text := range []string{
		"timestamp,power_w\n1733935203.149000001,17\n1733935203.149000101,22\n",
		"time_ns,power_w\n1733935203149000001,17\n1733935203149000101,22\n",
		"time,power_w\n1733935203149000.001,17\n1733935203149000.101,22\n",
	} {
		h, samples, err := Read(strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		var at []measure.Seconds
		for s, err := range samples {
			if err != nil {
				t.Fatal(err)
			}
			at = append(at, s.At)
		}
		if d := float64(at[1]-at[0]) - 1e-7; d > 1e-15 || d < -1e-15 || !h.Origin.Equal(time.Unix(1733935203, 0)) || at[0] != 0.149000001 {
			t.Errorf("%q: %v from %v", text, at, h.Origin)
		}
	}
}

package exchange_test

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/store/exchange"
	"github.com/wattmark/wattmark/store/exchange/csvfile"
	"github.com/wattmark/wattmark/store/exchange/textin"
)

func opened(text string) func() (io.ReadCloser, error) {
	return func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(text)), nil }
}

func export(t *testing.T, s *madeSource, c exchange.Choice) string {
	t.Helper()
	tab, err := exchange.NewTable(t.Context(), s, s.Task(), "test", c)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := csvfile.Write(&out, tab); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// Raw counts are written as they were, with what makes volts and amperes of them.
func TestCSVRaw(t *testing.T) {
	s := &madeSource{Setup: madeSetup(false), Scans: 3000, Gap: 2}
	text := export(t, s, exchange.Choice{Raw: true, Rails: []string{"pcie_3v3"}, HostTime: true})
	r := csv.NewReader(strings.NewReader(text))
	r.Comment = '#'
	rows, err := r.ReadAll()
	if err != nil || len(rows) != 3001 || strings.Join(rows[0], ",") != "scan,tick,3v3_source_count,3v3_load_count,host_ns" {
		t.Fatalf("%d rows, %v: %v", len(rows), err, rows[0])
	}
	n := 1
	for b, err := range s.Blocks(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		for i := range b.Scans() {
			if rows[n][2] != strconv.Itoa(int(b.Counts[2][i])) || rows[n][3] != strconv.Itoa(int(b.Counts[3][i])) || rows[n][1] != strconv.Itoa(100*(n-1)) {
				t.Fatalf("row %d: %v", n, rows[n])
			}
			n++
		}
	}
	for _, want := range []string{"# channel 3v3.source: V = 0 + 0.00011 x count", "# not measured: rail eps", `# wattmark {"format":1,`} {
		if !strings.Contains(text, want) {
			t.Errorf("the heading does not tell %q", want)
		}
	}
}

// What was exported comes back with the same joules.
func TestExportComesBack(t *testing.T) {
	s := &madeSource{Setup: madeSetup(true), Scans: 20_000}
	text := export(t, s, exchange.Choice{})
	in, err := csvfile.Open(opened(text), textin.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if in.Meta == nil || in.Meta.Task.Name != "gemm" || !in.Meta.Task.Started.Equal(madeStart) || len(in.Rails) != 3 {
		t.Fatalf("%+v, rails %+v", in.Meta, in.Rails)
	}
	look, err := textin.Look(in.Rows, in.Columns)
	if err != nil {
		t.Fatal(err)
	}
	setup := in.Setup(look, 0, 0)
	for i := range setup.Rails {
		setup.Rails[i].Role = measure.RolePSU
	}
	to := measure.Seconds(float64(look.Last-look.First) / 1e9)
	got, err := measure.NewIntegrator(&setup, 0, to)
	if err != nil {
		t.Fatal(err)
	}
	if err := textin.Read(in.Rows, in.Columns, look, textin.Sink{Block: got.Add}); err != nil {
		t.Fatal(err)
	}
	first := measure.Seconds(float64(look.First) / 1e9)
	want, err := measure.NewIntegrator(&s.Setup, first, first+to)
	if err != nil {
		t.Fatal(err)
	}
	for b, err := range s.Blocks(t.Context()) {
		if err == nil {
			err = want.Add(b)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	a, err1 := got.Result(measure.Edges{})
	b, err2 := want.Result(measure.Edges{})
	if err := errors.Join(err1, err2); err != nil || math.Abs(float64(a.Total.Energy/b.Total.Energy-1)) > 1e-8 {
		t.Errorf("%v came back, %v went: %v", a.Total.Energy, b.Total.Energy, err)
	}
}

func TestHeadings(t *testing.T) {
	for _, c := range []struct{ heading, rails string }{
		{"t_s,gpu_power_w", "gpu"},
		{"time_ms,power_mw", "total"},
		{"Time (us),12V current [mA],12V voltage [mV],note", "12v"},
		{"timestamp;I_eps [A];U_eps [V]", "eps"},
		{"\ufeffelapsed_s\tcurrent_a\tvoltage_v", "rail"},
		{"scan,t_s,power_w,pcie_3v3_current_a,pcie_3v3_voltage_v,pcie_3v3_power_w,host_ns", "pcie_3v3"},
	} {
		in, err := csvfile.Open(opened("# a comment\n"+c.heading+"\n"), textin.Options{})
		if err != nil {
			t.Errorf("%s: %v", c.heading, err)
			continue
		}
		var rails []string
		for _, r := range in.Rails {
			rails = append(rails, r.Name)
		}
		if got := strings.Join(rails, " "); got != c.rails {
			t.Errorf("%s: rails %s, want %s", c.heading, got, c.rails)
		}
	}
	for _, c := range []struct{ text, want string }{
		{"", "empty"},
		{"power_w,x\n", "no column tells the time"},
		{"t_s,x\n", "no column makes a power"},
		{"t_s,\"power_w\n", "line 1: "},
		{"timestamp, power.draw [W], power.draw.instant [W]\n", "--rail draw or --rail draw_instant"},
	} {
		if _, err := csvfile.Open(opened(c.text), textin.Options{}); !errors.Is(err, textin.ErrInput) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, want %q", c.text, err, c.want)
		}
	}
}

// nvidia-smi's power is that of the whole card.
func TestSensorColumn(t *testing.T) {
	in, err := csvfile.Open(opened("timestamp, power.draw [W], power.draw.instant [W]\n"), textin.Options{Rails: []string{"draw_instant"}})
	if err != nil || len(in.Rails) != 1 || in.Rails[0].Role != measure.RoleWholeGPU {
		t.Errorf("%+v, %v", in, err)
	}
}

func TestDates(t *testing.T) {
	text := "timestamp,gpu_power_w\n2026-01-31T12:00:00.5Z,1\n2026-01-31 12:00:00.75,2\n2026-01-31T14:00:01+02:00,2\n"
	in, err := csvfile.Open(opened(text), textin.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := textin.Look(in.Rows, in.Columns)
	if err != nil || s.Last-s.First != 500_000_000 || s.First != 1769860800500000000 || !in.Absolute {
		t.Errorf("%+v, %v, absolute %v", s, err, in.Absolute)
	}
}

// Programs write the time of day as a number since 1970, in units that its size tells.
func TestSince1970(t *testing.T) {
	for _, c := range []struct{ rows, column string }{
		{"1733935203.149000001,17\n1733935203.151000001,22\n", "timestamp"},
		{"1.733935203149000001e+09,17\n1.733935203151000001e+09,22\n", "time"},
		{"1733935203149.000001,17\n1733935203151.000001,22\n", "timestamp"},
		{"1733935203149000.001,17\n1733935203151000.001,22\n", "Time"},
		{"1733935203149000001,17\n1733935203151000001,22\n", "timestamp"},
		{"1733935203149.000001,17\n1733935203151.000001,22\n", "unix_ms"},
		{"2024-12-11T16:40:03.149000001,17\n2024-12-11 17:40:03.151000001+0100,22\n", "timestamp"},
	} {
		in, err := csvfile.Open(opened(c.column+",gpu_power_w\n"+c.rows), textin.Options{})
		if err != nil {
			t.Fatal(err)
		}
		s, err := textin.Look(in.Rows, in.Columns)
		if err != nil || s.First != 1733935203149000001 || s.Last-s.First != 2e6 || !in.Absolute {
			t.Errorf("%s %s: %+v, %v, absolute %v", c.column, c.rows, s, err, in.Absolute)
		}
	}
	in, err := csvfile.Open(opened("timestamp,gpu_power_w\n0.05,1\n0.1,1\n"), textin.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := textin.Look(in.Rows, in.Columns); !errors.Is(err, textin.ErrInput) || !strings.Contains(err.Error(), "name the unit in the heading, as in time_s") {
		t.Errorf("a number from anywhere: %v", err)
	}
}

// A dump of PMT has spaces, watts without a unit, and lines of markers.
func TestPMT(t *testing.T) {
	text := "timestamp gpu_instant gpu_average\n1733935225.009 28.873 23.595\nM 10.098 \"start of it\"\n1733935225.069 28.789 28.553\n"
	if _, err := csvfile.Open(opened(text), textin.Options{}); !errors.Is(err, textin.ErrInput) || !strings.Contains(err.Error(), "--rail") {
		t.Errorf("two views: %v", err)
	}
	in, err := csvfile.Open(opened(text), textin.Options{Rails: []string{"gpu_average"}})
	if err != nil || len(in.Rails) != 1 || in.Rails[0].Name != "gpu_average" {
		t.Fatalf("%+v, %v", in, err)
	}
	s, err := textin.Look(in.Rows, in.Columns)
	if err != nil || s.Rows != 2 || s.First != 1733935225009000000 || s.Gain[0] != 1e-3 {
		t.Errorf("%+v, %v", s, err)
	}
}

func FuzzOpen(f *testing.F) {
	f.Add("timestamp device\n1733935225.009 28.873\nM 10.098 \"start\"\n1733935225.069 28.789\n")
	f.Add("t_s,x_current_a,x_voltage_v\n0,1,2\n1,2,3\n")
	f.Add("# wattmark {}\ntimestamp;P [mW]\n2026-01-31 12:00:00;3\n")
	f.Fuzz(func(t *testing.T, text string) {
		in, err := csvfile.Open(opened(text), textin.Options{})
		if err != nil {
			return
		}
		s, err := textin.Look(in.Rows, in.Columns)
		if err != nil {
			return
		}
		rows := uint64(0)
		if err := textin.Read(in.Rows, in.Columns, s, textin.Sink{
			Block: func(b *measure.Block) error { rows += uint64(b.Scans()); return nil },
			Event: func(measure.Event) error { return nil },
		}); err != nil || rows != s.Rows {
			t.Errorf("looked at %d rows, read %d: %v", s.Rows, rows, err)
		}
	})
}

// Too many columns, and a row that does not end, are refused before they cost memory.
func TestLargeFilesAreRefused(t *testing.T) {
	for name, tc := range map[string]struct{ text, want string }{
		"values":  {"t_s," + strings.Repeat("r_w,", 1000) + "x\n", "rails"},
		"columns": {"t_s" + strings.Repeat(",x", 5000) + "\n", "at most 4096"},
		"a row":   {"t_s,gpu_w\n0,1\n1," + strings.Repeat("1", 2<<20), "longer than 1 MiB"},
		"quotes":  {"t_s,gpu_w\n0,1\n1,\"" + strings.Repeat("1\n", 2<<20), "longer than 1 MiB"},
	} {
		text := tc.text
		if name == "values" {
			text = "t_s"
			for i := range 1000 {
				text += fmt.Sprintf(",rail%d_w", i)
			}
		}
		in, err := csvfile.Open(func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(text)), nil }, textin.Options{})
		if err == nil {
			_, err = textin.Look(in.Rows, in.Columns)
		}
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

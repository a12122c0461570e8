package out

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/wattmark/wattmark/analysis/figure"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/hostagent/measurement"
	"gonum.org/v1/plot/plotter"
)

func TestLegendFits(t *testing.T) {
	legend := "     ■ total   ■ pcie_3v3   ■ aux"
	for room := 12; room < 60; room++ {
		text := wrapLegend(legend, 2, room)
		if Widest(text) > max(room, len("  ■ pcie_3v3")-2) || strings.Count(text, "■") != 3 {
			t.Errorf("room %d:\n%s", room, text)
		}
	}
	if wrapLegend(legend, 2, 0) != legend {
		t.Error("a file has room")
	}
	if k := withKey("  MM══MM", "M marker, ═ window", 2, 20); Widest(k) > 20 || !strings.Contains(k, "\n  M marker") {
		t.Errorf("key %q", k)
	}
}

// A table without a header fits the screen, too: its words are wrapped.
func TestTablesWithoutAHeaderFit(t *testing.T) {
	var b strings.Builder
	screen := cli.NewScreen(&b, false, false)
	screen.Columns = 80
	w := NewTable(screen)
	w.AppendRow(table.Row{"!", "pcie_12v", "20.00 kS/s reached"})
	w.AppendRow(table.Row{"", "", strings.Repeat("the markers correct it ", 6)})
	w.Render()
	if Widest(b.String()) > 80 || strings.Count(b.String(), "correct") != 6 {
		t.Errorf("want 80 columns and all words:\n%s", b.String())
	}
}

// Beside a program nothing is drawn on the terminal that it writes to, and its last line stays.
func TestNothingIsDrawnBesideAProgram(t *testing.T) {
	var b strings.Builder
	p := &progressLine{w: &b, live: true, Program: true}
	said := func(phase measurement.Phase) string {
		b.Reset()
		p.Update(measurement.Progress{Phase: phase})
		return b.String()
	}
	if got := said(measurement.PhaseMarker); !strings.Contains(got, "playing a marker") {
		t.Errorf("before: %q", got)
	}
	for i, want := range []string{"\r\x1b[K", "", ""} {
		if got := said(measurement.PhaseWork); got != want {
			t.Errorf("update %d of the work: %q, want %q", i, got, want)
		}
	}
	if got := said(measurement.PhaseStop); !strings.HasPrefix(got, strings.Repeat(" ", 80)+"\r") || !strings.Contains(got, "stopping") {
		t.Errorf("behind: %q", got)
	}
	if got := said(measurement.PhaseDone) + said(measurement.PhaseDone); got != "\r\x1b[K" {
		t.Errorf("the end, twice: %q", got)
	}
	p = &progressLine{w: &b, live: true}
	if got := said(measurement.PhaseWork); !strings.Contains(got, "running the work") {
		t.Errorf("of a benchmark: %q", got)
	}
	p.Program, p.live, p.phase = true, false, ""
	if got := said(measurement.PhaseWork); !strings.Contains(got, "running the work") {
		t.Errorf("into a file: %q", got)
	}
}

// Of a table that is too wide, what matters least goes first: columns move together, headers break, then those marked
// with the most dashes are left out and named; a column marked with a tilde goes before all, without a word.
func TestWhatMattersStays(t *testing.T) {
	for _, c := range []struct {
		header, row table.Row
		has, hasNot []string
	}{
		{
			Row{"", "->A", "->B", ">B against A (95 %)", "-->p"},
			Row{"energy", strings.Repeat("1", 21), strings.Repeat("2", 21), strings.Repeat("3", 23), "< 0.0001"},
			[]string{" A ", " B ", "B against A", "333", "111", "left out: p (--wide)"},
			[]string{"0.0001"},
		},
		{
			Row{"in force", "-record", "-of", "--by", ">gain", ">u, today", ">zero", ">u, today"},
			Row{"current", strings.Repeat("r", 16), "2026-01-01", "ada", "1234567", "0.25 %", strings.Repeat("0", 22), "0.002 A"},
			[]string{"gain", "zero", "0.002 A", "left out: record; by (--wide)"},
			[]string{"ada", "rrr"},
		},
		{
			Row{"method", ">energy", "~a call (p50, p99)", "-note"},
			Row{"counter", strings.Repeat("1", 30), strings.Repeat("2", 30), strings.Repeat("3", 20)},
			[]string{"  111", "  333"},
			[]string{"a call", "222", "left out"},
		},
		{
			Row{"", ">A", ">B against A (± no drift)"},
			Row{strings.Repeat("0", 22), strings.Repeat("1", 33), strings.Repeat("2", 22)},
			[]string{"B against A \n", "(± no drift)", "222"},
			[]string{"left out"},
		},
	} {
		var b strings.Builder
		screen := cli.NewScreen(&b, false, false)
		screen.Columns = 80
		w := NewTable(screen, c.header...)
		w.AppendRow(c.row)
		w.Render()
		got := b.String()
		for _, want := range c.has {
			if !strings.Contains(got, want) {
				t.Errorf("no %q in\n%s", want, got)
			}
		}
		for _, no := range c.hasNot {
			if strings.Contains(got, no) {
				t.Errorf("%q in\n%s", no, got)
			}
		}
		if Widest(got) > 80 {
			t.Errorf("%d columns:\n%s", Widest(got), got)
		}
	}
}

// A warning amid the progress is wrapped; the progress is drawn as it is.
func TestWarningsFit(t *testing.T) {
	var b strings.Builder
	screen := cli.NewScreen(&b, false, false)
	screen.Columns, screen.Terminal = 40, true
	p := NewProgress(&cli.App{Streams: cli.Streams{Err: screen}})
	p.Expect(72 * time.Second)
	p.Update(measurement.Progress{Phase: measurement.PhaseWork, Scans: 123456789})
	p.Warn(strings.Repeat("the disk is full ", 6))
	p.End()
	drawn, warning, _ := strings.Cut(b.String(), "wattmark:")
	if Widest(warning) > 40 || !strings.Contains(drawn, " of 72 s, 123456789 samples stored") || strings.Contains(drawn, "\n") {
		t.Errorf("%q", b.String())
	}
}

// A chart's line is interpolated between its points, dots are not; marks lie below, and what
// is not for a terminal is left out.
func TestSketch(t *testing.T) {
	line := plotter.XYs{{X: 1, Y: 0}, {X: 9, Y: 80}}
	c := &figure.Chart{
		X: "time / s", Y: "share / %", XRange: [2]float64{0, 10}, YRange: [2]float64{0, 60},
		Lines: []figure.Line{
			{Name: "rise", Style: figure.Style{Sketch: true}, Points: line},
			{Name: "seen", Style: figure.Style{Radius: 2, Sketch: true}, Points: line},
			{Name: "hidden", Points: plotter.XYs{{X: 5, Y: 1e6}}},
		},
		Marks: []figure.Mark{{Name: "middle", Sign: 'M', At: 5}, {Name: "beyond", Sign: 'B', At: 11}},
	}
	place := func(x float64) float64 { return x }
	want := []float64{math.NaN(), 0, 7.5, 15, 22.5, 30, 37.5, 45, 52.5, 60}
	if diff := cmp.Diff(want, inColumns(c, &c.Lines[0], place, 10), cmpopts.EquateNaNs()); diff != "" {
		t.Error(diff)
	}
	dots := inColumns(c, &c.Lines[1], place, 10)
	if dots[1] != 0 || dots[9] != 60 || !math.IsNaN(dots[5]) {
		t.Errorf("dots %v", dots)
	}
	var b strings.Builder
	Sketch(&b, c)
	for _, want := range []string{" 60 % ┤", "M middle", "0 s", "10 s", "rise", "seen (o)"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is not in\n%s", want, b.String())
		}
	}
	if strings.Contains(b.String(), "hidden") || strings.Contains(b.String(), "beyond") {
		t.Errorf("too much in\n%s", b.String())
	}
	b.Reset()
	Sketch(&b, &figure.Chart{})
	if b.Len() > 0 {
		t.Errorf("an empty chart draws %q", b.String())
	}
}

package main

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/charmbracelet/x/ansi"

	"wattmark/hostagent/monitorclient"
	"wattmark/measure"
	"wattmark/store"
)

// watched is a monitor that was looked at for a while.
func watched(rails int) *topState {
	s := newTopState("lab-monitor.example:7551")
	now := time.Unix(1000, 0)
	benchNews{
		bench: monitorclient.Bench{
			Name: "desk", Instrument: store.Instrument{Model: "PowerSensor3", Serial: "F411"}, Holder: "行列@lab", CaptureID: "c2", HeldSince: now.Add(-90 * time.Second),
		},
		captures: []monitorclient.Capture{
			{ID: "c2", Holder: "行列@lab", TaskName: strings.Repeat("行列の積", 30), State: monitorclient.Running, Started: now.Add(-90 * time.Second), SpoolBytes: 12_345_678},
			{ID: "20261121-194300-deadbeef", Holder: "ada@lab", TaskName: "gemm", State: monitorclient.Incomplete, Reason: "monitor restarted;\nno samples", Started: now.Add(-3 * time.Hour)},
		},
	}.apply(s)
	for i := range 200 {
		m := monitorclient.Moment{CaptureID: "c2", Rate: 20e3, Scans: uint64(1000 * i), Lost: 7, Dropped: 3}
		for r := range rails {
			w := measure.Watt(50*(r+1)) + measure.Watt(i%20)
			m.Rails = append(m.Rails, monitorclient.RailValue{Rail: strings.Repeat("r", r%9+1) + "_12v", Power: w, Voltage: 12, Current: measure.Ampere(w / 12)})
			m.Total += w
		}
		momentNews{m}.apply(s)
	}
	return s
}

func TestTopFitsEveryTerminal(t *testing.T) {
	for _, rails := range []int{0, 1, 4, 40} {
		s := watched(rails)
		for _, width := range []int{1, 10, 30, 60, 80, 200} {
			for _, height := range []int{0, 1, 6, 10, 24, 60} {
				v := topView{width: width, height: height, now: time.Unix(1000, 0), look: colours()}
				text := v.picture(s)
				if got := widest(text); got > width {
					t.Fatalf("%d rails, %d × %d: %d columns:\n%s", rails, width, height, got, text)
				}
				// Head and foot are always there, whatever the height.
				if lines := strings.Count(text, "\n") + 1; height > 8 && lines > height {
					t.Errorf("%d rails, %d × %d: %d lines:\n%s", rails, width, height, lines, ansi.Strip(text))
				}
			}
		}
	}
}

func TestTopPicture(t *testing.T) {
	s := watched(2)
	text := topView{width: 100, now: time.Unix(1000, 0), look: plainLook()}.picture(s)
	for _, w := range []string{
		"lab-monitor.example:7551 · desk · PowerSensor3 F411", "held by 行列@lab for 90 s", "running", "20 kS/s · 199 000 scans, 7 lost · 3 values dropped here",
		"12.000", "69.00", "119.00", "peak 188.00", "188.00", "▇", "█", "12 MB", "incomplete", "gemm: monitor restarted; no samp", "3 h",
	} {
		if !strings.Contains(text, w) {
			t.Errorf("%q is not there:\n%s", w, text)
		}
	}
	if strings.Contains(text, "\x1b") {
		t.Error("colours where there are none")
	}
}

// What is not measured now is not shown as if it were.
func TestTopForgetsWhatIsOver(t *testing.T) {
	s := watched(2)
	show := func() string { return topView{width: 100, now: time.Unix(1000, 0), look: plainLook()}.picture(s) }
	benchNews{bench: monitorclient.Bench{Name: "desk"}}.apply(s)
	if text := show(); strings.Contains(text, "119.00") || !strings.Contains(text, "not sampled now") || !strings.Contains(text, "free") || s.report().Sampled {
		t.Errorf("a capture that is over:\n%s", text)
	}
	momentNews{monitorclient.Moment{Trouble: "the cable is out"}}.apply(s)
	if text := show(); !strings.Contains(text, "the cable is out") {
		t.Errorf("trouble:\n%s", text)
	}
	failureNews{errors.New("monitor does not\nanswer")}.apply(s)
	if text := show(); !strings.Contains(text, "monitor does not answer") {
		t.Errorf("a monitor that went away:\n%s", text)
	}
	if l := topLine(s, time.Unix(0, 0)); strings.Contains(l, "\n") || !strings.Contains(l, "not answer") {
		t.Errorf("line %q", l)
	}
	momentNews{monitorclient.Moment{Rate: 1, Rails: []monitorclient.RailValue{{Rail: "gpu", Power: 7}}, Total: 7}}.apply(s)
	if text := show(); !strings.Contains(text, "gpu") || strings.Contains(text, "r_12v") || len(s.total.watts) != 1 || s.err != nil {
		t.Errorf("other rails:\n%s", text)
	}
}

func TestSparkline(t *testing.T) {
	for _, c := range []struct {
		watts   []measure.Watt
		columns int
		want    string
	}{
		{nil, 3, "   "},
		{[]measure.Watt{0, 0}, 3, " ▁▁"},
		{[]measure.Watt{5}, 2, " █"},
		{[]measure.Watt{0, 1, 2, 3, 4, 5, 6, 7, 8}, 9, "▁▂▃▄▅▆▇██"},
		{[]measure.Watt{100, 0, 8}, 2, "▁█"},
		{[]measure.Watt{-4, 0, 4}, 3, "▁▅█"},
		{[]measure.Watt{1}, 0, ""},
	} {
		if got := sparkline(c.watts, c.columns); got != c.want {
			t.Errorf("%v in %d: %q, want %q", c.watts, c.columns, got, c.want)
		}
	}
}

func TestWords(t *testing.T) {
	for n, want := range map[uint64]string{0: "0", 999: "999", 1000: "1 000", 1234567: "1 234 567"} {
		if got := thousands(n); got != want {
			t.Errorf("%d: %q", n, got)
		}
	}
	for d, want := range map[time.Duration]string{-1: "0 s", 90 * time.Second: "90 s", 10 * time.Minute: "10 min", 3 * time.Hour: "3 h", 72 * time.Hour: "3 d"} {
		if got := age(d); got != want {
			t.Errorf("%v: %q", d, got)
		}
	}
}

// A plot of the terminal carries a slow meter's value on, and shows where samples were lost.
func TestPlotOfLostSamples(t *testing.T) {
	nan := math.NaN()
	for _, c := range []struct {
		name   string
		period measure.Seconds
		counts []int
		want   []float64
	}{
		{"every column", 0.1, []int{1, 2, 1, 1}, []float64{1, 1, 1, 1}},
		{"a slow meter", 3, []int{1, 0, 0, 1, 0, 0}, []float64{1, 1, 1, 1, 1, 1}},
		{"lost", 0.1, []int{0, 5, 0, 5, 0, 0, 5, 0, 0}, []float64{nan, 1, 1, 1, nan, nan, 1, nan, nan}},
		{"lost by a slow meter", 2, []int{1, 0, 1, 0, 0, 0, 0, 0, 1}, []float64{1, 1, 1, nan, nan, nan, nan, nan, 1}},
	} {
		tr := newTrace(0, measure.Seconds(len(c.counts)), []string{"rail"}, len(c.counts))
		for i, n := range c.counts {
			tr.counts[i], tr.total[i], tr.rails[0][i] = n, float64(n), float64(n)
		}
		tr.finish(c.period)
		for _, got := range [][]float64{tr.total, tr.rails[0]} {
			if fmt.Sprint(got) != fmt.Sprint(c.want) {
				t.Errorf("%s: %v, want %v", c.name, got, c.want)
			}
		}
	}
}

func TestLegendFits(t *testing.T) {
	legend := "     ■ total   ■ pcie_3v3   ■ aux"
	for room := 12; room < 60; room++ {
		text := wrapLegend(legend, 2, room)
		if widest(text) > max(room, len("  ■ pcie_3v3")-2) || strings.Count(text, "■") != 3 {
			t.Errorf("room %d:\n%s", room, text)
		}
	}
	if wrapLegend(legend, 2, 0) != legend {
		t.Error("a file has room")
	}
	if k := withKey("  MM══MM", 2, 20); widest(k) > 20 || !strings.Contains(k, "\n  M marker") {
		t.Errorf("key %q", k)
	}
}

// What a peer says is shown, not obeyed.
func TestPeersCannotWriteOnTheTerminal(t *testing.T) {
	const evil = "\x1b]0;title\x07\x1b[2Jgone"
	s := newTopState("lab:1")
	benchNews{
		bench:    monitorclient.Bench{Name: evil, Holder: evil, CaptureID: "c", Trouble: evil, Instrument: store.Instrument{Model: evil}},
		captures: []monitorclient.Capture{{ID: "c", Holder: evil, TaskName: evil, Reason: evil}},
	}.apply(s)
	for _, text := range []string{
		topView{width: 200, now: time.Unix(0, 0), look: plainLook()}.picture(s), topLine(s, time.Unix(0, 0)), indented("fail  ", evil, 80),
	} {
		if strings.ContainsAny(text, "\x1b\x07") {
			t.Errorf("got %q", text)
		}
	}
	failureNews{errors.New(evil)}.apply(s)
	if text := (topView{width: 200, look: plainLook()}).picture(s); strings.ContainsAny(text, "\x1b\x07") {
		t.Errorf("got %q", text)
	}
}

package top

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/charmbracelet/x/ansi"
	"github.com/wattmark/wattmark/cmd/internal/out"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/session"
	"github.com/wattmark/wattmark/store"
)

// watched is a monitor that was looked at for a while.
func watched(rails int) *topState {
	s := NewTopState("lab-monitor.example:7551")
	now := time.Unix(1000, 0)
	s.TakeBench(
		session.Bench{
			Name: "desk", Instrument: store.Instrument{Model: "PowerSensor3", Serial: "F411"}, Holder: "行列@lab",
			CaptureID: "c2", HeldSince: now.Add(-90 * time.Second),
			Waiting: []session.Waiting{{Holder: "bob@lab"}, {Holder: "eve@lab"}},
		},
		[]session.Capture{
			{
				ID: "c2", Holder: "行列@lab", TaskName: strings.Repeat("行列の積", 30), State: session.Running,
				Started: now.Add(-90 * time.Second), SpoolBytes: 12_345_678,
			},
			{
				ID: "20261121-194300-deadbeef", Holder: "ada@lab", TaskName: "gemm", State: session.Incomplete,
				Reason: "monitor restarted;\nno samples", Started: now.Add(-3 * time.Hour),
			},
		},
	)
	for i := range 200 {
		m := session.Moment{CaptureID: "c2", Rate: 20e3, Scans: uint64(1000 * i), Lost: 7, Dropped: 3}
		for r := range rails {
			w := measure.Watt(50*(r+1)) + measure.Watt(i%20)
			m.Rails = append(m.Rails, session.RailValue{
				Rail: strings.Repeat("r", r%9+1) + "_12v", Power: w,
				Voltage: 12, Current: measure.Ampere(w / 12),
			})
			m.Total += w
		}
		s.takeMoment(m)
	}
	return s
}

func TestTopFitsEveryTerminal(t *testing.T) {
	for _, rails := range []int{0, 1, 4, 40} {
		s := watched(rails)
		for _, width := range []int{1, 10, 30, 60, 80, 200} {
			for _, height := range []int{0, 1, 6, 10, 24, 60} {
				v := TopView{Width: width, height: height, Now: time.Unix(1000, 0), Look: out.Colours()}
				text := v.Picture(s)
				if got := out.Widest(text); got > width {
					t.Fatalf("%d rails, %d × %d: %d columns:\n%s", rails, width, height, got, text)
				}
				// Head and foot are always there, at any height.
				if lines := strings.Count(text, "\n") + 1; height > 8 && lines > height {
					t.Errorf("%d rails, %d × %d: %d lines:\n%s", rails, width, height, lines, ansi.Strip(text))
				}
			}
		}
	}
}

func TestTopPicture(t *testing.T) {
	s := watched(2)
	text := TopView{Width: 100, Now: time.Unix(1000, 0), Look: out.PlainLook()}.Picture(s)
	for _, w := range []string{
		"lab-monitor.example:7551 · desk · PowerSensor3 F411", "held by 行列@lab for 90 s · 2 waiting, bob@lab next", "running",
		"20 kS/s · 199 000 scans, 7 lost · 3 values dropped here",
		"12.000", "69.00", "119.00", "peak 188.00", "188.00", "▇", "█", "12 MB", "incomplete",
		"gemm: monitor restarted; no samp", "3 h",
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
	show := func() string { return TopView{Width: 100, Now: time.Unix(1000, 0), Look: out.PlainLook()}.Picture(s) }
	s.TakeBench(session.Bench{Name: "desk"}, nil)
	if text := show(); strings.Contains(text, "119.00") || !strings.Contains(text, "not sampled now") ||
		!strings.Contains(text, "free") || s.report().Sampled {
		t.Errorf("a capture that is over:\n%s", text)
	}
	s.takeMoment(session.Moment{Trouble: "the cable is out"})
	if text := show(); !strings.Contains(text, "the cable is out") {
		t.Errorf("trouble:\n%s", text)
	}
	s.TakeFailure(errors.New("monitor does not\nanswer"))
	if text := show(); !strings.Contains(text, "monitor does not answer") {
		t.Errorf("a monitor that went away:\n%s", text)
	}
	s.TakeFailure(errors.New(strings.Repeat("the monitor does not answer, ", 4) + "is it running?"))
	narrow := TopView{Width: 80, height: 24, Now: time.Unix(1000, 0), Look: out.PlainLook()}.Picture(s)
	if !strings.Contains(narrow, "is it running?") {
		t.Errorf("what to do is cut off:\n%s", narrow)
	}
	if l := TopLine(s, time.Unix(0, 0)); strings.Contains(l, "\n") || !strings.Contains(l, "not answer") {
		t.Errorf("line %q", l)
	}
	s.takeMoment(session.Moment{Rate: 1, Rails: []session.RailValue{{Rail: "gpu", Power: 7}}, Total: 7})
	if text := show(); !strings.Contains(text, "gpu") || strings.Contains(text, "r_12v") || len(s.total.watts) != 1 ||
		s.err != nil {
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
	for d, want := range map[time.Duration]string{
		-1: "0 s", 90 * time.Second: "90 s", 10 * time.Minute: "10 min",
		3 * time.Hour: "3 h", 72 * time.Hour: "3 d",
	} {
		if got := age(d); got != want {
			t.Errorf("%v: %q", d, got)
		}
	}
}

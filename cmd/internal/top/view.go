package top

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/out"
	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/session"
)

// topHistory is the number of values kept per rail for its sparkline.
const topHistory = 600

// topState is the state of a monitor as its viewer knows it. One goroutine owns
// it.
type topState struct {
	address  string
	bench    session.Bench
	captures []session.Capture
	moment   session.Moment
	err      error // the last failure; nil after a success

	// seen counts the averages received.
	seen  uint64
	rails []railCourse
	total railCourse
	asked bool // the bench has answered
	stale bool // moment belongs to a capture that has ended
	// trouble is the instrument's error in the last average, "" for none.
	trouble string
}

// railCourse is a rail's recent power in W.
type railCourse struct {
	name  string
	watts []measure.Watt // oldest first
	peak  measure.Watt   // since the viewer began
}

// add appends a value, drops the oldest beyond topHistory, and updates the peak.
func (c *railCourse) add(w measure.Watt) {
	if len(c.watts) == 0 || w > c.peak {
		c.peak = w
	}
	c.watts = append(c.watts, w)
	c.watts = c.watts[max(0, len(c.watts)-topHistory):]
}

// NewTopState returns the state before the first message.
func NewTopState(address string) *topState {
	return &topState{address: address, total: railCourse{name: "total"}}
}

// takeMoment takes an average. Other rail names mean another bench, or another bench
// file: the history then starts anew.
func (s *topState) takeMoment(m session.Moment) {
	s.err, s.trouble, s.stale = nil, m.Trouble, m.Trouble != ""
	if s.stale {
		return
	}
	s.seen++
	s.moment = m
	if !slices.EqualFunc(s.rails, m.Rails, func(c railCourse, v session.RailValue) bool { return c.name == v.Rail }) {
		s.total = railCourse{name: "total"}
		s.rails = lists.Map(m.Rails, func(v session.RailValue) railCourse { return railCourse{name: v.Rail} })
	}
	for i, v := range m.Rails {
		s.rails[i].add(v.Power)
	}
	s.total.add(m.Total)
}

// TakeBench takes the bench and its captures. The last average is stale once its
// capture no longer has the bench.
func (s *topState) TakeBench(b session.Bench, captures []session.Capture) {
	s.bench, s.captures, s.asked, s.err = b, captures, true, nil
	// An average without a capture is of an idle bench and stays valid.
	if s.seen > 0 && s.moment.CaptureID != "" && s.moment.CaptureID != b.CaptureID {
		s.stale = true
	}
}

// TakeFailure keeps the error to be shown and marks the values stale.
func (s *topState) TakeFailure(err error) { s.err, s.stale = err, true }

// TopReport is one picture in JSON, for scripts.
type TopReport struct {
	Monitor    string    `json:"monitor"`
	Version    string    `json:"version"`
	Protocol   string    `json:"protocol"`
	Bench      string    `json:"bench"`
	GPUUUID    string    `json:"gpu_uuid,omitempty"`
	Instrument string    `json:"instrument"`
	Holder     string    `json:"holder"`              // "" for a free bench
	HeldSince  time.Time `json:"held_since,omitzero"` // in UTC, whole seconds
	CaptureID  string    `json:"capture_id"`
	Draining   bool      `json:"draining"`
	Trouble    string    `json:"trouble,omitempty"`
	// The calibration in force; no records for the nominal scale.
	CalibrationID string   `json:"calibration_id"`
	Records       []string `json:"calibration_records"`
	// SetAside lists entries of the monitor's spool that could not be used.
	SetAside []string `json:"set_aside,omitempty"`

	// Sampled is false if nothing was sampled; the values below are then zero. Scans
	// and Lost count the running capture, ViewDropped values lost on the way to this
	// viewer.
	Sampled     bool                `json:"sampled"`
	RateHz      float64             `json:"rate_hz"`
	Scans       uint64              `json:"scans"`
	Lost        uint64              `json:"lost"`
	ViewDropped uint64              `json:"view_dropped"`
	TotalW      float64             `json:"total_w"`
	Rails       []session.RailValue `json:"rails"`
	Captures    []topCaptured       `json:"captures"`
}

// topCaptured is one capture in the monitor's spool.
type topCaptured struct {
	CaptureID  string    `json:"capture_id"`
	Holder     string    `json:"holder"`
	Task       string    `json:"task"`
	State      string    `json:"state"`
	Reason     string    `json:"reason,omitempty"`
	Started    time.Time `json:"started,omitzero"` // in UTC, whole seconds
	SpoolBytes uint64    `json:"spool_bytes"`
}

// report returns the state for JSON.
func (s *topState) report() TopReport {
	m := &s.moment
	r := TopReport{
		Monitor: s.address, Version: s.bench.Version, Protocol: s.bench.Protocol.String(), Bench: s.bench.Name,
		GPUUUID:    s.bench.GPU,
		Instrument: out.InstrumentText(s.bench.Instrument), Holder: s.bench.Holder, CaptureID: s.bench.CaptureID,
		Draining: s.bench.Draining, SetAside: s.bench.SetAside,
		Trouble: cmp.Or(s.trouble, s.bench.Trouble), Sampled: s.seen > 0 && !s.stale,
		Rails: []session.RailValue{}, Captures: []topCaptured{}, HeldSince: s.bench.HeldSince.UTC().Truncate(time.Second),
		CalibrationID: s.bench.CalibrationID, Records: s.bench.Setup.RecordIDs(),
	}
	if r.Sampled {
		r.RateHz, r.Scans, r.Lost, r.ViewDropped, r.TotalW = float64(m.Rate), m.Scans, m.Lost, m.Dropped, float64(m.Total)
		r.Rails = append(r.Rails, m.Rails...)
	}
	for _, c := range s.captures {
		r.Captures = append(r.Captures, topCaptured{
			CaptureID: c.ID, Holder: c.Holder, Task: c.TaskName, State: captureStates[c.State], Reason: c.Reason,
			Started: c.Started.UTC().Truncate(time.Second), SpoolBytes: c.SpoolBytes,
		})
	}
	return r
}

// captureStates names the states in text and JSON.
var captureStates = map[session.State]string{
	session.Arming: "arming", session.Running: "running", session.Stopping: "stopping",
	session.Complete: "complete", session.Incomplete: "incomplete", session.Released: "released",
}

// TopView draws a state as text. Height 0 means unlimited lines.
type TopView struct {
	Width, height int
	Now           time.Time
	held          bool // frozen: other keys in the last line
	Look          out.TopLook
}

// Picture draws a state, no line wider than the terminal. If lines are short, head
// and foot stay, rails are cut before the total, and captures are cut first.
func (v TopView) Picture(s *topState) string {
	head := v.head(s)
	foot := v.foot()
	room := math.MaxInt
	if v.height > 0 {
		room = max(v.height-len(head)-len(foot), 0)
	}
	rails := v.rails(s)
	if len(rails) > room { // the total, which is the last, stays
		rails = append(rails[:max(room-2, 0)], v.Look.Label("…"), rails[len(rails)-1])
		rails = rails[:min(len(rails), room)]
	}
	captures := v.captures(s)
	if left := room - len(rails); len(captures) > left {
		if left < 3 {
			captures = nil
		} else {
			captures = append(captures[:left-1], v.Look.Label(fmt.Sprintf("… %d more", len(captures)-left+1)))
		}
	}
	lines := slices.Concat(head, rails, captures, foot)
	for i, l := range lines {
		lines[i] = ansi.Truncate(l, max(v.Width, 1), "…")
	}
	return strings.Join(lines, "\n")
}

// head returns the title, the holder, the flow of samples, and troubles.
func (v TopView) head(s *topState) []string {
	b := &s.bench
	title := out.JoinNonEmpty(" · ", "wattmark top", s.address, measure.Printable(b.Name),
		out.InstrumentText(b.Instrument))
	lines := []string{v.Look.Title(title), "asking the monitor …"}
	if s.asked {
		lines[1] = v.holder(s)
	}
	if s.seen > 0 && !s.stale {
		lines = append(lines, v.flow(&s.moment))
	}
	switch trouble := cmp.Or(s.trouble, b.Trouble); {
	case s.err != nil:
		lines = append(lines, v.warning(s.err.Error())...)
	case trouble != "":
		lines = append(lines, v.warning(trouble)...)
	case b.Bridged != "":
		lines = append(lines, v.Look.Label(cli.OneLine(b.Bridged)))
	}
	if n := len(b.SetAside); n > 0 {
		lines = append(lines,
			v.warning(fmt.Sprintf("%s of the spool cannot be used: %s", measure.Plural(n, "place"), b.SetAside[0]))...)
	}
	return append(lines, "")
}

// warning wraps a text into three lines at most. The remedy is at its end.
func (v TopView) warning(text string) []string {
	lines := strings.Split(ansi.Wrap(cli.OneLine(text), max(v.Width, 1), ""), "\n")
	return lists.Map(lines[:min(len(lines), 3)], func(l string) string { return v.Look.Warn(l) })
}

// holder returns the line about the bench's holder.
func (v TopView) holder(s *topState) string {
	b := &s.bench
	switch {
	case b.Draining && b.Holder == "":
		return v.Look.Warn("the monitor is being stopped: it takes no new captures")
	case b.Holder == "":
		return "free"
	}
	text := fmt.Sprintf("held by %s for %s", measure.Printable(b.Holder), age(v.Now.Sub(b.HeldSince)))
	if n := len(b.Waiting); n > 0 {
		text += fmt.Sprintf(" · %d waiting, %s next", n, measure.Printable(b.Waiting[0].Holder))
	}
	for _, c := range s.captures {
		if c.ID == b.CaptureID {
			text = out.JoinNonEmpty(" · ", text, measure.Printable(c.TaskName), captureStates[c.State])
		}
	}
	if b.Draining {
		text += " · the monitor is being stopped"
	}
	return text
}

// flow returns the line about sample rate, scans and losses.
func (v TopView) flow(m *session.Moment) string {
	if m.Rate == 0 { // the monitor sends no counts
		return fmt.Sprintf("t = %.1f s · %d values dropped here", float64(m.T), m.Dropped)
	}
	lost := fmt.Sprintf("%d lost", m.Lost)
	if m.Lost > 0 {
		lost = v.Look.Warn(lost)
	}
	text := fmt.Sprintf("%s · %s scans, %s", out.RateText(m.Rate), thousands(m.Scans), lost)
	if m.Dropped > 0 {
		text += fmt.Sprintf(" · %d values dropped here", m.Dropped)
	}
	return text
}

// foot returns the keys; nothing where the height is unlimited, as in a single
// picture.
func (v TopView) foot() []string {
	if v.height == 0 {
		return nil
	}
	keys := map[bool]string{true: "held: p goes on · q quit", false: "q quit · p hold"}[v.held]
	return []string{"", v.Look.Label(keys)}
}

// captures returns a table of the captures in the spool.
func (v TopView) captures(s *topState) []string {
	if len(s.captures) == 0 {
		return nil
	}
	lines := []string{
		"", v.Look.Label(fmt.Sprintf("%-14s %-12s %-16s %-10s %9s", "capture", "state", "holder", "age", "spool")),
	}
	for _, c := range s.captures {
		started := "–"
		if !c.Started.IsZero() {
			started = age(v.Now.Sub(c.Started))
		}
		l := fmt.Sprintf("%s %-12s %s %-10s %9s  %s", cli.Fit(measure.Printable(c.ID), 14), captureStates[c.State],
			cli.Fit(measure.Printable(c.Holder), 16), started,
			cli.SizeText(c.SpoolBytes), out.JoinNonEmpty(": ", measure.Printable(c.TaskName), cli.OneLine(c.Reason)))
		lines = append(lines, strings.TrimRight(l, " "))
	}
	return lines
}

// TopLine returns a state as one line, for a log.
func TopLine(s *topState, now time.Time) string {
	who := cmp.Or(measure.Printable(s.bench.Holder), "free")
	stamp := now.Format("15:04:05")
	switch {
	case s.err != nil:
		return stamp + "  " + cli.OneLine(s.err.Error())
	case s.trouble != "":
		return stamp + "  " + who + "  " + cli.OneLine(s.trouble)
	case s.seen == 0 || s.stale:
		return stamp + "  " + who + "  not sampled"
	}
	text := fmt.Sprintf("%s  %s  %.2f W", stamp, who, float64(s.moment.Total))
	for _, r := range s.moment.Rails {
		text += fmt.Sprintf("  %s %.2f W", r.Rail, float64(r.Power))
	}
	if s.moment.Lost > 0 {
		text += fmt.Sprintf("  %s lost", measure.Plural(s.moment.Lost, "scan"))
	}
	return text
}

// rails returns one line per rail and the total: V, A and W in ten columns each
// and, if wide enough, a sparkline of recent power. Stale values are dashes.
func (v TopView) rails(s *topState) []string {
	if len(s.rails) == 0 {
		return nil
	}
	name := len("total")
	for _, r := range s.rails {
		name = max(name, ansi.StringWidth(r.name))
	}
	name = min(name, max(v.Width/4, 5))
	numbers := name + 3*10 + 2 // three columns of numbers, and a space before the course
	course := max(v.Width-numbers, 0)
	const least = 30 // width that the picture is laid out for; a narrower terminal cuts its lines
	wide := v.Width >= least+numbers/2 && course >= 8
	lines := []string{v.Look.Label(cli.Fit("rail", name) + fmt.Sprintf("%10s%10s%10s", "V", "A", "W"))}
	for i, r := range s.rails {
		m, figures := s.moment.Rails[i], fmt.Sprintf("%10s%10s%10s", "–", "–", "–")
		if !s.stale {
			figures = railCell(float64(m.Voltage)) + railCell(float64(m.Current)) + watts(m.Power)
		}
		l := cli.Fit(r.name, name) + figures
		if wide {
			l += "  " + v.Look.Course(sparkline(r.watts, course-1))
		}
		lines = append(lines, l)
	}
	total := cli.Fit("total", name) + fmt.Sprintf("%20s", "peak "+
		strings.TrimSpace(watts(s.total.peak))) + watts(s.moment.Total)
	if s.stale {
		total = cli.Fit("total", name) + fmt.Sprintf("%30s", "not sampled now")
	}
	total = v.Look.Total(total)
	if wide {
		total += "  " + v.Look.Course(sparkline(s.total.watts, course-1))
	}
	return append(lines, total)
}

// railCell formats a value in ten columns; 0, not measured, is a dash.
func railCell(x float64) string {
	if x == 0 {
		return fmt.Sprintf("%10s", "–")
	}
	return fmt.Sprintf("%10.3f", x)
}

// watts formats a power in ten columns.
func watts(w measure.Watt) string { return fmt.Sprintf("%10.2f", float64(w)) }

// bars are the heights of a sparkline.
var bars = []rune("▁▂▃▄▅▆▇█")

// sparkline draws the last values in so many columns, the newest at the right. The
// scale runs from zero, or the lowest value below it, to the highest shown.
func sparkline(w []measure.Watt, columns int) string {
	columns = max(columns, 0)
	w = w[max(len(w)-columns, 0):]
	lo, hi := measure.Watt(0), measure.Watt(0)
	for _, x := range w {
		lo, hi = min(lo, x), max(hi, x)
	}
	var b strings.Builder
	b.WriteString(strings.Repeat(" ", columns-len(w)))
	for _, x := range w {
		i := 0
		if hi > lo {
			i = int((x - lo) / (hi - lo) * measure.Watt(len(bars)))
		}
		b.WriteRune(bars[min(max(i, 0), len(bars)-1)])
	}
	return b.String()
}

// age formats a duration with its largest unit: 12 s, 3 min, 2 h, 5 d.
func age(d time.Duration) string {
	switch {
	case d < 0:
		return "0 s"
	case d < 2*time.Minute:
		return fmt.Sprintf("%.0f s", d.Seconds())
	case d < 2*time.Hour:
		return fmt.Sprintf("%.0f min", d.Minutes())
	case d < 48*time.Hour:
		return fmt.Sprintf("%.0f h", d.Hours())
	}
	return fmt.Sprintf("%.0f d", d.Hours()/24)
}

// thousands groups digits by three, with spaces.
func thousands(n uint64) string {
	s := strconv.FormatUint(n, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + " " + s[i:]
	}
	return s
}

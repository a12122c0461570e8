package top

import (
	"cmp"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/out"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/session"
)

// TopView draws a state as text. Height 0 means unlimited lines.
type TopView struct {
	Width, height int
	Now           time.Time
	held          bool // frozen: other keys in the last line
	Look          out.TopLook
}

// leastWidth is the least width that the picture is laid out for; a narrower
// terminal cuts its lines.
const leastWidth = 30

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
	var lines []string
	for _, part := range [][]string{head, rails, captures, foot} {
		lines = append(lines, part...)
	}
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
	lines := []string{v.Look.Title(title)}
	if !s.asked {
		lines = append(lines, "asking the monitor …")
	} else {
		lines = append(lines, v.holder(s))
	}
	if s.seen > 0 && !s.stale {
		lines = append(lines, v.flow(&s.moment))
	}
	switch {
	case s.err != nil:
		lines = append(lines, v.Look.Warn(cli.OneLine(s.err.Error())))
	case cmp.Or(s.trouble, b.Trouble) != "":
		lines = append(lines, v.Look.Warn(cli.OneLine(cmp.Or(s.trouble, b.Trouble))))
	case b.Bridged != "":
		lines = append(lines, v.Look.Label(cli.OneLine(b.Bridged)))
	}
	if n := len(b.SetAside); n > 0 {
		lines = append(lines,
			v.Look.Warn(cli.OneLine(fmt.Sprintf("%s of the spool cannot be used: %s", cli.Plural(n, "place"), b.SetAside[0]))))
	}
	return append(lines, "")
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
	keys := "q quit · p hold"
	if v.held {
		keys = "held: p goes on · q quit"
	}
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
		text += fmt.Sprintf("  %d scans lost", s.moment.Lost)
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
	// Three columns of ten, and two spaces before the sparkline.
	numbers := name + 3*10 + 2 // three columns of numbers, and a space before the course
	course := max(v.Width-numbers, 0)
	wide := v.Width >= leastWidth+numbers/2 && course >= 8
	lines := []string{v.Look.Label(cli.Fit("rail", name) + fmt.Sprintf("%10s%10s%10s", "V", "A", "W"))}
	for i, r := range s.rails {
		m := s.moment.Rails[i]
		l := cli.Fit(r.name, name) + railCell(float64(m.Voltage), 3) + railCell(float64(m.Current), 3) + watts(m.Power)
		if s.stale {
			l = cli.Fit(r.name, name) + fmt.Sprintf("%10s%10s%10s", "–", "–", "–")
		}
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
func railCell(x float64, decimals int) string {
	if x == 0 {
		return fmt.Sprintf("%10s", "–")
	}
	return fmt.Sprintf("%10.*f", decimals, x)
}

// watts formats a power in ten columns.
func watts(w measure.Watt) string { return fmt.Sprintf("%10.2f", float64(w)) }

// bars are the heights of a sparkline.
var bars = []rune("▁▂▃▄▅▆▇█")

// sparkline draws the last values in so many columns, the newest at the right. The
// scale runs from zero, or the lowest value below it, to the highest shown.
func sparkline(w []measure.Watt, columns int) string {
	if columns <= 0 {
		return ""
	}
	w = w[max(len(w)-columns, 0):]
	lo, hi := 0.0, 0.0
	for _, x := range w {
		lo, hi = math.Min(lo, float64(x)), math.Max(hi, float64(x))
	}
	var b strings.Builder
	b.WriteString(strings.Repeat(" ", columns-len(w)))
	for _, x := range w {
		i := 0
		if hi > lo {
			i = int((float64(x) - lo) / (hi - lo) * float64(len(bars)))
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

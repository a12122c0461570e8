package main

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"

	"wattmark/hostagent/monitorclient"
	"wattmark/measure"
	"wattmark/store"
)

// topLook colours parts of the picture.
type topLook struct{ title, label, course, total, warn func(string) string }

func plainLook() topLook {
	same := func(s string) string { return s }
	return topLook{same, same, same, same, same}
}

// topView draws a state. Height 0 is as high as it gets.
type topView struct {
	width, height int
	now           time.Time
	held          bool // the picture is held
	look          topLook
}

// leastWidth is what the picture is drawn for at least; a narrower terminal
// cuts its lines.
const leastWidth = 30

// picture draws a state, each line at most as wide as the terminal.
func (v topView) picture(s *topState) string {
	head := v.head(s)
	foot := v.foot(s)
	room := math.MaxInt
	if v.height > 0 {
		room = max(v.height-len(head)-len(foot), 0)
	}
	rails := v.rails(s)
	if len(rails) > room { // the total, which is the last, stays
		rails = append(rails[:max(room-2, 0)], v.look.label("…"), rails[len(rails)-1])
		rails = rails[:min(len(rails), room)]
	}
	captures := v.captures(s)
	if left := room - len(rails); len(captures) > left {
		if left < 3 {
			captures = nil
		} else {
			captures = append(captures[:left-1], v.look.label(fmt.Sprintf("… %d more", len(captures)-left+1)))
		}
	}
	var lines []string
	for _, part := range [][]string{head, rails, captures, foot} {
		lines = append(lines, part...)
	}
	for i, l := range lines {
		lines[i] = ansi.Truncate(l, max(v.width, 1), "…")
	}
	return strings.Join(lines, "\n")
}

func (v topView) head(s *topState) []string {
	b := &s.bench
	title := joinNonEmpty(" · ", "wattmark top", s.address, measure.Printable(b.Name), instrumentText(b.Instrument))
	lines := []string{v.look.title(title)}
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
		lines = append(lines, v.look.warn(oneLine(s.err.Error())))
	case firstOf(s.trouble, b.Trouble) != "":
		lines = append(lines, v.look.warn(oneLine(firstOf(s.trouble, b.Trouble))))
	case b.Bridged != "":
		lines = append(lines, v.look.label(oneLine(b.Bridged)))
	}
	if n := len(b.SetAside); n > 0 {
		lines = append(lines, v.look.warn(oneLine(fmt.Sprintf("%s of the spool cannot be used: %s", plural(n, "place"), b.SetAside[0]))))
	}
	return append(lines, "")
}

// holder says who has the bench.
func (v topView) holder(s *topState) string {
	b := &s.bench
	switch {
	case b.Draining && b.Holder == "":
		return v.look.warn("the monitor is being stopped: it takes no new captures")
	case b.Holder == "":
		return "free"
	}
	text := fmt.Sprintf("held by %s for %s", measure.Printable(b.Holder), age(v.now.Sub(b.HeldSince)))
	for _, c := range s.captures {
		if c.ID == b.CaptureID {
			text = joinNonEmpty(" · ", text, measure.Printable(c.TaskName), captureStates[c.State])
		}
	}
	if b.Draining {
		text += " · the monitor is being stopped"
	}
	return text
}

// flow says what comes, and what is lost.
func (v topView) flow(m *monitorclient.Moment) string {
	if m.Rate == 0 { // a monitor that does not tell
		return fmt.Sprintf("t = %.1f s · %d values dropped here", float64(m.T), m.Dropped)
	}
	lost := fmt.Sprintf("%d lost", m.Lost)
	if m.Lost > 0 {
		lost = v.look.warn(lost)
	}
	text := fmt.Sprintf("%s · %s scans, %s", rateText(float64(m.Rate)), thousands(m.Scans), lost)
	if m.Dropped > 0 {
		text += fmt.Sprintf(" · %d values dropped here", m.Dropped)
	}
	return text
}

func (v topView) foot(*topState) []string {
	if v.height == 0 {
		return nil
	}
	keys := "q quit · p hold"
	if v.held {
		keys = "held: p goes on · q quit"
	}
	return []string{"", v.look.label(keys)}
}

// captures lists what the monitor keeps.
func (v topView) captures(s *topState) []string {
	if len(s.captures) == 0 {
		return nil
	}
	lines := []string{"", v.look.label(fmt.Sprintf("%-14s %-12s %-16s %-10s %9s", "capture", "state", "holder", "age", "spool"))}
	for _, c := range s.captures {
		started := "–"
		if !c.Started.IsZero() {
			started = age(v.now.Sub(c.Started))
		}
		l := fmt.Sprintf("%s %-12s %s %-10s %9s  %s", fit(measure.Printable(c.ID), 14), captureStates[c.State], fit(measure.Printable(c.Holder), 16), started,
			sizeText(c.SpoolBytes), joinNonEmpty(": ", measure.Printable(c.TaskName), oneLine(c.Reason)))
		lines = append(lines, strings.TrimRight(l, " "))
	}
	return lines
}

// topLine is a state on one line, for a log.
func topLine(s *topState, now time.Time) string {
	who := firstOf(measure.Printable(s.bench.Holder), "free")
	stamp := now.Format("15:04:05")
	switch {
	case s.err != nil:
		return stamp + "  " + oneLine(s.err.Error())
	case s.trouble != "":
		return stamp + "  " + who + "  " + oneLine(s.trouble)
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

func instrumentText(i store.Instrument) string {
	return measure.Printable(joinNonEmpty(" ", firstOf(i.Model, i.Kind), i.Serial))
}

// fit pads a text to a number of columns, or cuts it.
func fit(s string, columns int) string {
	s = ansi.Truncate(s, columns, "…")
	return s + strings.Repeat(" ", columns-ansi.StringWidth(s))
}

// oneLine makes one line of a text, without what a terminal would obey.
func oneLine(s string) string { return measure.Printable(strings.Join(strings.Fields(s), " ")) }

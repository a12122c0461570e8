package out

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"charm.land/lipgloss/v2"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/hostagent/measurement"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/store"
	"golang.org/x/term"
)

// IsTerminal reports whether a stream is a file that is a terminal.
func IsTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// progressLine shows a measurement's phase: on a terminal in one line that is redrawn, into a
// file as one line per phase. It is safe for concurrent use.
type progressLine struct {
	w     io.Writer
	live  bool          // w is a terminal
	every time.Duration // least time between two drawings

	mu    sync.Mutex
	phase measurement.Phase
	begin time.Time
	shown time.Time
}

var phaseTexts = map[measurement.Phase]string{
	measurement.PhaseBench: "asking the monitor", measurement.PhaseCapture: "starting the capture",
	measurement.PhaseWarmUp: "warming up the GPU", measurement.PhaseMarker: "playing a marker",
	measurement.PhaseWork: "running the work", measurement.PhaseStop: "stopping the capture",
	measurement.PhaseTransfer: "fetching samples", measurement.PhaseAnalysis: "computing joules",
}

// NewProgress returns a progress line on w. Times count from now.
func NewProgress(w io.Writer) *progressLine {
	return &progressLine{w: w, live: IsTerminal(w), every: 100 * time.Millisecond, begin: time.Now()}
}

// Update shows a measurement's progress; the phase PhaseDone clears the line.
func (p *progressLine) Update(u measurement.Progress) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if u.Phase == measurement.PhaseDone {
		p.clear()
		return
	}
	changed := u.Phase != p.phase
	p.phase = u.Phase
	now := time.Now()
	if !p.live {
		if changed {
			fmt.Fprintf(p.w, "%6.2f s  %s\n", now.Sub(p.begin).Seconds(), phaseTexts[u.Phase])
		}
		return
	}
	if !changed && now.Sub(p.shown) < p.every {
		return
	}
	p.shown = now
	spin := []rune("⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏")[int(now.UnixMilli()/100)%10]
	fmt.Fprintf(p.w, "\r\x1b[K%c %-22s %v, %d samples stored", spin, phaseTexts[u.Phase],
		measure.SecondsOf(now.Sub(p.begin).Round(100*time.Millisecond)), u.Scans)
}

// Warn prints a warning on a line of its own; the next Update draws the progress below it.
func (p *progressLine) Warn(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clear()
	fmt.Fprintln(p.w, "wattmark:", text)
}

func (p *progressLine) clear() {
	if p.live {
		fmt.Fprint(p.w, "\r\x1b[K")
	}
}

// groupProgress shows the phase of the first GPU that still runs, and the samples stored of
// all GPUs. It is safe for concurrent use.
type groupProgress struct {
	a    *cli.App
	Line *progressLine

	mu    sync.Mutex
	last  []measurement.Progress
	ended []bool
}

// NewGroupProgress returns the progress of a group's measurement; missing members count as ended.
func NewGroupProgress(a *cli.App, members []measurement.Member) *groupProgress {
	p := &groupProgress{
		a: a, Line: NewProgress(a.Err), last: make([]measurement.Progress, len(members)), ended: make([]bool, len(members)),
	}
	for i, m := range members {
		p.ended[i] = m.Missing != nil
	}
	return p
}

// Update shows the progress of one member.
func (p *groupProgress) Update(member int, u measurement.Progress) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last[member] = u
	p.ended[member] = u.Phase == measurement.PhaseDone
	shown := measurement.Progress{}
	for i, x := range p.last {
		shown.Scans += x.Scans
		if shown.Phase == "" && !p.ended[i] {
			shown.Phase = x.Phase
		}
	}
	if shown.Phase != "" {
		p.Line.Update(shown)
	}
}

// Lost reports a member whose measurement failed; the others go on.
func (p *groupProgress) Lost(member int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended[member] = true
	p.Line.clear()
	fmt.Fprintf(p.a.Err, "wattmark: GPU %d is not measured: %v\n", member, err)
}

// End clears the line.
func (p *groupProgress) End() { p.Line.clear() }

// Colours returns the look of a live picture on a terminal. bubbletea removes the colours
// that the terminal does not support, and all of them with NO_COLOR.
func Colours() TopLook {
	style := func(s lipgloss.Style) func(string) string {
		return func(text string) string { return s.Render(text) }
	}
	return TopLook{
		Title: style(lipgloss.NewStyle().Bold(true)),
		Label: style(lipgloss.NewStyle().Faint(true)),
		// Colours of the terminal's palette are readable on light and dark backgrounds.
		Course: style(lipgloss.NewStyle().Foreground(lipgloss.Blue)),
		Total:  style(lipgloss.NewStyle().Bold(true)),
		Warn:   style(lipgloss.NewStyle().Foreground(lipgloss.Red).Bold(true)),
	}
}

// TopLook is the style of a live picture: functions that add colour to the text of its parts.
type TopLook struct{ Title, Label, Course, Total, Warn func(string) string }

// PlainLook returns the look without colours.
func PlainLook() TopLook {
	same := func(s string) string { return s }
	return TopLook{same, same, same, same, same}
}

// InstrumentText returns an instrument's model (or kind) and serial number, printable.
func InstrumentText(i store.Instrument) string {
	return measure.Printable(JoinNonEmpty(" ", cmp.Or(i.Model, i.Kind), i.Serial))
}

// Package out formats results as text: quantities with their uncertainty, tables, progress
// on a terminal, and the text around plots. Functions write to the writer they get and keep
// no state; only the progress lines have one.
package out

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/x/ansi"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/hostagent/measurement"
	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/store"
	"golang.org/x/term"
)

// Row is a line of a table, with a cell for each column.
type Row = table.Row

// NewTable returns a table without borders that Render writes to w, with the header if one is given. A column whose
// header begins with > is aligned to the right.
//
// In a terminal that is too narrow, the widest column of words is wrapped. If that does not do, a column whose header
// begins with ~ is left out; then columns move together and headers break before brackets; then columns are left out and
// named: those whose header begins with the most - (before >) first, then from the right. The first column stays.
func NewTable(w io.Writer, header ...any) table.Writer {
	t := &fitted{Writer: table.NewWriter(), w: w, configs: map[int]table.ColumnConfig{}}
	t.screen, _ = w.(*cli.Screen)
	t.SetStyle(table.StyleLight)
	if t.ascii() {
		t.SetStyle(table.StyleDefault)
	}
	t.Style().Options.DrawBorder = false
	t.Style().Options.SeparateColumns = false
	t.Style().Format.Header = text.FormatDefault
	t.Style().Format.Footer = text.FormatDefault
	if len(header) > 0 {
		t.AppendHeader(header)
	}
	return t
}

// fitted is a table that fits into a terminal.
type fitted struct {
	table.Writer
	w       io.Writer
	screen  *cli.Screen // nil where w is none
	names   []string
	widths  []int // of the widest cell
	early   []int // how early each column of the header is left out; 0 for last
	configs map[int]table.ColumnConfig
}

func (t *fitted) ascii() bool { return t.screen != nil && t.screen.ASCII }

// AppendHeader sets the header; marks at the begin of names are as in NewTable.
func (t *fitted) AppendHeader(header table.Row, more ...table.RowConfig) {
	names := slices.Clone(header) // the header itself may be shared between calls
	for i, h := range header {
		c := table.ColumnConfig{Number: i + 1}
		marked := fmt.Sprint(h)
		name := strings.TrimLeft(marked, "-~")
		t.early = append(t.early, len(marked)-len(name))
		if strings.HasPrefix(marked, "~") {
			t.early[i] = math.MaxInt
		}
		if plain, right := strings.CutPrefix(name, ">"); right {
			name, c.Align, c.AlignHeader, c.AlignFooter = plain, text.AlignRight, text.AlignRight, text.AlignRight
		}
		names[i] = name
		if t.ascii() {
			plain := func(v any) string { return cli.ToASCII(fmt.Sprint(v)) }
			c.Transformer, c.TransformerHeader, c.TransformerFooter = plain, plain, plain
		}
		t.configs[i+1] = c
		t.names, t.widths = append(t.names, name), append(t.widths, ansi.StringWidth(name))
	}
	t.Writer.AppendHeader(names, more...)
	t.SetColumnConfigs(nil)
}

// AppendRow adds a row. Columns beyond the header's have no name.
func (t *fitted) AppendRow(row table.Row, more ...table.RowConfig) {
	for i, v := range row {
		if i == len(t.widths) {
			t.names, t.widths = append(t.names, ""), append(t.widths, 0)
		}
		t.widths[i] = max(t.widths[i], Widest(fmt.Sprint(v)))
	}
	t.Writer.AppendRow(row, more...)
}

// SetColumnConfigs adds to the configuration of columns; alignment and hiding stay.
func (t *fitted) SetColumnConfigs(more []table.ColumnConfig) {
	for _, m := range more {
		c := t.configs[m.Number]
		m.Hidden = m.Hidden || c.Hidden
		if m.Align == text.AlignDefault {
			m.Align, m.AlignHeader, m.AlignFooter = c.Align, c.AlignHeader, c.AlignFooter
		}
		m.Transformer, m.TransformerHeader, m.TransformerFooter = c.Transformer, c.TransformerHeader, c.TransformerFooter
		t.configs[m.Number] = m
	}
	t.Writer.SetColumnConfigs(slices.Collect(maps.Values(t.configs)))
}

// leastWords is the least width of a wrapped column.
const leastWords = 24

// Render writes the table, and the names of the columns that were left out.
func (t *fitted) Render() string {
	drawn := t.Writer.Render()
	var hidden []string
	if t.screen != nil && t.screen.Columns > 0 {
		drawn = t.wrap(drawn)
		narrow := false
		for order := t.order(); len(order) > 0 && Widest(drawn) > t.screen.Columns; drawn = t.wrap(t.Writer.Render()) {
			n := order[0]
			named := n > len(t.early) || t.early[n-1] < math.MaxInt
			if named && !narrow {
				narrow = true
				t.narrow()
				continue
			}
			order = order[1:]
			if named && t.names[n-1] != "" {
				hidden = append(hidden, t.names[n-1])
			}
			t.SetColumnConfigs([]table.ColumnConfig{{Number: n, Hidden: true}})
		}
	}
	if drawn != "" {
		fmt.Fprintln(cli.Raw(t.w), drawn)
	}
	if len(hidden) > 0 {
		slices.Reverse(hidden)
		fmt.Fprintf(t.w, "  left out: %s (--wide)\n", strings.Join(hidden, "; "))
	}
	return drawn
}

// narrow leaves one column between cells, and breaks headers that are wider than their cells.
func (t *fitted) narrow() {
	t.Style().Box.PaddingLeft = ""
	var header Row
	for i := range t.early {
		name := t.names[i]
		if Widest(name) == t.widths[i] {
			name = strings.Replace(name, " (", "\n(", 1)
		}
		header = append(header, name)
	}
	t.ResetHeaders()
	t.Writer.AppendHeader(header)
}

// wrap wraps the widest columns of words where the table is too wide and that is enough.
func (t *fitted) wrap(drawn string) string {
	over := Widest(drawn) - t.screen.Columns
	if over <= 0 {
		return drawn
	}
	widths, narrowed := slices.Clone(t.widths), map[int]int{}
	for over > 0 {
		widest := -1
		for i, w := range widths {
			c := t.configs[i+1]
			if !c.Hidden && c.Align != text.AlignRight && w > leastWords && (widest < 0 || w > widths[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			return drawn
		}
		w := max(leastWords, widths[widest]-over)
		over -= widths[widest] - w
		widths[widest], narrowed[widest] = w, w
	}
	for i, w := range narrowed {
		c := t.configs[i+1]
		c.Number, c.WidthMax, c.WidthMaxEnforcer = i+1, w, text.WrapSoft
		t.SetColumnConfigs([]table.ColumnConfig{c})
	}
	return t.Writer.Render()
}

// order returns the columns, counted from 1, in the order in which they are left out.
func (t *fitted) order() (order []int) {
	early := append(slices.Clone(t.early), make([]int, len(t.names)-len(t.early))...)
	for n := 2; n <= len(t.names); n++ {
		order = append(order, n)
	}
	slices.SortFunc(order, func(a, b int) int {
		x, y := early[a-1], early[b-1]
		if x == y && x > 0 {
			return a - b
		}
		return cmp.Or(cmp.Compare(y, x), b-a)
	})
	return order
}

// Table writes a table with a header and one row per item of list.
func Table[T any](w io.Writer, header Row, list []T, row func(T) Row) {
	t := NewTable(w, header...)
	for _, x := range list {
		t.AppendRow(row(x))
	}
	t.Render()
}

// Each writes each item of a list by a format that takes it.
func Each[T any](w io.Writer, format string, list []T) {
	for _, x := range list {
		fmt.Fprintf(w, format, x)
	}
}

// ToFile writes a new file by write, as a whole or not at all; nothing where path is empty.
func ToFile(path string, write func(io.Writer) error) error {
	if path == "" {
		return nil
	}
	return cli.WriteFile(path, write)
}

// Known formats v, or returns other where it is NaN or infinite.
func Known[T ~float64](v T, format, other string) string {
	if !measure.Known(v) {
		return other
	}
	return fmt.Sprintf(format, float64(v))
}

// EnergyText returns E ± U in joules with two significant digits of U (GUM, 7.2.6), at most
// nine decimals. Without a finite positive U it has four digits and no uncertainty.
func EnergyText[T ~float64](e, u T) string { return WithU(e, u, "J") }

// WithU returns a value ± U in a unit, as EnergyText does.
func WithU[T ~float64](v, u T, unit string) string {
	if !(u > 0) || !measure.Known(u) {
		return fmt.Sprintf("%.4g %s", float64(v), unit)
	}
	decimals := measure.Decimals(float64(u))
	return fmt.Sprintf("%.*f %s ± %.*f %s", decimals, float64(v), unit, decimals, float64(u), unit)
}

// Energy returns an estimate as EnergyText formats it.
func Energy(e measure.Estimate) string { return EnergyText(e.Energy, e.U) }

// RateText returns a sample rate in S/s with an SI prefix.
func RateText(rate measure.Hertz) string { return strings.TrimSuffix(rate.String(), "Hz") + "S/s" }

// GapText returns the number of gaps with the samples lost in them.
func GapText(gaps, lost uint64) string {
	if gaps == 0 {
		return "no gap"
	}
	return fmt.Sprintf("%s (%s lost)", measure.Plural(gaps, "gap"), measure.Plural(lost, "sample"))
}

// JoinNonEmpty joins the parts that are not empty.
func JoinNonEmpty(sep string, parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(p string) bool { return p == "" }), sep)
}

// Widest returns the width of the widest line in terminal columns.
func Widest(text string) (n int) {
	for l := range strings.SplitSeq(text, "\n") {
		n = max(n, ansi.StringWidth(l))
	}
	return n
}

// FileSystem returns the type of a directory's file system, as ext4: that of the longest
// mount point that is a prefix of dir, an absolute path. Empty if it is unknown, as on
// systems other than Linux.
func FileSystem(dir string) string {
	b, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return ""
	}
	best, kind := "", ""
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) < 3 {
			continue
		}
		at := strings.TrimSuffix(f[1], "/") + "/"
		if strings.HasPrefix(dir+"/", at) && len(at) >= len(best) {
			best, kind = at, f[2]
		}
	}
	return kind
}

// Coloured reports whether a stream is a terminal that is to have colours: not with NO_COLOR,
// a TERM that is dumb, or in ASCII.
func Coloured(w io.Writer) bool {
	s, ok := w.(*cli.Screen)
	return IsTerminal(w) && !(ok && s.ASCII) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

// IsTerminal reports whether a stream is a file that is a terminal, or a screen on one.
func IsTerminal(stream any) bool {
	if s, ok := stream.(*cli.Screen); ok {
		return s.Terminal
	}
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// progressLine shows a measurement's phase: on a terminal in one line that is redrawn, into a
// file as one line per phase. It is safe for concurrent use.
type progressLine struct {
	w     io.Writer
	live  bool // w is a terminal
	quiet bool // only warnings
	// Program: the work is a program. On its terminal nothing is drawn while it runs.
	Program bool

	mu    sync.Mutex
	phase measurement.Phase
	begin time.Time
	of    time.Duration // from begin to the end; 0 where it is not known
	shown time.Time
	drawn bool // the line is on the terminal
}

var phaseTexts = map[measurement.Phase]string{
	measurement.PhaseBench: "asking for the meter", measurement.PhaseCapture: "starting the capture",
	measurement.PhaseWarmUp: "warming up the GPU", measurement.PhaseMarker: "playing a marker",
	measurement.PhaseWork: "running the work", measurement.PhaseStop: "stopping the capture",
	measurement.PhaseTransfer: "fetching samples", measurement.PhaseAnalysis: "computing joules",
}

// NewProgress returns a progress line on standard error. Times count from now.
func NewProgress(a *cli.App) *progressLine {
	return &progressLine{w: a.Err, live: IsTerminal(a.Err), quiet: a.Quiet, begin: time.Now()}
}

// Expect counts the times from now, and shows with them how long it takes in all.
func (p *progressLine) Expect(length time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.begin, p.of = time.Now(), length
}

// Update shows a measurement's progress; the phase PhaseDone clears the line.
func (p *progressLine) Update(u measurement.Progress) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if u.Phase == measurement.PhaseDone {
		p.clear()
	}
	changed, now := u.Phase != p.phase, time.Now()
	switch {
	case p.quiet || u.Phase == measurement.PhaseDone || !changed && (!p.live || now.Sub(p.shown) < 100*time.Millisecond):
		return
	case !p.live:
		p.phase = u.Phase
		fmt.Fprintf(p.w, "%6.2f s  %s\n", now.Sub(p.begin).Seconds(), phaseTexts[u.Phase])
		return
	case p.Program && u.Phase == measurement.PhaseWork:
		p.phase = u.Phase
		p.clear()
		return
	case p.Program && p.phase == measurement.PhaseWork:
		// A line of spaces goes on to the next line where the program has not ended its last one.
		fmt.Fprint(cli.Raw(p.w), strings.Repeat(" ", cli.NewScreen(cli.Raw(p.w), false, false).Width())+"\r")
	}
	p.phase = u.Phase
	p.shown, p.drawn = now, true
	spin := []rune("⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏")[int(now.UnixMilli()/100)%10]
	took := measure.SecondsOf(now.Sub(p.begin).Round(100 * time.Millisecond)).String()
	if p.of > 0 {
		took += fmt.Sprintf(" of %v", measure.SecondsOf(p.of.Round(time.Second)))
	}
	fmt.Fprintf(cli.Raw(p.w), "\r\x1b[K%c %-22s %s, %s stored", spin, phaseTexts[u.Phase], took, measure.Plural(u.Scans, "sample"))
}

// Warn prints a warning on a line of its own; the next Update draws the progress below it.
func (p *progressLine) Warn(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clear()
	fmt.Fprintln(p.w, "wattmark:", text)
}

// End removes the line.
func (p *progressLine) End() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clear()
}

func (p *progressLine) clear() {
	if p.drawn {
		fmt.Fprint(cli.Raw(p.w), "\r\x1b[K")
		p.drawn = false
	}
}

// groupProgress shows the phase of the first GPU that still runs, and the samples stored of
// all GPUs. It is safe for concurrent use.
type groupProgress struct {
	Line *progressLine

	mu    sync.Mutex
	last  []measurement.Progress
	ended []bool
}

// NewGroupProgress returns the progress of a group's measurement; missing members count as ended.
func NewGroupProgress(a *cli.App, members []measurement.Member) *groupProgress {
	missing := lists.Map(members, func(m measurement.Member) bool { return m.Missing != nil })
	return &groupProgress{Line: NewProgress(a), last: make([]measurement.Progress, len(members)), ended: missing}
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
	p.Line.Warn(fmt.Sprintf("GPU %d is not measured: %v", member, err))
}

// End clears the line.
func (p *groupProgress) End() { p.Line.End() }

// Colours returns the look of a live picture on a terminal. bubbletea removes the colours
// that the terminal does not support, and all of them with NO_COLOR.
func Colours() TopLook {
	return TopLook{
		Title: lipgloss.NewStyle().Bold(true).Render,
		Label: lipgloss.NewStyle().Faint(true).Render,
		// Colours of the terminal's palette are readable on light and dark backgrounds.
		Course: lipgloss.NewStyle().Foreground(lipgloss.Blue).Render,
		Total:  lipgloss.NewStyle().Bold(true).Render,
		Warn:   lipgloss.NewStyle().Foreground(lipgloss.Red).Bold(true).Render,
	}
}

// TopLook is the style of a live picture: functions that add colour to the text of its parts.
type TopLook struct {
	Title, Label, Course, Total, Warn func(...string) string
}

// PlainLook returns the look without colours.
func PlainLook() TopLook {
	same := func(s ...string) string { return strings.Join(s, " ") }
	return TopLook{same, same, same, same, same}
}

// InstrumentText returns an instrument's model (or kind) and serial number, printable.
func InstrumentText(i store.Instrument) string {
	return measure.Printable(JoinNonEmpty(" ", cmp.Or(i.Model, i.Kind), i.Serial))
}

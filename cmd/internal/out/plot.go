package out

import (
	"fmt"
	"io"
	"math"
	"os"
	"strings"

	"github.com/charmbracelet/x/ansi"
	"github.com/guptarohit/asciigraph"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"golang.org/x/term"
)

// TerminalWidth returns the number of columns of a terminal; 80 if it is unknown.
func TerminalWidth(w io.Writer) int {
	if s, ok := w.(*cli.Screen); ok {
		return s.Width()
	}
	if f, ok := w.(*os.File); ok {
		if width, _, err := term.GetSize(int(f.Fd())); err == nil && width > 0 {
			return width
		}
	}
	return 80
}

// LeastPlot is the least width of a plot in columns.
const LeastPlot = 20

// PlotWidth returns the width of a plot in columns: that of the terminal less 30 for axis
// and labels, within LeastPlot and 160; 90 if w is no terminal.
func PlotWidth(w io.Writer) int {
	if !IsTerminal(w) {
		return 90
	}
	return min(max(TerminalWidth(w)-30, LeastPlot), 160)
}

// Graph is a plot of power or another quantity in the terminal, with a column for each value;
// NaN leaves a column blank.
type Graph struct {
	Series  [][]float64
	Legends []string               // of the series; nil for none
	Colours []asciigraph.AnsiColor // of the series, on a terminal
	Height  int
	Axis    string // format of the values at the axis, as %.0f W
	Options []asciigraph.Option
	// Ruler is a line of marks below the plot, Key its meaning; empty for none.
	Ruler, Key string
	// First and Last are the ends of the abscissa, Columns apart.
	First, Last string
	Columns     int
	// Room is the width in which key and legend wrap; 0 for that of a terminal.
	Room int
}

// Draw writes the plot: body, ruler, abscissa and legend. Only a terminal gets colours.
func (g *Graph) Draw(w io.Writer) {
	room := g.Room
	if room == 0 && IsTerminal(w) {
		room = TerminalWidth(w)
	}
	opts := append([]asciigraph.Option{
		asciigraph.Height(g.Height), asciigraph.Offset(3), asciigraph.Precision(0),
		asciigraph.YAxisValueFormatter(func(v float64) string {
			return fmt.Sprintf(g.Axis, math.Round(1e9*v)/1e9+0) // no negative zero
		}),
	}, g.Options...)
	if len(g.Colours) > 0 && Coloured(w) {
		opts = append(opts, asciigraph.SeriesColors(g.Colours...))
	}
	if len(g.Legends) > 0 {
		opts = append(opts, asciigraph.SeriesLegends(g.Legends...))
	}
	text := asciigraph.PlotMany(g.Series, opts...)
	if !Coloured(w) {
		text = ansi.Strip(text) // asciigraph colours its legend in any case
	}
	// The legend comes below the abscissa, so that ruler and abscissa lie right under the body.
	body, legend := SplitLegend(strings.Split(text, "\n"))
	fmt.Fprintln(w, strings.Join(body, "\n"))
	left := LeftEdge(body)
	indent := strings.Repeat(" ", left)
	if g.Ruler != "" {
		fmt.Fprintln(w, withKey(indent+g.Ruler, g.Key, left, room))
	}
	last := ansi.StringWidth(g.Last)
	fmt.Fprintf(w, "%s%s%*s\n", indent, g.First, max(g.Columns-ansi.StringWidth(g.First), last+1), g.Last)
	if text = strings.Trim(strings.Join(legend, "\n"), "\n"); text != "" {
		fmt.Fprintln(w, wrapLegend(text, left, room))
	}
}

// Mark sets the columns of a ruler from first to last whose centres lie in [from, to) to c.
func Mark[T ~float64](ruler []rune, first, last, from, to T, c rune) {
	for i := range ruler {
		if at := first + (T(i)+0.5)*(last-first)/T(len(ruler)); at >= from && at < to {
			ruler[i] = c
		}
	}
}

// LeftEdge returns the column where the plot's body begins: right of the axis.
func LeftEdge(lines []string) int {
	for i, c := range []rune(lines[0]) {
		if c == '┤' || c == '┼' {
			return i + 1
		}
	}
	return 0
}

// SplitLegend separates the lines of a graph from the legend that asciigraph appends.
func SplitLegend(lines []string) (body, legend []string) {
	for i, l := range lines {
		if !strings.ContainsAny(l, "┤┼") {
			return lines[:i], lines[i:]
		}
	}
	return lines, nil
}

// withKey returns the ruler with the key to its letters: behind it or, if that is wider than
// room columns (0 for no limit), on the next line, indented by left.
func withKey(ruler, key string, left, room int) string {
	if room > 0 && ansi.StringWidth(ruler)+2+ansi.StringWidth(key) > room {
		return ruler + "\n" + strings.Repeat(" ", left) + key
	}
	return ruler + "  " + key
}

// wrapLegend breaks a legend wider than room columns (0 for no limit) between its entries,
// which three spaces separate. Each line is indented by left.
func wrapLegend(text string, left, room int) string {
	if room <= 0 || ansi.StringWidth(text) <= room {
		return text
	}
	var lines []string
	for e := range strings.SplitSeq(strings.TrimSpace(text), "   ") {
		if n := len(lines); n > 0 && ansi.StringWidth(lines[n-1])+3+ansi.StringWidth(e) <= room {
			lines[n-1] += "   " + e
			continue
		}
		lines = append(lines, strings.Repeat(" ", left)+e)
	}
	return strings.Join(lines, "\n")
}
